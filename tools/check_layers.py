#!/usr/bin/env python3
"""Holds the layers of src/: an include, and a link of a module, points to a lower layer only.

The table below is the one of docs/contracts/layers.md, and is compared with it.
"""

import re
import sys
from pathlib import Path

LAYERS = {
    5: ["node", "cli"],
    4: ["gateway", "admin"],
    3: ["scheduler", "supervisor", "provision", "engine", "fleet"],
    2: ["routing", "protocol", "config", "http", "sandbox", "device", "store"],
    1: ["base"],
}
LAYER_OF = {module: layer for layer, modules in LAYERS.items() for module in modules}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([a-z_0-9]+)/[^"]*"', re.MULTILINE)
MODULE = re.compile(
    r"^\s*omni_module\(\s*(\w+)(?:[^)]*?\bDEPENDS\s+([^)]*?))?\s*(?:\bLIBRARIES\b[^)]*)?\)",
    re.MULTILINE,
)
TABLE_ROW = re.compile(r"^\|\s*(\d+)\s*\|([^|]*)\|", re.MULTILINE)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def points_down(module: str, other: str) -> bool:
    return module == other or LAYER_OF[other] < LAYER_OF[module]


def check_file(path: Path, module: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    found = []
    for include in INCLUDE.finditer(text):
        other = include.group(1)
        if other in LAYER_OF and not points_down(module, other):
            found.append(
                f"{path}:{line_of(text, include.start())}: {module} (layer {LAYER_OF[module]}) "
                f"includes {other} (layer {LAYER_OF[other]}): an include points down"
            )
    return found


def check_links(path: Path, module: str) -> list[str]:
    declared = MODULE.search(path.read_text(encoding="utf-8"))
    if declared is None:
        return [f"{path}: no omni_module() line"]
    found = []
    if declared.group(1) != module:
        found.append(f"{path}: declares module {declared.group(1)} in folder {module}")
    for other in (declared.group(2) or "").split():
        if other not in LAYER_OF:
            found.append(f"{path}: {module} depends on {other}, which is in no layer")
        elif not points_down(module, other):
            found.append(f"{path}: {module} depends on {other}: a dependency points down")
    return found


def check_sources(src: Path) -> list[str]:
    found = []
    for folder in sorted(path for path in src.iterdir() if path.is_dir()):
        module = folder.name
        if module not in LAYER_OF:
            found.append(
                f"{folder}: not in the layer table (tools/check_layers.py and docs/contracts/layers.md)"
            )
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".h", ".cpp"):
                found += check_file(path, module)
        if (folder / "CMakeLists.txt").exists():
            found += check_links(folder / "CMakeLists.txt", module)
    return found


def check_document(path: Path) -> list[str]:
    rows = {
        int(layer): re.findall(r"`(\w+)`", modules)
        for layer, modules in TABLE_ROW.findall(path.read_text(encoding="utf-8"))
    }
    if rows == LAYERS:
        return []
    return [f"{path}: its table differs from the one of tools/check_layers.py"]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = check_sources(root / "src") + check_document(root / "docs/contracts/layers.md")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
