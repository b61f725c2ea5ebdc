"""Which reference fits which cell. Pure: the same facts and references give the same answer, in whatever order they come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.verify.references.facts import Difference, Facts
from runner.verify.references.saved import Reference, SavedCell

# A cell is never compared with one that differs in any of these: it is another computation, or another length of it.
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

# Somebody's choice, or another make of the same thing: a gap may be theirs, so they take a verdict of slow or fast away.
CHOICES = (
    "framework_version",
    "cuda_version",
    "cudnn_version",
    "driver_version",
    "cpu_model",
    "data_source",
    "code_sha256",
)
# The same, as the host tells them of the GPU.
DEVICE_CHOICES = ("ecc", "mig")

# Everything else that differs (threads, settings, PCIe width, power limit, usable CPUs) is the state of the installation: what a
# verdict is for. It explains a gap (runner/verify/causes.py) and excuses none.


@dataclass(frozen=True)
class Choice:
    """The reference for a cell, or why there is none."""

    reference: Reference | None = None
    cell: SavedCell | None = None
    excuses: tuple[Difference, ...] = ()  # differing choices
    conditions: tuple[Difference, ...] = ()  # differing states
    why: str = ""  # where there is none
    nearest: str | None = None  # the nearest device that there is one for, named and not compared with


def choose(facts: Facts, references: Iterable[Reference]) -> Choice:
    """The reference of the same computation on the same device model with the fewest differing choices; the newest of equals.

    States do not steer it: a reference that somebody measured on one thread must not make one thread look right.
    """
    known = [(reference, cell) for reference in references for cell in reference.cells]
    same = [(reference, cell) for reference, cell in known if _differing(facts, cell.facts, IDENTITY) == []]
    there = [(reference, cell) for reference, cell in same if _same_device(facts, cell.facts)]
    if not there:
        return _none(facts, known, same)
    # ISO dates and names sort as texts: of equals the newest, then the name, so that the answer is one
    ordered = sorted(there, key=lambda pair: (pair[0].created, pair[0].name, pair[1].key), reverse=True)
    reference, cell = min(ordered, key=lambda pair: len(excuses(facts, pair[1].facts)))
    return Choice(reference, cell, excuses(facts, cell.facts), conditions(facts, cell.facts))


def excuses(measured: Facts, reference: Facts) -> tuple[Difference, ...]:
    """The choices in which two cells differ. A fact that one of them does not tell is no difference."""
    found = _differing(measured, reference, CHOICES)
    if measured.device_kind == "cpu":  # the CPU is the device, and its model the same already
        found = [difference for difference in found if difference.name != "cpu_model"]
    return (*found, *(each for each in _told(measured.device, reference.device) if each.name in DEVICE_CHOICES))


def conditions(measured: Facts, reference: Facts) -> tuple[Difference, ...]:
    """The states in which two cells differ: usable CPUs, settings read back, what the host tells of the device."""
    found = _differing(measured, reference, ("cpu_count",))
    found += _told(measured.settings, reference.settings)
    return (*found, *(each for each in _told(measured.device, reference.device) if each.name not in DEVICE_CHOICES))


def _differing(measured: Facts, reference: Facts, names: Sequence[str]) -> list[Difference]:
    pairs = [(name, getattr(measured, name), getattr(reference, name)) for name in names]
    return [Difference(*pair) for pair in pairs if pair[1] != pair[2] and None not in pair[1:]]


def _told(measured: Mapping[str, object], reference: Mapping[str, object]) -> list[Difference]:
    """The entries that both tell, and tell differently."""
    return [
        Difference(name, measured[name], reference[name])
        for name in sorted(set(measured) & set(reference))
        if measured[name] != reference[name]
    ]


def _same_device(measured: Facts, reference: Facts) -> bool:
    """The same model, and as much of it: a part of a GPU (MIG) has the model's name and other memory, a small virtual machine
    its host's CPU and fewer of them."""
    if measured.device_model != reference.device_model:
        return False
    if measured.device_kind == "cpu":
        return not _differing(measured, reference, ("machine_cpus",))
    sizes = (measured.device_memory_bytes, reference.device_memory_bytes)
    if not all(sizes):
        return True
    return abs(math.log((sizes[0] or 1) / (sizes[1] or 1))) < 0.05


def _none(
    facts: Facts, known: Sequence[tuple[Reference, SavedCell]], same: Sequence[tuple[Reference, SavedCell]]
) -> Choice:
    """Why there is no reference, with the nearest device of the same computation."""
    if same:
        reference, cell = min(
            same, key=lambda pair: (_far(facts, pair[1].facts), pair[1].facts.device_model, pair[0].name)
        )
        nearest = f"{cell.facts.device_model} (reference {reference.name})"
        return Choice(why=f"no reference of {facts.name} is of {facts.device_model}", nearest=nearest)
    here = [cell.facts for _, cell in known if _same_device(facts, cell.facts)]
    almost = [(_differing(facts, other, IDENTITY), other) for other in here]
    one_off = [found[0] for found, _ in almost if len(found) == 1 and found[0].name != "workload"]
    if one_off:
        first = min(one_off, key=lambda each: (each.name != "preset", each.name, str(each.reference)))
        why = f"the references of {facts.name} here have another {first.name}: {first.reference} (not {first.measured})"
        return Choice(why=why)
    return Choice(why=f"no reference is of {facts.name} in preset {facts.preset}")


def _far(measured: Facts, reference: Facts) -> tuple[float, float]:
    """How far apart two devices are: compute capability first, then memory."""
    capability = abs(_number(measured.compute_capability) - _number(reference.compute_capability))
    sizes = [one.device_memory_bytes or one.machine_cpus or 1 for one in (measured, reference)]
    return capability, abs(math.log(sizes[0] / sizes[1])) if min(sizes) > 0 else math.inf


def _number(capability: str | None) -> float:
    try:
        return float(capability or 0)
    except ValueError:
        return 0.0
