"""A repeat that its machine cut has neither ended nor failed: it has no row, is tried again, and two in a row end the run."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runner import known_messages
from runner.engines import cell_cache
from runner.errors import HOST_FAULTS, CannotBeginError, EngineError, HostFaultError
from runner.machine import lease
from runner.results import store
from runner.results.parcel import ParcelError, decode, encode
from runner.run import begin, execution, schedule
from runner.run.attempt import AttemptContext
from runner.run.dispatch import Job
from runner.run.options import Options
from tests.fixtures import stored, synthetic
from tests.fixtures.attempts import CELL, REPLAY, matrix, prepared, row_of, run_in
from tests.fixtures.nodes import parcel_of

JOBS = [Job(CELL, 1), Job(replace(CELL, seed=2), 1), Job(replace(CELL, seed=3), 1)]

# An engine's own words for what has no number there (dockerd's, runc's, systemd's).
WORDS = [
    "the container could not be made: mkdir /var/lib/docker/overlay2/1: no space left on device",
    "the container could not be started: failed to create shim task: fork/exec /usr/bin/runc: cannot allocate memory",
    "the container could not be started: runc: resource temporarily unavailable",
    "the container could not be made: open /var/lib/docker/1: read-only file system",
    "the container could not be made: read /var/lib/docker/1: input/output error",
    "the container could not be made: open /var/lib/docker/1: too many open files",
    "the container could not be made: write /var/lib/docker/1: disk quota exceeded",
    "the container could not be made: mkdir /var/lib/docker/1: structure needs cleaning",
    "the container could not be made: open /lustre/1: cannot send after transport endpoint shutdown",
    "the container could not be made: open /nfs/1: key has expired",
]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_FAULT_SECONDS", 0.0)


def failing(here: AttemptContext, faults: list[BaseException]) -> list[int]:
    """Let the engine fail at each of its first starts with one of these; the number of starts is appended to the list."""
    start, starts = here.engine.start, [0]

    def start_or_fail(*words: Any) -> Any:
        starts[0] += 1
        if faults:
            raise faults.pop(0)
        return start(*words)

    here.engine.start = start_or_fail  # type: ignore[method-assign]
    return starts


@pytest.mark.parametrize("number", sorted({*HOST_FAULTS, errno.EACCES, errno.EPERM}))
def test_a_fault_of_the_system_at_a_start_costs_no_repeat(site: Callable[..., AttemptContext], number: int) -> None:
    here = site(REPLAY)
    starts = failing(here, [OSError(number, os.strerror(number), "/cache")])
    running = matrix(here)
    running.run_jobs(JOBS[:2], prepared(here))
    assert [outcome.job for outcome in running.outcomes] == [JOBS[1], JOBS[0]], "the one that was cut comes last"
    assert {outcome.status for outcome in running.outcomes} == {"ok"}
    assert starts == [3]


def test_a_cache_that_may_not_be_used_any_more_ends_the_run_and_costs_no_repeat(
    site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    here = site(REPLAY)
    starts = failing(here, [PermissionError(errno.EACCES, "Permission denied", "/cache/cells") for _ in range(9)])
    with pytest.raises(HostFaultError, match="this machine failed 2 times in a row: .*/cache/cells: Permission denied"):
        matrix(here).run_jobs(JOBS, prepared(here))
    assert starts == [2]
    assert run_in(tmp_path).rows("cells").num_rows == 0


@pytest.mark.parametrize("words", WORDS)
def test_two_faults_of_the_machine_in_a_row_end_the_run_and_store_nothing(
    site: Callable[..., AttemptContext], tmp_path: Path, words: str
) -> None:
    here = site(REPLAY)
    starts = failing(here, [EngineError(words) for _ in range(9)])
    running = matrix(here)
    with pytest.raises(HostFaultError) as raised:
        running.run_jobs(JOBS, prepared(here))
    assert f"this machine failed 2 times in a row: {words} (" in str(raised.value)
    assert " GB free" in str(raised.value)
    assert (starts, running.outcomes) == ([2], [])
    assert run_in(tmp_path).rows("cells").num_rows == 0


def test_a_cell_under_which_the_machine_fails_twice_ends_no_run_where_others_are_measured(
    site: Callable[..., AttemptContext],
) -> None:
    here = site(REPLAY)
    start = here.engine.start

    def start_others(launch: Any) -> Any:
        if "1" in launch.arguments[launch.arguments.index("--seed") :][1:2]:
            raise OSError(errno.EIO, "Input/output error", "/bad/sector")
        return start(launch)

    here.engine.start = start_others  # type: ignore[method-assign]
    running, jobs = matrix(here), [Job(replace(CELL, seed=seed), 1) for seed in (1, 2, 3)]
    running.run_jobs(jobs, prepared(here))
    assert [(outcome.job.cell.seed, outcome.status) for outcome in running.outcomes] == [(2, "ok"), (3, "ok")]
    assert list(running.due) == [jobs[0]]
    assert "/bad/sector: Input/output error" in running.due[jobs[0]]


def test_two_images_in_a_row_that_the_machine_cannot_make_end_the_run(site: Callable[..., AttemptContext]) -> None:
    here = site(REPLAY)

    def no_room(image: Any, say: Any) -> Any:
        raise EngineError("building it: write /layer: no space left on device")

    here.engine.prepare = no_room  # type: ignore[method-assign]
    running = matrix(here)
    image = prepared_image()
    assert running.prepare([image]) == ({}, {image.name: "building it: write /layer: no space left on device"})
    with pytest.raises(HostFaultError, match="no space left on device"):
        running.prepare([image])


def prepared_image() -> Any:
    from runner.catalog.images import load_catalog

    return load_catalog()[CELL.image]


FILLS = """
import os, sys, time
room = os.environ["DLBENCH_CACHE"]
open(os.path.join(room, "mine"), "wb").write(bytes({own} << 20))
print("OSError: [Errno 28] No space left on device", file=sys.stderr)
sys.exit(1)
"""


@pytest.mark.parametrize(("own", "failed"), [(40, True), (0, False)])
def test_a_cell_that_ends_on_a_full_disk_has_failed_where_it_filled_the_disk_itself(
    site: Callable[..., AttemptContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: int, failed: bool
) -> None:
    rooms = iter([cell_cache.Room(60 << 20, None)])

    def room_of(folder: Path) -> cell_cache.Room:
        # The others took 20 MB and the cell 40, or the others all of it.
        return next(rooms, cell_cache.Room(1 << 20, None))

    monkeypatch.setattr(cell_cache.Room, "of", room_of)
    here = site(FILLS.format(own=own))
    running = matrix(here)
    if failed:
        running.run_jobs([Job(CELL, 1)], prepared(here))
        assert row_of(tmp_path)["error_kind"] == "disk"
        return
    with pytest.raises(HostFaultError, match="this machine failed 2 times in a row"):
        running.run_jobs([Job(CELL, 1)], prepared(here))
    assert run_in(tmp_path).rows("cells").num_rows == 0


@pytest.mark.parametrize(
    "known", [known for known in known_messages.KNOWN if known.again], ids=lambda known: known.means
)
def test_a_failed_repeat_whose_advice_names_resume_is_measured_again_by_it(
    tmp_path: Path, known: known_messages.Known
) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    (failed, *_) = sorted(store.RunStore(folder).finished())
    words = WHOLE[known.means]
    advice = known_messages.hint("crash", "its process ended with exit code 1", words)
    assert advice is not None
    assert advice.endswith("then --resume measures it again")
    row = {**stored.rows_of(folder, "cells", *failed)[0], "status": "failed", "error_kind": "crash", "exit_code": 1}
    row |= {"reason": "its process ended with exit code 1", "log_tail": words, "hint": advice}
    stored.change(folder, "cells", lambda old: row if (old["cell_id"], old["repeat"]) == failed else old)
    run = store.RunStore(folder)
    assert store.due_again(folder) == {failed}
    execution.clear_up(run)
    assert failed not in run.finished()


# What each of them means -> a message that has it.
WHOLE = {
    "/dev/shm is full": "unable to write to file </torch_1>: No space left on device (28)",
    "a disk is full": "OSError: [Errno 28] No space left on device",
    "a disk could not be read or written": "OSError: [Errno 5] Input/output error",
    "your quota on a disk is used up": "OSError: [Errno 122] Disk quota exceeded",
    "the limit of open files of a process is too low": "OSError: [Errno 24] Too many open files",
    "a folder on a network's disk was removed or exported anew while it was in use": "OSError: [Errno 116] Stale file handle",
    "your ticket for a disk on the network is over": "OSError: [Errno 127] Key has expired: '/home/a'",
    "a disk can only be read": "OSError: [Errno 30] Read-only file system",
    "something removed files of the environment, as a purge of old files does": "its environment has lost 1 file, such as a.py",
    "a disk ran full while Python wrote the bytecode of a package": "EOFError: marshal data too short",
    "an error of the GPU's memory ended this program, and stayed within it": "RuntimeError: CUDA error: CUDA_ERROR_CONTAINED",
    "a link between GPUs failed": "CUDA error: uncorrectable NVLink error detected during the execution",
    "another process has the port or socket that this one wants": "EADDRINUSE, Address already in use",
    "Slurm took the node or the job back: its time was over, a job of more weight came, or the node failed": (
        "slurmstepd: error: *** STEP 123.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"
    ),
    "a disk ran full under the cell": "the disk of /cache is nearly full: it has 0.01 GB left of the 1.00 GB that were free",
}


def test_no_advice_names_resume_that_resume_does_not_follow() -> None:
    assert not [known.means for known in known_messages.KNOWN if "--resume" in known.fix]
    assert not [advice for advice in known_messages._OF_KIND.values() if "--resume" in advice]


@pytest.mark.parametrize(
    ("kind", "code", "reason", "again"),
    [
        ("engine", None, "no such image", True),
        ("engine", 137, "it was ended; processes of it could not be ended", False),
        ("gpu-lost", None, "every GPU that it could run on has fallen off the bus", True),
        ("no-device", 1, "torch finds no GPU: cuInit says 999", True),
        ("node-lost", None, "the nodes a and b were lost while it ran there", False),
        ("crash", 139, "SIGSEGV", False),
        ("out-of-memory", 137, "the machine's memory limit ended it", False),
        ("disk", 137, "the cells of torch had put 33.0 GB there", False),
    ],
)
def test_a_repeat_is_due_again_where_its_machine_is_the_reason(
    kind: str, code: int | None, reason: str, again: bool
) -> None:
    assert known_messages.due_again(kind, code, reason, "") is again


def test_a_start_that_is_refused_leaves_no_folder_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lease.fcntl, "flock", no_locks)
    with pytest.raises(lease.LeaseError, match="has no locks"):
        begin._new_run(tmp_path / "results", datetime.now(UTC))
    assert list((tmp_path / "results").iterdir()) == []


def test_a_file_that_cannot_be_synced_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        store.write_bytes(tmp_path / "run.json", b"{}")
    assert raised.value.filename == str(tmp_path / "run.json")


@pytest.mark.parametrize(("field", "value"), [("started_unix", 9.9e9), ("wall_seconds", 9.9e9)])
def test_a_start_after_this_century_and_a_life_of_years_are_no_parcel(field: str, value: float) -> None:
    with pytest.raises(ParcelError, match=field):
        decode(encode(replace(parcel_of(), **{field: value})), "x")


def test_no_run_begins_or_goes_on_by_a_clock_whose_parcels_are_never_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begin, "MOST_UNIX", 1.0)
    with pytest.raises(CannotBeginError, match=r"the clock of this machine says \d{4}-\d\d-\d\d, .*: set it"):
        begin.look_ahead(Options(out=tmp_path))
    assert store.unset_clock(9.1e9) == "2258-05-15"
