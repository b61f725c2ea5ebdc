"""Mistakes that begin some steps after a load: the check from canonical parameters is over by then, and load() begins anew."""

import numpy as np

from bench import timing
from tests.contract.mutants.anywhere import Mixin


class Later(Mixin):
    """A subclass changes the batch, of eight items or more, from the fifth step after a load on.

    A cell of few steps takes six, of a batch whose losses are not stored: the first, one of the warm-up, a window of two, and two more. So
    only its end shows the mistake, as in a cell of more steps than there are stored losses. Windows of one step on a slow machine would
    make it five, and every second step would be right at the end.
    """

    RIGHT = 4
    PLANTED = ((timing, "steps_per_window", lambda step_seconds: 2),)
    count, before = 0, None

    def load(self, parameters):
        super().load(parameters)
        self.count, self.before = 0, None

    def step(self, x, y):
        self.count += 1
        batch = self.changed(x, y) if self.count > self.RIGHT else (x, y)
        self.before = x, y
        return super().step(*batch)


class HalfOfTheBatchLater(Later):
    """From the fifth step after a load on, a step trains on the first half of its batch."""

    def changed(self, x, y):
        return x[: len(y) // 2], y[: len(y) // 2]


class EighthOfTheBatchLater(Later):
    """From the fifth step after a load on, a step trains on the first eighth of its batch."""

    def changed(self, x, y):
        return x[: len(y) // 8], y[: len(y) // 8]


class QuarterLeftOutLater(Later):
    """From the fifth step after a load on, a step leaves out the last quarter of its batch."""

    def changed(self, x, y):
        return x[: len(y) * 3 // 4], y[: len(y) * 3 // 4]


class BatchBeforeLater(Later):
    """From the fifth step after a load on, a step takes the batch of the step before: a prefetch that is one behind."""

    def changed(self, x, y):
        return self.before


class ItemsBeforeLater(Later):
    """From the fifth step after a load on, a step takes the items of the step before, and its own labels."""

    def changed(self, x, y):
        return self.before[0], y


class LabelsBeforeLater(Later):
    """From the fifth step after a load on, a step takes the labels of the step before."""

    def changed(self, x, y):
        return x, self.before[1]


class HalfIsOfTheBatchBeforeLater(Later):
    """From the fifth step after a load on, half of a batch is still that of the step before: a buffer that is read while it is filled."""

    def changed(self, x, y):
        half = len(y) // 2
        older_x, older_y = self.before
        return np.concatenate([older_x[:half], x[half:]]), np.concatenate([older_y[:half], y[half:]])


class FirstHalfTwiceLater(Later):
    """From the fifth step after a load on, a step takes the first half of its batch twice."""

    def changed(self, x, y):
        half = len(y) // 2
        return np.concatenate([x[:half]] * 2), np.concatenate([y[:half]] * 2)


class FirstItemForAllLater(Later):
    """From the fifth step after a load on, every item of a batch is its first one."""

    def changed(self, x, y):
        return np.repeat(x[:1], len(y), axis=0), np.repeat(y[:1], len(y))


class LabelsRolledLater(Later):
    """From the fifth step after a load on, each item has the label of the one before it."""

    def changed(self, x, y):
        return x, np.roll(y, 1)


class LabelsOfOneClassLater(Later):
    """From the fifth step after a load on, all labels are 0."""

    def changed(self, x, y):
        return x, np.zeros_like(y)


class LabelsTurnedLater(Later):
    """From the fifth step after a load on, each label is that of the other class."""

    def changed(self, x, y):
        return x, 1 - y


class ItemsTurnedLater(Later):
    """From the fifth step after a load on, items are read backwards, or pictures from right to left."""

    def changed(self, x, y):
        return np.ascontiguousarray(x[..., ::-1]), y


class ItemsCutLater(Later):
    """From the fifth step after a load on, the second half of each item is zero."""

    def changed(self, x, y):
        half = x.shape[-1] // 2
        return np.concatenate([x[..., :half], np.zeros_like(x[..., half:])], axis=-1), y


class SkippedLater(Later):
    """From the fifth step after a load on, every second step is skipped."""

    def step(self, x, y):
        self.count += 1
        if self.count <= self.RIGHT or self.count % 2:
            self.handle = right_step(self, x, y)
        return self.handle


class TwoUpdatesLater(Later):
    """From the fifth step after a load on, every step updates twice with its batch."""

    def step(self, x, y):
        self.count += 1
        if self.count > self.RIGHT:
            right_step(self, x, y)
        return right_step(self, x, y)


class NothingUpdatedLater(Later):
    """From the fifth step after a load on, a step computes the loss and updates nothing."""

    def step(self, x, y):
        self.count += 1
        if self.count > self.RIGHT:
            return self.handle
        self.handle = right_step(self, x, y)
        return self.handle


class OneBatchForTwoStepsLater(Later):
    """From the fifth step after a load on, each batch is taken twice, and every second one is not taken."""

    def changed(self, x, y):
        self.twice = (x, y) if self.count % 2 else self.twice
        return self.twice


class AllBatchesAreTheFifthLater(Later):
    """From the fifth step after a load on, a step takes the fifth batch again."""

    def changed(self, x, y):
        self.fifth = (x, y) if self.count == self.RIGHT + 1 else self.fifth
        return self.fifth


def right_step(adapter, x, y):
    """The step of the adapter, without Later's change."""
    return super(Later, adapter).step(x, y)


class IdsCutLater(Later):
    """From the fifth step after a load on, ids from 2 000 on are read as id 2, out of vocabulary."""

    def changed(self, x, y):
        return np.where(x < 2000, x, 2).astype(x.dtype), y


LATER = tuple(
    ("measured object", mistake)
    for mistake in (
        HalfOfTheBatchLater,
        EighthOfTheBatchLater,
        QuarterLeftOutLater,
        BatchBeforeLater,
        ItemsBeforeLater,
        LabelsBeforeLater,
        HalfIsOfTheBatchBeforeLater,
        FirstHalfTwiceLater,
        FirstItemForAllLater,
        LabelsRolledLater,
        LabelsOfOneClassLater,
        LabelsTurnedLater,
        ItemsTurnedLater,
        ItemsCutLater,
        SkippedLater,
        TwoUpdatesLater,
        NothingUpdatedLater,
        OneBatchForTwoStepsLater,
        AllBatchesAreTheFifthLater,
        IdsCutLater,
    )
)
_PICTURES = {ItemsBeforeLater, LabelsRolledLater, ItemsTurnedLater, ItemsCutLater}
OF_PICTURES = tuple(each for each in LATER if each[1] in _PICTURES)
# In a network with dropout the labels of a step show, and its pictures do not. A label's other class and ids are of gru-imdb.
OF_LABELS = tuple(each for each in LATER if each[1] not in _PICTURES | {LabelsTurnedLater, IdsCutLater})
HIDDEN = (
    "Of a step under dropout the labels are held, and the masks hide which of the pictures have them. It gains no time."
)
