"""Finds what this machine has: its processors as this process may use them, and its GPUs as NVML names them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench import rules
from runner.errors import CannotBeginError, UserError
from runner.machine import nvml, telemetry_cpu
from runner.machine.devices import Cpu, Gpu, Machine, Refused, bare_uuid, busy, is_busy, unknown_users
from runner.text import plural

# Which GPUs CUDA_VISIBLE_DEVICES leaves to a program, as CUDA reads it (CUDA programming guide, "CUDA Environment Variables").
#
# A batch system or the owner of a shared machine sets it. `--gpus all` means these GPUs, and a named GPU wins over the variable.

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

_MOST_SHOWN = 200


class VisibleError(UserError):
    """CUDA_VISIBLE_DEVICES cannot be read from outside CUDA; the message says what to write instead."""


def visible(
    gpus: Sequence[Gpu], refused: Sequence[Refused], variables: Mapping[str, str]
) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that the variable leaves, in the order of `gpus`, and a sentence where it leaves some out. Raises VisibleError."""
    value = variables.get(VARIABLE)
    if value is None or not gpus:
        return tuple(gpus), None
    words = [word.strip() for word in value.split(",")]
    if any(rules.whole(word) is not None for word in words):
        _check_order(value, gpus, variables.get(ORDER))
    named: list[Gpu | None] = []
    for word in words:
        fits = _named(word, gpus, refused)
        if not fits:
            # CUDA ignores what follows a name that it does not know.
            break
        named += fits
    left = tuple(gpu for gpu in gpus if gpu in named)
    if len(left) == len(gpus):
        return left, None
    which = f"GPU {', '.join(gpu.name for gpu in left)} of {len(gpus)}" if left else "no GPU"
    shown = value[:_MOST_SHOWN] or '""'
    return (
        left,
        f"{VARIABLE}={shown} leaves {which}: --gpus all means these, and a GPU that --gpus names is used all the same",
    )


