"""GPUs in states that a person has to mend, in the kit, in the matrix and in the doctor: NVML's and CUDA's libraries are stand-ins.

Each command says the state and ends with its exit code, measures nothing and counts nothing as done; after the state is mended the same
command measures. The frameworks are replayed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runner.paths import PROJECT
from runner.results import store
from runner.results.store import RunStore
from tests.fixtures.weekly import drawn, only_with
from tests.stand_ins import fleet as stand_ins
from tests.stand_ins.fleet import FakeGpu, Fleet, uuid_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORDS = ("--frameworks", "torch", "--workloads", "gru-imdb", "--precision", "fp32", "--repeats", "1")

H100 = FakeGpu("NVIDIA H100 80GB HBM3", capability="9.0", memory_bytes=80 << 30, power_limit_watts=700.0)
PART = replace(H100, name=f"{H100.name} MIG 1g.10gb", memory_bytes=10 << 30, power_watts=None, celsius=None)
WELL = Fleet((H100,))
CUT = Fleet((replace(H100, mig=1, instances=(PART, PART)),))


@dataclass(frozen=True)
class Site:
    """A machine whose driver is a stand-in."""

    folder: Path
    python: Path
    kit: Path

    def show(self, fleet: Fleet, line: str = "") -> None:
        """From now on the machine has these GPUs; `line` is for CUDA's stand-in."""
        file = fleet.write(self.folder / "fleet")
        file.write_text(f"{file.read_text()}{line}\n")

    def environment(self) -> dict[str, str]:
        own = {"XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data", "DLBENCH_LEASES": "leases"}
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "PYTHONPATH": str(PROJECT),
            "ASKS_CUDA": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": str(self.folder / "driver"),
            stand_ins.FLEET_VARIABLE: str(self.folder / "fleet"),
            **{name: str(self.folder / part) for name, part in own.items()},
        }

    def commands(self) -> dict[str, list[str]]:
        measured = ["--python", str(self.python), *WORDS]
        out = str(self.folder / "results")
        runner = [sys.executable, "-m", "runner"]
        return {
            "kit": [sys.executable, "-I", "-S", str(self.kit / "kit.py"), "--out", str(self.folder / "kit"), *measured],
            "matrix": [*runner, "matrix", "--engine", "host", "--modes", "default", "--out", out, *measured],
            "doctor": [*runner, "doctor", "--format", "json", "--out", out],
        }

    def goes_on(self, name: str) -> None:
        """Go on with what was begun, to its end: the kit's command is the same."""
        command = self.commands()[name]
        if name == "matrix":
            (run,) = (path.parent.name for path in self.folder.glob("results/*/run.json"))
            command = [*command[:4], "--resume", run, "--out", str(self.folder / "results")]
        again = self.ended(command)
        assert again.returncode == 0, again.stderr

    def ended(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), cwd=PROJECT, timeout=120, check=False
        )

    def run(self, name: str, *more: str) -> tuple[int, str]:
        """(the exit code, what a person reads) of a command."""
        ended = self.ended([*self.commands()[name], *more])
        if name != "doctor":
            return ended.returncode, ended.stderr
        checks = [check for check in json.loads(ended.stdout)["checks"] if check["status"] != "ok"]
        # What this machine's engine, pip and disk are like is not of the GPUs.
        checks = [check for check in checks if re.match(r"driver|GPU|CUDA|MIG", check["name"])]
        lines = [f"{check['status']} {check['name']}: {check['saw']}; {check['fix']}" for check in checks]
        return int(any(check["status"] == "fail" for check in checks)), "\n".join(lines)

    def stored(self, name: str) -> bool:
        """True once a command has stored a result."""
        if name == "kit":
            return any(self.folder.glob("kit/steps/*.said"))
        return any(RunStore(path.parent).parcels() for path in self.folder.glob("results/*/run.json"))

    def measured(self, name: str) -> list[dict[str, Any]]:
        """The results that a command has stored."""
        if name == "kit":
            return [{"status": json.loads(path.read_text())["status"]} for path in self.folder.glob("kit/steps/*.said")]
        folders = [path.parent for path in (self.folder / "results").glob("*/run.json")]
        begun = [folder for folder in folders if RunStore(folder).parcels()]
        return [row for folder in begun for row in store.read([folder], "cells").to_pylist()]


