"""Mistakes of two kinds that a check of the canonical batch does not see, in every workload that is trained: what begins later, and what
the shape of a batch decides. They need only the methods of the contract.
"""

import numpy as np

from bench import contract, rules
from tests.contract.mutants import later, registry
from tests.contract.mutants.anywhere import Mixin

FRAMEWORKS = ("torch", "jax", "tensorflow")
# Rows of them are in the modules of these workloads, beside many others.
OF_THEIR_OWN = {"what begins later": ("gru-imdb", "cnn-cifar10")}
# workload -> why its cell is not run here. Its network is that of another workload.
TOO_LARGE = {
    "gpt2-124m": "A step takes minutes of a CPU. It has the network and the loop of gpt-bytes.",
    "densenet121-synthetic": "It has the network and the loop of densenet121-chestxray.",
}


class OtherShape(Mixin):
    """A subclass changes a batch of another shape than the canonical one, as by a kernel that is chosen by the shape.

    Two workloads are proved in the shape of their default batch: there a person's --batch makes another shape, as a short cell does.
    """

    WORKLOAD = shape_of_parity = None

    def step(self, x, y):
        if self.shape_of_parity is None:
            drawn = contract.specification(self.WORKLOAD).draw_batch(np.random.RandomState(0))
            self.shape_of_parity = tuple(self.inputs(*drawn)[0].shape)
        return super().step(*(self.changed(x, y) if tuple(x.shape) != self.shape_of_parity else (x, y)))


class HalfOfAnotherShape(OtherShape):
    """A batch of another shape than the canonical one is trained on by its first half."""

    def changed(self, x, y):
        many = len(y) // 2
        return x[:many], y[:many]


class FirstOfAnotherShape(OtherShape):
    """Of a batch of another shape than the canonical one a step trains on the first eighth."""

    def changed(self, x, y):
        many = max(1, len(y) // 8)
        return x[:many], y[:many]


SHAPE = (HalfOfAnotherShape, FirstOfAnotherShape)
LATER = (later.HalfOfTheBatchLater, later.EighthOfTheBatchLater, later.BatchBeforeLater, later.SkippedLater)


def trained():
    """The workloads that are trained and are run here."""
    names = (name for name in rules.workload_names() if rules.workload_declaration(name)["task"] == "train")
    return [name for name in sorted(names) if name not in TOO_LARGE]


def plant(framework):
    """Register them in each workload that the framework has. All are slow: a cell takes up to minutes."""
    for workload in trained() if framework in FRAMEWORKS else ():
        declaration = rules.workload_declaration(workload)
        if rules.adapter_module(framework, rules.module_of(workload, declaration)) is None:
            continue
        mistakes = []
        if workload not in OF_THEIR_OWN["what begins later"]:
            mistakes += [("measured object", mixin, {}) for mixin in LATER]
        mistakes += [("shape", mixin, {"WORKLOAD": workload}) for mixin in SHAPE]
        training = contract.load_adapter(framework, workload)
        for family, mixin, more in mistakes:
            words = {"__doc__": mixin.__doc__, "__module__": training.__module__, **more}
            adapter = type(mixin.__name__, (mixin, training), words)
            registry.MUTANTS.append(registry.Mutant(framework, workload, family, adapter, "", mixin.STEPS, True))
