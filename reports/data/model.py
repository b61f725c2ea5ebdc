"""The records that stored rows become. They are frozen; times are in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bench import rules
from reports.data.costs import OF_TOKENS, Cost
from reports.wording import cell_name, percent, step_interval
from runner.results import gpu_facts, statistics
from runner.results.cells import MOST_NOISE, Key, StoredCell, StoredRepeat
from runner.results.on_disk.observed import Observed
from runner.results.rank.ranking import Field, Verdict
from runner.results.rank.time_to_loss import LOSS_UNIT
from runner.results.steadiness import Shift

# The profile is measured after everything else, and has a table of its own.
PHASES = tuple(phase for phase in rules.PHASES if phase != "profile")

# A caveat begins so.
NO_TELEMETRY = "No telemetry"


@dataclass(frozen=True)
class Curve:
    """One metric of one repeat against training steps and training seconds; a value that was not finite is NaN."""

    name: str
    split: str
    repeat: int
    steps: statistics.Array
    seconds: statistics.Array
    values: statistics.Array


@dataclass(frozen=True)
class Signal:
    """One quantity of one device, over seconds since the process began. A long line is drawn as means; `low` and `high` are the
    extremes of all values."""

    device: str  # a GPU's UUID, or cpu: the cell's own processes
    name: str
    unit: str
    seconds: statistics.Array
    values: statistics.Array
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Repeat(StoredRepeat):
    """A stored repeat with what the page shows of it besides its windows."""

    curves: tuple[Curve, ...]
    signals: tuple[Signal, ...] = ()
    observed: Observed = field(default_factory=dict)  # of the machine meanwhile


@dataclass(frozen=True)
class ParityRow:
    """Of one quantity, the tensor that is nearest to its bound or furthest beyond it. `error` is None where it was not finite.

    `phase` is that of bench.rules.due in which it was checked; empty in a run that did not store it.
    """

    quantity: str
    tensor: str
    error: float | None
    bound: float
    passed: bool
    variant: str
    phase: str
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
    caveats: tuple[str, ...]  # its framework.json's notes on its figure
    compiled_repeats: int  # those in which the driver compiled kernels from PTX
    device_proof: str  # what the host saw of it on its GPUs; empty for a CPU
    foreign_processes: tuple[str, ...]  # who else computed on its GPUs meanwhile
    throttled: tuple[str, ...]  # why its device slowed down; empty where it did not
    score: Score | None
    parity: tuple[ParityRow, ...]
    short: bool
    total_seconds: float | None
    host: Mapping[str, Any]
    command: str
    # The entries in run.json of all GPUs of its model that its run could use, by UUID.
    gpus: tuple[Mapping[str, Any], ...] = ()
    # The share of its CPUs that it got, if that is less than half, and another framework got half or more at the same work.
    cpu_share: float | None = None

    @property
    def name(self) -> str:
        """The framework, its version and CUDA, and the mode where it is not the default; not unique, as `label` is."""
        return cell_name(self.image, self.framework, self.mode)

    @property
    def comparable(self) -> bool:
        """True if its figure may stand beside its own in other runs and on other devices: ranked, too wide as a single repeat only, or
        `unproved`.

        Such a comparison widens the interval itself, and holds an adapter against itself.
        """
        return not self.unsound and not self._reason_of_noise

    @property
    def unranked(self) -> str:
        """Why the cell is not ranked; empty when it is."""
        return self.unsound or self.unproved or self.unfit

    @property
    def proof(self) -> str:
        """The proof of what it computes: the catalog's reference; of a person's own network its own float64, or only the agreement of the
        images; or none."""
        if self.parity_passed is not True:
            return "none"
        if not rules.is_own(self.key.workload):
            return "reference"
        return "own float64" if rules.OWN_LOSSES in self.settings else "none" if self.unproved else "agreement"

    @property
    def unsound(self) -> str:
        """Why the cell has no figure: it did not end well, or did not compute the right thing as far as its own proof sees; or empty."""
        if not self.ended_well:
            return (self.reason or self.status) if self.status != "ok" else "no steady window"
        if self.parity_passed is not True:
            return "parity failed" if self.parity_passed is False else "parity was not checked"
        # Of a person's own network that is no doubt on a bound: images compute two things.
        return self.unproved if rules.is_own(self.key.workload) else ""

    @property
    def unfit(self) -> str:
        """Why the cell's figure says too little to be ranked, though it computed the right thing; empty when it says enough."""
        if reason := self._reason_of_noise:
            return reason
        unsteady = "unsteady, " if self.shifts else ""
        return f"too noisy: {unsteady}one run from {step_interval(self.step)}" if self._wide else ""

    @property
    def _reason_of_noise(self) -> str:
        if self.step is not None and self.step.windows < statistics.fewest_windows():
            return statistics.too_few(self.step.windows)
        noisy = self.noise is not None and self.noise > MOST_NOISE
        return f"too noisy: ± {percent(self.noise)}" if noisy else ""

    @property
    def unwatched(self) -> bool:
        """True if nothing was seen of its GPU in some repeat."""
        return any(words.startswith(NO_TELEMETRY) for words in self.caveats)

    @property
    def host_bound(self) -> bool:
        """True if most of a step's time passed without a kernel on its GPU; False if that is unknown."""
        return bool(self.costs.get("kernel_share", 1.0) < rules.HOST_BOUND)

    @property
    def start_up(self) -> Mapping[str, float]:
        """Seconds by stage until the first step has ended, without the bench's own data and checks; empty where one was not recorded."""
        stages = {
            "import": self.phases.get("import"),
            "build": self.phases.get("build"),
            "first step": self.first_step_seconds,
        }
        known = {stage: seconds for stage, seconds in stages.items() if seconds is not None}
        return known if len(known) == len(stages) else {}

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


