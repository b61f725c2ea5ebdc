"""Who computes on the GPUs of a running cell: its own process is the proof of the device, others are named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.machine import telemetry
from runner.machine.processes import PROVED, GpuUsers, ancestors, gpu_proof, idle, who
from tests.fixtures.waiting import wait_for
from tests.stand_ins.fleet import FakeGpu, Fleet, uuid_of

Show = Callable[[Fleet], Path]
BOTH = (uuid_of(0), uuid_of(1))


@pytest.fixture
def cell() -> Iterator[subprocess.Popen[bytes]]:
    """A cell's first process, which has a child."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_for(lambda: children(process.pid))
        yield process
        for pid in (*children(process.pid), process.pid):
            os.kill(pid, 9)


@pytest.fixture
def somebody() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def users(pid: int | None, *samples: dict[str, tuple[int, ...] | None]) -> GpuUsers:
    """What is known of two GPUs after these samples: the process ids on each GPU, None where the driver does not say."""
    known = GpuUsers(BOTH, lambda: pid)
    for number, sample in enumerate(samples):

        def ask(uuid: str, sample: dict[str, tuple[int, ...] | None] = sample) -> list[tuple[int, int | None]] | None:
            pids = sample[uuid]
            return None if pids is None else [(pid, 1 << 30) for pid in pids]

        known.sample(float(number), ask)
    return known


def proof_of(users: GpuUsers) -> str | None:
    state = users.state()
    return gpu_proof(users._uuids, state["proved"], state["reasons"])


def test_a_process_below_the_cells_proves_the_gpus_that_it_is_on(cell: subprocess.Popen[bytes]) -> None:
    (child,) = children(cell.pid)
    assert ancestors(child)[:3] == [child, cell.pid, os.getpid()]
    assert proof_of(users(cell.pid, {BOTH[0]: (child,), BOTH[1]: (cell.pid,)})) == PROVED
    one = users(cell.pid, {BOTH[0]: (child,), BOTH[1]: ()})
    assert one.state()["proved"] == [BOTH[0]]
    assert proof_of(one) == f"not proved: {BOTH[1]}: NVML showed no process of the cell on it"
    assert one.foreign == []


def test_a_process_that_was_seen_once_stays_a_proof(cell: subprocess.Popen[bytes]) -> None:
    seen = {BOTH[0]: (cell.pid,), BOTH[1]: (cell.pid,)}
    assert proof_of(users(cell.pid, seen, {BOTH[0]: (), BOTH[1]: None})) == PROVED


@pytest.mark.parametrize(
    ("known", "on_gpu", "reason"),
    [
        (True, None, "the driver does not say who computes on it"),
        (False, (), "the engine does not tell the cell's process"),
        (True, (2**22 + 7,), f"NVML showed process {2**22 + 7}, which cannot be seen from here"),
    ],
)
def test_what_keeps_a_gpu_from_being_proved_is_said(
    cell: subprocess.Popen[bytes], known: bool, on_gpu: tuple[int, ...] | None, reason: str
) -> None:
    found = users(cell.pid if known else None, {BOTH[0]: on_gpu, BOTH[1]: on_gpu})
    assert proof_of(found) == f"not proved: {BOTH[0]}: {reason}"
    assert found.foreign == []


@pytest.mark.parametrize("ended", ["the cell", "the driver"])
def test_a_sample_after_the_end_does_not_replace_the_reason_of_those_before(ended: str) -> None:
    pids: list[int | None] = [os.getpid()]
    known = GpuUsers(BOTH, lambda: pids[-1])
    known.sample(0.0, lambda uuid: ())
    pids.append(None if ended == "the cell" else os.getpid())
    known.sample(1.0, lambda uuid: () if ended == "the cell" else None)
    assert proof_of(known) == f"not proved: {BOTH[0]}: NVML showed no process of the cell on it"


