"""How a machine's CPUs are set, as the files of Linux say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.machine.detect import with_power
from runner.machine.devices import Cpu


def cpu_power(cpus: tuple[int, ...], folder: Path) -> dict[str, str | float | None]:
    facts = with_power(Cpu("CPU", cpus, 1), folder).facts
    return {name: facts[name] for name in ("cpu_governor", "cpu_energy_preference", "cpu_turbo")}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_of_the_cpus_of_a_cell_each_value_is_named_once(tmp_path: Path) -> None:
    governors = {f"cpu{cpu}/cpufreq/scaling_governor": "powersave\n" if cpu else "performance\n" for cpu in range(4)}
    preferences = {f"cpu{cpu}/cpufreq/energy_performance_preference": "balance_power\n" for cpu in range(4)}
    folder = write(tmp_path, governors | preferences)
    both = {"cpu_governor": "performance, powersave", "cpu_energy_preference": "balance_power", "cpu_turbo": None}
    assert cpu_power((0, 1), folder) == both
    assert cpu_power((2, 3), folder)["cpu_governor"] == "powersave"


@pytest.mark.parametrize(
    ("file", "text", "turbo"),
    [
        ("intel_pstate/no_turbo", "1\n", "off"),
        ("intel_pstate/no_turbo", "0\n", "on"),
        ("cpufreq/boost", "0\n", "off"),
        ("cpufreq/boost", "1\n", "on"),
        ("cpufreq/boost", "perhaps\n", None),
    ],
)
def test_turbo_is_on_or_off_by_the_switch_of_either_driver(
    file: str, text: str, turbo: str | None, tmp_path: Path
) -> None:
    assert cpu_power((0,), write(tmp_path, {file: text}))["cpu_turbo"] == turbo


def test_a_machine_that_says_nothing_has_no_values(tmp_path: Path) -> None:
    assert set(cpu_power((0, 1, 2), tmp_path).values()) == {None}
