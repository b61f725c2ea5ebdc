"""A person's own network in several images: they are ranked where they compute the same in float64, from the same drawn parameters."""

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


class _Told(NamedTuple):
    batches: str
    losses: tuple[float, ...]


def agreed(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of own networks that compute another thing than most of the images with why they are not ranked."""
    told = [(cell, facts) for cell in cells if (facts := _told(cell))]
    return [_held(cell, mine, told) if (mine := _told(cell)) else cell for cell in cells]


def _told(cell: StoredCell) -> _Told | None:
    """The digest of a cell's batches and its first losses in float64; None of any other cell, and where it did not tell them."""
    settings = cell.environment.get("settings")
    if not rules.is_own(cell.key.workload) or not isinstance(settings, dict):
        return None
    batches, losses = settings.get(rules.OWN_BATCHES), settings.get(rules.OWN_LOSSES)
    try:
        numbers = tuple(float(word) for word in str(losses).split(","))
    except ValueError:
        return None
    return _Told(str(batches), numbers) if all(map(math.isfinite, numbers)) else None


def _held(cell: Cell, mine: _Told, told: Sequence[tuple[Cell, _Told]]) -> Cell:
    images = {
        f"{other.image} {other.framework}": facts for other, facts in told if other.key.workload == cell.key.workload
    }
    unlike = [why for name, facts in images.items() if (why := _apart(mine, facts, name))]
    # Of two that differ nobody knows which is right. Of more those that most agree with are.
    if not unlike or 2 * len(unlike) < len(images):
        return cell
    more = f", nor of {len(unlike) - 1} more" if len(unlike) > 1 else ""
    return replace(cell, unproved=unlike[0] + more)


def _apart(mine: _Told, theirs: _Told, name: str) -> str:
    """The difference of another image, as a clause; empty where nothing is seen."""
    if mine.batches != theirs.batches:
        return f"its batches are not those of {name}"
    largest = max(map(abs, (*mine.losses, *theirs.losses)), default=0.0) or 1.0
    for step, (own, other) in enumerate(zip(mine.losses, theirs.losses, strict=False), 1):
        if abs(own - other) > SAME * largest:
            return f"in float64 its loss of step {step} is {own:.9g}, not the {other:.9g} of {name}"
    return "" if len(mine.losses) == len(theirs.losses) else f"its steps in float64 are not those of {name}"
