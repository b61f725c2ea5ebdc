"""The steps of the kit on a GPU machine, in their order: first a little of everything, so that a short time shows the most. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench import rules
from runner.catalog.cuda import precision_reason
from runner.catalog.names import ROSETTA
from runner.engines.process import installed
from runner.machine.devices import Gpu, Machine
from runner.plan.combination import Cell, Skip
from runner.text import in_a_line

Kind = Literal["check", "cell", "events"]

PRESET, SEED = "quick", 1

# Framework -> the module that holds its windows against CUDA's events.
EVENTS_MODULES = {"torch": "bench.frameworks.torch._events"}

_PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16")


@dataclass(frozen=True)
class KitStep:
    """One process that the kit starts: a repeat of a cell, a check of its adapter, or windows of it against CUDA's events."""

    kind: Kind
    cell: Cell
    repeat: int = 1

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.kind}.{self.cell.framework}.{self.cell.workload}.{self.cell.precision}.r{self.repeat}"

    def __str__(self) -> str:
        again = f", repeat {self.repeat}" if self.repeat > 1 else ""
        return f"{self.kind} {self.cell.framework} {self.cell.workload} {self.cell.precision}{again}"


@dataclass(frozen=True)
class Wanted:
    """The user's choice; an empty list means all."""

    frameworks: Sequence[str] = ()
    workloads: Sequence[str] = ()
    precisions: Sequence[str] = ()
    repeats: int = 3


def plan(
    entries: Sequence[Mapping[str, Any]], machine: Machine, lock: str, wanted: Wanted
) -> tuple[list[KitStep], list[Skip]]:
    """Every step in its order, and the combinations that are left out: by precision, then by workload, then by framework.

    `entries` are the frameworks of the interpreter, `lock` is the digest of its packages. The first GPU of the machine is measured.
    """
    gpu = machine.gpus[0] if machine.gpus else None
    declared = {name: rules.workload_declaration(name) for name in rules.workload_names()}
    workloads = [*ROSETTA, *sorted(set(declared) - set(ROSETTA))]
    precisions = dict.fromkeys((*_PRECISIONS, *(p for each in declared.values() for p in each["precisions"])))
    cells: list[Cell] = []
    skips: list[Skip] = []
    for precision, workload, entry in itertools.product(precisions, workloads, entries):
        framework, chosen = entry["framework"], declared[workload]
        named = (framework, wanted.frameworks), (workload, wanted.workloads), (precision, wanted.precisions)
        if any(names and name not in names for name, names in named) or precision not in chosen["precisions"]:
            continue
        if rules.module_of(workload, chosen) not in rules.adapters_of(framework):
            continue
        names = {
            "image": installed.image_name(framework, entry["version"]),
            "framework": framework,
            "workload": workload,
            "precision": precision,
            "mode": "default",
            "device_kind": "cuda" if gpu else "cpu",
            "device_model": gpu.model if gpu else machine.cpu.model,
        }
        if reason := _reason(entry, workload, precision, gpu, wanted):
            skips.append(Skip(**names, reason=reason))
        else:
            batch = chosen["presets"][PRESET].get("batch") or chosen["batch"]
            cells.append(Cell(**names, preset=PRESET, batch=batch, seed=SEED, lock_sha256=lock))
    return _in_order(cells, wanted.repeats), skips


def _reason(entry: Mapping[str, Any], workload: str, precision: str, gpu: Gpu | None, wanted: Wanted) -> str | None:
    framework, kind, kinds = entry["framework"], "cuda" if gpu else "cpu", entry.get("device_kinds")
    # A framework that the user names is tried, whatever it reports.
    if isinstance(kinds, list) and kind not in kinds and framework not in wanted.frameworks:
        words = f"{framework} {entry['version']} here computes on {' and '.join(map(str, kinds)) or 'nothing'} only"
        return in_a_line(words, 300)
    declared = rules.framework_declaration(framework)
    reason: str | None = (
        precision_reason(precision, gpu.model if gpu else "", gpu.compute_capability if gpu else None)
        or rules.tf32_reason(framework, declared.get("no_tf32"), precision)
        or rules.mixed_precision_reason(framework, declared.get("amp", {}), workload, precision, kind, 1)
    )
    return reason


def _in_order(cells: Sequence[Cell], repeats: int) -> list[KitStep]:
    """Cells with the checks of their adapters. What tells the most of a new device comes first."""
    declared = {cell.workload: rules.workload_declaration(cell.workload) for cell in cells}
    checks = [
        KitStep("check", cell)
        for cell in cells
        if declared[cell.workload]["task"] == "train" and "computes" not in declared[cell.workload]
    ]
    once = [KitStep("cell", cell) for cell in cells]
    first = [step for step in once if step.cell.workload in ROSETTA and step.cell.precision == "fp32"]
    ops = [step for step in once if declared[step.cell.workload]["task"] == "operators"]
    events = [
        KitStep("events", step.cell)
        for step in first
        if step.cell.framework in EVENTS_MODULES and step.cell.device_kind == "cuda"
    ]
    ordered = [*(step for step in checks if step.cell.precision == "fp32"), *first, *events, *checks, *ops, *once]
    shuffled = random.Random(SEED)
    for repeat in range(2, repeats + 1):
        again = [KitStep("cell", step.cell, repeat) for step in once if step not in ops]
        shuffled.shuffle(again)
        ordered += again
    return list(dict.fromkeys(ordered))