@pytest.fixture
def site(
    kit: Path, interpreter: Callable[..., Path], nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Site:
    # The tables of a run are read with the key of the installation that made them.
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    driver = tmp_path / "driver"
    shutil.copytree(nvml_library, driver)
    command = [str(stand_ins.compiler()), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, str(stand_ins.HERE / "cuda.c"), "-o", str(driver / "libcuda.so.1")], check=True)
    return Site(tmp_path, interpreter(kinds=("cpu", "cuda")), kit)


def measures(site: Site, name: str) -> None:
    """The command, unchanged, measures now, or finds the machine well."""
    code, said = site.run(name)
    assert code == 0, said
    if name != "doctor":
        assert {row["status"] for row in site.measured(name)} == {"ok"}


STATES = [
    pytest.param(
        replace(WELL, init_error=18), "cuinit 803", WELL, ("version mismatch", "restart the machine"), id="mismatch"
    ),
    pytest.param(
        Fleet((replace(H100, compute_mode=2),)),
        "",
        Fleet((replace(H100, compute_mode=3),)),
        ("its compute mode is prohibited", "nvidia-smi -i 0 -c DEFAULT"),
        id="prohibited",
    ),
    pytest.param(
        Fleet((replace(H100, mig=1),)),
        "",
        CUT,
        ("MIG is on and it is cut into no instance", "nvidia-smi mig -cgi"),
        id="mig-uncut",
    ),
    pytest.param(WELL, "cuinit 100", WELL, ("cuInit says 100", "look at CUDA_VISIBLE_DEVICES"), id="no-device"),
    pytest.param(WELL, "cuinit 101", WELL, ("cuInit says 101", "`nvidia-smi -L` tells"), id="no-such-device"),
    pytest.param(WELL, "cuinit 803", WELL, ("cuInit says 803", "restart the machine"), id="other-libcuda"),
    pytest.param(WELL, "cuinit 804", WELL, ("cuInit says 804", "take its folder `compat` out"), id="compat"),
    pytest.param(WELL, "cuinit 802", WELL, ("cuInit says 802", "start nvidia-fabricmanager"), id="fabric-manager"),
    pytest.param(WELL, "cuinit 999", WELL, ("cuInit says 999", "modprobe nvidia_uvm"), id="no-uvm"),
    pytest.param(
        Fleet((replace(H100, lost=1),)), "", WELL, ("GPU is lost", "it needs a reset"), id="fallen-off-the-bus"
    ),
]
# Each state is told by one of the two.
TOLD = [pytest.param(name, *state.values, id=f"{state.id}-{name}") for state in STATES for name in ("kit", "doctor")]
BY_MATRIX = [
    pytest.param(
        "matrix",
        *state.values,
        marks=only_with("DLBENCH_FAULTS", "the kit and the doctor are tried"),
        id=f"{state.id}-matrix",
    )
    for state in STATES
]


@pytest.mark.parametrize(("name", "state", "line", "mended", "said"), [*drawn("DLBENCH_FAULTS", 2, TOLD), *BY_MATRIX])
def test_a_state_is_told_measures_nothing_and_the_same_command_measures_when_it_is_mended(
    site: Site, name: str, state: Fleet, line: str, mended: Fleet, said: tuple[str, str]
) -> None:
    site.show(state, line)
    code, sentence = site.run(name)
    assert code == (1 if name == "doctor" else 4), sentence
    words = ("version mismatch", "restart the machine") if name == "doctor" and "mismatch" in said[0] else said
    assert all(word in sentence for word in words if not (name == "doctor" and word == "it needs a reset")), sentence
    assert site.measured(name) == []
    site.show(mended)
    measures(site, name)


