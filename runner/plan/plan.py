"""Which cells there are, and why each combination that is left out was left out. Pure: nothing here touches the machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runner.catalog.images import Image, suggest
from runner.catalog.workloads import Workload
from runner.errors import UserError
from runner.machine.devices import Gpu, Machine
from runner.plan.request import Request

# TF32 came with compute capability 8.0 (NVIDIA, Ampere tuning guide), bfloat16 units too.
_MIN_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3), "fp8": (8, 9)}
# Mixed precision takes what its half type takes.
_HALF = {"amp-fp16": "fp16", "amp-bf16": "bf16"}
# Framework -> mixed precision -> the kinds of devices, and the workloads, with which it does not train all the same, and why.
Amp = Mapping[str, Mapping[Any, Mapping[Any, str]]]
_NOT_ON_A_CPU = {"tf32": "a CPU has no TF32 unit"}


class PlanError(UserError):
    """Something was asked for that does not exist; the message says what does."""


@dataclass(frozen=True)
class Cell:
    """One thing to measure. Two cells with the same content are the same cell, in whatever run."""

    image: str
    framework: str
    workload: str
    precision: str
    preset: str
    mode: str
    device_kind: str  # cpu | cuda
    device_model: str
    devices: int
    batch: int
    seed: int
    lock_sha256: str
    device_uuid: str = ""  # the one GPU that it is for; "": any of its model
    scaling: str = (
        ""  # of several devices, which batch stays: weak (that of each) | strong (that of all); "": one device
    )

    @property
    def id(self) -> str:
        """The first 16 hex digits of the sha256 of its content as canonical JSON, without `scaling` where there is none:
        cells of one device have the ids that they had before there were others."""
        content = {name: value for name, value in asdict(self).items() if value or name != "scaling"}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def takes(self) -> int:
        """How many devices of the machine it holds: what a CPU cell calls devices are processes that share the one CPU."""
        return 1 if self.device_kind == "cpu" else self.devices

    @property
    def label(self) -> str:
        mode = "" if self.mode == "default" else f" {self.mode}"
        several = f" x{self.devices} {self.scaling}" if self.devices > 1 else ""
        only = f" {self.device_uuid}" if self.device_uuid else ""
        return f"{self.image} {self.framework}{mode} {self.workload} {self.precision}{several}{only}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"id": self.id}


@dataclass(frozen=True)
class Skip:
    """A combination that is left out, with the sentence that says why."""

    image: str
    framework: str
    workload: str
    precision: str
    mode: str
    device_kind: str
    device_model: str
    reason: str
    devices: int = 1
    device_uuid: str = ""


@dataclass(frozen=True)
class Plan:
    cells: tuple[Cell, ...]
    skips: tuple[Skip, ...]

    def skipped_by_reason(self) -> dict[str, list[Skip]]:
        grouped: dict[str, list[Skip]] = {}
        for skip in self.skips:
            grouped.setdefault(skip.reason, []).append(skip)
        return grouped


def plan(
    request: Request,
    images: Sequence[Image],
    workloads: Mapping[str, Workload],
    adapters: Collection[tuple[str, str]],
    modes: Mapping[str, Collection[str]],
    machine: Machine,
    unfit: Callable[[Image], str | None],
    parallel: Collection[str] = (),
    amp: Amp | None = None,
) -> Plan:
    """Every combination of the images and workloads on this machine, as a cell or as a skip. Raises PlanError.

    `unfit` says why the engine cannot run an image; `adapters` are (framework, module) pairs; `modes` are each framework's;
    `parallel` are the frameworks that train on several devices; `amp` is what each says of mixed precision.
    """
    _check_names(request, images, workloads, modes)
    twins = {image.cpu_twin for image in images if image.cpu_twin}
    cells: list[Cell] = []
    skips: list[Skip] = []
    for image, framework, workload, precision, mode in _combinations(request, images, workloads, modes):
        for target in _targets(image, machine, request):
            reason = (
                _image_reason(image, machine, twins, request.images)
                or unfit(image)
                or target.reason
                or (_gpu_reason(image, target.gpu) if target.gpu else None)
                or _adapter_reason(framework, workload, adapters)
                or _mode_reason(framework, mode, modes[framework])
                or _precision_reason(precision, workload, image, target.gpu)
                or _amp_reason(framework, workload.name, precision, target, amp or {})
                or _memory_reason(workload, target.gpu)
                or _several_reason(framework, workload, target.count, parallel, request)
            )
            if reason:
                why = (target.kind, target.model, reason, target.count, target.uuid)
                skips.append(Skip(image.name, framework, workload.name, precision, mode, *why))
                continue
            where = (request.preset, mode, target.kind, target.model, target.count)
            what = (workload.batch_of(request.preset), request.seed, image.lock_sha256, target.uuid)
            scaling = request.scaling if target.count > 1 and workload.task == "train" else ""
            cells.append(Cell(image.name, framework, workload.name, precision, *where, *what, scaling))
    return Plan(tuple(cells), tuple(skips))


def _combinations(
    request: Request,
    images: Sequence[Image],
    workloads: Mapping[str, Workload],
    modes: Mapping[str, Collection[str]],
) -> Iterator[tuple[Image, str, Workload, str, str]]:
    for image in images:
        for framework in image.frameworks:
            if request.frameworks and framework not in request.frameworks:
                continue
            for workload in workloads.values():
                if not request.workloads or workload.name in request.workloads:
                    asked = sorted(modes[framework], key=_default_first) if request.modes == ("all",) else request.modes
                    for precision in request.precisions or workload.precisions:
                        for mode in asked:
                            yield image, framework, workload, precision, mode


def _default_first(mode: str) -> tuple[bool, str]:
    return mode != "default", mode


def _check_names(
    request: Request,
    images: Sequence[Image],
    workloads: Mapping[str, Workload],
    modes: Mapping[str, Collection[str]],
) -> None:
    offered = {mode for image in images for name in image.frameworks for mode in modes[name]}
    for option, asked, known in (
        ("--frameworks", request.frameworks, sorted({name for image in images for name in image.frameworks})),
        ("--workloads", request.workloads, sorted(workloads)),
        ("--modes", None if request.modes == ("all",) else request.modes, sorted(offered, key=_default_first)),
        ("--precision", request.precisions, sorted({p for each in workloads.values() for p in each.precisions})),
    ):
        for name in asked or ():
            if name not in known:
                there = ", ".join(known) or "none"
                raise PlanError(f"{option}: there is no {name!r}{suggest(name, known)}; there is {there}")


@dataclass(frozen=True)
class _Target:
    """What a cell may run on: any `count` GPUs of a model, or one GPU, or the CPU; or why it may not."""

    kind: str
    model: str
    count: int = 1
    gpu: Gpu | None = None  # one of that model
    uuid: str = ""
    reason: str | None = None


def _targets(image: Image, machine: Machine, request: Request) -> list[_Target]:
    """The devices that an image is meant for."""
    if image.accelerator == "cpu":
        there = len(machine.cpu.cpus)
        return [
            _Target("cpu", machine.cpu.model, count, reason=_cpus_reason(count, there)) for count in request.devices
        ]
    models: dict[str, list[Gpu]] = {}
    for gpu in machine.gpus:
        models.setdefault(gpu.model, []).append(gpu)
    found = []
    if request.each_gpu:
        found += [_Target("cuda", gpu.model, gpu=gpu, uuid=gpu.uuid) for gpu in machine.gpus]
        found += [_Target("cuda", each.model, reason=each.reason) for each in machine.refused]
    else:
        for model, gpus in models.items():
            for count in request.devices:
                # the one with the least memory: whatever fits there fits on its twins
                least = min(gpus, key=_usable_bytes)
                found.append(_Target("cuda", model, count, least, reason=_count_reason(count, gpus)))
        for model in dict.fromkeys(each.model for each in machine.refused):
            if model not in models:
                why = "; ".join(each.reason for each in machine.refused if each.model == model)
                found.append(_Target("cuda", model, reason=why))
    return found or [_Target("cuda", "")]


def _cpus_reason(count: int, there: int) -> str | None:
    if count == 1 or count <= there:
        return None
    return f"{count} devices of a CPU are {count} processes that share its CPUs, of which there {_are(there)} to use"


def _count_reason(count: int, gpus: Sequence[Gpu]) -> str | None:
    if count > 1 and gpus[0].instance is not None:
        return f"{gpus[0].model}: MIG instances cannot work together, and it takes {count} GPUs"
    there = len({gpu.board for gpu in gpus})
    return f"it takes {count} GPUs, and of {gpus[0].model} there {_are(there)} to use" if there < count else None


def _several_reason(
    framework: str, workload: Workload, count: int, parallel: Collection[str], request: Request
) -> str | None:
    if count == 1:
        return None
    if workload.task == "infer":
        return f"{workload.name} is measured on one device: only training and ops use several"
    if framework not in parallel:
        return f"{framework} uses one device here; those that use several: {', '.join(sorted(parallel)) or 'none'}"
    if workload.task == "operators":
        return None  # the all-reduce, which shares no batch
    if workload.batch % count:
        return f"{count} devices cannot share {workload.name}'s batch of {workload.batch} evenly, and parity is proved on it"
    if request.scaling == "strong" and workload.batch_of(request.preset) % count:
        batch = workload.batch_of(request.preset)
        return f"{count} devices cannot share the batch of {batch} evenly that {workload.name} has at preset {request.preset}"
    items = workload.preset(request.preset).train_items
    wanted = workload.batch_of(request.preset) * count
    if request.scaling == "weak" and wanted > items:
        return (
            f"weak scaling of {workload.name} on {count} devices takes a batch of {wanted}, and preset {request.preset} trains on "
            f"{items}; --scaling strong shares one batch out"
        )
    return None


def _are(count: int) -> str:
    return f"is {count}" if count == 1 else f"are {count}"


def _usable_bytes(gpu: Gpu) -> int:
    """What a cell may take of a GPU's memory: what is free where somebody else uses it too."""
    return gpu.memory_bytes if gpu.free_bytes is None or not gpu.processes else gpu.free_bytes


