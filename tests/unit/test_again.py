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

@pytest.mark.parametrize("number", range({wrong}))
def test_wrong(number): assert False
"""


@pytest.mark.parametrize(
    ("wrong", "status", "says", "unsteady"),
    [
        pytest.param(0, 0, "1 of the tests", True, id="one that was busy"),
        pytest.param(1, 1, "2 of the tests", False, id="a mistake beside it"),
        pytest.param(6, 1, "7 tests failed", False, id="too many for an accident"),
    ],
)
def test_few_failures_are_run_again_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int, status: int, says: str, unsteady: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_toy.py").write_text(TESTS.format(wrong=wrong))
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
