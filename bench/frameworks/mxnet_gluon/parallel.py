"""Several devices in Gluon: one process, parameters on every context, a Trainer whose kvstore is "device".

Idiomatic here: split and load, as the Gluon book teaches. The forward and backward pass of each part goes into its context's queue, and
MXNet's engine runs the queues side by side. Trainer.step() adds up the gradients and divides by the whole batch.
"""

import numpy as np

from bench import contract


def build(adapter_class, setup):
    return Split(adapter_class(setup))


class Split(contract.Wrapper):
    """An adapter on several contexts: it takes whole batches and returns the results of whole batches."""

    def __init__(self, training):
        super(Split, self).__init__(training)
        self.contexts = training.contexts

    def probe(self, x, y):
        parts = self._each(self.training.probe, x, y)
        gradients = {name: sum(part[2][name] for part in parts) / len(parts) for name in parts[0][2]}
        return np.concatenate([part[0] for part in parts]), sum(part[1] for part in parts) / len(parts), gradients

    def step(self, x, y):
        losses = [loss for _, loss in self._each(self.training._backward, x, y)]
        self.training.trainer.step(len(x))
        return losses

    def value(self, losses):
        return sum(self.training.value(loss) for loss in losses) / len(losses)

    def predict(self, x):
        return np.concatenate(self._each(self.training.predict, x))

    def _each(self, function, *arrays):
        """The results of the adapter's function for each context and its part of the arrays."""
        size = len(arrays[0]) // len(self.contexts)
        results = []
        for index, context in enumerate(self.contexts):
            self.training.context = context
            results.append(function(*(array[index * size : (index + 1) * size] for array in arrays)))
        self.training.context = self.contexts[0]
        return results
