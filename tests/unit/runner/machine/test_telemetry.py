"""What telemetry makes of devices: samples on the cell's clock, energy, throttling; the GPUs are the NVML stand-in's."""

from __future__ import annotations

import itertools
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.admission import record
from runner.machine import nvml, telemetry
from tests.fixtures.waiting import wait_for
from tests.stand_ins.fleet import FakeGpu, Fleet, uuid_of

Show = Callable[[Fleet], object]


@dataclass
class Cell:
    number: int | None = None

    def pid(self) -> int | None:
        return self.number


def watch(
    boards: list[str], enough: Callable[[list[dict[str, Any]]], bool], cell: Cell | None = None
) -> telemetry.Recording:
    """Record until the rows are enough."""
    with telemetry.Monitor() as monitor:
        recording = monitor.begin(boards, cell or Cell())
        wait_for(lambda: enough(recording.rows))
        monitor.end(recording)
    return recording


def samples(begin: float, seconds: float, items: int = 100) -> list[dict[str, Any]]:
    return [{"stage": "steady", "begin_seconds": begin, "seconds": seconds, "items": items}]


def gpu_rows(times: list[float], **columns: Any) -> list[dict[str, Any]]:
    return [
        {"device": "GPU-0", "seconds": at, **{k: v(at) if callable(v) else v for k, v in columns.items()}}
        for at in times
    ]


def test_a_gpu_is_sampled_ten_times_a_second_with_all_that_it_tells(fleet: Show) -> None:
    fleet(Fleet((FakeGpu(memory_celsius=61, pcie_sent_bytes=7, throttle=0x4, used_bytes=5 << 30),)))
    rows = watch([uuid_of(0)], lambda rows: len(rows) >= 15).rows
    gaps = [after["unix"] - before["unix"] for before, after in itertools.pairwise(rows)]
    assert 0.09 <= statistics.median(gaps) <= 0.15
    row = rows[0]
    assert row["power_watts"] == pytest.approx(60)
    assert (row["temperature_celsius"], row["memory_temperature_celsius"]) == (45, 61)
    assert (row["sm_megahertz"], row["memory_megahertz"]) == (2040, 6251)
    assert (row["throttle_reasons"], row["utilisation_percent"]) == (4, 97)
    assert (row["memory_bytes"], row["pcie_sent_bytes"], row["pcie_received_bytes"]) == (5 << 30, 7, None)


def test_the_energy_counter_and_the_integral_of_power_agree(fleet: Show) -> None:
    waving = FakeGpu(power_watts=300.0, wave_watts=150.0)
    fleet(Fleet((waving,)))
    recording = watch([uuid_of(0)], lambda rows: bool(rows) and rows[-1]["unix"] - rows[0]["unix"] > 2.4)
    rows = record.on_the_cells_clock(recording.rows, recording.rows[0]["unix"])
    counter, source = record.energy(rows, 0.2, 2.3)
    without = [{**row, "energy_joules": None} for row in rows]
    integral, other = record.energy(without, 0.2, 2.3)
    assert (source, other) == ("counter", "power")
    assert counter is not None
    assert integral is not None
    assert integral == pytest.approx(counter, rel=0.03)


def test_a_gpu_that_falls_off_the_bus_is_told(fleet: Show) -> None:
    two = Fleet((FakeGpu(), FakeGpu()))
    fleet(two)
    with telemetry.Monitor() as monitor:
        lost = monitor.begin([uuid_of(0)], Cell())
        well = monitor.begin([uuid_of(1)], Cell())
        wait_for(lambda: lost.rows and well.rows)
        fleet(two.with_gpu(0, lost=1))
        wait_for(lambda: lost.lost)
        seen = len(well.rows)
        wait_for(lambda: len(well.rows) > seen)
        monitor.end(lost)
        monitor.end(well)
    assert lost.lost == uuid_of(0)
    assert lost.rows
    assert well.lost is None


def test_the_drivers_critical_errors_go_to_the_cell_on_that_gpu(fleet: Show) -> None:
    two = Fleet((FakeGpu(), FakeGpu()))
    fleet(two)
    with telemetry.Monitor() as monitor:
        first, second = (monitor.begin([uuid_of(at)], Cell()) for at in (0, 1))
        wait_for(lambda: first.rows and second.rows)
        fleet(Fleet(two.gpus, xids=((1, 31),)))
        wait_for(lambda: second.xids)
        monitor.end(first)
        monitor.end(second)
    assert first.xids == []
    assert second.xids == [(uuid_of(1), 31)]


def test_the_cpu_time_and_memory_of_a_process_and_its_children_are_seen() -> None:
    script = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(50_000_000)\\nwhile True: pass'])"
    )

    def both_are_seen(rows: list[dict[str, Any]]) -> bool:
        if not rows:
            return False
        return rows[-1]["cpu_seconds"] > rows[0]["cpu_seconds"] + 0.3 and rows[-1]["memory_bytes"] > 50_000_000

    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            rows = watch([], both_are_seen, Cell(process.pid)).rows
        finally:
            subprocess.run(["pkill", "-P", str(process.pid)], check=True)
    assert {row["device"] for row in rows} == {"cpu"}


