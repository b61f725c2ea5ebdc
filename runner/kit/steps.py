"""The steps of the kit on a GPU machine, in their order: what people buy a GPU for comes first, with all its repeats. Pure."""

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

Kind = Literal["cell", "events"]

PRESET, SEED = "quick", 1

# In the kit's folder, of a kit that has networks of a person's own: name -> what the planner needs of it, and its files' texts.
NETWORKS = "networks.json"

# Framework -> the module that holds its windows against CUDA's events.
EVENTS_MODULES = {"torch": "bench.frameworks.torch._events"}

_PRECISIONS = ("fp32", "amp-bf16", "tf32", "amp-fp16")

# Measured first, with all repeats: convolutions and a recurrent network at what a GPU is bought for. Their cells are the shortest, so they
# are a reference before a lent machine is taken away.
_FIRST = {"cnn-cifar10", "gru-imdb"}, {"fp32", "amp-bf16", "tf32"}
# It keeps a large GPU busy. The first two wait for their host there (docs/first-gpu.md).
_LARGE = "gpt2-124m", "amp-bf16"
# These take the longest to compile.
_DEEP = {"densenet121-chestxray", "densenet121-synthetic", "resnet50-imagenet"}
_REST = 4  # the rank of the group of all else
# Modes that may be faster than the default. The others show what a compiler is worth.
_FAST_MODES = ("graph", "compile")
# The network and the precisions that are measured in both layouts of pictures.
_LAYOUTS_OF, _LAYOUTS_AT = "cnn-cifar10", {"fp32", "tf32", "amp-bf16"}


@dataclass(frozen=True)
class KitStep:
    """One process that the kit starts: a repeat of a cell, or windows of it against CUDA's events."""

    kind: Kind
    cell: Cell
    repeat: int = 1

    @property
    def name(self) -> str:
        """The name of its file."""
        return ".".join((self.kind, *self._words(), f"r{self.repeat}"))

    def __str__(self) -> str:
        again = f", repeat {self.repeat}" if self.repeat > 1 else ""
        return f"{self.kind} {' '.join(self._words())}{again}"

    def _words(self) -> list[str]:
        cell = self.cell
        return [cell.framework, cell.workload, cell.precision, *([cell.mode] if cell.mode != "default" else [])]


@dataclass(frozen=True)
class Wanted:
    """The user's choice; an empty list means all."""

    frameworks: Sequence[str] = ()
    workloads: Sequence[str] = ()
    precisions: Sequence[str] = ()
    repeats: int = 3


def plan(
    entries: Sequence[Mapping[str, Any]],
    machine: Machine,
    lock: str,
    wanted: Wanted,
    networks: Mapping[str, Mapping[str, Any]],
) -> tuple[list[KitStep], list[Skip]]:
    """Every step in its order, and the combinations that are left out: by precision, then by workload, then by framework.

    `entries` are the frameworks of the interpreter, `lock` is the digest of its packages. The first GPU of the machine is measured.
    `networks` are a person's own, as NETWORKS has them: they come first.
    """
    gpu = machine.gpus[0] if machine.gpus else None
    declared = {name: rules.workload_declaration(name) for name in rules.workload_names()}
    workloads = [*networks, *ROSETTA, *sorted(set(declared) - set(ROSETTA))]
    declared |= {name: rules.own_declaration(name) | network for name, network in networks.items()}
    precisions = dict.fromkeys((*_PRECISIONS, *(p for each in declared.values() for p in each["precisions"])))
    cells: list[Cell] = []
    skips: list[Skip] = []
    for mode, precision, workload, entry in itertools.product(
        ("default", *_FAST_MODES, *rules.LAYOUTS), precisions, workloads, entries
    ):
        framework, chosen = entry["framework"], declared[workload]
        named = (framework, wanted.frameworks), (workload, wanted.workloads), (precision, wanted.precisions)
        if any(names and name not in names for name, names in named) or precision not in chosen["precisions"]:
            continue
        # It trains for longer than a step time needs.
        if chosen.get("on_request") and workload not in wanted.workloads:
            continue
        if mode not in rules.framework_declaration(framework)["modes"]:
            continue
        if mode in rules.LAYOUTS and (workload != _LAYOUTS_OF or precision not in _LAYOUTS_AT):
            continue
        if not _computes(framework, workload, chosen, mode):
            continue
        names = {
            "image": installed.image_name(framework, entry["version"]),
            "framework": framework,
            "workload": workload,
            "precision": precision,
            "mode": mode,
            "device_kind": "cuda" if gpu else "cpu",
            "device_model": gpu.model if gpu else machine.cpu.model,
        }
        if reason := _reason(entry, workload, precision, mode, gpu, wanted):
            skips.append(Skip(**names, reason=reason))
        else:
            batch = chosen["presets"][PRESET].get("batch") or chosen["batch"]
            cells.append(Cell(**names, preset=PRESET, batch=batch, seed=SEED, lock_sha256=lock))
    usual = [cell for cell in cells if cell.mode not in rules.LAYOUTS]
    layouts = [cell for cell in cells if cell.mode in rules.LAYOUTS]
    return _with_layouts(_in_order(usual, wanted.repeats), layouts), skips


