"""The cells of a collection, each with a machine of each contributor and how far these differ. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from runner.results.datasheets import bare_model
from runner.verify.outliers import known_spread
from runner.verify.references.comparability import FEWEST_KNOWN, IDENTITY
from runner.verify.references.contributed.derived_rows import BundleRow
from runner.verify.references.facts import Facts
from runner.verify.references.saved import INDEX, Reference, SavedCell

# The facts of a cell of the index, beside the computation and the device: what must be equal for two machines to be of one spread.
_SOFTWARE = ("image", "framework_version", "cuda_version", "code_sha256", "data_sha256")


@dataclass(frozen=True)
class IndexMachine:
    """One machine in a cell: its sessions, by the day. Of a machine with several GPUs one counts: they share its host."""

    name: str
    # (when, seconds a step of each repeat), oldest first.
    sessions: tuple[tuple[str, tuple[float, ...]], ...]

    @cached_property
    def log_seconds(self) -> float:
        """The mean over its sessions of their repeats' mean log time."""
        return fmean(fmean(map(math.log, repeats)) for _, repeats in self.sessions)

    @property
    def seconds(self) -> float:
        return math.exp(self.log_seconds)


@dataclass(frozen=True)
class IndexCell:
    """One computation on one device model with one software, on one machine of each contributor that brought it."""

    facts: Facts
    machines: tuple[IndexMachine, ...]

    @cached_property
    def id(self) -> str:
        return cell_id(self.facts)

    @cached_property
    def logs(self) -> tuple[float, ...]:
        return tuple(machine.log_seconds for machine in self.machines)

    @property
    def seconds(self) -> float:
        """The median of its machines, seconds a step."""
        return math.exp(median(self.logs))

    @cached_property
    def spread(self) -> float | None:
        """How much its machines differ: the standard deviation of their log step times. None of fewer than FEWEST_KNOWN."""
        return float(known_spread(self.logs)) if len(self.logs) >= FEWEST_KNOWN else None


def reference_of(cell: IndexCell, runner_version: str) -> Reference:
    """A cell of an index as a reference, whose sessions are its machines, each by its newest day.

    An index has the median of a repeat and not its windows, so the fields are not checked as those of a saved one.
    """
    sessions = [machine.sessions[-1] for machine in cell.machines]
    saved = SavedCell.model_construct(
        facts=cell.facts,
        repeats=tuple((seconds,) for _, repeats in sessions for seconds in repeats),
        session_of=tuple(at for at, (_, repeats) in enumerate(sessions) for _ in repeats),
    )
    return Reference.model_construct(
        name=f"{INDEX}{cell.id}",
        created=max(created for created, _ in sessions),
        run_ids=tuple(machine.name for machine in cell.machines),
        runner_version=runner_version,
        cells=(saved,),
    )


def cell_id(facts: Facts) -> str:
    """Twelve hexadecimal digits by which a cell of an index is linked to. They follow from what is measured, so a link stays."""
    content = [getattr(facts, name) for name in (*IDENTITY, *_SOFTWARE)] + [
        bare_model(facts.device_model),
        _size(facts),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _size(facts: Facts) -> int | None:
    """The size that parts two devices of one name: GiB of a GPU's memory, or the CPUs of a machine."""
    if facts.device_kind == "cpu":
        return facts.machine_cpus
    return facts.device_memory_bytes and round(facts.device_memory_bytes / 2**30)


def index_of(rows: Iterable[BundleRow]) -> list[IndexCell]:
    """The cells of some rows, in an order that people read them in."""
    groups: dict[str, list[BundleRow]] = {}
    for row in rows:
        groups.setdefault(cell_id(row.facts), []).append(row)
    cells = [_cell(group) for group in groups.values()]
    return sorted(
        cells, key=lambda cell: (bare_model(cell.facts.device_model), cell.facts.workload, cell.facts.name, cell.id)
    )


def _cell(rows: Sequence[BundleRow]) -> IndexCell:
    machines: dict[str, dict[str, list[BundleRow]]] = {}
    for row in rows:
        machines.setdefault(row.contributor, {}).setdefault(row.machine, []).append(row)
    return IndexCell(_usual(rows), tuple(map(_middle, sorted(machines.items()))))


def _usual(rows: Sequence[BundleRow]) -> Facts:
    """The facts that most accounts share, of the newest of equals. They say what a cell may be compared with, so one account that dates its
    bundle the latest must not choose them."""
    newest = {row.contributor: row.facts for row in sorted(rows, key=lambda row: (row.created, row.machine))}
    each = [(facts, _entries(facts)) for facts in newest.values()]
    shared = Counter(entry for _, entries in each for entry in entries)
    return max(reversed(each), key=lambda one: sum(shared[entry] for entry in one[1]))[0]


def _entries(facts: Facts) -> set[tuple[object, ...]]:
    """Each fact that was recorded, with its value."""
    plain = {(name, value) for name, value in facts if not isinstance(value, dict)}
    return plain.union(
        *({(name, *entry) for entry in value.items()} for name, value in facts if isinstance(value, dict))
    )


def _middle(contributor: tuple[str, Mapping[str, Sequence[BundleRow]]]) -> IndexMachine:
    """The one machine of a contributor that counts: the middle of those that he brought. Many would give him many votes on the norm."""
    made = sorted(
        (_machine(*machine) for machine in contributor[1].items()), key=lambda one: (one.log_seconds, one.name)
    )
    return made[(len(made) - 1) // 2]


def _machine(name: str, rows: Sequence[BundleRow]) -> IndexMachine:
    first = min(row.device for row in rows)
    own = sorted((row.created, row.repeats) for row in rows if row.device == first)
    return IndexMachine(name, tuple(own))
