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


class FirstBatchNotEvaluated(Mixin):
    """The evaluation leaves out the first held-out batch."""

    PLANTED = _held_out(lambda batches: batches[1:])


class OneBatchEvaluatedTwice(Mixin):
    """The evaluation takes the first held-out batch once more at its end."""

    PLANTED = _held_out(lambda batches: batches + batches[:1])


class LastItemsNotEvaluated(Mixin):
    """The evaluation leaves out the last item of each held-out batch."""

    PLANTED = _held_out(lambda batches: [(x[:-1], y[:-1]) for x, y in batches])


class EvaluatedBackwards(Mixin):
    """The evaluation computes the held-out batches in another order than that of the labels."""

    PLANTED = _held_out(lambda batches: [(x, y) for (x, _), (_, y) in zip(batches[::-1], batches, strict=True)])


class LabelsOfTheNextBatchEvaluated(Mixin):
    """The evaluation takes the labels of the next held-out batch."""

    PLANTED = _held_out(lambda b: [(x, y) for (x, _), (_, y) in zip(b, b[1:] + b[:1], strict=True)])


class LogitsInHalf(Mixin):
    """The evaluation rounds the logits to bfloat16's eight digits."""

    def predict(self, x):
        logits = np.array(super().predict(x), dtype=np.float32)
        return ((logits.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


class LogitsOnePercentLess(Mixin):
    """The evaluation multiplies the logits by 0.99."""

    def predict(self, x):
        return np.float32(0.99) * super().predict(x)


class LogitsOfTheBatchBefore(Mixin):
    """The evaluation answers with the logits of the batch before."""

    before = None

    def predict(self, x):
        now = np.array(super().predict(x))
        answer, self.before = (now if self.before is None else self.before), now
        return answer


class PredictionCached(Mixin):
    """The evaluation keeps the logits of each batch by where it lies in memory."""

    def predict(self, x):
        self.cached = getattr(self, "cached", {})
        return self.cached.setdefault(id(x), np.array(super().predict(x)))


class HalfOfTheSet(Mixin):
    """An epoch takes one half of the items twice."""

    STEPS = 36
    PLANTED = _batches(lambda random, items, before: np.tile(random.permutation(items)[: items // 2], 2))


class EpochsBackwards(Mixin):
    """An epoch takes the items from the last to the first."""

    PLANTED = _batches(lambda random, items, before: np.arange(items)[::-1])


class PermutationBackwards(Mixin):
    """An epoch takes the permuted items from the last to the first."""

    PLANTED = _batches(lambda random, items, before: random.permutation(items)[::-1])


class ShuffledInBlocks(Mixin):
    """Blocks of 64 items are shuffled, and not the items."""

    PLANTED = _batches(
        lambda random, items, before: np.arange(items).reshape(-1, 64)[random.permutation(items // 64)].ravel()
    )


class OfAnotherSeed(Mixin):
    """The items are shuffled by a generator of their own, of seed 2."""

    PLANTED = _batches(lambda random, items, before: np.random.RandomState(2).permutation(items))


class LastItemNeverTaken(Mixin):
    """The last item of the training part is never taken."""

    PLANTED = _batches(lambda random, items, before: random.permutation(items - 1))


class FirstHalfShuffled(Mixin):
    """The items of the first half of the file are shuffled, and come before those of the second."""

    PLANTED = _batches(
        lambda random, items, before: np.append(random.permutation(items // 2), np.arange(items // 2, items))
    )


class OneLabelOfAnother(Mixin):
    """Two labels of each epoch are exchanged: those of the first two items."""

    NOT_CAUGHT = "The labels of the last batch are compared, and these are of the first."
    PLANTED = _batches(
        lambda random, items, before: random.permutation(items), lambda order: np.append(order[1::-1], order[2:])
    )


class HundredTestItemsInTraining(Mixin):
    """A hundred of the items that are trained on are test items."""

    PLANTED = _loaded(lambda loaded: 100)


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
    ("evaluation", FirstBatchNotEvaluated),
    ("evaluation", OneBatchEvaluatedTwice),
    ("evaluation", LastItemsNotEvaluated),
    ("evaluation", EvaluatedBackwards),
    ("evaluation", LabelsOfTheNextBatchEvaluated),
    ("evaluation", LogitsInHalf),
    ("evaluation", LogitsOnePercentLess),
    ("evaluation", LogitsOfTheBatchBefore),
    ("evaluation", PredictionCached),
    ("evaluation", EvaluationOfOneBatch),
    ("evaluation", FirstBatchEvaluatedAgain),
    ("data", LabelsShuffledApart),
    ("data", OneTestItemInTraining),
    ("data", ArrayInFileOrder),
)
ONCE = (
    ("data", HalfOfTheSet),
    ("data", EpochsBackwards),
    ("data", PermutationBackwards),
    ("data", ShuffledInBlocks),
    ("data", OfAnotherSeed),
    ("data", LastItemNeverTaken),
    ("data", FirstHalfShuffled),
    ("data", OneLabelOfAnother),
    ("data", HundredTestItemsInTraining),
    ("evaluation", LastBatchNotEvaluated),
    ("evaluation", BatchesEvaluatedTwice),
    ("data", EpochsInFileOrder),
    ("data", SameOrderInEveryEpoch),
    ("data", DrawnWithReplacement),
    ("data", TestItemsInTraining),
)
