"""A person's own network in several images: they are ranked where they compute the same in float64, from the same drawn parameters. An
image that has no proof in float64 is held against the others by the losses of several seeds, as it measured them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from bench import rules
from runner.results.cells import StoredCell

Cell = TypeVar("Cell", bound=StoredCell)

# How far losses in float64 may be apart, relative to the largest: three steps make rounding, 1e-16, larger by some powers of ten. Another
# epsilon, or half of a batch, is off by 1e-6 and more. They are told with ten digits.
SAME = 1e-8
# Losses that are not of float64 may differ by so many times their own scatter (bench.own_float64.MARGIN), and by this share at most where
# both are none; beside float64 by as much as a proof allows.
SCATTERS, MOST = 8.0, 0.1


class _Told(NamedTuple):
    batches: str
    # The digest of the names and shapes of its parameters; empty in older runs.
    names: str
    losses: tuple[float, ...]
    # Empty where the losses are of float64.
    why_not: str
    scatter: float


def agreed(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of own networks that compute another thing than most of the images with why they are not ranked."""
    reported = [(cell, facts) for cell in cells if (facts := _told(cell))]
    return [_held(cell, mine, reported) if (mine := _told(cell)) else cell for cell in cells]


def worst_apart(cells: Sequence[StoredCell]) -> tuple[float, bool] | None:
    """(how far the first losses of these cells are apart at most, relative to the largest; whether all are of float64). None where fewer
    than two told them, or they are of other networks."""
    reported = [facts for cell in cells if (facts := _told(cell))]
    if len(reported) < 2 or len({cell.key.workload for cell in cells}) > 1:
        return None
    steps = list(zip(*(facts.losses for facts in reported), strict=False))
    largest = max(abs(loss) for step in steps for loss in step) or 1.0
    return max(max(step) - min(step) for step in steps) / largest, not any(facts.why_not for facts in reported)


def _told(cell: StoredCell) -> _Told | None:
    """The facts by which a cell is held; None of any other cell, and where it did not tell them."""
    settings = cell.environment.get("settings")
    if not rules.is_own(cell.key.workload) or not isinstance(settings, dict):
        return None
    why_not = "" if rules.OWN_LOSSES in settings else str(settings.get(rules.OWN_WHY) or "it reported no losses")
    losses = settings.get(rules.OWN_SEEDS if why_not else rules.OWN_LOSSES)
    try:
        numbers = tuple(float(word) for word in str(losses).split(","))
        scatter = float(settings.get(rules.OWN_SCATTER, "nan")) if why_not else 0.0
    except (TypeError, ValueError):
        return None
    batches, names = str(settings.get(rules.OWN_BATCHES)), str(settings.get(rules.OWN_NAMES) or "")
    return _Told(batches, names, numbers, why_not, scatter) if all(map(math.isfinite, (*numbers, scatter))) else None


def _held(cell: Cell, mine: _Told, reported: Sequence[tuple[Cell, _Told]]) -> Cell:
    key = cell.key
    images = {
        f"{other.image} {other.framework}": facts
        for other, facts in reported
        if (other.key.workload, other.key.precision) == (key.workload, key.precision)
    }
    unlike = [why for name, facts in images.items() if (why := _apart(mine, facts, name, key.precision))]
    if mine.why_not and len(images) - len(unlike) < 2:
        beside = f"; {unlike[0]}" if unlike else "; measure it in a second image"
        return replace(cell, unproved=f"computation not proved: {mine.why_not}{beside}")
    # Of two that differ nobody knows which is right. Of more those that most agree with are.
    if not unlike or 2 * len(unlike) < len(images):
        return cell
    more = f", nor of {len(unlike) - 1} more" if len(unlike) > 1 else ""
    return replace(cell, unproved=unlike[0] + more)


def _apart(mine: _Told, theirs: _Told, name: str, precision: str) -> str:
    """The difference of another image, as a clause; empty where nothing is seen."""
    if mine.batches != theirs.batches:
        return f"its batches are not those of {name}"
    largest = max(map(abs, (*mine.losses, *theirs.losses)), default=0.0) or 1.0
    most, of = _most_apart(mine, theirs, largest, precision)
    for step, (own, other) in enumerate(zip(mine.losses, theirs.losses, strict=False), 1):
        if abs(own - other) > most:
            if mine.names != theirs.names:
                return (
                    f"its parameters have other names or shapes than those of {name}: give both files read() and load()"
                )
            return f"{of} loss of step {step} is {own:.9g}, not the {other:.9g} of {name}"
    alike = len(mine.losses) == len(theirs.losses) or bool(mine.why_not) != bool(theirs.why_not)
    return "" if alike else f"its steps in float64 are not those of {name}"


def _most_apart(mine: _Told, theirs: _Told, largest: float, precision: str) -> tuple[float, str]:
    """(how far the losses of two images may be apart, how a sentence on them begins)."""
    if not (mine.why_not or theirs.why_not):
        return SAME * largest, "in float64 its"
    most = MOST if mine.why_not and theirs.why_not else rules.OWN_BOUNDS["loss"].get(precision, 0.0)
    return min(SCATTERS * max(mine.scatter, theirs.scatter), most * largest), "its"
