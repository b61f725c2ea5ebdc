"""Drivers and GPUs that answer otherwise than today's: each command tells it in sentences, and the other GPUs are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import PROJECT
from runner.machine.detect import detect
from runner.machine.nvml import session
from runner.machine.processes import read_entries
from runner.machine.telemetry import GpuSampler
from tests.stand_ins.fleet import DRIVERS, FakeGpu, Fleet, build_library, compiler, environment, uuid_of

Show = Callable[[Fleet], Path]

# The three commands in one process: Python's start and the imports would take most of the time.
COMMANDS = """
import sys
from runner.cli.main import main
one_image = ["--engine", "venv", "--images", "torch-2.13.0-cpu", "--workloads", "mlp-mnist"]
for words in (["gpus"], ["gpus", "--format", "json"], ["doctor"], ["matrix", "--dry-run", *one_image]):
    sys.argv = ["runner", *words]
    try:
        main()
    except SystemExit as end:
        print("<exit>", words[0], end.code)
    sys.stdout.flush()
    print("<next>", flush=True)
"""


def shown(library: Path, fleet: Path) -> list[str]:
    """What `runner gpus`, its JSON, `doctor` and `matrix --dry-run` print."""
    given = environment(library, fleet) | {"COLUMNS": "250"}
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS], cwd=PROJECT, env=given, capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in ended.stdout + ended.stderr, ended.stderr
    assert ended.returncode == 0, ended.stderr
    *parts, _ = ended.stdout.split("<next>\n")
    return [part.split("<exit>")[0] for part in parts]


@pytest.mark.skipif(compiler() is None, reason="left out, because there is no C compiler for the stand-in for NVML")
@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_tells_who_computes_on_a_gpu(driver: str, tmp_path: Path) -> None:
    library = build_library(tmp_path, driver)
    mine, other = os.getpid(), os.getppid()
    used = FakeGpu(processes=f"{mine}:{2 << 30} {other}:{1 << 30} 1:5")
    fleet = Fleet((used, FakeGpu()), driver=driver).write(tmp_path / "fleet")
    text, as_json, doctor, plan = shown(library, fleet)
    told = json.loads(as_json)
    assert [process["pid"] for process in told["gpus"][0]["processes"]] == [mine, other, 1]
    assert [process["memory_bytes"] for process in told["gpus"][0]["processes"]] == [2 << 30, 1 << 30, 5]
    assert told["gpus"][1]["processes"] == []
    assert f"process {mine}" in text
    assert f"driver {driver}" in doctor
    assert f"GPU 0 (NVIDIA L4) is in use by {told['gpus'][0]['processes'][0]['program']}" in plan


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_the_size_of_an_entry_follows_from_what_was_written(size: int, count: int) -> None:
    entries = b"".join(
        ((1000 + at).to_bytes(8, "little") + (at << 30).to_bytes(8, "little") + b"\xff" * 8 + bytes(8))[:size]
        for at in range(count)
    )
    array = entries + b"\x5a" * (count * 32 - len(entries))
    assert read_entries(array, count) == [(1000 + at, at << 30) for at in range(count)]


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("written", [0, 1])
def test_entries_that_were_counted_and_not_written_are_no_processes(size: int, written: int) -> None:
    entries = (b"\x07" + bytes(size - 1)) * written
    assert read_entries(entries + b"\x5a" * (5 * 32 - len(entries)), 5) is None


def test_memory_that_the_driver_does_not_tell_is_no_memory() -> None:
    entry = (7).to_bytes(8, "little") + b"\xff" * 16
    assert read_entries(entry + b"\x5a" * 8, 1) == [(7, None)]


# GB10 has no memory of its own; a virtual machine hides the host's CPUs; power is in error; one GPU belongs to somebody else's job.
GB10 = FakeGpu("NVIDIA GB10", capability="12.1", memory_bytes=None)
IN_A_VM = FakeGpu(cpus="!999", numa="!999")
POWER_IN_ERROR = FakeGpu(power_watts="!999", power_limit_watts="!999")  # type: ignore[arg-type]
NOT_OURS = FakeGpu(handle="!4")
HIDES_PROCESSES = FakeGpu(processes="!4")


def test_an_odd_answer_costs_that_answer_only_and_is_told(nvml_library: Path, tmp_path: Path) -> None:
    odd = (GB10, IN_A_VM, POWER_IN_ERROR, NOT_OURS, HIDES_PROCESSES, FakeGpu())
    text, as_json, doctor, plan = shown(nvml_library, Fleet(odd).write(tmp_path / "fleet"))
    told = json.loads(as_json)
    assert [gpu["index"] for gpu in told["gpus"]] == [0, 1, 2, 4, 5]
    assert [gpu["memory_bytes"] for gpu in told["gpus"]][:2] == [None, 23 << 30]
    assert "memory not reported" in text
    assert "GPU 0: NVIDIA GB10, memory not reported, free" in doctor
    assert told["gpus"][2]["power_limit_watts"] is None

    theirs = "GPU 3 may not be used by this user (Insufficient Permissions): a job's or a container's device list leaves it out"
    assert [refused["reason"] for refused in told["refused_gpus"]] == [theirs]
    assert theirs in text
    assert f"warn     GPU: {theirs}" in doctor
    assert plan.count("not used:") == 1
    assert f"not used: {theirs}" in plan

    unknown = "the driver does not say who computes on GPU 4: somebody may, and the times would not be its own"
    assert told["gpus"][3]["processes"] is None
    assert unknown in text
    assert unknown in plan
    assert "warn     GPU 4: NVIDIA L4, 23 GiB; the driver does not say who computes on it" in doctor
    assert "GPU 5: NVIDIA L4, 23 GiB, free" in doctor


@pytest.mark.parametrize("error", ["!4", "!999"])
def test_a_gpu_whose_users_are_not_told_is_used_and_not_called_free(fleet: Show, error: str) -> None:
    fleet(Fleet((replace(HIDES_PROCESSES, processes=error),)))
    machine = detect("all")
    assert machine.gpus[0].processes is None
    assert len(machine.notes) == 1


def test_a_field_in_error_costs_that_field_of_the_telemetry_only(fleet: Show) -> None:
    one = Fleet((FakeGpu(power_watts="!999", celsius=51),))
    fleet(one)
    with session() as library:
        gpus = GpuSampler(library)
        row: dict[str, Any] | None = gpus.sample(uuid_of(0))
        assert row is not None
        assert (row["power_watts"], row["energy_joules"]) == (None, None)
        assert (row["temperature_celsius"], row["utilisation_percent"]) == (51, 97)
        fleet(one.with_gpu(0, power_watts=70.0))
        healed = gpus.sample(uuid_of(0))
    assert healed is not None
    assert healed["power_watts"] == pytest.approx(70, abs=0.1)
