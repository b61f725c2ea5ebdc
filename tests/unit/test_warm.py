"""A command that is forked from the warm process is, to a test, as one that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.warm import PROJECT, WarmProcess

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def ended(arguments: list[str], warm: bool, tmp_path: Path) -> tuple[int, object, str]:
    """(exit code, what it printed, its last line of errors) of this file as a program, in a folder and environment of its own."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "PROBE": "of this test"}
    if warm:
        process = WarmProcess("tests.unit.test_warm", arguments, environment, tmp_path, **PIPES)
    else:
        command = [sys.executable, "-m", "tests.unit.test_warm", *arguments]
        process = subprocess.Popen(command, env=environment, cwd=tmp_path, text=True, **PIPES)  # type: ignore[assignment]
    out, err = process.communicate(timeout=60)
    return process.returncode, json.loads(out), (err.splitlines() or [""])[-1]


@pytest.mark.parametrize("how", ["ends", "exits", "says", "raises", "is killed"])
def test_arguments_environment_folder_streams_signals_and_end_are_those_of_a_new_process(
    how: str, tmp_path: Path
) -> None:
    code, printed, said = ended([how, "…"], True, tmp_path)
    assert (code, printed, said) == ended([how, "…"], False, tmp_path)
    assert code == {"ends": 0, "exits": 7, "says": 1, "raises": 1, "is killed": -signal.SIGTERM}[how]


def test_a_signal_ends_it_and_one_after_its_end_is_lost(tmp_path: Path) -> None:
    process = WarmProcess("tests.unit.test_warm", ["waits"], os.environ, PROJECT, **PIPES)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.1)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.kill()


if __name__ == "__main__":
    facts = [
        sys.argv[1:],
        str(Path.cwd()),
        os.environ.get("PROBE"),
        sys.stdout.encoding,
        sys.stderr.errors,
        sys.stdin.read(0),
    ]
    signals = [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)]
    print(json.dumps([*facts, signals, __name__]), flush=True)
    match sys.argv[1]:
        case "exits":
            sys.exit(7)
        case "says":
            sys.exit("it is over…")
        case "raises":
            raise ValueError("a mistake…")
        case "is killed":
            os.kill(os.getpid(), signal.SIGTERM)
        case "waits":
            signal.pause()
