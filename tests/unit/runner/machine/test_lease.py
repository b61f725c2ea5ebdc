"""A GPU has one runner at a time, and none that is dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
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
        assert lease.path_of("GPU-c").exists()
    assert not lease.path_of("GPU-c").exists()


def test_what_a_killed_runner_held_is_free_at_once_and_leaves_nothing(other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    with lease.hold(["GPU-a", "GPU-b"], "mine", print, wait=False):
        assert f'"pid": {os.getpid()}' in lease.path_of("GPU-a").read_text()
    assert list(lease.folder().iterdir()) == []


def test_a_second_runner_waits_in_line_and_says_so_once(other: subprocess.Popen[str]) -> None:
    said: list[str] = []
    path = lease.path_of("GPU-a")
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"since": time.time() - 29}))  # a minute more, as it is shown, in the meantime
    threading.Timer(2.5, other.kill).start()
    begin = time.monotonic()
    with lease.hold(["GPU-a"], "mine", said.append):
        assert time.monotonic() - begin > 1.5
    (sentence,) = said
    assert "waiting in line" in sentence


def test_who_waits_says_so_again_with_how_long_until_its_time_is_over(
    other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(lease, "_SAY_SECONDS", 0.3)
    said: list[str] = []
    begin = time.monotonic()
    over = rf"^waited 1 s for the runner with process id {other.pid} and measured nothing; GPU-a is .* give more --minutes$"
    with (
        pytest.raises(lease.LeaseError, match=over.replace("GPU-a", "GPU GPU-a")),
        lease.hold(["GPU-a"], "mine", said.append, until=begin + 0.8),
    ):
        pass
    assert 0.8 <= time.monotonic() - begin < 5
    assert 2 <= len(said) <= 4
    assert all("waiting in line for " in sentence for sentence in said)


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


def a_link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def another_name(path: Path, precious: Path) -> None:
    path.hardlink_to(precious)


def a_pipe(path: Path, precious: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [a_link, another_name, a_pipe])
def test_what_another_user_put_in_the_place_of_a_lease_is_not_used_and_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path, Path], None]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    precious = tmp_path / "precious"
    precious.write_text("keep")
    plant(lease.path_of("GPU-a"), precious)
    said: list[str] = []
    with lease.hold(["GPU-a"], "mine", said.append):
        assert [path.name for path in (tmp_path / "dlbench-leases").iterdir()] == ["dlbench-GPU-a.lease"]
        with pytest.raises(lease.LeaseError, match="GPU-a is held"), lease.hold(["GPU-a"], "other", print, wait=False):
            pass
    assert precious.read_text() == "keep"
    (sentence,) = said
    assert f"{lease.path_of('GPU-a')} cannot be used" in sentence
    assert "the runners of other users are not waited for" in sentence


def test_a_lease_that_its_user_shut_locks_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    shut, opened = lease.path_of("GPU-a"), os.open

    def refuse(path: Path, *more: int, **named: int) -> int:
        if path == shut:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    said: list[str] = []
    with lease.hold(["GPU-a"], "mine", said.append, wait=False):
        pass
    assert "cannot be used (Permission denied)" in said[0]


def test_leases_lie_where_only_root_can_remove_anothers_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lease.VARIABLE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for mode in (0o777, 0o755):
        tmp_path.chmod(mode)
        assert not lease._is_shared(tmp_path)
    tmp_path.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to("/tmp")
    monkeypatch.setattr(lease, "_SHARED", (link, tmp_path / "missing"))
    assert lease.folder() == tmp_path / "dlbench-leases"
    said: list[str] = []
    with lease.hold(["GPU-a"], "mine", said.append, wait=False):
        assert (tmp_path / "dlbench-leases").stat().st_mode & 0o777 == 0o700
    assert "no folder of root's is open to all users" in said[0]
    monkeypatch.setattr(lease, "_SHARED", (Path("/tmp"),))
    assert lease.folder() == Path("/tmp")


def test_a_folder_in_which_others_can_replace_a_lease_is_refused_by_name(tmp_path: Path) -> None:
    leases = lease.folder()
    leases.chmod(0o777)
    with pytest.raises(lease.LeaseError, match=f"{leases} another user can replace your leases"):
        lease.path_of("GPU-a")


def test_the_cpus_have_one_runner_at_a_time(tmp_path: Path) -> None:
    with lease.hold([lease.CPUS], "first", print):
        said = pytest.raises(lease.LeaseError, match="the CPUs of this machine are held by another runner .*run first")
        with said, lease.hold([lease.CPUS], "second", print, wait=False):
            pass


def test_what_others_wrote_into_a_lease_is_shown_without_its_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text('{"pid": 7, "user": "\\u001b[31mme", "run": "r/../", "since": 0}')
    assert lease.holder(path).startswith("another runner (process 7, user 31mme, run r.., for ")
    path.write_text("nonsense")
    assert lease.holder(path) == "another runner"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1000,
        *(f'{{"pid": {pid}, "user": "me", "run": "r", "since": 0}}' for pid in ("1e999", "-1", "0", "true", "9" * 100)),
        *(
            f'{{"pid": 7, "user": "me", "run": "r", "since": {since}}}'
            for since in ("9" * 400, "NaN", "-1e308", "1e999")
        ),
    ],
)
def test_what_no_runner_writes_into_a_lease_ends_no_other_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    assert lease.holder(path) == lease._process(path) == "another runner"


def test_a_lease_of_any_size_takes_no_memory_and_a_pipe_no_time(tmp_path: Path) -> None:
    path, pipe = tmp_path / "x", tmp_path / "pipe"
    path.touch()
    os.truncate(path, 1 << 28)
    os.mkfifo(pipe)
    tracemalloc.start()
    try:
        assert lease.holder(path) == lease.holder(pipe) == "another runner"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


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
    assert lease.path_of("GPU-a").exists()
    with lease.hold(["GPU-a"], "next", print, wait=False):
        pass
    assert list(lease.folder().iterdir()) == []