def test_another_process_is_foreign_when_it_is_seen_twice(cell: subprocess.Popen[bytes], somebody: int) -> None:
    sample: dict[str, tuple[int, ...] | None] = {BOTH[0]: (cell.pid, somebody), BOTH[1]: (cell.pid,)}
    assert users(cell.pid, sample).foreign == []
    twice = users(cell.pid, sample, sample)
    program, user = who(somebody)
    assert (program, bool(user)) == ("sleep", True)
    assert twice.foreign == [f"sleep (process {somebody} of {user}, 1.1 GB)"]
    assert proof_of(twice) == PROVED


def test_a_program_whose_name_clears_the_screen_is_shown_in_plain_text() -> None:
    script = "import time; open('/proc/self/comm', 'w').write(chr(27) + '[2Jx' + chr(10) + 'y'); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_for(lambda: who(process.pid)[0] == "x y")
        process.kill()


def test_a_cell_on_the_cpu_has_no_proof_to_give() -> None:
    assert proof_of(GpuUsers((), lambda: 1)) is None


def test_telemetry_counts_who_else_computes_on_a_gpu(fleet: Show, cell: subprocess.Popen[bytes], somebody: int) -> None:
    both = f"{cell.pid}:{1 << 30} {somebody}:{3 << 30}"
    fleet(Fleet((FakeGpu(processes=both),)))

    class Running:
        def pid(self) -> int:
            return cell.pid

    with telemetry.Monitor() as monitor:
        recording = monitor.begin([uuid_of(0)], Running(), (), [uuid_of(0)])
        wait_for(lambda: any(row.get("foreign_process_count") for row in recording.rows))
        monitor.end(recording)
    row = next(row for row in recording.rows if row.get("foreign_process_count"))
    assert (row["foreign_process_count"], row["foreign_memory_bytes"]) == (1, 3 << 30)
    assert proof_of(recording.users) == PROVED
    assert recording.users.foreign[0].startswith(f"sleep (process {somebody} of ")


def test_an_instance_is_proved_by_its_own_processes(fleet: Show, cell: subprocess.Popen[bytes]) -> None:
    part = FakeGpu("NVIDIA L4 MIG 1g", processes=f"{cell.pid}:1")
    fleet(Fleet((FakeGpu(mig=1, instances=(part, FakeGpu("NVIDIA L4 MIG 1g"))),)))

    class Running:
        def pid(self) -> int:
            return cell.pid

    for uuid, proved in ((uuid_of(1, "MIG"), True), (uuid_of(2, "MIG"), False)):
        with telemetry.Monitor() as monitor:
            recording = monitor.begin([uuid_of(0)], Running(), (), [uuid])
            wait_for(lambda recording=recording: len(recording.rows) > 3)
            monitor.end(recording)
        assert (proof_of(recording.users) == PROVED) is proved


WINDOWS = [{"begin_seconds": 2.0, "seconds": 0.1}, {"begin_seconds": 4.9, "seconds": 0.1}]


def rows(utilisation: float | None, watts: float | None, before: float = 60.0) -> list[dict[str, Any]]:
    """Five seconds of a GPU; before the windows its power is another."""
    return [
        {
            "device": "GPU-0",
            "seconds": at / 10,
            "utilisation_percent": utilisation,
            "power_watts": before if at < 20 else watts,
        }
        for at in range(50)
    ]


def test_a_gpu_without_work_and_without_power_was_idle() -> None:
    assert idle(rows(0.0, 62.0), "GPU-0", WINDOWS) == "its utilisation was 0, its power 62 W, and 60 W at the lowest"


@pytest.mark.parametrize(
    "telemetry_rows",
    [rows(1.0, 60.0), rows(0.0, 90.0), rows(None, 60.0), rows(0.0, None), rows(0.0, 60.0)[:30], []],
    ids=["some work", "more power", "utilisation not told", "power not told", "too few rows", "no telemetry"],
)
def test_a_gpu_is_not_called_idle_where_that_is_not_shown(telemetry_rows: list[dict[str, Any]]) -> None:
    assert idle(telemetry_rows, "GPU-0", WINDOWS) is None
    assert idle(rows(0.0, 60.0), "GPU-0", []) is None
