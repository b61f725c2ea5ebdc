"""Facts from stored metrics: when a network first reached a level, the metric of each class, and the wait for data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench import rules
from reports.data.costs import BETWEEN, BETWEEN_99, FIRST_TOKEN, WAITING
from reports.data.model import Curve, Group, MeasuredCell, MeasuredWorkload, Repeat
from runner.results.statistics import Array

SMOOTH = 5  # windows: a batch's loss jumps, and one lucky batch has not reached a level
LEAST_FALL = 0.2  # of the first loss: a level above that is where the training began, and the time to it says nothing
FEWEST = 3  # points: a curve of two ends does not say when


@dataclass(frozen=True)
class LevelTime:
    """A cell's training seconds and steps until the level: the median over its repeats. None where some repeat never reached it."""

    cell: MeasuredCell
    seconds: float | None
    steps: float | None


@dataclass(frozen=True)
class TimeTo:
    """The level of a metric to which cells are timed, and why it is this level."""

    name: str
    split: str
    level: float
    why: str
    rows: tuple[LevelTime, ...]


def time_to(group: Group, workload: MeasuredWorkload) -> TimeTo | None:
    """Time to the band of the workload, where a full run on its data has one; else to the training loss that every cell reached.

    None of a quick run, which is too short to learn; where fewer than two cells have a curve with enough points; and where the loss that
    every cell reached is near the first one.
    """
    key = group.key
    if key.preset == "quick":
        return None
    # A held-out loss is timed to the level that the user states (reports.answers.to_loss).
    if workload.band and not workload.has_loss and key.preset == "full" and key.data_source == workload.band_data:
        timed = _timed(group, workload.metric, "test", workload.band[0], "where the band of a correct full run begins")
        if timed is not None:
            return timed
    losses = [curve for entry in group.ranked for curve in _curves(entry.cell, "loss", "train")]
    finite = [end for end in map(_end, losses) if math.isfinite(end)]
    first_loss = _middle([float(curve.values[0]) for curve in losses])
    if not finite or (first_loss is not None and max(finite) > (1 - LEAST_FALL) * first_loss):
        return None
    return _timed(group, "loss", "train", max(finite), "which every cell ended at or below")


CLASSES = 100  # that are shown at most


@dataclass(frozen=True)
class ByClass:
    """The last value of the metric of each class, a row a cell. None where it was not finite or not recorded."""

    classes: tuple[str, ...]
    rows: tuple[tuple[MeasuredCell, tuple[float | None, ...]], ...]


def of_class(curve: Curve) -> str:
    """The class whose metric the curve is; empty where it is of all classes."""
    return rules.label_of(curve.name) if curve.split != "train" else ""


def by_class(group: Group) -> ByClass | None:
    """The last test metric of each class: the median over a cell's repeats. None where no class has a metric."""
    values: dict[str, dict[str, list[float]]] = {}
    for cell in group.cells:
        for repeat in cell.repeats:
            for curve in repeat.curves:
                if (name := of_class(curve)) and curve.split == "test":
                    values.setdefault(name, {}).setdefault(cell.anchor, []).append(float(curve.values[-1]))
    if not values:
        return None
    names = tuple(sorted(values)[:CLASSES])
    cells = [cell for cell in group.cells if any(cell.anchor in values[name] for name in names)]
    rows = tuple((cell, tuple(_middle(values[name].get(cell.anchor, [])) for name in names)) for cell in cells)
    return ByClass(names, rows)


def _middle(values: list[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else None


def _curves(cell: MeasuredCell, name: str, split: str) -> list[Curve]:
    curves = (curve for repeat in cell.repeats for curve in repeat.curves)
    return [curve for curve in curves if (curve.name, curve.split) == (name, split) and len(curve.values) >= FEWEST]


def _timed(group: Group, name: str, split: str, level: float, why: str) -> TimeTo | None:
    rows = []
    for entry in group.ranked:
        curves = _curves(entry.cell, name, split)
        if curves:
            times = [first(curve, level, falling=name == "loss") for curve in curves]
            reached = [time for time in times if time is not None]
            middle = np.median(np.array(reached), axis=0) if len(reached) == len(times) else (None, None)
            rows.append(LevelTime(entry.cell, *(None if value is None else float(value) for value in middle)))
    return TimeTo(name, split, level, why, tuple(rows)) if len(rows) > 1 else None


def _end(curve: Curve) -> float:
    return float(np.nanmedian(curve.values[-SMOOTH:])) if np.isfinite(curve.values[-SMOOTH:]).any() else math.nan


def smoothed(values: Array) -> Array:
    """The running median of the last five values at each point. Before the fifth, and where all are not finite, it is NaN."""
    padded = np.concatenate([np.full(SMOOTH - 1, np.nan), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, SMOOTH)
    finite = np.isfinite(windows).any(axis=1)
    out = np.full(len(values), np.nan)
    out[finite] = np.nanmedian(windows[finite], axis=1)
    out[: SMOOTH - 1] = np.nan  # a level counts from a full window on: one lucky batch is none
    return out


def first(curve: Curve, level: float, *, falling: bool) -> tuple[float, float] | None:
    """(training seconds, steps) at the first point where the curve has reached the level. A training metric is smoothed first."""
    values = smoothed(curve.values) if curve.split == "train" else curve.values
    places = np.flatnonzero(values <= level if falling else values >= level)
    return (float(curve.seconds[places[0]]), float(curve.steps[places[0]])) if len(places) else None


_OF_TOKENS = {
    rules.FIRST_TOKEN: FIRST_TOKEN,
    rules.BETWEEN_TOKENS: BETWEEN,
    rules.BETWEEN_TOKENS_99: BETWEEN_99,
}


def of_tokens(repeats: Sequence[Repeat]) -> Mapping[str, float]:
    """The times of a cell that computes token by token: of each the median over the repeats, of a repeat that over its prompts.

    None of a time that a repeat has too few tokens for: the repeats that measure longer are the noisy ones.
    """
    found: dict[str, list[float]] = {}
    for repeat in repeats:
        for curve in repeat.curves:
            if curve.name in _OF_TOKENS and (value := _middle(list(curve.values))) is not None:
                found.setdefault(_OF_TOKENS[curve.name], []).append(value)
    return {name: float(np.median(values)) for name, values in found.items() if len(values) == len(repeats)}


def waiting(repeats: Sequence[Repeat]) -> Mapping[str, float]:
    """The share of the steady windows' time that was a wait for data, where the cell recorded it."""
    shares = []
    for repeat in repeats:
        waits = (
            curve.values for curve in repeat.curves if (curve.name, curve.split) == (rules.WAITING_FOR_DATA, "train")
        )
        values = next(waits, None)
        steady = np.array([stage == "steady" for stage in repeat.windows.stage])
        if values is not None and len(values) == len(steady):
            shares.append(float(np.average(values[steady], weights=repeat.windows.seconds[steady])))
    return {WAITING: float(np.median(shares))} if shares else {}