@pytest.mark.parametrize("name", ["kit", "matrix"])
def test_a_gpu_in_exclusive_mode_that_somebody_holds_is_left_alone_and_measured_when_it_is_free(
    site: Site, name: str
) -> None:
    free = replace(H100, compute_mode=3)
    site.show(Fleet((replace(free, processes=f"{os.getpid()}:{1 << 20}"), free)))
    # The other GPU is free, and one process at a time computes on it.
    measures(site, name)
    _, said = site.run("doctor")
    assert "warn GPU 1: NVIDIA H100 80GB HBM3: its compute mode is exclusive process" in said
    assert "is in use by" in said


# The holder is in another container, where NVML names no process.
HELD = "framework: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
OLD = (
    "no-device: torch 2.13.0 (CUDA 13.0) opens no GPU, and the CUDA driver does: the driver is of CUDA 12.2 and too old"
)


@pytest.mark.parametrize("error", [HELD, OLD])
@pytest.mark.parametrize("name", ["kit", "matrix"])
def test_a_gpu_that_the_framework_s_first_call_does_not_open_is_measured_by_the_same_command_when_it_does(
    site: Site, name: str, error: str
) -> None:
    """cuInit answers: somebody whom NVML does not name holds the GPU, or the driver is too old for the framework."""
    site.show(Fleet((replace(H100, compute_mode=3),)))
    fails = site.python.with_name(f"{site.python.name}.fails")
    fails.write_text(error)
    code, said = site.run(name)
    assert code == 4, said
    assert error.partition(": ")[2][:60] in said
    assert name == "matrix" or site.measured(name) == []
    fails.unlink()
    site.goes_on(name)
    assert {row["status"] for row in site.measured(name)} == {"ok"}


def test_the_kit_does_not_advise_an_option_that_it_does_not_have(site: Site) -> None:
    site.show(Fleet((replace(H100, compute_mode=3, processes=f"{os.getpid()}:{1 << 20}"),)))
    code, said = site.run("kit")
    assert code == 4
    assert re.search(r"is in use by .*; wait for it; --device cpu measures the CPU", said), said
    site.show(WELL)
    measures(site, "kit")


def test_each_instance_of_a_cut_gpu_is_measured_as_a_device_of_its_own(site: Site) -> None:
    site.show(CUT)
    code, said = site.run("matrix", "--each-gpu")
    assert code == 0, said
    instances = {uuid_of(1, "MIG"), uuid_of(2, "MIG")}
    assert {uuid for row in site.measured("matrix") for uuid in row["device_uuids"]} == instances


@only_with("DLBENCH_FAULTS", "instances of a cut GPU are measured side by side")
def test_sixteen_gpus_are_measured_side_by_side_and_the_kit_takes_one(site: Site) -> None:
    site.show(Fleet((H100,) * 16))
    code, said = site.run("matrix", "--each-gpu")
    assert code == 0, said
    assert {uuid for row in site.measured("matrix") for uuid in row["device_uuids"]} == set(WELL_SIXTEEN)
    measures(site, "kit")
    code, said = site.run("doctor")
    assert (code, said) == (0, "")


WELL_SIXTEEN = [uuid_of(place) for place in range(16)]


@pytest.mark.parametrize("name", ["kit", "matrix"])
def test_a_gpu_that_is_lost_in_mid_run_ends_the_command_and_it_goes_on_after_the_reset(site: Site, name: str) -> None:
    site.show(WELL)
    # The replayed cell of a GPU takes a second; there are more cells than one.
    process = subprocess.Popen(
        [*site.commands()[name], *(("--repeats", "6") if name == "matrix" else ())],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=site.environment(),
        cwd=PROJECT,
    )
    end = time.monotonic() + 60
    while not site.stored(name):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)
    site.show(Fleet((replace(H100, lost=1),)))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert "off the bus" in said or "fell off" in said, said
    before = [row["status"] for row in site.measured(name)].count("ok")
    site.show(WELL)
    site.goes_on(name)
    statuses = [row["status"] for row in site.measured(name)]
    assert before < len(statuses) == statuses.count("ok")