def test_nothing_is_sampled_and_no_time_spent_while_no_cell_runs(fleet: Show) -> None:
    fleet(Fleet((FakeGpu(),)))
    with telemetry.Monitor():
        before = time.process_time()
        time.sleep(1)
        assert time.process_time() - before < 0.02


def test_eight_gpus_with_eight_cells_cost_less_than_three_percent_of_a_core(fleet: Show) -> None:
    fleet(Fleet(tuple(FakeGpu() for _ in range(8))))
    with telemetry.Monitor() as monitor:
        running = [monitor.begin([uuid_of(at)], Cell()) for at in range(8)]
        wait_for(lambda: all(len(recording.rows) >= 5 for recording in running))
        before, sampled = time.process_time(), len(running[-1].rows)
        time.sleep(3)
        wait_for(lambda: len(running[-1].rows) >= sampled + 20)
        # of a sample, so that a machine that is too busy for ten a second does not look cheap
        spent = telemetry.HERTZ * (time.process_time() - before) / (len(running[-1].rows) - sampled)
        for recording in running:
            monitor.end(recording)
    assert spent < 0.03, f"{100 * spent:.1f} % of a core"


def test_a_cell_that_cannot_be_sampled_ends_no_other_cells_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    own = telemetry.Recording.sample_cpu

    def sample_cpu(recording: telemetry.Recording, now: float, joules: float | None) -> None:
        if not recording.boards:
            raise ValueError("no such counter")
        own(recording, now, joules)

    monkeypatch.setattr(telemetry.Recording, "sample_cpu", sample_cpu)
    with telemetry.Monitor() as monitor:
        broken, other = monitor.begin([], Cell()), monitor.begin(["GPU-0"], Cell(os.getpid()))
        wait_for(lambda: broken.fault is not None and len(other.rows) >= 3)
        for recording in (broken, other):
            monitor.end(recording)
    assert (broken.fault, other.fault) == ("ValueError: no such counter", None)


