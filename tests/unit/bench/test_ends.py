"""The end of a cell's process: nothing that was printed is lost, and the framework is not taken down where nobody needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import parallel, ranks
from runner.catalog.images import PROJECT

# The process prints in Python and in C, each without a flush, and registers what a framework does at its end.
PROGRAM = """
import atexit, ctypes, sys
from types import SimpleNamespace
from bench import ranks
atexit.register(print, "taken down", file=sys.stderr)
ctypes.CDLL(None).printf(b"from C")
sys.stdout.write("from Python")
sys.exit(ranks.leave(3, SimpleNamespace(command="run", profile={profile}, devices=1, framework="torch")))
"""


@pytest.mark.parametrize("profile", [False, True])
def test_what_was_printed_is_there_and_only_a_profiled_framework_is_taken_down(tmp_path: Path, profile: bool) -> None:
    output = tmp_path / "output"
    # With PYTHONUNBUFFERED the C library keeps nothing, either.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with output.open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(profile=profile)],
            stdout=file,
            stderr=subprocess.PIPE,
            env=environment | {"PYTHONPATH": str(PROJECT)},
            check=False,
        )
    assert ended.returncode == 3
    assert "from C" in output.read_text()
    assert "from Python" in output.read_text()
    assert (b"taken down" in ended.stderr) == profile


@pytest.mark.parametrize(
    ("command", "profile", "devices", "framework", "rank", "code", "at_once"),
    [
        ("run", False, 1, "torch", None, 0, True),
        ("run", False, 1, "torch", None, 1, True),
        ("run", True, 1, "torch", None, 0, False),
        ("check", False, 1, "torch", None, 0, False),
        # One process holds all devices of TensorFlow. Those of PyTorch have a process each, which this one starts.
        ("run", False, 2, "tensorflow", None, 0, True),
        ("run", False, 2, "torch", None, 0, False),
        ("run", False, 2, "torch", "0", 0, False),
        ("run", False, 2, "torch", "1", 1, True),
        ("check", False, 2, "torch", "1", 1, True),
    ],
)
def test_one_process_without_a_profile_ends_at_once_and_of_several_those_that_failed(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    profile: bool,
    devices: int,
    framework: str,
    rank: str | None,
    code: int,
    at_once: bool,
) -> None:
    monkeypatch.delenv(parallel.RANK, raising=False)
    if rank is not None:
        monkeypatch.setenv(parallel.RANK, rank)
    options = SimpleNamespace(command=command, devices=devices, framework=framework)
    if command == "run":
        options.profile = profile
    assert ranks.ends_at_once(code, options) is at_once
