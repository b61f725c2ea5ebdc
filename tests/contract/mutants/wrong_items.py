"""Mistakes of a feed, of a data module and of an adapter's arrays: a step or an evaluation takes other items than it should."""

import numpy as np

from bench import data, feeds
from tests.contract.mutants.anywhere import Mixin


def _held_out(change):
    """The PLANTED of a feed whose held-out batches, a list of (x, labels), are changed."""
    right = feeds.ArrayFeed.held_out

    def held_out(self, training, size):
        return iter(change(list(right(self, training, size))))

    return ((feeds.ArrayFeed, "held_out", held_out),)


def _batches(order_of, labels_of=lambda order: order):
    """The PLANTED of a feed with epochs in another order: order_of(random, items, the order before), labels_of(order) of their labels."""

    def mini_batches(x, y, size, random, rank=0, count=1):
        order = None
        while True:
            order = order_of(random, len(x), order)
            labels = labels_of(order)
            for start in range(0, len(x) - size + 1, size):
                yield x[order[start : start + size]], y[labels[start : start + size]]

    return ((feeds, "mini_batches", mini_batches),)


def _loaded(items):
    """The PLANTED of a data module that puts so many test items among those that are trained on."""

    def load(*arguments):
        loaded = data_load(*arguments)
        count = items(loaded)
        x, y = loaded.train_x.copy(), loaded.train_y.copy()
        pick = np.arange(count) % len(loaded.test_x)
        x[:count], y[:count] = loaded.test_x[pick], loaded.test_y[pick]
        return loaded._replace(train_x=x, train_y=y)

    data_load = data.load
    return ((data, "load", load),)


class EvaluationOfOneBatch(Mixin):
    """The evaluation sees the first of the held-out batches only."""

    PLANTED = _held_out(lambda batches: batches[:1])


class LastBatchNotEvaluated(Mixin):
    """The evaluation leaves out the last held-out batch."""

    PLANTED = _held_out(lambda batches: batches[:-1])


class FirstBatchEvaluatedAgain(Mixin):
    """The evaluation computes the first held-out batch in place of each, and takes the labels of each."""

    PLANTED = _held_out(lambda batches: [(batches[0][0], labels) for _, labels in batches])


class BatchesEvaluatedTwice(Mixin):
    """The evaluation takes the first half of the held-out batches twice."""

    PLANTED = _held_out(lambda batches: 2 * batches[: len(batches) // 2])


class EpochsInFileOrder(Mixin):
    """No shuffling: every epoch takes the items in the order of the file."""

    PLANTED = _batches(lambda random, items, before: np.arange(items))


class SameOrderInEveryEpoch(Mixin):
    """The items are shuffled once, and every epoch takes them in that order."""

    STEPS = 70
    PLANTED = _batches(lambda random, items, before: random.permutation(items) if before is None else before)


class DrawnWithReplacement(Mixin):
    """A batch is drawn from all items, so that an epoch has some twice and others not at all."""

    PLANTED = _batches(lambda random, items, before: random.randint(0, items, items))


class LabelsShuffledApart(Mixin):
    """Items and labels are shuffled apart."""

    PLANTED = _batches(lambda random, items, before: random.permutation(items), np.sort)


class TestItemsInTraining(Mixin):
    """An eighth of the items that are trained on are test items."""

    PLANTED = _loaded(lambda loaded: len(loaded.train_x) // 8)


class OneTestItemInTraining(Mixin):
    """One of the items that are trained on is a test item."""

    PLANTED = _loaded(lambda loaded: 1)


class InFileOrder:
    """An array that takes no notice of the places that it is asked for."""

    def __init__(self, array):
        self.array, self.at = array, 0

    def __len__(self):
        return len(self.array)

    def __getitem__(self, pick):
        self.at = (self.at + len(pick)) % (len(self.array) - len(pick))
        return self.array[self.at : self.at + len(pick)]


class ArrayInFileOrder(Mixin):
    """The adapter's array of the training part ignores the permutation."""

    def inputs(self, x, y):
        x, y = super().inputs(x, y)
        return (InFileOrder(x), InFileOrder(y)) if len(y) > 1000 else (x, y)


# Those that a framework's own arrays and compiled evaluation meet, and those of the feeds alone, which one framework shows.
EVERYWHERE = (
    ("evaluation", EvaluationOfOneBatch),
    ("evaluation", FirstBatchEvaluatedAgain),
    ("data", LabelsShuffledApart),
    ("data", OneTestItemInTraining),
    ("data", ArrayInFileOrder),
)
ONCE = (
    ("evaluation", LastBatchNotEvaluated),
    ("evaluation", BatchesEvaluatedTwice),
    ("data", EpochsInFileOrder),
    ("data", SameOrderInEveryEpoch),
    ("data", DrawnWithReplacement),
    ("data", TestItemsInTraining),
)
