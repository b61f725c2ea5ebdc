"""Mistakes that need only the methods of the contract, so that they can be planted in an adapter of any framework."""

import numpy as np


class Mixin:
    """STEPS: how many steps a cell must take before the mistake begins to show. NOT_CAUGHT: the reason why no gate refuses it.

    PLANTED: (object, attribute, value) of each thing beside the adapter that is another one while the cell runs.
    """

    STEPS = 0
    PLANTED = ()
    NOT_CAUGHT = ""


class StaleBatch(Mixin):
    """Every step takes the first batch again: later ones are ignored."""

    kept = None

    def step(self, x, y):
        self.kept = self.kept or (x, y)
        return super().step(*self.kept)


class EverySecondStep(Mixin):
    """Every second step is skipped: it returns the loss of the step before."""

    count = 0

    def step(self, x, y):
        self.count += 1
        if self.count % 2:
            self.handle = super().step(x, y)
        return self.handle


class EverySecondStepAfterTheTenth(Mixin):
    """Every second step after the tenth is skipped."""

    STEPS = 12
    count = 0

    def load(self, parameters):
        # How many steps a cell measures depends on its time. The first one after `load` is always skipped, so the same check refuses it.
        if self.count > 10:
            self.count |= 1
        super().load(parameters)

    def step(self, x, y):
        self.count += 1
        if self.count <= 10 or self.count % 2:
            self.handle = super().step(x, y)
        return self.handle


class ForwardOnly(Mixin):
    """A step computes the loss and updates nothing."""

    def step(self, x, y):
        return self.probe(x, y)[1]

    def value(self, loss):
        return float(loss)


class TwoUpdatesAStep(Mixin):
    """Every step updates twice with its batch."""

    def step(self, x, y):
        super().step(x, y)
        return super().step(x, y)


class HalfOfTheBatch(Mixin):
    """A step trains on the first half of its batch."""

    def step(self, x, y):
        half = len(y) // 2
        return super().step(x[:half], y[:half])


class LabelsOfTheBatchBefore(Mixin):
    """Every step takes the labels of the step before, as a loader that is one ahead would give them."""

    before = None

    def step(self, x, y):
        labels, self.before = (y if self.before is None else self.before), y
        return super().step(x, labels if len(labels) == len(y) else y)


class FirstWeightsEvaluated(Mixin):
    """The evaluation computes with the weights as they were at its first call: a copy that is never refreshed."""

    def load(self, parameters):
        super().load(parameters)
        self.loaded = getattr(self, "loaded", parameters)

    def predict(self, x):
        now = {name: np.array(value) for name, value in self.read().items()}
        super().load(self.loaded)
        logits = np.array(super().predict(x))
        super().load(now)
        return logits


EVERYWHERE = (("data", StaleBatch), ("measured object", EverySecondStep), ("measured object", ForwardOnly))
# Those that PyTorch has one by one.
MORE = (
    ("data", HalfOfTheBatch),
    ("data", LabelsOfTheBatchBefore),
    ("measured object", TwoUpdatesAStep),
    ("measured object", EverySecondStepAfterTheTenth),
    ("evaluation", FirstWeightsEvaluated),
)
