"""Tests of how tools/check counts: a run that tested nothing must not look like a pass."""

import importlib.util
import sys
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

loader = SourceFileLoader("check", str(Path(__file__).resolve().parent / "check"))
spec = importlib.util.spec_from_loader("check", loader)
assert spec is not None
check = importlib.util.module_from_spec(spec)
sys.modules["check"] = check  # dataclasses look their module up
sys.dont_write_bytecode = True
loader.exec_module(check)

REPORT = """<testsuite tests="4">
<testcase name="Queue.IsBounded" status="run"/>
<testcase name="Queue.IsFair" status="fail"><failure message=""/></testcase>
<testcase name="Uid.IsDropped" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION"/></testcase>
<testcase name="Old.Test" status="disabled"/>
</testsuite>"""


class Counting(unittest.TestCase):
    def test_a_ctest_report_is_counted_and_names_what_did_not_pass(self) -> None:
        count = check.ctest_count(REPORT)
        self.assertEqual(str(count), "1 passed, 1 failed, 2 skipped")
        self.assertIn("failed: Queue.IsFair", count.notes)
        self.assertIn("skipped: Uid.IsDropped", count.notes)

    def test_unittest_totals_are_added_up(self) -> None:
        log = "Ran 5 tests in 0.1s\n\nOK (skipped=1)\nRan 3 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n"
        self.assertEqual(str(check.unittest_count(log)), "5 passed, 2 failed, 1 skipped")

    def test_a_unittest_run_without_a_test_is_a_failure(self) -> None:
        self.assertEqual(check.unittest_count("").failed, 1)
        self.assertEqual(check.unittest_count("Ran 0 tests in 0.000s\n\nOK\n").failed, 1)


if __name__ == "__main__":
    unittest.main()
