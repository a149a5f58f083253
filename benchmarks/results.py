"""Results of benchmarks: one file each, results/NAME.json, in one shape."""

import json
import os
import platform
import statistics
import subprocess
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, object]:
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(
        (line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), ""
    )
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=RESULTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "commit": commit.stdout.strip(),
    }


def median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def write(
    name: str, rounds: int, medians: dict[str, dict[str, float]], ratios: dict[str, float]
) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    result = {
        "name": name,
        "machine": machine(),
        "rounds": rounds,
        "medians": medians,
        "ratios": ratios,
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return path
