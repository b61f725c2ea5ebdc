"""Two sides compared: the ratio of their step times, and whether it is real.

All contrasts of a table are judged together (Holm): the chance that the table calls any difference real where there is
none stays below 5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from reports.data.model import MeasuredCell, Repeat
from reports.text import between, percent
from runner.results import statistics
from runner.results.statistics import Estimate

Verdict = Literal["real", "noise", "cannot tell"]

ALPHA = 1 - statistics.LEVEL
MARGIN = 0.05  # a smaller change does not matter: an interval inside it is noise

METHOD = (
    "Ratio of step times, above 1 is slower. Real: Holm's correction over all rows, so that any false one has a chance "
    "of at most 5 %. Noise: not real, and the interval excludes a change of the size that matters. "
    "Compare asks whether two cells differ, so the intervals are 95 %; `runner verify` asks whether a cell is as fast as "
    "its reference within a margin, by two one-sided tests at 5 %, so its intervals are 90 %."
)

# What may change between two measurements of a cell, as its row and its run recorded it.
_RECORDED: Mapping[str, Callable[[MeasuredCell], object]] = {
    "framework": lambda cell: cell.row.get("framework_version"),
    "Python": lambda cell: cell.row.get("python_version"),
    "CUDA": lambda cell: cell.row.get("cuda_version"),
    "cuDNN": lambda cell: cell.row.get("cudnn_version"),
    "driver": lambda cell: cell.row.get("driver_version"),
    "image": lambda cell: cell.row.get("image_digest"),
    "lock": lambda cell: cell.row.get("lock_sha256"),
    "code": lambda cell: cell.row.get("code_sha256"),
    "engine": lambda cell: cell.engine,
    "seed": lambda cell: cell.seed,
    "processor": lambda cell: cell.host.get("cpu_model"),
    "kernel": lambda cell: cell.host.get("kernel"),
}
_DIGESTS = ("image", "lock", "code")


@dataclass(frozen=True)
class Side:
    """One side of a contrast: a cell, or a cell that several runs measured, with all their repeats."""

    cells: tuple[MeasuredCell, ...]

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        repeats = (repeat for cell in self.cells for repeat in cell.repeats)
        return tuple(repeat for repeat in repeats if len(repeat.steady_step_seconds))

    @cached_property
    def step(self) -> Estimate | None:
        return statistics.median_estimate([repeat.steady_step_seconds for repeat in self.repeats])

    @property
    def levels(self) -> list[float]:
        """Seconds a step at every level of the side: the median, and both sides of each shift."""
        shifts = [repeat.shift for repeat in self.repeats if repeat.shift is not None]
        return [self.step.value if self.step else 0.0, *(at for shift in shifts for at in (shift.before, shift.after))]

    @property
    def unsteady(self) -> bool:
        return any(cell.shifts for cell in self.cells)

    def recorded(self, name: str) -> tuple[str, ...]:
        """The values of one recorded fact, sorted. A value that was not recorded is left out."""
        values = {_RECORDED[name](cell) for cell in self.cells} - {None, ""}
        words = (str(value) for value in values)
        return tuple(sorted(word.removeprefix("sha256:")[:12] if name in _DIGESTS else word for word in words))


@dataclass(frozen=True)
class Difference:
    """A recorded fact that differs between the sides."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


@dataclass(frozen=True)
class Contrast:
    """`after` compared with `before`: the ratio of their step times (above 1: after is slower), and the verdict on it.

    `p` is adjusted for all contrasts of the table. None where the data give none.
    """

    before: Side
    after: Side
    ratio: Estimate | None
    p: float | None
    verdict: Verdict
    reason: str
    differences: tuple[Difference, ...]

    @property
    def cell(self) -> MeasuredCell:
        return self.after.cells[0]

    @property
    def changed(self) -> str:
        """The recorded facts that changed between the sides."""
        return "; ".join(map(str, self.differences)) or "nothing recorded changed"

    @property
    def slower(self) -> bool:
        return self.verdict == "real" and self.ratio is not None and self.ratio.value > 1

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.verdict != "real" or self.ratio is None:
            return self.verdict
        change = self.ratio.value - 1
        return f"real: takes {percent(abs(change))} {'longer' if change > 0 else 'less time'}"


def differences(before: Side, after: Side) -> tuple[Difference, ...]:
    """The recorded facts that differ between the sides, in a fixed order. A fact that one side did not record does not count."""
    facts = ((name, before.recorded(name), after.recorded(name)) for name in _RECORDED)
    return tuple(
        Difference(name, ", ".join(old), ", ".join(new)) for name, old, new in facts if old and new and old != new
    )


def contrasts(pairs: Sequence[tuple[Side, Side]], margin: float = MARGIN) -> tuple[Contrast, ...]:
    """The pairs (before, after) of one table, judged together. `margin` is the smallest change that matters, as a share."""
    ratios = [_ratio(before, after) for before, after in pairs]
    values = [
        None if ratio is None or not _alike(*pair) else statistics.p_value(ratio)
        for pair, ratio in zip(pairs, ratios, strict=True)
    ]
    adjusted = iter(statistics.holm([value for value in values if value is not None]))
    judged = [None if value is None else next(adjusted) for value in values]
    return tuple(
        Contrast(before, after, ratio, p, *_verdict(before, after, ratio, p, margin), differences(before, after))
        for (before, after), ratio, p in zip(pairs, ratios, judged, strict=True)
    )


def _ratio(before: Side, after: Side) -> Estimate | None:
    above, below = ([repeat.steady_step_seconds for repeat in side.repeats] for side in (after, before))
    same = {(cell.image, cell.framework, cell.mode, cell.key) for side in (before, after) for cell in side.cells}
    ratio = statistics.ratio_estimate(above, below, alike=len(same) == 1)
    if ratio is None or not (before.unsteady or after.unsteady):
        return ratio
    return statistics.spanning(ratio, after.levels, before.levels)


def _alike(before: Side, after: Side) -> bool:
    """Whether both sides used the same kind of data."""
    return len({cell.key.data_source for side in (before, after) for cell in side.cells}) == 1


def _verdict(before: Side, after: Side, ratio: Estimate | None, p: float | None, margin: float) -> tuple[Verdict, str]:
    if not _alike(before, after):
        return "cannot tell", "not measured on the same kind of data"
    if ratio is None:
        return "cannot tell", "no steady window on one side"
    if ratio.low is None or ratio.high is None:
        return "cannot tell", ratio.note
    if p is not None and p < ALPHA:
        return "real", ""
    if ratio.error is None:
        return "cannot tell", "one repeat does not show how much another run would differ; measure with --repeats 3"
    if 1 - margin < ratio.low and ratio.high < 1 + margin:
        return "noise", ""
    if p is None:
        return "cannot tell", "every window took the same time: the clock is too coarse"
    if before.unsteady or after.unsteady:
        return "cannot tell", f"unsteady: over its levels the ratio may be {between(ratio)}"
    return "cannot tell", f"the interval leaves room for {percent(margin)} or more; more repeats narrow it"
