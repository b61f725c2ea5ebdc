"""The records that stored rows become. They are frozen; times are in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import rules
from reports.text import cell_name
from runner.results.cells import Key, StoredCell, StoredRepeat
from runner.results.statistics import Array, Estimate, Shift

# The profile is measured after everything else, and has a table of its own.
PHASES = tuple(phase for phase in rules.PHASES if phase != "profile")
BEFORE_TRAINING = PHASES[: PHASES.index("train")]


@dataclass(frozen=True)
class Curve:
    """One metric of one repeat against training steps and training seconds; a value that was not finite is NaN."""

    name: str
    split: str
    repeat: int
    steps: Array
    seconds: Array
    values: Array


@dataclass(frozen=True)
class Signal:
    """One quantity of one device, over seconds since the process began. A long line is drawn as means; `low` and `high` are the
    extremes of all values."""

    device: str  # a GPU's UUID, or cpu: the cell's own processes
    name: str
    unit: str
    seconds: Array
    values: Array
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Repeat(StoredRepeat):
    """A stored repeat with what the page shows of it besides its windows."""

    reused: bool
    curves: tuple[Curve, ...]
    signals: tuple[Signal, ...] = ()


@dataclass(frozen=True)
class ParityRow:
    """Of one quantity, the tensor that is nearest to its bound or furthest beyond it. `error` is None where it was not finite."""

    quantity: str
    tensor: str
    error: float | None
    bound: float
    passed: bool
    variant: str
    tensors: int

    @property
    def share(self) -> float:
        """Error divided by bound: up to 1 passes."""
        return float("inf") if self.error is None else self.error / self.bound if self.bound else float("inf")


@dataclass(frozen=True)
class Score:
    """The last test metric of a cell: the median over its repeats and their range, and the fewest steps before it."""

    name: str
    value: float
    low: float
    high: float
    repeats: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class MeasuredCell(StoredCell):
    """A stored cell with all that the page shows of it."""

    anchor: str
    label: str
    seed: int | None
    repeats: tuple[Repeat, ...]
    phases: Mapping[str, float]
    # By the names of reports.data.costs. A cost that was not recorded is left out.
    costs: Mapping[str, float]
    throttled: tuple[str, ...]  # why its device slowed down; empty where it did not
    score: Score | None
    parity: tuple[ParityRow, ...]
    short: bool
    total_seconds: float | None
    host: Mapping[str, Any]
    command: str

    @property
    def name(self) -> str:
        """The image, with the framework and the mode where they are needed; not unique, as `label` is."""
        return cell_name(self.image, self.framework, self.mode)

    @property
    def unranked(self) -> str:
        """Why the cell is not ranked; empty when it is."""
        if self.status != "ok":
            return self.reason or self.status
        if self.parity_passed is not True:
            return "parity failed" if self.parity_passed is False else "parity was not checked"
        return "" if self.step is not None else "no steady window"

    @property
    def parity_of(self) -> Mapping[str, ParityRow]:
        return {row.quantity: row for row in self.parity}

    @property
    def reused(self) -> int:
        return sum(repeat.reused for repeat in self.repeats)

    @property
    def uuid(self) -> str:
        """The GPU that the cell was planned for, where the plan has a cell for each GPU of a model; else empty."""
        return str(self.row.get("device_uuid") or "")

    @property
    def version(self) -> str:
        return str(self.row.get("framework_version") or "")


@dataclass(frozen=True)
class Ranked:
    """A ranked cell, and its step time divided by that of the fastest cell."""

    cell: MeasuredCell
    ratio: Estimate


@dataclass(frozen=True)
class Group:
    """Cells that may be compared: the ranked cells, fastest first, and the others, which are shown with the reason."""

    anchor: str
    key: Key
    ranked: tuple[Ranked, ...]
    others: tuple[MeasuredCell, ...]

    @property
    def cells(self) -> tuple[MeasuredCell, ...]:
        return tuple(entry.cell for entry in self.ranked) + self.others


@dataclass(frozen=True)
class MeasuredWorkload:
    """A workload as its specification describes it, with the groups of its cells."""

    anchor: str
    name: str
    title: str
    items: str
    metric: str
    band: tuple[float, float] | None
    band_data: str
    band_needs: str  # what else a run needs to be expected in the band; empty: nothing
    chance: float | None
    task: str  # train | infer | operators
    learns: bool  # whether it trains towards a metric; inference and single operators do not
    groups: tuple[Group, ...]

    def outside_band(self, cell: MeasuredCell) -> bool:
        """Whether a full run on the band's data ended outside it: no correct run does. A band that needs more judges no run."""
        if self.band is None or self.band_needs or cell.score is None:
            return False
        whole = cell.key.preset == "full" and cell.key.data_source == self.band_data
        return whole and not self.band[0] <= cell.score.value <= self.band[1]


@dataclass(frozen=True)
class Rate:
    """One operation at one size in one cell: the median over the windows of all repeats."""

    size: str
    mop: float  # million floating-point operations in one run
    bytes: float  # the least that one run reads and writes
    seconds: float  # of one run
    windows: int
    shift: Shift | None  # where the level changed midway
    buffers: int = 1  # sets of inputs that took turns

    @property
    def gflops(self) -> float:
        return self.mop / self.seconds / 1e3

    @property
    def gigabytes(self) -> float:
        """Per second."""
        return self.bytes / self.seconds / 1e9


Rates = Mapping[tuple[str, str], tuple[Rate, ...]]  # (operation, direction) -> from small to large


@dataclass(frozen=True)
class Operation:
    """One operation or kernel in a profile of a few steps."""

    name: str
    on: str  # cpu | cuda
    calls: float  # a step
    seconds: float  # its own, a step
    share: float  # of the time of all operations


@dataclass(frozen=True)
class Profile:
    """What a framework's profiler recorded in one repeat of a cell."""

    operations: tuple[Operation, ...]
    steps: int
    step_seconds: float  # by the clock, under the profiler
    busy_seconds: float  # of all operations together, a step


@dataclass(frozen=True)
class Skipped:
    """Combinations that the plan left out for one reason."""

    reason: str
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Run:
    """One run's manifest, as stored, and its id."""

    run_id: str
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class Tables:
    """All that is known of some runs."""

    runs: tuple[Run, ...]
    workloads: tuple[MeasuredWorkload, ...]
    skipped: tuple[Skipped, ...]
    operations: Mapping[tuple[str, str], Rates]  # run id, cell id
    profiles: Mapping[tuple[str, str], Profile]

    @property
    def ranked(self) -> tuple[MeasuredWorkload, ...]:
        """The workloads whose cells have a step time. Those of single operations have rates instead."""
        return tuple(workload for workload in self.workloads if workload.task != "operators")

    @property
    def cells(self) -> tuple[MeasuredCell, ...]:
        return tuple(cell for workload in self.workloads for group in workload.groups for cell in group.cells)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Of those workloads that are ranked."""
        return tuple(group for workload in self.ranked for group in workload.groups)
