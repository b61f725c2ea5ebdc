"""The steps of the kit on a GPU machine, in their order: first a little of everything, so that a short time shows the most. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import rules
from runner.catalog.cuda import precision_reason
from runner.catalog.names import ROSETTA
from runner.engines.process import installed
from runner.plan.combination import Cell

CHECK, CELL, EVENTS = "check", "cell", "events"

PRESET, SEED = "quick", 1

# Framework -> the module that holds its windows against CUDA's events.
EVENTS_MODULES = {"torch": "bench.frameworks.torch._events"}

# The output of a step that is no cell is kept up to this.
MOST_OUTPUT_BYTES = 1 << 20

_PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16")


@dataclass(frozen=True)
class KitStep:
    """One process that the kit starts."""

    kind: str
    framework: str
    workload: str
    precision: str
    repeat: int = 1

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}.{self.framework}.{self.workload}.{self.precision}.r{self.repeat}"

    def __str__(self) -> str:
        again = f", repeat {self.repeat}" if self.repeat > 1 else ""
        return f"{self.kind} {self.framework} {self.workload} {self.precision}{again}"


@dataclass(frozen=True)
class LeftOut:
    """A combination that this device cannot do, with the reason."""

    framework: str
    workload: str
    precision: str
    reason: str


@dataclass(frozen=True)
class Device:
    """The device of the steps. `capability` is None for a CPU."""

    kind: str
    model: str
    capability: str | None


@dataclass(frozen=True)
class Wanted:
    """The user's choice; an empty list means all."""

    frameworks: Collection[str] = ()
    workloads: Collection[str] = ()
    precisions: Collection[str] = ()
    repeats: int = 3


def check_arguments(step: KitStep, device: str) -> list[str]:
    """The arguments of `python -m bench` for a check."""
    values = {"--framework": step.framework, "--precision": step.precision, "--device": device}
    return ["check", step.workload, *(word for pair in values.items() for word in pair)]


def cell_of(step: KitStep, version: str, lock: str, device: Device) -> Cell:
    """The cell that the engine `host` would make of a step, in an interpreter with this version and this lock."""
    declared = rules.workload_declaration(step.workload)
    return Cell(
        image=installed.image_name(step.framework, version),
        framework=step.framework,
        workload=step.workload,
        precision=step.precision,
        mode="default",
        device_kind=device.kind,
        device_model=device.model,
        preset=PRESET,
        batch=declared["presets"][PRESET].get("batch") or declared["batch"],
        seed=SEED,
        lock_sha256=lock,
    )


def plan(frameworks: Mapping[str, str | None], device: Device, wanted: Wanted) -> tuple[list[KitStep], list[LeftOut]]:
    """Every step in its order, and what is left out. `frameworks`: name -> why none of its steps can run here, or None."""
    cells: list[KitStep] = []
    left_out: list[LeftOut] = []
    for framework, workload, precision in _combinations(frameworks, wanted):
        if reason := frameworks[framework] or _reason(framework, workload, precision, device):
            left_out.append(LeftOut(framework, workload, precision, reason))
        else:
            cells.append(KitStep(CELL, framework, workload, precision))
    return _in_order(cells, device, wanted.repeats), left_out


def _combinations(frameworks: Collection[str], wanted: Wanted) -> Iterator[tuple[str, str, str]]:
    """By precision, then by workload, then by framework."""
    declared = {name: rules.workload_declaration(name) for name in rules.workload_names()}
    workloads = [*ROSETTA, *sorted(set(declared) - set(ROSETTA))]
    precisions = dict.fromkeys((*_PRECISIONS, *(p for each in declared.values() for p in each["precisions"])))
    computed = {name: rules.adapters_of(name) for name in frameworks}
    for precision, workload, framework in itertools.product(precisions, workloads, frameworks):
        asked = (framework, wanted.frameworks), (workload, wanted.workloads), (precision, wanted.precisions)
        if any(names and name not in names for name, names in asked):
            continue
        has_adapter = rules.module_of(workload, declared[workload]) in computed[framework]
        if has_adapter and precision in declared[workload]["precisions"]:
            yield framework, workload, precision


def _reason(framework: str, workload: str, precision: str, device: Device) -> str | None:
    reason: str | None = precision_reason(precision, device.model, device.capability)
    declared = rules.framework_declaration(framework)
    reason = reason or rules.tf32_reason(framework, declared.get("no_tf32"), precision)
    return reason or rules.mixed_precision_reason(
        framework, declared.get("amp", {}), workload, precision, device.kind, 1
    )


def _in_order(cells: Sequence[KitStep], device: Device, repeats: int) -> list[KitStep]:
    """Cells with the checks of their adapters. What tells the most of a new device comes first."""
    declared = {step.workload: rules.workload_declaration(step.workload) for step in cells}
    checks = [
        KitStep(CHECK, step.framework, step.workload, step.precision)
        for step in cells
        if declared[step.workload]["task"] == "train" and "computes" not in declared[step.workload]
    ]
    first = [step for step in cells if step.workload in ROSETTA]
    ops = [step for step in cells if declared[step.workload]["task"] == "operators"]
    events = [KitStep(EVENTS, step.framework, step.workload, step.precision) for step in first if device.kind == "cuda"]
    ordered = [
        *(step for step in checks if step.precision == "fp32"),
        *(step for step in first if step.precision == "fp32"),
        *(step for step in events if step.framework in EVENTS_MODULES and step.precision == "fp32"),
        *checks,
        *ops,
        *cells,
    ]
    shuffled = random.Random(SEED)
    for repeat in range(2, repeats + 1):
        again = [
            KitStep(CELL, step.framework, step.workload, step.precision, repeat) for step in cells if step not in ops
        ]
        shuffled.shuffle(again)
        ordered += again
    return list(dict.fromkeys(ordered))
