"""Which reference fits which cell. Pure: the same facts and references give the same answer, in whatever order they come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reports.wording import apart
from runner.results.gpu_facts import bare_model
from runner.results.on_disk import roles
from runner.results.statistics import Array, timings
from runner.text import plural
from runner.verify.causes import per_cent
from runner.verify.outliers import known_spread
from runner.verify.references.facts import DifferentFact, Facts
from runner.verify.references.saved import Reference, SavedCell

# A cell among the machines of an index of references: where it stands, and how far they differ. Pure.

# From so many machines on, how far they differ is taken as known. Below, it is assumed as without an index.
FEWEST_KNOWN = 10


@dataclass(frozen=True)
class AmongMachines:
    """A cell beside the machines of its model. Ratio: its step time over their median. Spread: None where too few show it."""

    device_model: str
    machines: int
    ratio: float
    slower_machines: int
    spread: float | None

    def __str__(self) -> str:
        differ = (
            f"machines of this model differ by {per_cent(self.spread, 2)}, measured on these"
            if self.spread is not None
            else f"how far machines differ is assumed: {FEWEST_KNOWN} would show it"
        )
        count = plural(self.machines, "machine")
        where = f"{apart(self.ratio)} as the median of {count}, of which {self.slower_machines} are slower"
        return f"a step on your {self.device_model} {where}; {differ}"


def machine_logs(cell: SavedCell) -> list[float]:
    """The mean log step time of each machine: the sessions of a cell of an index."""
    return [fmean(map(_log, repeats)) for repeats in cell.sessions().values()]


def among_machines(device_model: str, repeats: Sequence[Array], cell: SavedCell) -> AmongMachines:
    """The place of a cell that was measured in these repeats."""
    own, logs = fmean(map(_log, repeats)), machine_logs(cell)
    spread = float(known_spread(logs)) if len(logs) >= FEWEST_KNOWN else None
    return AmongMachines(device_model, len(logs), math.exp(own - median(logs)), sum(log > own for log in logs), spread)


def _log(repeat: Array) -> float:
    return math.log(timings(repeat).level)


# A cell is never compared with one that differs in any of these: that is another computation, or another length of it.
IDENTITY = (
    "workload",
    "framework",
    "variant",
    "mode",
    "precision",
    "preset",
    "batch",
    "devices",
    "scaling",
    "device_kind",
)

# Choices of the user, such as a version. They may explain a gap, so a gap is then not comparable instead of slow or fast.
CHOICES = (*roles.with_role("choice"), *roles.with_role("choice", of=roles.HOST_ROLES))
# Of the state of the installation, those that references keep. Other code is no state here: it excuses a gap.
STATES = tuple(
    name
    for name in (*roles.with_role("state"), *roles.with_role("state", of=roles.HOST_ROLES))
    if name in Facts.model_fields and name != "code_sha256"
)
# The same, in the host's entry of the GPU.
DEVICE_CHOICES = roles.with_role("choice", of=roles.DEVICE_ROLES)
DEVICE_STATES = roles.with_role("state", of=roles.DEVICE_ROLES)

# The verdict judges states, and with them the settings that the framework reads back and the versions of other packages. Such a
# difference may explain a gap (runner/verify/causes.py) and excuses none.


@dataclass(frozen=True)
class ChosenReference:
    """The reference for a cell, or why there is none."""

    reference: Reference | None = None
    cell: SavedCell | None = None
    excuses: tuple[DifferentFact, ...] = ()  # choices that differ
    conditions: tuple[DifferentFact, ...] = ()  # states that differ
    why: str = ""  # why there is no reference
    nearest: str | None = None  # the nearest device that has a reference; the cell is not compared with it


def reference_for(facts: Facts, references: Iterable[Reference]) -> ChosenReference:
    """The reference of the same computation on the same device model with the fewest differing choices; the newest of equals.

    States do not matter here: a reference that somebody measured on one thread must not make one thread look right.
    """
    pairs = [(reference, cell) for reference in references for cell in reference.cells]
    same_work = [(reference, cell) for reference, cell in pairs if not _different(facts, cell.facts, IDENTITY)]
    candidates = [(reference, cell) for reference, cell in same_work if same_device(facts, cell.facts)]
    if not candidates:
        return _none(facts, pairs, same_work)
    # ISO dates sort as text. Of equals the newest is taken, then the last by name, so that the answer is always the same.
    ordered = sorted(candidates, key=lambda pair: (pair[0].created, pair[0].name, pair[1].key), reverse=True)
    reference, cell = min(ordered, key=lambda pair: len(excuses(facts, pair[1].facts)))
    return ChosenReference(reference, cell, excuses(facts, cell.facts), conditions(facts, cell.facts))


def excuses(measured: Facts, reference: Facts) -> tuple[DifferentFact, ...]:
    """The choices in which two cells differ. A fact that one of them does not record is no difference."""
    # Of a CPU cell the CPU is the device, and the device model is the same already.
    names = [name for name in CHOICES if name != "cpu_model" or measured.device_kind != "cpu"]
    # The code that the cell ran. An older reference has only the digest of the whole bench, which says no more than "perhaps".
    names.append("code_sha256" if measured.code_sha256 and reference.code_sha256 else "bench_sha256")
    of_device = _different_entries(measured.device, reference.device)
    return (*_different(measured, reference, names), *(fact for fact in of_device if fact.name in DEVICE_CHOICES))


def conditions(measured: Facts, reference: Facts) -> tuple[DifferentFact, ...]:
    """The states in which two cells differ: usable CPUs, settings read back, the host's entry of the device. Two sessions of one
    machine and one installation differ in none."""
    of_device = _different_entries(measured.device, reference.device)
    return (
        *_different(measured, reference, STATES),
        *_different_entries(measured.host, reference.host),
        *_different_entries(measured.settings, reference.settings),
        *_different_entries(measured.versions, reference.versions),
        *(fact for fact in of_device if fact.name in DEVICE_STATES),
    )


def _different(measured: Facts, reference: Facts, names: Sequence[str]) -> list[DifferentFact]:
    """The named facts that both cells record, and that differ."""
    pairs = [(name, getattr(measured, name), getattr(reference, name)) for name in names]
    return [DifferentFact(*pair) for pair in pairs if pair[1] != pair[2] and None not in pair[1:]]


def _different_entries(measured: Mapping[str, object], reference: Mapping[str, object]) -> list[DifferentFact]:
    """The entries that both cells record, and that differ."""
    return [
        DifferentFact(name, measured[name], reference[name])
        for name in sorted(set(measured) & set(reference))
        if roles.shown(name, measured[name]) != roles.shown(name, reference[name])
    ]


def other_device(measured: Facts, reference: Facts) -> DifferentFact | None:
    """The fact by which they are of two devices: the model, or how much of it there is.

    A MIG instance has the GPU's name and less memory; a virtual machine has its host's CPU and fewer of them.
    """
    if bare_model(measured.device_model) != bare_model(reference.device_model):
        return DifferentFact("device_model", measured.device_model, reference.device_model)
    if measured.device_kind == "cpu":
        return next(iter(_different(measured, reference, ("machine_cpus",))), None)
    sizes = (measured.device_memory_bytes, reference.device_memory_bytes)
    if not all(sizes) or abs(math.log((sizes[0] or 1) / (sizes[1] or 1))) < 0.05:
        return None
    return DifferentFact("device_memory_bytes", *sizes)


def same_device(measured: Facts, reference: Facts) -> bool:
    """The same model, and as much of it."""
    return other_device(measured, reference) is None


def device_of(facts: Facts) -> str:
    """The device of a cell for people, as far as `same_device` looks at it."""
    size = _size(facts)
    joined = "in" if facts.device_kind == "cpu" else "with"
    return f"{facts.device_model} {joined} {size}" if size else facts.device_model


def _size(facts: Facts) -> str:
    """How much of its model a device is; empty where that was not recorded."""
    if facts.device_kind == "cpu":
        return f"a machine of {plural(facts.machine_cpus, 'CPU')}" if facts.machine_cpus else ""
    return f"{facts.device_memory_bytes / 1e9:.0f} GB" if facts.device_memory_bytes else ""


def _none(
    facts: Facts, pairs: Sequence[tuple[Reference, SavedCell]], same_work: Sequence[tuple[Reference, SavedCell]]
) -> ChosenReference:
    """Why there is no reference, with the nearest device of the same computation."""
    if not pairs:
        return ChosenReference(why="there is no reference yet")
    if same_work:
        reference, cell = min(
            same_work, key=lambda pair: (_far(facts, pair[1].facts), pair[1].facts.device_model, pair[0].name)
        )
        apart = other_device(facts, cell.facts)
        # Of one model, what decided is its size.
        of_size = apart is not None and apart.name != "device_model"
        what = f"{_size(facts)}, as this {facts.device_model}" if of_size else facts.device_model
        nearest = device_of(cell.facts) if of_size else cell.facts.device_model
        return ChosenReference(
            why=f"no reference of {facts.name} is of {what}", nearest=f"{nearest} (reference {reference.name})"
        )
    same = [cell.facts for _, cell in pairs if same_device(facts, cell.facts)]
    different = [_different(facts, other, IDENTITY) for other in same]
    only = [first for first, *others in filter(None, different) if not others and first.name != "workload"]
    if only:
        first = min(only, key=lambda fact: (fact.name != "preset", fact.name, str(fact.reference)))
        why = f"the references of {facts.name} here have another {first.name}: {first.reference} (not {first.measured})"
        return ChosenReference(why=why)
    return ChosenReference(why=f"no reference is of {facts.name} in preset {facts.preset}")


def _far(measured: Facts, reference: Facts) -> tuple[float, float]:
    """How far apart two devices are: compute capability first, then memory."""
    capability = abs(_number(measured.compute_capability) - _number(reference.compute_capability))
    sizes = [facts.device_memory_bytes or facts.machine_cpus or 1 for facts in (measured, reference)]
    return capability, abs(math.log(sizes[0] / sizes[1])) if min(sizes) > 0 else math.inf


def _number(capability: str | None) -> float:
    try:
        return float(capability or 0)
    except ValueError:
        return 0.0
