"""Which step of a ladder holds the change between its two ends, of one run that measured all of its images. Pure functions of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.results.rank.ranking import MARGIN, Field, Pair

# A step is named where it holds at least this share of the change between the ends: of two steps only one can hold more than half.
SHARE = 0.5

Answer = Literal["named", "same", "open"]


@dataclass(frozen=True)
class LadderJudgement:
    """The last image beside the first, each image beside the one before it, and the place of the step that holds the change."""

    change: Pair
    steps: tuple[Pair, ...]
    answer: Answer
    culprit: int | None = None
    repeats: int | None = None  # that would settle the step which looks largest

    def share(self, step: int) -> float:
        """The share of the change between the ends that a step has."""
        return math.log(self.steps[step].ratio.value) / math.log(self.change.ratio.value)


def judge(field: Field, names: Sequence[Hashable], margin: float = MARGIN) -> LadderJudgement:
    """The judgement on the cells of a ladder that were measured, in its order: two or more.

    A step is named if it differs from the step before in the direction of the whole change, beyond what all pairs of the field might
    show by chance, and has most of that change. All else is open; nothing is open where both ends take the same time.
    """
    change = field.between(names[-1], names[0], margin)
    steps = tuple(field.between(after, before, margin) for before, after in itertools.pairwise(names))
    found = LadderJudgement(change, steps, "same" if change.verdict == "same" else "open")
    if change.verdict not in ("slower", "faster"):
        return found
    largest = max(range(len(steps)), key=found.share)
    if steps[largest].verdict == change.verdict and found.share(largest) > SHARE:
        return LadderJudgement(change, steps, "named", largest)
    return LadderJudgement(
        change, steps, "open", repeats=field.repeats_to_tell(names[largest + 1], names[largest], margin)
    )
