"""Which cells there are, and why each combination that is left out was left out. Pure: nothing here touches the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from bench import rules
from runner.catalog.cuda import PTX_DRIVER, precision_reason
from runner.catalog.frameworks import Framework
from runner.catalog.images import Image
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA, unknown_name
from runner.catalog.own_networks import OwnNetwork
from runner.catalog.workloads import Workload
from runner.errors import UserError
from runner.machine.devices import Gpu, Machine
from runner.plan.combination import Cell as Cell
from runner.plan.combination import Combination as Combination
from runner.plan.combination import Skip as Skip
from runner.plan.request import BEST, Request
from runner.results.rank.time_to_loss import LOSS_UNIT
from runner.text import visible


class PlanError(UserError):
    """An option names what does not exist. The message lists the names that do."""


@dataclass(frozen=True)
class Plan:
    cells: tuple[Cell, ...]
    skips: tuple[Skip, ...]


@dataclass(frozen=True)
class _Target:
    """The devices of a cell: any `count` GPUs of a model, or one GPU, or the CPU. `reason`: why the machine lacks them."""

    kind: str
    model: str
    count: int = 1
    # One GPU of the model.
    gpu: Gpu | None = None
    uuid: str = ""
    reason: str | None = None


def plan(
    request: Request,
    images: Sequence[Image],
    workloads: Mapping[str, Workload],
    frameworks: Mapping[str, Framework],
    machine: Machine,
    unfit: Callable[[Image], str | None],
) -> Plan:
    """Every combination of the images and workloads on this machine, as a cell or as a skip. Raises PlanError.

    `unfit` says why the engine cannot run an image.
    """
    _check_names(request, images, workloads, frameworks)
    twins = {image.cpu_twin for image in images if image.cpu_twin}
    sharing = sorted(framework.name for framework in frameworks.values() if framework.parallel)
    cells: list[Cell] = []
    skips = _without_frameworks(images, machine, unfit)
    for image, framework, workload, precision, mode, target in _combinations(
        request, images, workloads, frameworks, machine
    ):
        reason = (
            _image_reason(image, machine, twins, request.images)
            or unfit(image)
            or target.reason
            or (_gpu_reason(image, target.gpu) if target.gpu else None)
            or _workload_reason(framework, workload, request)
            or _mode_reason(framework, mode, image, (target.kind, precision, workload.name), target.count)
            or _precision_reason(precision, workload, image, target.gpu)
            or rules.tf32_reason(framework.name, framework.no_tf32, precision)
            or rules.half_reason(framework.name, framework.half, workload.name, precision, target.kind, target.count)
            or _device_reason(workload, precision, target)
            or _several_reason(framework, workload, target.count, sharing, request)
        )
        names: dict[str, Any] = {
            "image": image.name,
            "framework": framework.name,
            "workload": workload.name,
            "precision": precision,
            "mode": mode,
            "device_kind": target.kind,
            "device_model": target.model,
            "devices": target.count,
            "device_uuid": target.uuid,
        }
        if reason:
            skips.append(Skip(**names, reason=reason))
            continue
        cell = Cell(
            **names,
            preset=request.preset,
            batch=workload.batch_of(request.preset),
            seed=request.seed,
            lock_sha256=image.lock_sha256,
            scaling=request.scaling if target.count > 1 and workload.task == "train" else "",
            seeds="" if request.to_loss is None else "each",
        )
        cells.append(cell)
    return Plan(tuple(cells), tuple(skips))


def _without_frameworks(images: Sequence[Image], machine: Machine, unfit: Callable[[Image], str | None]) -> list[Skip]:
    """A skip for each image that nobody could look into, and that has no combinations for it."""
    nothing: dict[str, Any] = dict.fromkeys(("framework", "workload", "precision", "mode"), "")
    nothing |= {"device_kind": "cpu", "device_model": machine.cpu.model}
    reasons = {image.name: unfit(image) or "it has no framework" for image in images if not image.frameworks}
    return [Skip(**nothing, image=image, reason=reason) for image, reason in reasons.items()]


def _combinations(
    request: Request,
    images: Sequence[Image],
    workloads: Mapping[str, Workload],
    frameworks: Mapping[str, Framework],
    machine: Machine,
) -> Iterator[tuple[Image, Framework, Workload, str, str, _Target]]:
    for image in images:
        targets = _targets(image, machine, request)
        for framework in (frameworks[name] for name in image.frameworks):
            if request.frameworks and framework.name not in request.frameworks:
                continue
            for workload in workloads.values():
                if request.workloads and workload.name not in request.workloads:
                    continue
                if workload.on_request and not request.workloads and request.to_loss is None:
                    continue
                for precision in request.precisions or workload.precisions:
                    for mode in _modes(request, framework):
                        for target in targets:
                            if request.modes != BEST or _contends(framework, workload, mode, target):
                                yield image, framework, workload, precision, mode, target


def _modes(request: Request, framework: Framework) -> Sequence[str]:
    if request.modes == BEST:
        return ("default", *framework.contenders)
    return sorted(framework.modes, key=_default_first) if request.modes == ("all",) else request.modes


def _contends(framework: Framework, workload: Workload, mode: str, target: _Target) -> bool:
    """True if the mode may be the framework's fastest there. Of deep networks the host starts the kernels early enough in any mode."""
    return mode == "default" or (workload.name in ROSETTA and target.kind in framework.contenders[mode])