def _memory_reason(workload: Workload, gpu: Gpu | None) -> str | None:
    if gpu is None or workload.device_memory_gb is None or _usable_bytes(gpu) >= workload.device_memory_gb * 1e9:
        return None
    free = "free " if gpu.processes else ""
    return f"{workload.name} needs {workload.device_memory_gb:g} GB, and {gpu} has {_usable_bytes(gpu) / 1e9:.1f} GB {free}".strip()


def _image_reason(image: Image, machine: Machine, twins: Collection[str], asked: Collection[str]) -> str | None:
    if image.untested and image.name not in asked:
        return f"untested: {image.untested}; --images {image.name} runs it all the same"
    if image.accelerator == "cuda" and not machine.gpus and not machine.refused:
        instead = f"; its CPU twin {image.cpu_twin} stands in" if image.cpu_twin else ""
        return f"the image needs a GPU and {machine.why_no_gpu or 'none was given'}{instead}"
    if image.accelerator == "cpu" and machine.gpus and image.name in twins and not asked:
        return "the CPU twin of a GPU image, and there is a GPU; --images names it to run it all the same"
    return None


def _gpu_reason(image: Image, gpu: Gpu) -> str | None:
    if image.min_driver and _numbers(gpu.driver) < _numbers(image.min_driver):
        return f"the NVIDIA driver is {gpu.driver}, and the image's CUDA {image.cuda} needs {image.min_driver} or newer"
    capability = _numbers(gpu.compute_capability)
    low, high = image.min_compute_capability, image.max_compute_capability
    if (low and capability < _numbers(low)) or (high and capability > _numbers(high)):
        return (
            f"{gpu.model} has compute capability {gpu.compute_capability}, and the image holds code for {low} to {high}"
        )
    return None


