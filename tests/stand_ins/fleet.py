"""Fleets of GPUs that are not there: the file that the NVML stand-in answers from, and the library itself, compiled here.

The runner's own nvidia-ml-py loads the library under its real name, so all of the runner's code is real.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).parent
FLEET_VARIABLE = "DLBENCH_FLEET"
LIBRARY = "libnvidia-ml.so.1"

# A user's own choice of GPUs does not concern a fleet.
CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@dataclass(frozen=True)
class FakeGpu:
    """One GPU as NVML tells it; None: it does not support the question; "!4": NVML's error 4 instead of an answer."""

    name: str = "NVIDIA L4"
    uuid: str = ""  # "": made of its place
    capability: str = "8.9"
    memory_bytes: int | None = 23 << 30
    used_bytes: int = 0
    cpus: str = "0-7"  # first-last
    numa: int | str = 0
    pci: str = ""
    pcie_generation: int = 4
    pcie_width: int = 16
    pcie_width_now: int | None = None
    persistence: int | None = 1
    ecc: int | None = 1
    power_limit_watts: float | None = 72.0
    default_power_limit_watts: float | None = 72.0
    max_sm_megahertz: int | None = 2040
    max_memory_megahertz: int | None = 6251
    application_sm_megahertz: int | None = None
    application_memory_megahertz: int | None = None
    vbios: str | None = "95.04.29.00.06"
    compute_mode: int | None = 0  # 2: prohibited, 3: exclusive process
    lockable: str | None = "yes"  # None: it has no lock for its clocks; "!4": root may lock them
    island: str | None = None  # GPUs of one island are joined by NVLink
    processes: str | None = None  # "pid:bytes pid:bytes"
    power_watts: float | str | None = 60.0
    wave_watts: float | None = None
    no_energy_counter: int | None = None
    celsius: int | None = 45
    memory_celsius: int | None = None
    sm_megahertz: int | None = 2040
    memory_megahertz: int | None = 6251
    throttle: int | None = 0
    utilisation: int | None = 97
    memory_utilisation: int | None = 40
    pcie_sent_bytes: int | None = None
    pcie_received_bytes: int | None = None
    lost: int | None = None
    handle: str | None = None  # an error of the GPU as a whole
    mig: int | None = None
    instances: tuple[FakeGpu, ...] = ()


def uuid_of(place: int, kind: str = "GPU") -> str:
    return f"{kind}-{place:08x}-5a5a-4b4b-8c8c-{place:012x}"


@dataclass(frozen=True)
class Fleet:
    """Every GPU of a machine, and its driver."""

    gpus: tuple[FakeGpu, ...]
    driver: str = "580.82.07"
    cuda_driver: int = 13000
    init_error: int | None = None
    xids: tuple[tuple[int, int], ...] = field(default=())  # (device, number), told once each

    def uuids(self) -> list[str]:
        return [gpu.uuid or uuid_of(place) for place, gpu in enumerate(self.gpus)]

    def devices(self) -> list[tuple[str, str]]:
        """(UUID, model) of all that a container can be given: every GPU, then every MIG instance."""
        parts = [instance for gpu in self.gpus for instance in gpu.instances]
        slices = [(part.uuid or uuid_of(at, "MIG"), part.name) for at, part in enumerate(parts, len(self.gpus))]
        return [*zip(self.uuids(), (gpu.name for gpu in self.gpus), strict=True), *slices]

    def with_gpu(self, place: int, **changes: object) -> Fleet:
        """The same fleet, one GPU changed."""
        gpus = list(self.gpus)
        gpus[place] = replace(gpus[place], **changes)  # type: ignore[arg-type]
        return replace(self, gpus=tuple(gpus))

    def lines(self) -> list[str]:
        found: dict[str, object] = {"driver": self.driver, "cuda_driver": self.cuda_driver, "count": len(self.gpus)}
        if self.init_error is not None:
            found["init_error"] = self.init_error
        found |= {f"xid{number}": f"{device} {xid}" for number, (device, xid) in enumerate(self.xids)}
        extra = len(self.gpus)
        for place, gpu in enumerate(self.gpus):
            found |= _device_lines(place, gpu, gpu.uuid or uuid_of(place))
            for number, instance in enumerate(gpu.instances):
                found[f"{place}.mig{number}"] = extra
                found |= _device_lines(extra, instance, instance.uuid or uuid_of(extra, "MIG"))
                extra += 1
        return [f"{key} {value}" for key, value in found.items()]

    def write(self, path: Path) -> Path:
        """Write the file, in one step: a program that is reading it sees the old fleet or the new one."""
        aside = path.with_name(f"{path.name}.new")
        aside.write_text("\n".join(self.lines()) + "\n")
        aside.replace(path)
        return path


def _device_lines(place: int, gpu: FakeGpu, uuid: str) -> dict[str, object]:
    values = {key: value for key, value in asdict(gpu).items() if value is not None and key != "instances"}
    values |= {"uuid": uuid, "pci": gpu.pci or f"00000000:{place + 1:02X}:00.0"}
    return {f"{place}.{key}": value for key, value in values.items()}


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


# NVIDIA's drivers by how they list processes: bytes of an entry by function, 0 where the function is missing. The sources stand in
# runner/machine/processes.py.
DRIVERS = {
    "440.33.01": {"V2": 0, "V3": 0},
    "470.256.02": {"V2": 24, "V3": 0},
    "510.39.01": {"V2": 24, "V3": 24},
    "535.54.03": {"V2": 24, "V3": 32},
    "535.98": {"V2": 24, "V3": 0},
    "580.82.07": {"V2": 24, "V3": 24},
}


def build_library(folder: Path, driver: str = "580.82.07") -> Path:
    """Compile the stand-in for a driver into a folder; the folder, for LD_LIBRARY_PATH."""
    made = folder / LIBRARY
    command = [str(compiler()), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}"]
    command += [f"-DPROCESSES_{function}={size}" for function, size in DRIVERS[driver].items()]
    subprocess.run([*command, "-o", str(made), str(HERE / "nvml.c"), "-lm"], check=True)
    return folder


def load_library(folder: Path) -> None:
    """Load it into this process: the real nvidia-ml-py then gets it by its name, whatever the machine has."""
    ctypes.CDLL(str(folder / LIBRARY), mode=os.RTLD_GLOBAL)


def environment(folder: Path, fleet: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a program that shall see the fleet."""
    paths = [str(folder), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    kept = {name: value for name, value in base.items() if name not in CUDA_VARIABLES}
    return {**kept, "LD_LIBRARY_PATH": ":".join(paths), FLEET_VARIABLE: str(fleet)}


def eight_gpus(busy_pid: int, busy: Sequence[int] = (7,)) -> Fleet:
    """Two models, one GPU cut by MIG, one that somebody else uses."""
    h100 = FakeGpu(
        "NVIDIA H100 80GB HBM3", capability="9.0", memory_bytes=80 << 30, power_limit_watts=700.0, island="switch"
    )
    slices = tuple(
        FakeGpu(f"{h100.name} MIG 3g.40gb", capability="9.0", memory_bytes=40 << 30, power_watts=None, celsius=None)
        for _ in range(2)
    )
    l4 = FakeGpu(numa=1, cpus="0-7")
    gpus = [h100, h100, h100, replace(h100, mig=1, instances=slices), l4, l4, l4, l4]
    for place in busy:
        gpus[place] = replace(gpus[place], processes=f"{busy_pid}:{2 << 30}", used_bytes=2 << 30)
    return Fleet(tuple(gpus))