def _default_first(mode: str) -> tuple[bool, str]:
    return mode != "default", mode


def _check_names(
    request: Request,
    images: Sequence[Image],
    workloads: Mapping[str, Workload],
    frameworks: Mapping[str, Framework],
) -> None:
    offered = sorted({name for image in images for name in image.frameworks})
    modes = {mode for name in offered for mode in frameworks[name].modes}
    precisions = {precision for workload in workloads.values() for precision in workload.precisions}
    for option, names, existing in (
        ("--frameworks", request.frameworks, offered),
        ("--workloads", request.workloads, sorted(workloads)),
        ("--modes", () if request.modes in (BEST, ("all",)) else request.modes, sorted(modes, key=_default_first)),
        ("--precision", request.precisions, sorted(precisions)),
    ):
        if why := unknown_name(option, names, existing):
            raise PlanError(why)


def not_planned(
    cell: Cell, preset: str, seed: int, workloads: Mapping[str, Workload], frameworks: Collection[str]
) -> str | None:
    """The part of another machine's cell that does not follow from these options and this catalog; None where all does."""
    workload = workloads.get(cell.workload)
    if workload is None or cell.framework not in frameworks or cell.precision not in workload.precisions:
        return f"{cell.framework} {cell.workload} {cell.precision}"
    if (cell.preset, cell.seed, cell.batch) != (preset, seed, workload.batch_of(preset)):
        return "another preset, seed or batch"
    return None


def _targets(image: Image, machine: Machine, request: Request) -> list[_Target]:
    """The devices that an image is meant for."""
    if image.accelerator == "cpu":
        cpus = machine.cpu.count
        return [_Target("cpu", machine.cpu.model, count, reason=_cpus_reason(count, cpus)) for count in request.devices]
    if request.each_gpu:
        targets = [_Target("cuda", gpu.model, gpu=gpu, uuid=gpu.uuid) for gpu in machine.gpus]
        targets += [_Target("cuda", refused.model, reason=refused.reason) for refused in machine.refused]
    else:
        targets = list(_targets_by_model(machine, request.devices))
    return targets or [_Target("cuda", "")]


def _targets_by_model(machine: Machine, counts: Sequence[int]) -> Iterator[_Target]:
    models: dict[str, list[Gpu]] = {}
    for gpu in machine.gpus:
        models.setdefault(gpu.model, []).append(gpu)
    for model, gpus in models.items():
        # A cell may get any GPU of the model: what fits the one with the least memory fits them all.
        smallest = min(gpus, key=lambda gpu: _usable_bytes(gpu) or math.inf)
        for count in counts:
            yield _Target("cuda", model, count, smallest, reason=_count_reason(count, gpus))
    for model in dict.fromkeys(refused.model for refused in machine.refused):
        if model not in models:
            reasons = [refused.reason for refused in machine.refused if refused.model == model]
            yield _Target("cuda", model, reason="; ".join(reasons))


def _cpus_reason(count: int, cpus: int) -> str | None:
    if count == 1 or count <= cpus:
        return None
    return f"{count} devices of a CPU are {count} processes that share its CPUs, of which there {_are(cpus)} to use"


def _count_reason(count: int, gpus: Sequence[Gpu]) -> str | None:
    if count > 1 and gpus[0].instance is not None:
        return f"{gpus[0].model}: MIG instances cannot work together, and it takes {count} GPUs"
    boards = len({gpu.board for gpu in gpus})
    return f"it takes {count} GPUs, and of {gpus[0].model} there {_are(boards)} to use" if boards < count else None


def _several_reason(
    framework: Framework, workload: Workload, count: int, sharing: Sequence[str], request: Request
) -> str | None:
    """Why this does not run on several devices. `sharing` are the frameworks that can use several."""
    reason: str | None = rules.several_devices_reason(
        framework.name, framework.parallel, workload.name, workload.task, workload.canonical_batch, count
    )
    if reason and workload.task not in ("infer", "decode") and framework.parallel is None:
        return f"{reason}; those that use several: {', '.join(sharing) or 'none'}"
    if reason or count == 1 or workload.task != "train":
        return reason
    batch = workload.batch_of(request.preset)
    if request.scaling == "strong" and batch % count:
        return f"{count} devices cannot share the batch of {batch} evenly that {workload.name} has at preset {request.preset}"
    items = workload.preset(request.preset).train_items
    together = rules.batch_of_all(batch, count, request.scaling)
    if request.scaling == "weak" and together > items:
        return (
            f"weak scaling of {workload.name} on {count} devices takes a batch of {together}, and preset {request.preset} trains on "
            f"{items}; --scaling strong shares one batch out"
        )
    return None