def unsettled(fast: MeasuredCell, slow: MeasuredCell, ratio: float) -> tuple[MeasuredCell, ...]:
    """Of two cells whose step times have this ratio, at least 1, those that leave their order open, since they got few of their CPUs:
    the faster one, and the slower one if all of its CPUs might make it as fast."""
    open_ = [fast] if fast.cpu_share is not None else []
    return (*open_, *([slow] if slow.cpu_share is not None and ratio * slow.cpu_share <= 1 else []))


@dataclass(frozen=True)
class Ranked:
    """A ranked cell beside the first of its group: the fastest one with two repeats or more, or the fastest of those with one.

    `p` is the chance of so large a ratio if both were equal, adjusted for all pairs of the cells that may be the fastest. None where
    the data give none. `once`: a side has one repeat, so the verdict is open whatever the ratio is. `open_by`: what else leaves it open.
    """

    cell: MeasuredCell
    ratio: statistics.Estimate
    p: float | None = None
    figures: Verdict | None = None  # as the figures have it; None of the first itself
    once: bool = False
    open_by: str = ""
    assumed: bool = False  # of one repeat: nothing that was measured shows how far repeats differ
    # The cell that it is slower than beyond doubt, and their ratio, where that is not the first.
    beside: MeasuredCell | None = None
    told_by: statistics.Estimate | None = None

    @property
    def told(self) -> statistics.Estimate:
        """The ratio that its verdict rests on."""
        return self.told_by or self.ratio

    @property
    def verdict(self) -> Verdict | None:
        return "open" if self.open_by and self.figures else self.figures

    @property
    def is_first(self) -> bool:
        return self.figures is None

    @property
    def apart(self) -> bool:
        """True if the cell is slower than the first, or than `beside`, beyond doubt."""
        return self.verdict == "slower"

    @property
    def at_least(self) -> float | None:
        """Of one repeat: how many times as long it takes at least, if it looks longer; else None. `assumed`: only as far as is assumed."""
        low = self.ratio.low
        return low if self.once and not self.open_by and low is not None and low > 1 else None

    @property
    def looks_faster(self) -> bool:
        """True if one repeat shows a cell faster than the first of those with more."""
        return self.once and not self.open_by and self.ratio.high is not None and self.ratio.high < 1


