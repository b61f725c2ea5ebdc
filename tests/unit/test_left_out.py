"""A run says at its end which tests it left out and why: a real pytest in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SKIPS = """
import pytest
@pytest.fixture
def engine():
    pytest.skip("left out, because no engine answers")
def test_one(engine): pass
def test_two(engine): pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with one test that runs."""
    for folder in ("engine", "unit", "browser"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    shutil.copy(CONFTEST, tmp_path / "tests" / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (tmp_path / "tests" / "unit" / "test_ran.py").write_text("def test_ran(): pass\n")
    return tmp_path


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, "tests"]
    ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert not ended.stderr
    return ended.returncode, ended.stdout


def test_tests_without_an_engine_are_one_line_with_their_count_and_reason(tree: Path) -> None:
    (tree / "tests" / "engine" / "test_skips.py").write_text(SKIPS)
    code, printed = run(tree)
    assert code == 0
    assert "engine: 2 left out, because no engine answers\n" in printed
    assert "every test ran" not in printed


def test_a_file_that_could_not_be_collected_is_named(tree: Path) -> None:
    lines = "import pytest\npytest.importorskip('no_such_module', reason='no_such_module is not installed')\n"
    (tree / "tests" / "browser" / "test_page.py").write_text(lines)
    _, printed = run(tree)
    assert "browser, the whole of test_page.py: 1 left out, because no_such_module is not installed\n" in printed


def test_tests_that_the_command_line_did_not_choose_are_counted(tree: Path) -> None:
    (tree / "tests" / "unit" / "test_more.py").write_text("def test_chosen(): pass\n")
    _, printed = run(tree, "-k", "chosen")
    assert "1 not chosen on the command line\n" in printed


def test_a_run_that_left_nothing_out_says_so(tree: Path) -> None:
    code, printed = run(tree)
    assert code == 0
    assert "nothing: every test ran\n" in printed


def test_a_failure_is_still_listed_and_decides_the_exit_code(tree: Path) -> None:
    (tree / "tests" / "engine" / "test_skips.py").write_text(SKIPS + "def test_bad(): assert 0\n")
    code, printed = run(tree)
    assert code == 1
    assert "FAILED tests/engine/test_skips.py::test_bad" in printed
