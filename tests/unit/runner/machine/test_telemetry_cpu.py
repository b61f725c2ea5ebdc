"""Clocks and energy of a CPU, from trees of files as the kernel shows them; machines that show none leave gaps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.admission import record
from runner.machine import telemetry, telemetry_cpu
from runner.machine.telemetry_cpu import CpuClock, PackageEnergy, ProcessSampler
from tests.fixtures.waiting import wait_for

MOST = 262_143_328_850  # microjoules, as an Intel server has it


class Cell:
    def pid(self) -> int:
        return os.getpid()


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine that shows nothing; its files are written by the tests."""
    (tmp_path / "cpuinfo").write_text("")
    monkeypatch.setattr(telemetry_cpu, "_CPUS", tmp_path / "cpu")
    monkeypatch.setattr(telemetry_cpu, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(telemetry_cpu, "_POWERCAP", tmp_path / "powercap")
    monkeypatch.setattr(telemetry_cpu, "_STAT", tmp_path / "stat")
    telemetry_cpu._measures_clocks.cache_clear()
    yield tmp_path
    telemetry_cpu._measures_clocks.cache_clear()


def zone(folder: Path, name: str, title: str, microjoules: int) -> Path:
    made = folder / "powercap" / name
    made.mkdir(parents=True, exist_ok=True)
    for file, content in (("name", title), ("max_energy_range_uj", MOST), ("energy_uj", microjoules)):
        (made / file).write_text(f"{content}\n")
    return made / "energy_uj"


def cpuinfo(flags: str, *megahertz: float) -> str:
    return "".join(
        f"processor\t: {at}\ncpu MHz\t\t: {mhz}\nflags\t\t: fpu {flags} sse\n\n" for at, mhz in enumerate(megahertz)
    )


def test_the_clock_is_that_of_the_cells_own_cpus(bare: Path) -> None:
    for cpu, kilohertz in enumerate((800_000, 3_100_000, 3_300_000)):
        file = bare / "cpu" / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq"
        file.parent.mkdir(parents=True)
        file.write_text(f"{kilohertz}\n")
    assert CpuClock((1, 2)).megahertz() == pytest.approx(3200)
    assert CpuClock((7,)).megahertz() is None
    assert CpuClock(()).megahertz() is None


def test_without_cpufreq_the_kernels_list_is_read_where_it_measures(bare: Path) -> None:
    (bare / "cpuinfo").write_text(cpuinfo("aperfmperf", 800.0, 3000.0, 3400.0))
    assert CpuClock((1, 2)).megahertz() == pytest.approx(3200)


def test_a_virtual_machines_rated_clock_is_no_measurement(bare: Path) -> None:
    (bare / "cpuinfo").write_text(cpuinfo("hypervisor", 2599.998, 2599.998))
    assert CpuClock((0, 1)).megahertz() is None


def test_the_energy_is_that_of_packages_and_memory_and_of_nothing_twice(bare: Path) -> None:
    files = [zone(bare, "intel-rapl:0", "package-0", 5), zone(bare, "intel-rapl:1", "package-1", 5),
             zone(bare, "intel-rapl:0:1", "dram", 5)]  # fmt: skip
    parts = [zone(bare, "intel-rapl:0:0", "core", 5), zone(bare, "intel-rapl:2", "psys", 5)]
    counter = PackageEnergy()
    assert counter.joules() == 0
    for file in files:
        file.write_text("2000005")
    for file in parts:
        file.write_text("9000000")
    assert counter.joules() == pytest.approx(6)


def test_a_counter_that_begins_again_loses_nothing(bare: Path) -> None:
    file = zone(bare, "intel-rapl:0", "package-0", MOST - 1_000_000)
    counter = PackageEnergy()
    file.write_text("500000")
    assert counter.joules() == pytest.approx(1.5)


def test_energy_that_cannot_be_read_whole_is_not_told(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PackageEnergy().joules() is None
    zone(bare, "intel-rapl:0", "package-0", 5)
    second = zone(bare, "intel-rapl:1", "package-1", 5)
    read = telemetry_cpu._content

    def refuse(path: Path) -> str:  # as the kernel does to all but root, which this test may be
        if path == second:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(telemetry_cpu, "_content", refuse)
    assert PackageEnergy().joules() is None


def watch(boards: list[str], seconds: float) -> list[dict[str, Any]]:
    """The rows of so many seconds."""
    with telemetry.Monitor() as monitor:
        recording = monitor.begin(boards, Cell(), (0,))
        wait_for(lambda: recording.rows and recording.rows[-1]["unix"] - recording.rows[0]["unix"] > seconds)
        monitor.end(recording)
    return recording.rows


def test_joules_per_item_of_a_cpu_cell_come_from_its_packages(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = zone(bare, "intel-rapl:0", "package-0", 0)
    read, begin = telemetry_cpu._content, time.monotonic()

    def burning(path: Path) -> str:  # 50 W
        return str(int(50e6 * (time.monotonic() - begin))) if path == file else read(path)

    monkeypatch.setattr(telemetry_cpu, "_content", burning)
    rows = watch([], 1.8)
    on_clock = record.on_the_cells_clock(rows, rows[0]["unix"])
    steady = [{"stage": "steady", "begin_seconds": 0.3, "seconds": 1.2, "items": 30}]
    found = record.telemetry_summary(on_clock, steady)
    assert found["energy_joules"] == pytest.approx(60, rel=0.15)
    assert found["joules_per_item"] == pytest.approx(found["energy_joules"] / 30)
    assert found["mean_power_watts"] == pytest.approx(50, rel=0.15)
    assert (found["energy_source"], found["throttled"]) == ("counter", None)


def test_a_gpu_cell_is_not_charged_with_the_cpus_energy(bare: Path) -> None:
    zone(bare, "intel-rapl:0", "package-0", 0)
    assert not any("energy_joules" in row for row in watch(["GPU-0"], 0.5))


def test_a_machine_that_shows_nothing_leaves_gaps_and_no_zeros() -> None:
    row = ProcessSampler(Cell().pid, CpuClock((0,))).sample(time.time())
    assert row is not None
    assert row["cpu_megahertz"] is None
    assert record.telemetry_summary(
        [row | {"seconds": 1.0}], [{"stage": "steady", "begin_seconds": 0.5, "seconds": 1, "items": 1}]
    ) == {"other_cpus": None}


def test_the_machines_cpu_time_is_all_but_idleness_with_what_its_host_took(bare: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    # user, nice, system, idle, iowait, irq, softirq, steal, and guests, who are in user and nice
    fields = [10 * ticks, 2 * ticks, 3 * ticks, 99 * ticks, 77 * ticks, ticks, ticks, 5 * ticks, 8 * ticks, 2 * ticks]
    (bare / "stat").write_text(f"cpu  {' '.join(map(str, fields))}\ncpu0 1 2 3\n")
    row = ProcessSampler(Cell().pid, CpuClock((0,))).sample(time.time())
    assert row is not None
    assert row["machine_cpu_seconds"] == pytest.approx(22)


@pytest.mark.parametrize(("cell", "machine", "others"), [(1.5, 1.6, 0.1), (1.0, 2.0, 1.0), (2.0, 1.99, 0.0)])
def test_other_work_is_what_the_machine_did_beside_the_cell_in_the_steady_windows(
    cell: float, machine: float, others: float
) -> None:
    rows = [
        {"device": "cpu", "seconds": float(at), "cpu_seconds": cell * at, "machine_cpu_seconds": 700 + machine * at}
        for at in range(20)
    ]
    # The time before them is no matter.
    rows[0] |= {"machine_cpu_seconds": 0.0}
    steady = [{"stage": "steady", "begin_seconds": 4.5, "seconds": 10.0, "items": 1}]
    assert record.telemetry_summary(rows, steady)["other_cpus"] == pytest.approx(others)
    assert record.telemetry_summary(rows[:6], steady)["other_cpus"] is None


def test_the_cpu_time_of_children_that_have_ended_stays_in_the_counter() -> None:
    # By the counter that is read: the process's own clock is ahead of the kernel's ticks.
    burn = "import os\nwhile sum(os.times()[:2]) < 0.3: pass"
    program = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint(flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds, _ = telemetry_cpu.read_tree(process.pid)
        process.communicate()
    assert seconds >= 0.3
