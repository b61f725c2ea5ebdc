"""A second look at the few tests that failed: it passes by name what a busy machine failed, and fails every mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT

TESTS = """
import pathlib

import pytest

def test_right(): pass

@pytest.mark.xdist_group("some-group")
@pytest.mark.parametrize("word", ["a@b"])
def test_busy(word):
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_gone():
    seen = pathlib.Path("gone")
    if seen.exists():
        pytest.skip("the engine is gone")
    seen.touch()
    assert not {gone}

@pytest.mark.parametrize("number", range({wrong}))
def test_wrong(number): assert False
"""


@pytest.mark.parametrize(
    ("wrong", "gone", "status", "says", "unsteady"),
    [
        pytest.param(0, False, 0, "1 of the tests", True, id="one that was busy"),
        pytest.param(0, True, 1, "skipped a second time: test_toy.py::test_gone", False, id="one that is skipped then"),
        pytest.param(1, False, 1, "2 of the tests", False, id="a mistake beside it"),
        pytest.param(6, False, 1, "7 tests failed", False, id="too many for an accident"),
    ],
)
def test_few_failures_are_run_again_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int, gone: bool, status: int, says: str, unsteady: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_toy.py").write_text(TESTS.format(wrong=wrong, gone=gone))
    assert (
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "1", "--dist", "loadgroup"], cwd=tmp_path, capture_output=True
        ).returncode
        == 1
    )
    again = [sys.executable, "-m", "tests.again", "not slow"]
    ended = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert says in ended.stdout
    named = [line for line in ended.stdout.splitlines() if line.startswith("unsteady: ")]
    assert named == ["unsteady: failed, and passes a second time: test_toy.py::test_busy[a@b]"] * unsteady


DIES = """
import os
import pathlib

def test_dies():
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    if first:
        os._exit(1)

def test_right(): pass
"""


@pytest.mark.slow
def test_a_worker_that_dies_gets_no_second_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """xdist may run its test once more, and pytest forgets that it failed. The Makefile looks again at what ends with 1."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_toy.py").write_text(DIES)
    (tmp_path / "test_other.py").write_text("def test_right(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-n", "2", "--dist", "loadfile"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "crashed while running 'test_toy.py::test_dies'" in ended.stdout
    assert ended.returncode == pytest.ExitCode.INTERRUPTED, ended.stdout + ended.stderr