def limits(gpus: Sequence[Gpu], refused: Sequence[Refused], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The effect of the variable here, as a sentence; none if it leaves every GPU. For commands that only show the GPUs."""
    try:
        sentence = visible(gpus, refused, variables)[1]
    except VisibleError as error:
        sentence = str(error)
    return (sentence,) if sentence else ()


def _check_order(value: str, gpus: Sequence[Gpu], order: str | None) -> None:
    """CUDA counts the fastest GPU first, by a rule of its own, unless it is told to count as the driver does."""
    models = {gpu.model.partition(" MIG ")[0] for gpu in gpus}
    if len(models) > 1 and order != "PCI_BUS_ID":
        raise VisibleError(
            f"{VARIABLE}={value[:_MOST_SHOWN]} counts GPUs in CUDA's own order, and this machine has {len(models)} models of them; "
            f"set {ORDER}=PCI_BUS_ID as well, write UUIDs, or say --gpus"
        )


def _named(word: str, gpus: Sequence[Gpu], refused: Sequence[Refused]) -> list[Gpu | None]:
    """The GPU that an entry names, or None in its place where it is broken; nothing where CUDA knows no such GPU."""
    if (index := rules.whole(word)) is not None:
        # CUDA does not count the GPUs that this user may not use.
        counted = sorted({gpu.index for gpu in gpus} | {int(gpu.name) for gpu in refused if not gpu.hidden})
        if index >= len(counted):
            return []
        return [next((gpu for gpu in gpus if gpu.index == counted[index]), None)]
    if word.startswith("MIG-GPU-"):
        raise VisibleError(
            f"{VARIABLE}: {word[:_MOST_SHOWN]} names a MIG instance as drivers before 470 did; `nvidia-smi -L` shows its UUID"
        )
    if not word.lower().startswith(("gpu-", "mig-")):
        return []
    whole = word.lower().startswith("gpu-")
    matches = {
        (gpu.board if whole else gpu.uuid): gpu
        for gpu in reversed(gpus)
        if bare_uuid(gpu.board if whole else gpu.uuid).startswith(bare_uuid(word))
    }
    # CUDA takes a GPU that is cut into instances for its first instance. It does not know a beginning that fits several.
    return list(matches.values()) if len(matches) == 1 else []


# Below one CPU's time even one thread is stopped for a part of each period.
_QUOTA = (
    "a control group (of a job, a service or a container) allows the time of {:.3g} CPUs of {}: a cell has {}, and stands still while the "
    "time is used up"
)


# How CPUs are set to save power (the kernel's Documentation/admin-guide/pm/cpufreq.rst). A virtual machine mostly says nothing.
_POWER = Path("/sys/devices/system/cpu")

# The numbers of vendors on the PCI bus.
_AMD, _NVIDIA = "0x1002", "0x10de"

# A folder for each GPU that the kernel's module drives.
_DRIVEN = Path("/proc/driver/nvidia/gpus")


# An index, or a UUID or the beginning of one.
_NAME = re.compile(r"[0-9:]+|(GPU-|MIG-)?[0-9a-f-]{4,}", re.IGNORECASE)


class HardwareError(CannotBeginError):
    """--gpus names GPUs that cannot be used; the message says which, and what there is."""


def detect(names: str, share: bool = False) -> Machine:
    """This machine with the named GPUs: `all`, `none`, or indexes and UUIDs between commas. Raises HardwareError and VisibleError.

    `all` means those that CUDA_VISIBLE_DEVICES leaves, where it is set.
    A GPU that somebody computes on is refused, unless `share`: the times of both would mean nothing.
    """
    cpu = detect_cpu()
    quota = [] if cpu.quota is None else [_QUOTA.format(cpu.quota, len(cpu.cpus), plural(cpu.count, "thread"))]
    if names == "none":
        return Machine(cpu, (), "GPUs were excluded by --gpus none", (), tuple(quota))
    gpus, refused, why = detect_gpus(cpu.cpus)
    # Another driver's error may be of a machine that has a driver and no GPU. The kernel's module lists those that it drives.
    # So does the bus, also where the module could not be loaded.
    silent = nvml.MISMATCH in (why or "") or (
        nvml.SILENT in (why or "") and (any(_DRIVEN.glob("*")) or pci_gpus(_NVIDIA) > 0)
    )
    to_mend = not gpus and (any(not refusal.hidden for refusal in refused) or silent)
    limit = None
    if names != "all":
        broken = "; ".join(refusal.reason for refusal in refused)
        gpus = choose_gpus(gpus, names.split(","), why or broken or None)
    elif gpus:
        gpus, limit = visible(gpus, refused, os.environ)
        why = why if gpus else limit
    if not share:
        refused += tuple(map(busy, filter(is_busy, gpus)))
        gpus = tuple(gpu for gpu in gpus if not is_busy(gpu))
    if not gpus and why is None:
        why = "; ".join(refusal.reason for refusal in refused)
    notes = [limit] if limit and gpus else []
    return Machine(cpu, gpus, why, refused, (*quota, *notes, *unknown_users(gpus)), to_mend)


def choose_gpus(gpus: Sequence[Gpu], names: Sequence[str], why: str | None = None) -> tuple[Gpu, ...]:
    """The GPUs that indexes (`3`, `3:0` for a MIG instance) or UUIDs or unique beginnings of them name.

    Raises HardwareError, or UserError for what is no name of a GPU.
    """
    if odd := [name for name in names if not gpus and not _NAME.fullmatch(name.strip())]:
        raise UserError(
            f"--gpus: {odd[0]!r:.100} is no index and no UUID of a GPU; say all, none, or what `runner gpus` shows"
        )
    if not gpus:
        raise HardwareError(f"--gpus {','.join(names)}: {why or 'this machine has no GPU to use'}; say --gpus none")
    all_gpus = ", ".join(f"{gpu.name} ({gpu.model}, {gpu.uuid})" for gpu in gpus)
    chosen: list[Gpu] = []
    for name in (part.strip() for part in names):
        if all(rules.whole(part) is not None for part in name.split(":")):
            fits = [gpu for gpu in gpus if name in (gpu.name, str(gpu.index))]
        else:
            fits = [gpu for gpu in gpus if name and bare_uuid(gpu.uuid).startswith(bare_uuid(name))]
        if len(fits) != 1:
            # A GPU that has an index or a UUID and is not there may have been lost.
            lost = not fits and _NAME.fullmatch(name)
            raise (HardwareError if lost else UserError)(
                f"--gpus: {name!r} names {'no' if not fits else 'more than one'} GPU; there are {all_gpus}"
            )
        if fits[0] not in chosen:
            chosen.append(fits[0])
    return tuple(chosen)


def detect_cpu() -> Cpu:
    """The CPUs of the affinity mask, and the limits of the control groups. A quota is an amount of time, and names no CPUs."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    limits = telemetry_cpu.group_limits()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = min(memory, limits.memory_bytes or memory)
    quota = limits.cpus if limits.cpus is not None and limits.cpus < len(allowed) else None
    cpu = Cpu(_cpu_model(), tuple(allowed), memory, _memory_nodes(), cores_of(allowed), quota, os.cpu_count())
    return with_power(cpu)


def cores_of(cpus: Sequence[int], folder: Path = Path("/sys/devices/system/cpu")) -> tuple[tuple[int, ...], ...]:
    """The CPUs grouped by physical core, as the kernel tells it. A CPU that it tells nothing of is a core by itself."""
    cores: dict[tuple[int, ...], None] = {}
    for cpu in cpus:
        siblings = {cpu}
        with contextlib.suppress(OSError, ValueError):
            listed = (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
            for part in listed.strip().split(","):
                first, _, last = part.partition("-")
                siblings |= set(range(int(first), int(last or first) + 1))
        cores[tuple(sorted(siblings.intersection(cpus)))] = None
    return tuple(cores)


def with_power(cpu: Cpu, folder: Path = _POWER) -> Cpu:
    """A processor with the governor, the energy preference and the turbo of its CPUs. Several values are all named."""
    own = [folder / f"cpu{number}" / "cpufreq" for number in cpu.cpus]
    return replace(
        cpu,
        governor=_all(each / "scaling_governor" for each in own),
        energy_preference=_all(each / "energy_performance_preference" for each in own),
        turbo=_turbo(folder),
    )


def _all(files: Iterable[Path]) -> str | None:
    return ", ".join(sorted({text for file in files if (text := _text(file))})) or None


def _turbo(folder: Path) -> str | None:
    """Intel's driver has a switch that turns it off, and the others one that turns it on."""
    off, on = _text(folder / "intel_pstate" / "no_turbo"), _text(folder / "cpufreq" / "boost")
    if off in ("0", "1"):
        return "off" if off == "1" else "on"
    return {"0": "off", "1": "on"}.get(on or "")


def _text(file: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text()[:80].strip() or None
    return None


def _memory_nodes() -> tuple[int, ...]:
    folders = Path("/sys/devices/system/node").glob("node[0-9]*")
    return tuple(sorted(int(path.name.removeprefix("node")) for path in folders))


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def pci_gpus(vendor: str, devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """How many GPUs of a vendor the machine has: display controllers, and accelerators that have no display."""

    def read(path: Path) -> str:
        try:
            return path.read_text().strip()
        except OSError:
            return ""

    own = [device for device in devices.glob("*") if read(device / "vendor") == vendor]
    return sum(read(device / "class").startswith(("0x03", "0x12")) for device in own)


def detect_gpus(allowed: Sequence[int]) -> tuple[tuple[Gpu, ...], tuple[Refused, ...], str | None]:
    """The GPUs that NVML finds, those that are broken, and a clause that says why there is none to use."""
    try:
        gpus, refused = nvml.discover(allowed)
    except nvml.NvmlError as error:
        amd = pci_gpus(_AMD)
        unused = f", and nothing here computes on its {plural(amd, 'AMD GPU')} (docs/images.md)" if amd else ""
        return (), (), f"{error}{unused}"
    if not gpus and not refused:
        return (), (), "the NVIDIA driver knows no GPU"
    return gpus, refused, None


# -- Disturbances before the first cell --------------------------------------------------------------------------------------------

_MEMORY, _PAGING = Path("/proc/meminfo"), Path("/proc/vmstat")
_SUPPLIES = Path("/sys/class/power_supply")
# Seconds, of which the kernel counts hundredths; and the part of the CPUs that an idle machine's services never take for so long.
_SHORTEST_LOOK, _SHARE = 0.2, 0.2
# Less free memory than this part of all makes the kernel drop the files that cells read.
_FREE = 0.1
# A run that is as much longer has as many more repeats of what is open.
_LONGER = 3


class Disturbances:
    """All that disturbs measurements on this machine: a look that lasts from now until it is asked."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _own_and_other_seconds()
        self._swapped, self._hot = _pages_swapped(), _throttle_count()

    def notes(self, cpus: Iterable[int], minutes: float | None = None) -> tuple[str, ...]:
        """A sentence for each disturbance, with what to do. `minutes`: the limit of the run."""
        return tuple(filter(None, (self._programs(minutes), self._memory(), self._heat(), *_power(cpus))))

    def _programs(self, minutes: float | None) -> str:
        """Other programs that keep more than _SHARE of the CPUs busy: neither this process nor a child that it waited for."""
        passed, after, cpus = time.monotonic() - self._began, _own_and_other_seconds(), os.cpu_count() or 1
        if self._before is None or after is None or passed < _SHORTEST_LOOK:
            return ""
        busy = min(float(cpus), (after - self._before) / passed)
        if busy <= _SHARE * cpus:
            return ""
        longer = f", or say --minutes {_LONGER * minutes:.0f}" if minutes else ""
        return f"other programs use {busy:.1f} of {plural(cpus, 'CPU')}, so figures will be open: end them{longer}"

    def _memory(self) -> str:
        fields = _fields(_MEMORY)
        free, whole = fields.get("MemAvailable:"), fields.get("MemTotal:")
        if (now := _pages_swapped()) is not None and self._swapped is not None and now > self._swapped:
            return "the machine swaps, so steps wait for its disk: end what needs the memory"
        if free is None or not whole or free >= _FREE * whole:
            return ""
        return f"{free / 2**20:.1f} of {whole / 2**20:.1f} GiB of memory are free: end what needs it, or cells may be stopped"

    def _heat(self) -> str:
        now = _throttle_count()
        hot = now is not None and self._hot is not None and now > self._hot
        return "the CPUs are so hot that they slow down: let the machine cool first" if hot else ""


def _power(cpus: Iterable[int]) -> Iterator[str]:
    """On battery, and where the CPUs are told to save power. Intel's driver and AMD's call their usual governor powersave, too."""
    supplies = [f"{_text(file / 'type')} {_text(file / 'online')}" for file in _children(_SUPPLIES)]
    if "Mains 0" in supplies and "Mains 1" not in supplies:
        yield "the machine runs on its battery, so its CPUs may be slow: plug it in"
    power = with_power(Cpu("", tuple(cpus), 0), _POWER).facts
    preference = power["cpu_energy_preference"]
    saves = preference in ("power", "balance_power") if preference else power["cpu_governor"] == "powersave"
    if saves:
        told = f"preference {preference}" if preference else "governor powersave"
        yield f"the CPUs save power ({told}): `cpupower frequency-set -g performance` gives their full clock"


def _own_and_other_seconds() -> float | None:
    """CPU seconds of all but this process and its children; None where the machine does not say."""
    with contextlib.suppress(OSError, ValueError):
        return telemetry_cpu.machine_seconds() - sum(os.times()[:4])
    return None


def _pages_swapped() -> int | None:
    fields = _fields(_PAGING)
    return fields["pswpin"] + fields["pswpout"] if {"pswpin", "pswpout"} <= fields.keys() else None


def _throttle_count() -> int | None:
    """How often heat slowed the CPUs down since the machine was started."""
    files = _POWER.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    counts = [count for file in files if (count := rules.whole(_text(file) or "")) is not None]
    return sum(counts) if counts else None


def _fields(file: Path) -> Mapping[str, int]:
    """The numbers of a file of the kernel, by the word before each."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = [line.split() for line in file.read_text().splitlines()]
        numbers = {words[0]: rules.whole(words[1]) for words in lines if len(words) > 1}
        return {name: number for name, number in numbers.items() if number is not None}
    return {}


def _children(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(folder.iterdir())
    return []