def _are(count: int) -> str:
    return f"is {count}" if count == 1 else f"are {count}"


def _usable_bytes(gpu: Gpu) -> int | None:
    """The part of a GPU's memory that a cell may take: only the free part if somebody else uses it too, or may.

    None: the driver does not say.
    """
    return gpu.memory_bytes if gpu.free_bytes is None or gpu.processes == () else gpu.free_bytes


def _device_reason(workload: Workload, precision: str, target: _Target) -> str | None:
    gpu = target.gpu
    reason: str | None = rules.gpu_only_reason(workload.name, workload.gpu_only, target.kind)
    if reason:
        return reason
    usable, needs = _usable_bytes(gpu) if gpu is not None else None, workload.memory_gb(precision)
    if gpu is None or usable is None or usable >= needs * 1e9:
        return None
    free = "" if gpu.processes == () else " free"
    at = f" at {precision}" if isinstance(workload.device_memory_gb, dict) else ""
    return f"{workload.name}{at} needs {needs:g} GB, and {gpu} has {usable / 1e9:.1f} GB{free}"


def _loss_reason(workload: Workload, request: Request) -> str | None:
    """Why the time to a loss is not asked of this workload."""
    if request.to_loss is None:
        return None
    metric, epochs = workload.metric, workload.preset(request.preset).epochs
    if metric is None or metric.unit != LOSS_UNIT:
        instead = f"its metric is {metric.name}" if metric else "it has no metric"
        return f"{workload.name} has no held-out loss to time: {instead}"
    if epochs is None or epochs < 2:
        return f"{workload.name} is evaluated only after its training at preset {request.preset}"
    return None


def _image_reason(image: Image, machine: Machine, twins: Collection[str], named: Collection[str]) -> str | None:
    """`named` are the names and patterns that --images gives."""
    if image.untested and image.name not in named:
        return f"untested: {image.untested}; --images {image.name} runs it all the same"
    if image.accelerator == "cuda" and not machine.gpus and not machine.refused:
        instead = f"; its CPU twin {image.cpu_twin} stands in" if image.cpu_twin else ""
        return f"the image needs a GPU and {machine.why_no_gpu or 'none was given'}{instead}"
    if image.accelerator == "cpu" and machine.gpus and image.name in twins and not named:
        return "the CPU twin of a GPU image, and there is a GPU; --images names it to run it all the same"
    return None


def _gpu_reason(image: Image, gpu: Gpu) -> str | None:
    try:
        Version(gpu.driver)
    except InvalidVersion:
        return f"the NVIDIA driver says {visible(gpu.driver, 80)!r} as its version, which is none"
    if image.min_driver and Version(gpu.driver) < Version(image.min_driver):
        return f"the NVIDIA driver is {gpu.driver}, and the image's CUDA {image.cuda} needs {image.min_driver} or newer"
    capability = Version(gpu.compute_capability)
    low, high = image.min_compute_capability, image.max_compute_capability
    has = f"{gpu.model} has compute capability {gpu.compute_capability}"
    # Code runs on the later minor versions of its major one (CUDA C++ Programming Guide, "binary compatibility").
    too_new = high and capability > Version(high) and capability.major != Version(high).major
    if (low and capability < Version(low)) or too_new:
        return f"{has}, and the image holds code for {low} to {high}"
    if gpu.compute_capability in image.no_code_for:
        return f"{has}, and the image holds no code for it"
    release = image.ptx_only.get(gpu.compute_capability)
    least = PTX_DRIVER[release] if release else "0"
    if Version(gpu.driver) < Version(least):
        return (
            f"{has}, and for it the image holds some kernels only as PTX of CUDA {release}, which a driver from {least} on "
            f"can compile; the NVIDIA driver is {gpu.driver}"
        )
    return None


def _workload_reason(framework: Framework, workload: Workload, request: Request) -> str | None:
    if isinstance(workload, OwnNetwork):
        others = f"{workload.name} has a file for {' and '.join(sorted(workload.files))} and for no other framework"
        return None if framework.name in workload.files else others
    if workload.module not in framework.modules:
        return f"its framework has no adapter for {workload.name} yet"
    return _loss_reason(workload, request)


