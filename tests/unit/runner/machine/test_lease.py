"""A GPU has one runner at a time, and none that is dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.machine import lease

HOLDER = """
import sys, time
from runner.machine.lease import hold
with hold(sys.argv[1:], "20260101-000000-aaaa", print):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lease.VARIABLE, str(tmp_path / "leases"))


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another runner, which holds GPU-a and GPU-b."""
    command = [sys.executable, "-c", HOLDER, "GPU-b", "GPU-a"]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_runner_is_told_who_holds_the_gpu(other: subprocess.Popen[str]) -> None:
    with (
        pytest.raises(lease.LeaseError, match=f"GPU-a is held by another runner .process {other.pid}, .*run 20260101"),
        lease.hold(["GPU-a"], "mine", print, wait=False),
    ):
        pass


def test_other_gpus_are_free_meanwhile(other: subprocess.Popen[str]) -> None:
    with lease.hold(["GPU-c"], "mine", print, wait=False):
        assert (lease.folder() / "GPU-c.lease").exists()
    assert not (lease.folder() / "GPU-c.lease").exists()


def test_what_a_killed_runner_held_is_free_at_once_and_leaves_nothing(other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    with lease.hold(["GPU-a", "GPU-b"], "mine", print, wait=False):
        assert f'"pid": {os.getpid()}' in (lease.folder() / "GPU-a.lease").read_text()
    assert list(lease.folder().iterdir()) == []


def test_a_second_runner_waits_in_line_and_says_so_once(other: subprocess.Popen[str]) -> None:
    said: list[str] = []
    path = lease.folder() / "GPU-a.lease"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"since": time.time() - 29}))  # a minute more, as it is shown, in the meantime
    threading.Timer(2.5, other.kill).start()
    begin = time.monotonic()
    with lease.hold(["GPU-a"], "mine", said.append):
        assert time.monotonic() - begin > 1.5
    (sentence,) = said
    assert "waiting in line" in sentence


def test_many_runners_never_hold_one_gpu_at_once(tmp_path: Path) -> None:
    inside, most, lock = [0], [0], threading.Lock()

    def runner() -> None:
        for _ in range(5):
            with lease.hold(["GPU-x"], "r", lambda _: None):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with lock:
                    inside[0] -= 1

    threads = [threading.Thread(target=runner) for _ in range(4)]
    original, lease._POLL_SECONDS = lease._POLL_SECONDS, 0.001
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        lease._POLL_SECONDS = original
    assert most == [1]
    assert list(lease.folder().iterdir()) == []


def test_a_link_in_the_place_of_a_lease_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (lease.folder() / "GPU-a.lease").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"), lease.hold(["GPU-a"], "mine", print):
        pass
    assert precious.read_text() == "keep"


def test_what_others_wrote_into_a_lease_is_shown_without_its_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text('{"pid": 7, "user": "\\u001b[31mme", "run": "r/../", "since": 0}')
    assert lease.holder(path).startswith("another runner (process 7, user 31mme, run r.., for ")
    path.write_text("nonsense")
    assert lease.holder(path) == "another runner"


def test_a_run_has_one_runner_at_a_time_who_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with lease.alone(run):
        said = pytest.raises(lease.LeaseError, match=rf"another runner is working on {run}: .*process {os.getpid()}")
        with said, lease.alone(run):
            pass
    assert list(run.iterdir()) == []


def test_what_another_users_killed_runner_left_is_taken_over_and_no_error_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a folder for all nobody removes another user's file; that must not end a run that was measured."""

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        with lease.hold(["GPU-a"], "mine", print, wait=False):
            pass
    assert (lease.folder() / "GPU-a.lease").exists()
    with lease.hold(["GPU-a"], "next", print, wait=False):
        pass
    assert list(lease.folder().iterdir()) == []