@pytest.mark.parametrize("where", ["sleep", "xids", "session"])
def test_a_telemetry_that_ends_is_told_in_the_cell_that_runs_and_in_each_later_one(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def ends(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    if where == "sleep":
        monkeypatch.setattr(telemetry, "time", SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=ends))
    elif where == "xids":
        monkeypatch.setattr(telemetry.GpuSampler, "xids", ends)
    else:
        monkeypatch.setattr(telemetry.nvml, "session", ends)
    with telemetry.Monitor() as monitor:
        running = monitor.begin(["GPU-0"], Cell(os.getpid()))
        wait_for(lambda: running.fault is not None)
        monitor.end(running)
        later = [monitor.begin([], Cell(os.getpid())) for _ in range(2)]
        for recording in later:
            monitor.end(recording)
    said = "the telemetry ended: OSError: [Errno 22] Invalid argument"
    assert [recording.fault for recording in (running, *later)] == [said] * 3


def test_a_machine_without_a_driver_has_no_gpu_rows() -> None:
    assert telemetry.GpuSampler(None).sample("GPU-0") is None
    assert telemetry.GpuSampler(None).temperature("GPU-0") is None


def test_temperatures_can_be_asked_for_alone(fleet: Show) -> None:
    fleet(Fleet((FakeGpu(celsius=71),)))
    with nvml.session() as library:
        assert telemetry.GpuSampler(library).temperature(uuid_of(0)) == 71


@given(watts=st.floats(1, 1000), begin=st.floats(0.5, 3), seconds=st.floats(0.5, 5), offset=st.floats(0, 0.1))
def test_energy_is_that_of_the_steady_windows_alone(watts: float, begin: float, seconds: float, offset: float) -> None:
    times = [offset + 0.1 * step for step in range(100)]
    by_counter = gpu_rows(times, energy_joules=lambda at: 1e6 + watts * at, power_watts=0.0)
    by_power = gpu_rows(times, power_watts=watts)
    for rows, source in ((by_counter, "counter"), (by_power, "power")):
        found = record.telemetry_summary(rows, samples(begin, seconds))
        assert found["energy_joules"] == pytest.approx(watts * seconds, rel=1e-6)
        assert found["joules_per_item"] == pytest.approx(watts * seconds / 100, rel=1e-6)
        assert found["mean_power_watts"] == pytest.approx(watts, rel=1e-6)
        assert found["energy_source"] == source


def test_power_that_changes_is_integrated_not_averaged() -> None:
    times = [0.0, 1.0, 1.1, 1.2, 3.0]
    joules, _ = record.energy(gpu_rows(times, power_watts=lambda at: 100 * at), 0.0, 3.0)
    assert joules == pytest.approx(450)


def test_energy_of_which_a_part_was_not_seen_is_not_told() -> None:
    rows = gpu_rows([1.0, 1.1, 1.2], power_watts=50.0)
    assert record.energy(rows, 0.2, 1.2) == (None, "none")
    assert record.telemetry_summary(rows, samples(0.2, 1.0))["joules_per_item"] is None
    assert record.telemetry_summary([], samples(0, 1)) == {"other_cpus": None}


def test_several_gpus_spend_together() -> None:
    rows = gpu_rows([0.0, 1.0, 2.0], power_watts=100.0)
    both = rows + [{**row, "device": "GPU-1", "power_watts": 50.0} for row in rows]
    assert record.telemetry_summary(both, samples(0, 2, items=10))["joules_per_item"] == pytest.approx(30)


@pytest.mark.parametrize(
    ("bits", "throttled", "names"),
    [
        (0x0, False, []),
        (0x1 | 0x2, False, []),  # idle, clocks that somebody set
        (0x4, False, ["power cap"]),
        (0x4 | 0x40, True, ["power cap", "hardware thermal slowdown"]),
        (0x80, True, ["power brake"]),
    ],
)
def test_a_cell_is_marked_when_its_gpu_slowed_down(bits: int, throttled: bool, names: list[str]) -> None:
    rows = gpu_rows([0.0, 1.0, 2.0, 3.0], power_watts=1.0, throttle_reasons=lambda at: bits if at == 1.0 else 0)
    found = record.telemetry_summary(rows, samples(0.5, 2))
    assert (found["throttled"], found["throttled_by"]) == (throttled, names)
    assert record.telemetry_summary(rows, samples(1.5, 1.5))["throttled"] is False, "it was before the steady windows"


def test_the_most_memory_used_is_that_of_the_steady_windows() -> None:
    used = {0.0: 9 << 30, 1.0: 3 << 30, 2.0: 4 << 30, 3.0: 8 << 30}  # autotuning before, the check of the adapter after
    rows = gpu_rows(list(used), power_watts=1.0, memory_bytes=used.get)
    on_cpu = [{"device": "cpu", "seconds": 1.0, "memory_bytes": 64 << 30}]
    assert record.telemetry_summary([*rows, *on_cpu], samples(0.5, 2))["device_used_bytes"] == 4 << 30
    assert record.telemetry_summary(gpu_rows([0.0, 1.0]), samples(0, 1))["device_used_bytes"] is None


def test_a_gpu_that_does_not_tell_of_throttling_is_not_said_to_have_kept_its_clocks() -> None:
    found = record.telemetry_summary(gpu_rows([0.0, 1.0], power_watts=1.0), samples(0, 1))
    assert (found["throttled"], found["throttled_by"]) == (None, None)
    assert not math.isnan(found["energy_joules"])


def test_a_cell_of_two_days_keeps_few_rows_its_energy_and_its_clock() -> None:
    """Ten rows a second of each device for two days would take gigabytes of the runner."""
    recording = telemetry.Recording(["GPU-0"], Cell(), ())
    most, begin, power = telemetry._MOST_ROWS, 1.7e9, 300.0
    telemetry._MOST_ROWS = 500
    try:
        for tick in range(20_000):
            now = begin + tick / telemetry.HERTZ
            energy = power * (now - begin)
            recording.add({"device": "GPU-0", "unix": now, "energy_joules": energy, "throttle_reasons": 0})
            if tick % 5 == 0:
                row = {"device": "cpu", "unix": now, "cpu_seconds": now - begin}
                recording.add(row | ({"cpu_megahertz": 3000.0} if tick % 10 == 0 else {}))
    finally:
        telemetry._MOST_ROWS = most
    assert len(recording.rows) <= 1001
    rows = record.on_the_cells_clock(recording.rows, begin)
    assert sum("cpu_megahertz" in row for row in rows) > 100
    gpu = [row["seconds"] for row in rows if row["device"] == "GPU-0"]
    assert max(b - a for a, b in itertools.pairwise(gpu)) <= 2 * recording.step
    found = record.telemetry_summary(rows, samples(10.0, 1985.0), recording.step)
    assert found["energy_joules"] == pytest.approx(power * 1985.0, rel=1e-6)


def test_a_clock_that_is_set_while_a_cell_runs_moves_no_row_and_no_later_cell(
    fleet: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples of a cell have the monotonic clock: power an hour away from its window would be another window's."""
    fleet(Fleet((FakeGpu(),)))
    began, wall = time.time(), time.time
    with telemetry.Monitor() as monitor:
        recording = monitor.begin([uuid_of(0)], Cell(os.getpid()))
        wait_for(lambda: recording.rows)
        monkeypatch.setattr(time, "time", lambda: wall() - 3600)
        seen = len(recording.rows)
        wait_for(lambda: len(recording.rows) > seen + 15)
        assert recording.now() < monitor.begin([], Cell(os.getpid())).now() < began + 60
        monitor.end(recording)
    assert {row["device"] for row in recording.rows} == {"cpu", uuid_of(0)}
    assert all(began <= row["unix"] < began + 60 for row in recording.rows)