def _mode_reason(
    framework: Framework, mode: str, image: Image, where: tuple[str, str, str], devices: int
) -> str | None:
    """`where`: the kind of device, the precision and the workload of the cell."""
    reason: str | None = rules.mode_reason(
        framework.name, mode, framework.modes, framework.modes_except, where, devices
    )
    if reason:
        return reason
    if mode in image.no_modes:
        return f"{image.name} cannot run mode {mode!r}: {image.no_modes[mode]}"
    since = framework.modes_since.get(mode)
    release = image.version_of(framework.name)
    if since is None or Version(release) >= Version(since):
        return None
    return f"{framework.title} {release} has no mode {mode!r}; {since} is the first that has it"


def _precision_reason(precision: str, workload: Workload, image: Image, gpu: Gpu | None) -> str | None:
    if precision not in workload.precisions:
        return f"{workload.name} is not specified at {precision}"
    if gpu is None and (reason := precision_reason(precision, "", None)):
        return reason
    if gpu is None and precision in image.not_on_cpu:
        return f"{image.name} does not compute {precision} on a CPU: {image.not_on_cpu[precision]}"
    # Mixed precision takes what its half type takes.
    if rules.MIXED.get(precision, precision) not in image.precisions:
        return f"the image does not offer {precision}"
    return precision_reason(precision, gpu.model, gpu.compute_capability) if gpu else None


# The order in which cells are measured where time is short: a broad view first, the depth later. Pure.


def tiers(
    cells: Sequence[Cell],
    images: Mapping[str, Image],
    contending: bool = False,
    named: Collection[str] = (),
) -> list[list[Cell]]:
    """The cells in groups, the most telling group first. Each cell is in one group.

    `contending`: the modes of a framework are planned to find its fastest, so each of them is as usual as the others.
    `named`: the words of the request on images. An image that has its own name there counts as a newest one: the person compares it.

    GPU cells come before CPU cells. Of each kind of device: the newest image of the frameworks that most people use, with the workloads of
    the Rosetta stone and the person's own, at every precision; the same of the other frameworks, at the first precision; the other cells
    of these images; the cells of older images.
    In a group the frameworks that most people use come first.
    """
    newest = _newest(cells, images)
    # In the order in which the request gave them.
    names = ("devices",) if contending else ("mode", "devices")
    usual = {name: getattr(cells[0], name) for name in names} if cells else {}
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        is_newest = cell.image in named or newest[_family(cell)] == cell.image
        is_usual = all(getattr(cell, name) == value for name, value in usual.items())
        is_first = cell.framework in FIRST_FRAMEWORKS
        is_asked = cell.workload in ROSETTA or rules.is_own(cell.workload)
        if is_newest and is_usual and is_asked and (is_first or cell.precision == cells[0].precision):
            tier = 0 if is_first else 1
        else:
            tier = 2 if is_newest else 3
        groups.setdefault((int(cell.device_kind != "cuda"), tier), []).append(cell)
    return [sorted(groups[key], key=_place) for key in sorted(groups)]


def _place(cell: Cell) -> int:
    """The place of a cell's framework among those that most people use; sorting keeps the plan's order of the others."""
    known = cell.framework in FIRST_FRAMEWORKS
    return FIRST_FRAMEWORKS.index(cell.framework) if known else len(FIRST_FRAMEWORKS)


def _family(cell: Cell) -> tuple[str, str, str]:
    return cell.framework, cell.device_kind, cell.device_model


def _newest(cells: Iterable[Cell], images: Mapping[str, Image]) -> dict[tuple[str, str, str], str]:
    """(framework, kind of device, device) -> the planned image with its newest version, and of these the newest CUDA.

    Of images of one version the one on the first framework's CUDA comes before a newer CUDA: frameworks are compared on one CUDA.
    An image that the machine cannot run has no cell, so it is not among them.
    """
    newest: dict[tuple[str, str, str], str] = {}
    offered = dict.fromkeys((_family(cell), cell.image) for cell in cells)
    for family, name in sorted(offered, key=lambda one: one[0][0] != FIRST_FRAMEWORKS[0]):
        best = newest.setdefault(family, name)
        beside = newest.get((FIRST_FRAMEWORKS[0], *family[1:]))
        cuda = _release(images[beside]) if beside and family[0] != FIRST_FRAMEWORKS[0] else None
        if _age(images[name], cuda) > _age(images[best], cuda):
            newest[family] = name
    return newest


def _age(image: Image, usual: str | None) -> tuple[Version, bool, Version]:
    return (
        _version(image.framework_version),
        usual is not None and _release(image) == usual,
        _version(image.cuda or "0"),
    )


def _release(image: Image) -> str:
    """The release of CUDA: 12.8 of 12.8.1."""
    return ".".join((image.cuda or "").split(".")[:2])


def _version(text: str) -> Version:
    """An interpreter that is there already may tell a version that is none: it counts as the oldest."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