def _computes(framework: str, workload: str, declared: Mapping[str, Any], mode: str) -> bool:
    if rules.is_own(workload):
        return mode == "default" and framework in declared["frameworks"]
    return rules.module_of(workload, declared) in rules.adapters_of(framework)


def _reason(
    entry: Mapping[str, Any], workload: str, precision: str, mode: str, gpu: Gpu | None, wanted: Wanted
) -> str | None:
    framework, kind, kinds = entry["framework"], "cuda" if gpu else "cpu", entry.get("device_kinds")
    # A framework that the user names is tried, whatever it reports.
    if isinstance(kinds, list) and kind not in kinds and framework not in wanted.frameworks:
        words = f"{framework} {entry['version']} here computes on {' and '.join(map(str, kinds)) or 'nothing'} only"
        return in_a_line(words, 300)
    declared = rules.framework_declaration(framework)
    where = kind, precision, workload
    reason: str | None = (
        rules.gpu_only_reason(workload, rules.workload_declaration(workload).get("gpu_only"), kind)
        or rules.mode_reason(framework, mode, declared["modes"], declared.get("modes_except", {}), where, 1)
        or precision_reason(precision, gpu.model if gpu else "", gpu.compute_capability if gpu else None)
        or rules.tf32_reason(framework, declared.get("no_tf32"), precision)
        or rules.half_reason(framework, declared.get("half", {}), workload, precision, kind, 1)
    )
    return reason


def _in_order(cells: Sequence[Cell], repeats: int) -> list[KitStep]:
    """All repeats of what tells the most of a new device come before the first repeats of the rest; the deep networks are the last.

    A group begins with one repeat of each cell. The other repeats come precision by precision, so that the first cells soon have all of
    theirs. Those of one precision are interleaved, since frameworks are compared there.
    """
    shuffled = random.Random(SEED)
    groups: dict[int, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_rank(cell), []).append(cell)
    # Once beside what rests on them; their other repeats are with those of the rest.
    proofs = [cell for cell in cells if _is_proof(cell)]
    groups.setdefault(_REST, [])
    ordered: list[KitStep] = []
    for rank in sorted(groups):
        ordered += [KitStep("cell", cell) for cell in groups[rank]]
        again = [cell for cell in groups[rank] if not (_is_curve(cell) or cell in proofs)]
        again += proofs if rank == _REST else []
        precisions = dict.fromkeys(cell.precision for cell in again)
        for precision, repeat in itertools.product(precisions, range(2, repeats + 1)):
            block = [KitStep("cell", cell, repeat) for cell in again if cell.precision == precision]
            shuffled.shuffle(block)
            ordered += block
        if rank == 0:
            ordered += _against_events(groups[rank])
    return ordered


def _with_layouts(steps: list[KitStep], cells: Sequence[Cell]) -> list[KitStep]:
    """The two layouts of a network, one after another, come after the first group and once. One layout alone answers nothing."""
    pairs: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        pairs.setdefault((cell.precision, cell.framework), []).append(cell)
    both = [KitStep("cell", cell) for pair in pairs.values() if len(pair) == len(rules.LAYOUTS) for cell in pair]
    after = [place for place, step in enumerate(steps, 1) if _rank(step.cell) == 0]
    place = after[-1] if after else 0
    return [*steps[:place], *both, *steps[place:]]


def _rank(cell: Cell) -> int:
    """The group of a cell: the first has the least."""
    if rules.is_own(cell.workload):
        return -1
    workloads, precisions = _FIRST
    first = cell.workload in workloads and cell.precision in precisions
    if first and cell.mode == "default":
        return 0
    if first or (cell.workload, cell.precision) == _LARGE:
        return 2 if cell.mode == "compile" else 1
    if _is_proof(cell):
        return 1
    if _is_curve(cell):
        return 3
    return _REST + 1 if cell.workload in _DEEP else _REST


def _is_proof(cell: Cell) -> bool:
    """True if the rank of the large network rests on its parity."""
    return (cell.workload, cell.precision, cell.mode) == (_LARGE[0], "fp32", "default")


def _is_curve(cell: Cell) -> bool:
    return bool(rules.workload_declaration(cell.workload)["task"] == "operators")


def _against_events(cells: Sequence[Cell]) -> list[KitStep]:
    of_cuda = [cell for cell in cells if cell.device_kind == "cuda" and cell.precision == "fp32"]
    return [KitStep("events", cell) for cell in of_cuda if cell.framework in EVENTS_MODULES]
