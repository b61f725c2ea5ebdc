"""The limits of control groups of both versions, the least along the path, in made trees and in a real group."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.machine import detect, telemetry_cpu
from runner.machine.devices import Cpu, Machine
from runner.machine.telemetry_cpu import GroupLimits
from runner.run.schedule import Place, slot_of


def tree(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")


ONE = {
    "cpu/cpu.cfs_quota_us": "-1",
    "cpu/cpu.cfs_period_us": "100000",
    "memory/memory.limit_in_bytes": "9223372036854771712",
}
TWO = {"cgroup.controllers": "cpu memory"}
NOTHING = GroupLimits(None, None)


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({}, "", NOTHING),
        (ONE, "2:cpu,cpuacct:/\n1:memory:/", NOTHING),
        (ONE | {"cpu/job/step/cpu.cfs_quota_us": "50000", "cpu/job/step/cpu.cfs_period_us": "100000"},
         "2:cpu:/job/step\n1:memory:/", GroupLimits(0.5, None)),
        (ONE | {"cpu/job/cpu.cfs_quota_us": "150000", "cpu/job/cpu.cfs_period_us": "100000",
                "cpu/job/step/cpu.cfs_quota_us": "-1", "memory/job/memory.limit_in_bytes": "4096"},
         "2:cpu:/job/step\n1:memory:/job/step", GroupLimits(1.5, 4096)),
        (TWO, "0::/", NOTHING),
        (TWO | {"user.slice/cpu.max": "200000 100000", "user.slice/a.scope/cpu.max": "max 100000",
                "user.slice/memory.max": "8192", "user.slice/a.scope/memory.max": "max"},
         "0::/user.slice/a.scope", GroupLimits(2.0, 8192)),
        # A container whose path is the host's: what is mounted is its own group.
        (TWO | {"cpu.max": "50000 100000"}, "0::/docker/5f3a", GroupLimits(0.5, None)),
        (TWO | {"a/pids.max": "100", "a/pids.current": "30", "a/b/pids.max": "max", "a/b/pids.current": "20"},
         "0::/a/b", GroupLimits(None, None, 70)),
        (ONE | {"pids/job/pids.max": "5", "pids/job/pids.current": "7"}, "3:pids:/job", GroupLimits(None, None, 0)),
        (TWO | {"a/cpu.max": "words", "a/memory.max": "²"}, "0::/a", NOTHING),
    ],
)  # fmt: skip
def test_the_least_limit_of_a_group_and_all_above_it_holds(
    tmp_path: Path, files: dict[str, str], own: str, expected: GroupLimits
) -> None:
    tree(tmp_path / "groups", files)
    (tmp_path / "own").write_text(own + "\n")
    assert telemetry_cpu.group_limits(tmp_path / "groups", tmp_path / "own") == expected


def test_a_quota_is_an_amount_of_time_and_names_no_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(telemetry_cpu, "group_limits", lambda: GroupLimits(2.5, 1 << 30))
    machine = detect.detect("none")
    assert (machine.cpu.cpus, machine.cpu.count, machine.cpu.memory_bytes) == (tuple(range(8)), 2, 1 << 30)
    assert "allows the time of 2.5 CPUs of 8: a cell has 2 threads" in machine.notes[0]
    slot = slot_of(machine, [Place("", "", "cpu", "CPU")])
    assert (slot.cpus, slot.threads) == (tuple(range(8)), 2)


def test_without_a_quota_a_cell_has_a_thread_for_each_cpu() -> None:
    slot = slot_of(Machine(Cpu("CPU", (0, 2), 8 << 30), (), None), [Place("", "", "cpu", "CPU")])
    assert (slot.threads, slot.quota_threads) == (2, None)


@contextlib.contextmanager
def real_group() -> Iterator[Path]:
    """A group of this machine with half a CPU, in whichever version it has; a process joins by its `cgroup.procs`."""
    root = Path("/sys/fs/cgroup")
    above = root if (root / "cgroup.controllers").exists() else root / "cpu"
    folder = above / f"dlbench-test-{os.getpid()}"
    try:
        folder.mkdir()
        if above == root:
            (folder / "cpu.max").write_text("50000 100000")
        else:
            (folder / "cpu.cfs_period_us").write_text("100000")
            (folder / "cpu.cfs_quota_us").write_text("50000")
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"left out, because no control group can be made here: {error}")
    try:
        yield folder
    finally:
        folder.rmdir()


def test_a_real_group_with_half_a_cpu_is_seen() -> None:
    code = "import sys; open(sys.argv[1], 'w').write('0'); from runner.machine.detect import detect; print(detect('none').notes[0])"
    with real_group() as folder:
        told = subprocess.run(
            [sys.executable, "-c", code, str(folder / "cgroup.procs")], capture_output=True, text=True, check=True
        ).stdout
    assert "allows the time of 0.5 CPUs of" in told
    assert "a cell has 1 thread" in told
