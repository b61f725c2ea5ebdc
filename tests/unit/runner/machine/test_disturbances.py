"""What is said before the first cell of a machine that disturbs it, from files as the kernel shows them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.machine import detect, telemetry_cpu
from runner.machine.detect import Disturbances

QUIET = {
    "meminfo": "MemTotal:  8388608 kB\nMemFree:  1024 kB\nMemAvailable:  6291456 kB\n",
    "vmstat": "nr_free_pages 7\npswpin 3\npswpout 9\n",
    "cpu/cpu0/thermal_throttle/core_throttle_count": "12\n",
    "cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "cpu/cpu0/cpufreq/energy_performance_preference": "balance_performance\n",
    "supply/AC/type": "Mains\n",
    "supply/AC/online": "1\n",
    "supply/BAT0/type": "Battery\n",
}
# What changes while the machine is looked at, and the beginning of what is said of it.
DISTURBED = {
    "the machine swaps": {"vmstat": "pswpin 3\npswpout 10\n"},
    "0.5 of 8.0 GiB of memory are free": {"meminfo": "MemTotal:  8388608 kB\nMemAvailable:  524288 kB\n"},
    "the CPUs are so hot that they slow down": {"cpu/cpu0/thermal_throttle/core_throttle_count": "13\n"},
    "the CPUs save power (preference power): `cpupower": {"cpu/cpu0/cpufreq/energy_performance_preference": "power\n"},
    "the machine runs on its battery": {"supply/AC/online": "0\n"},
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a file of the kernel. A machine that shows nothing has none."""
    monkeypatch.setattr(telemetry_cpu, "_STAT", tmp_path / "stat")
    for name, file in (("_MEMORY", "meminfo"), ("_PAGING", "vmstat"), ("_POWER", "cpu"), ("_SUPPLIES", "supply")):
        monkeypatch.setattr(detect, name, tmp_path / file)

    def write(name: str, content: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    return write


def test_a_machine_that_shows_nothing_and_a_quiet_one_have_no_note(write: Callable[[str, str], None]) -> None:
    assert Disturbances().notes((0,)) == ()
    for name, content in QUIET.items():
        write(name, content)
    assert Disturbances().notes((0,)) == ()


@pytest.mark.parametrize("said", DISTURBED)
def test_each_disturbance_is_said_once_with_its_remedy(said: str, write: Callable[[str, str], None]) -> None:
    for name, content in QUIET.items():
        write(name, content)
    look = Disturbances()
    for name, content in DISTURBED[said].items():
        write(name, content)
    (note,) = look.notes((0,))
    assert note.startswith(said)
    assert ": " in note or ", " in note


def test_a_governor_saves_power_where_no_driver_has_a_preference(
    write: Callable[[str, str], None], tmp_path: Path
) -> None:
    write("cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    (note,) = Disturbances().notes((0,))
    assert "governor powersave" in note
    write("cpu/cpu0/cpufreq/scaling_governor", "schedutil\n")
    assert Disturbances().notes((0,)) == ()


@pytest.mark.parametrize(
    ("others", "cpus", "passed", "minutes", "said"),
    [
        (0.3, 2, 1.0, None, ""),
        (0.9, 2, 1.0, None, "other programs use 0.9 of 2 CPUs, so figures will be open: end them"),
        (0.9, 2, 1.0, 10.0, "other programs use 0.9 of 2 CPUs, so figures will be open: end them, or say --minutes 30"),
        (0.9, 64, 1.0, None, ""),
        (40.0, 64, 1.0, None, "other programs use 40.0 of 64 CPUs, so figures will be open: end them"),
        (0.9, 2, 0.05, None, ""),
    ],
)
def test_a_run_says_when_it_begins_that_other_programs_take_cpus(
    write: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    others: float,
    cpus: int,
    passed: float,
    minutes: float | None,
    said: str,
) -> None:
    """What this process itself takes in the meantime is no other program's."""
    ticks, now, own = os.sysconf("SC_CLK_TCK"), [10.0], [3.0]

    def has_run(seconds: float) -> None:
        write("stat", f"cpu  {round(seconds * ticks)} 0 0 99 0 0 0 0 0 0\n")

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    monkeypatch.setattr(os, "times", lambda: (own[0], 0.0, 0.0, 0.0, now[0]))
    has_run(100)
    look = Disturbances()
    now[0] += passed
    own[0] += 1.0
    has_run(101 + others * passed)
    assert look.notes((0,), minutes) == ((said,) if said else ())