def _adapter_reason(framework: str, workload: Workload, adapters: Collection[tuple[str, str]]) -> str | None:
    if (framework, workload.module) in adapters:
        return None
    return f"its framework has no adapter for {workload.name} yet"


def _mode_reason(framework: str, mode: str, modes: Collection[str]) -> str | None:
    if mode in modes:
        return None
    return f"{framework} has no mode {mode!r}; it has {', '.join(sorted(modes, key=_default_first))}"


def _precision_reason(precision: str, workload: Workload, image: Image, gpu: Gpu | None) -> str | None:
    if precision not in workload.precisions:
        return f"{workload.name} is not specified at {precision}"
    if gpu is None and precision in _NOT_ON_A_CPU:
        return _NOT_ON_A_CPU[precision]
    if _HALF.get(precision, precision) not in image.precisions:
        return f"the image does not offer {precision}"
    needed = _MIN_CAPABILITY.get(_HALF.get(precision, precision))
    if gpu and needed and _numbers(gpu.compute_capability) < needed:
        return f"{gpu.model} has no {precision}: it takes compute capability {needed[0]}.{needed[1]}"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _amp_reason(framework: str, workload: str, precision: str, target: _Target, amp: Amp) -> str | None:
    """Why a framework does not train this in mixed precision on a device; the cell itself refuses for the same reasons (bench.contract)."""
    if precision not in _HALF:
        return None
    declared = amp.get(framework, {})
    if precision not in declared:
        return f"{framework} does not compute {precision} here"
    for where in (target.kind, workload):
        if why := declared[precision].get(where):
            return f"{framework} does not compute {precision} on {where}: {why}"
    if target.count > 1:
        return f"{precision} is measured on one device: loss scaling was not proved on several"
    return None
