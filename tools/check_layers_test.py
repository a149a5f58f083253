"""Tests of check_layers.py: run by `python3 -m unittest discover -s tools -p '*_test.py'`."""

import tempfile
import unittest
from pathlib import Path

import check_layers

DOCUMENT = "| layer | modules |\n| --- | --- |\n" + "".join(
    f"| {layer} | {', '.join(f'`{module}`' for module in modules)} |\n"
    for layer, modules in check_layers.LAYERS.items()
)


class CheckLayers(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def test_includes_of_lower_layers_and_of_the_module_itself_are_right(self) -> None:
        self.write(
            "src/http/client.cpp",
            '#include "http/client.h"\n#include "base/result.h"\n#include <vector>\n',
        )
        self.write("src/http/CMakeLists.txt", "omni_module(http DEPENDS base)\n")
        self.assertEqual(check_layers.check_sources(self.root / "src"), [])

    def test_an_include_that_points_up_is_found_with_its_line(self) -> None:
        path = self.write("src/base/planted.h", '#pragma once\n\n#include "http/client.h"\n')
        found = check_layers.check_sources(self.root / "src")
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith(f"{path}:3: base (layer 1) includes http (layer 2)"))

    def test_an_include_that_points_sideways_is_found(self) -> None:
        self.write("src/config/planted.cpp", '  #  include "http/client.h"\n')
        self.assertEqual(len(check_layers.check_sources(self.root / "src")), 1)

    def test_a_link_that_points_up_or_nowhere_is_found(self) -> None:
        self.write(
            "src/http/CMakeLists.txt",
            "omni_module(http DEPENDS base engine nosuch LIBRARIES simdjson::simdjson)\n",
        )
        found = check_layers.check_sources(self.root / "src")
        self.assertEqual(len(found), 2)
        self.assertIn("http depends on engine", found[0])
        self.assertIn("nosuch", found[1])

    def test_a_folder_outside_the_table_is_found(self) -> None:
        self.write("src/misc/helpers.h", "")
        self.assertEqual(len(check_layers.check_sources(self.root / "src")), 1)

    def test_the_document_has_the_same_table(self) -> None:
        self.assertEqual(check_layers.check_document(self.write("layers.md", DOCUMENT)), [])
        changed = self.write("layers.md", DOCUMENT.replace("`admin`", "`fleet`"))
        self.assertEqual(len(check_layers.check_document(changed)), 1)


if __name__ == "__main__":
    unittest.main()
