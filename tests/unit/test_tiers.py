"""The tiers of tests: the table of CONTRIBUTING is that of the marks, and a run names the tests that lack one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from runner.paths import PROJECT
from tests import tiers
from tests.fixtures import weekly

CONFTEST = Path(__file__).parents[1] / "conftest.py"
VARIABLE = "DLBENCH_FAULTS"


def test_the_table_of_the_tiers_is_that_of_the_marks() -> None:
    text = tiers.DOCUMENT.read_text(encoding="utf-8")
    assert text == tiers.written(text), "`python -m tests.tiers` makes it again"


def test_a_file_of_slow_tests_names_the_marker_itself() -> None:
    """`make test-slow` reads the files that do. A marker that comes from elsewhere would leave a file out."""
    files = [path for path in tiers.TESTS.rglob("*.py") if not path.name.startswith("test_")]
    assert [str(path) for path in files if "mark.slow" in path.read_text()] == []


def test_a_file_is_counted_by_its_marks() -> None:
    text = "@pytest.mark.slow\n@pytest.mark.alone\ndef test_a(): ...\ndef test_b(): ...\n"
    assert tiers.counted(text) == (2, 1)
    assert tiers.counted("pytestmark = [pytest.mark.engine, pytest.mark.slow]\n" + text) == (2, 2)


@pytest.mark.parametrize("parts", [2, 3, 9])
def test_as_many_commits_as_there_are_parts_run_every_case_once(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    cases = [(row, column) for row in "abcdefg" for column in range(parts)]
    ran: list[tuple[str, int]] = []
    for turn in range(40, 40 + parts):
        monkeypatch.setenv("DLBENCH_TURN", str(turn))
        mine = [case for case in weekly.drawn(VARIABLE, parts, cases) if case in cases]
        assert {row for row, _ in mine} == set("abcdefg"), "each row has its turn in each run"
        assert len({column for _, column in mine}) == min(parts, 7), "and each column"
        ran += mine
    assert sorted(ran) == cases


def test_what_is_not_drawn_is_skipped_with_the_variable_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLBENCH_TURN", "0")
    slow = pytest.param("second", marks=pytest.mark.slow, id="named")
    monkeypatch.delenv(VARIABLE, raising=False)
    first, second = weekly.drawn(VARIABLE, 2, ["first", slow])
    assert (first, second.values, second.id) == ("first", ("second",), "named")
    assert second.marks[0].name == "slow"
    assert second.marks[1].args == (True,)
    assert second.marks[1].kwargs["reason"].endswith(f"; {VARIABLE}=all runs it too")
    monkeypatch.setenv(VARIABLE, "all")
    assert weekly.drawn(VARIABLE, 2, ["first", slow])[1].marks[1].args == (False,)


def test_the_turn_is_the_commit_s() -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=PROJECT, capture_output=True, text=True, check=True)
    words = "import tests.conftest; print(tests.conftest.turn())"
    told = subprocess.run([sys.executable, "-c", words], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert int(told.stdout) == int(commit.stdout[:8], 16)


def test_a_quick_test_that_takes_long_is_named(tmp_path: Path) -> None:
    conftest = CONFTEST.read_text().replace("SLOW_SECONDS = 6.0", "SLOW_SECONDS = 0.2")
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\nmarkers = slow: slow\n")
    lines = """
        import subprocess, sys, time, pytest
        SPIN = "import time\\nwhile time.process_time() < 0.4: pass"
        def test_child(): subprocess.run([sys.executable, "-c", SPIN])
        SLOW = pytest.mark.slow
        @SLOW
        def test_marked(): subprocess.run([sys.executable, "-c", SPIN])
        def test_sleeps(): time.sleep(0.5)
    """
    (tmp_path / "test_them.py").write_text(textwrap.dedent(lines))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name != "DLBENCH_SHARD"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    named = [line for line in ended.stdout.splitlines() if "lacks the marker" in line]
    assert len(named) == 1
    assert named[0].endswith("test_them.py::test_child")