@dataclass(frozen=True)
class Group:
    """Cells that may be compared: the ranked cells in the order of their step times, and the others, which are shown with the reason."""

    anchor: str
    key: Key
    ranked: tuple[Ranked, ...]
    others: tuple[MeasuredCell, ...]
    field: Field

    @property
    def cells(self) -> tuple[MeasuredCell, ...]:
        return tuple(entry.cell for entry in self.ranked) + self.others

    @property
    def first(self) -> Ranked:
        """The cell that the others are held against. There must be a ranked one."""
        return next(entry for entry in self.ranked if entry.is_first)

    @property
    def behind(self) -> tuple[Ranked, ...]:
        """The ranked cells that are held against the first."""
        return tuple(entry for entry in self.ranked if not entry.is_first)

    @cached_property
    def unsettled(self) -> tuple[MeasuredCell, ...]:
        """The cells that leave open which one is fastest, since they got few of their CPUs."""
        first = self.first.cell if self.ranked else None
        found = [cell for entry in self.behind if first for cell in unsettled(first, entry.cell, entry.ratio.value)]
        return tuple({cell.anchor: cell for cell in found}.values())

    @property
    def token_costs(self) -> tuple[Cost, ...]:
        """The times of networks that compute token by token, as far as some cell has them."""
        return tuple(cost for cost in OF_TOKENS if any(cost.name in cell.costs for cell in self.cells))

    @property
    def caveats(self) -> tuple[str, ...]:
        """The caveats of all cells, each once. The tables number them in this order."""
        return tuple(sorted({caveat for cell in self.cells for caveat in cell.caveats}))

    @cached_property
    def caveat_numbers(self) -> Mapping[str, str]:
        """The numbers of each cell's caveats, counted from 1, by its anchor."""
        number = {caveat: at for at, caveat in enumerate(self.caveats, start=1)}
        return {cell.anchor: ", ".join(map(str, sorted(map(number.__getitem__, cell.caveats)))) for cell in self.cells}


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
    unit: str  # of the metric
    task: str  # train | infer | operators
    learns: bool  # whether it trains towards a metric; inference and single operators do not
    groups: tuple[Group, ...]

    @property
    def has_loss(self) -> bool:
        """True if the metric of the held-out part is a loss: less is better."""
        return self.unit == LOSS_UNIT

    def outside_band(self, cell: MeasuredCell) -> bool:
        """True if a full run on the band's data ended outside it: no correct run does. A band that needs more judges no run."""
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
    shift: Shift | None  # where the level of the first such repeat changed midway
    buffers: int = 1  # sets of inputs that took turns
    repeats: tuple[statistics.Array, ...] = ()  # seconds of one run in each window, by repeat
    kernels: tuple[str, ...] = ()  # those that the framework took, where it has several

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
    """The record of a framework's profiler in one repeat of a cell."""

    operations: tuple[Operation, ...]
    steps: int
    step_seconds: float  # by the clock, under the profiler
    busy_seconds: float  # of all operations together, a step


@dataclass(frozen=True)
class Skipped:
    """Combinations that the plan left out for one reason."""

    reason: str
    rows: tuple[Mapping[str, Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The frameworks with their versions and CUDA."""
        return tuple(sorted({cell_name(str(row["image"]), str(row["framework"]), None) for row in self.rows}))


@dataclass(frozen=True)
class StoredRun:
    """One run's manifest, as stored, and its id."""

    run_id: str
    manifest: Mapping[str, Any]

    @property
    def gpus(self) -> tuple[tuple[str, str], ...]:
        """(name, its set clocks and limits) of the first GPUs of the run's machine."""
        devices = (self.manifest.get("devices") or ())[:_MOST_GPUS]
        names = (f"GPU {_short(entry.get('index'))} ({_short(entry.get('model'))})" for entry in devices)
        return tuple(zip(names, map(gpu_facts.gpu_settings, devices), strict=True))


# A run's machine has eight GPUs, or fifty-six MIG instances. More would only lengthen the page.
_MOST_GPUS = 64


def _short(value: object) -> str:
    return str(value)[:100]


@dataclass(frozen=True)
class Tables:
    """All that is known of some runs."""

    runs: tuple[StoredRun, ...]
    workloads: tuple[MeasuredWorkload, ...]
    skipped: tuple[Skipped, ...]
    operations: Mapping[tuple[str, str], Rates]  # run id, cell id
    profiles: Mapping[tuple[str, str], Profile]
    # The cells that are not yet run, where others are. They are in no group: there is nothing to compare.
    waiting: tuple[MeasuredCell, ...] = ()
    # The held-out losses to which the training is timed, as the user stated them; empty where none was.
    to_loss: tuple[float, ...] = ()

    @property
    def ranked(self) -> tuple[MeasuredWorkload, ...]:
        """The workloads whose cells have a step time. Those of single operations have rates instead."""
        return tuple(workload for workload in self.workloads if workload.task != "operators")

    @property
    def grouped(self) -> tuple[MeasuredCell, ...]:
        return tuple(cell for workload in self.workloads for group in workload.groups for cell in group.cells)

    @property
    def cells(self) -> tuple[MeasuredCell, ...]:
        """All of them, also those that are not yet run."""
        return (*self.grouped, *self.waiting)

    @cached_property
    def order(self) -> dict[str, int]:
        """Run -> its place among the runs, oldest first."""
        runs = sorted(self.runs, key=lambda run: (str(run.manifest["created"]), run.run_id))
        return {run.run_id: at for at, run in enumerate(runs)}

    @property
    def groups(self) -> tuple[Group, ...]:
        """Of those workloads that are ranked."""
        return tuple(group for workload in self.ranked for group in workload.groups)
