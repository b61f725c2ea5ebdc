"""Run the tests that just failed once more, one after another: a busy machine misses a time limit, a mistake fails again.

    python -m tests.again 'slow and not alone'     the marker expression of the run that failed

It names each test that failed first and passes now: `unsteady` is no clean pass, and somebody should find out why. A test that is skipped
the second time has not passed. More than MOST failures are no accident, and are not run again. `make test-long`, which the weekly workflow
runs, takes no second look.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MOST = 5
# pytest's own list. It knows no public way to read it from outside.
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
# pytest-xdist adds the group's name to a test's. A parameter may hold an @, and stands in brackets.
_GROUP = re.compile(r"@[^\[\]@]+$")


def last_failed() -> list[str]:
    """The tests, and the files that could not be collected, that failed when they last ran."""
    failed = json.loads(LAST_FAILED.read_text()) if LAST_FAILED.is_file() else []
    return [_GROUP.sub("", test) for test in failed]


class Passes:
    """A plugin of pytest: the tests that passed, and the files that could be collected."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that passed. A skipped one did not."""
        if report.when == "call" and report.passed:
            self.found.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could be collected."""
        if report.passed:
            self.found.add(report.nodeid)


def again(markers: str, failed: Sequence[str]) -> int:
    """pytest's exit status of a second run of a few tests, or 1 where there is nothing to gain from one."""
    if not 0 < len(failed) <= MOST:
        print(f"== {len(failed)} tests failed. {MOST} at most are run a second time.")
        return 1
    print(f"== a second time, with nothing beside them: {len(failed)} of the tests", flush=True)
    passes = Passes()
    status = int(pytest.main(["-m", markers, *failed], plugins=[passes]))
    if status == 0 and (left := [test for test in failed if test not in passes.found]):
        print(f"== failed, and skipped a second time: {', '.join(left)}", flush=True)
        return 1
    if status == 0:
        for test in failed:
            # GitHub shows such a line beside the commit.
            mark = "::warning::" if "GITHUB_ACTIONS" in os.environ else ""
            print(f"{mark}unsteady: failed, and passes a second time: {test}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(again(sys.argv[1], last_failed()))
