"""A run says at its end which tests it left out and why: a real pytest in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fixtures import warm

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
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one test that runs."""
    # A workflow runs these tests in parts; the project here is run whole.
    monkeypatch.delenv("DLBENCH_SHARD", raising=False)
    for folder in ("engine", "unit", "browser"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    shutil.copy(CONFTEST, tmp_path / "tests" / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (tmp_path / "tests" / "unit" / "test_ran.py").write_text("def test_ran(): pass\n")
    return tmp_path


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    ended = warm.run("pytest", "-p", "no:cacheprovider", *arguments, "tests", cwd=tree)
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


@pytest.mark.slow
def test_one_process_of_several_runs_all_tests_of_the_engine(tree: Path, tmp_path: Path) -> None:
    note = tmp_path / "workers"
    lines = (
        "import os, pathlib, time, pytest\n"
        "@pytest.mark.parametrize('number', range(8))\n"
        "def test_worker(number):\n"
        "    time.sleep(0.1)\n"
        f"    with open({str(note)!r}, 'a') as file:\n"
        "        print(pathlib.Path(__file__).parent.name, os.environ['PYTEST_XDIST_WORKER'], file=file)\n"
    )
    for folder in ("engine", "unit"):
        for name in ("test_first.py", "test_second.py"):
            (tree / "tests" / folder / name).write_text(lines)
    code, printed = run(tree, "--numprocesses", "2", "--dist", "loadgroup")
    assert code == 0, printed
    ran = note.read_text().splitlines()
    assert len(ran) == 32
    assert len({line for line in ran if line.startswith("engine")}) == 1
    assert len({line.split()[1] for line in ran}) == 2


NO_ENVIRONMENT = (
    "import pytest\ndef test_framework(): pytest.skip('no environment for torch-1-cpu: no Python 3.99 was found')\n"
)


@pytest.mark.parametrize(("required", "expected"), [("", 0), ("required", 1)])
def test_an_environment_that_cannot_be_made_fails_the_run_that_requires_all_of_them(
    tree: Path, monkeypatch: pytest.MonkeyPatch, required: str, expected: int
) -> None:
    monkeypatch.setenv("DLBENCH_ENVIRONMENTS", required)
    (tree / "tests" / "engine" / "test_skips.py").write_text(SKIPS)
    assert run(tree)[0] == 0  # another reason is no failure
    (tree / "tests" / "unit" / "test_framework.py").write_text(NO_ENVIRONMENT)
    code, printed = run(tree)
    assert code == expected
    assert "unit: 1 left out, because no environment for torch-1-cpu: no Python 3.99 was found\n" in printed


def test_the_parts_of_the_tests_are_all_of_them_and_each_test_is_in_one(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"def test_{number}(): pass" for number in range(20)]
    (tree / "tests" / "unit" / "test_many.py").write_text("\n".join(lines) + "\n")
    ran: list[str] = []
    for part in (1, 2, 3):
        monkeypatch.setenv("DLBENCH_SHARD", f"{part}/3")
        ran += [line.split(" ")[0] for line in run(tree, "-v")[1].splitlines() if " PASSED" in line]
    assert len(ran) == len(set(ran)) == 21


def test_a_part_that_does_not_exist_is_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLBENCH_SHARD", "4/3")
    ended = warm.run("pytest", "-p", "no:cacheprovider", "tests", cwd=tree)
    assert ended.returncode != 0
    assert "there is no part 4 of 3" in ended.stdout + ended.stderr
