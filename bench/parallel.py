"""Several devices in one cell: how a batch is shared out among them, and what their processes tell each other.

Training is data-parallel and synchronous: every device has the same parameters, computes its part of each batch, and takes its step with
the mean of all gradients. A framework says in framework.json how it does that: "processes", a process a device (bench.ranks starts
them, and each of them runs the whole cell), "mpi", the same started by mpiexec, or "one-process", which sees all devices. Its
parallel.py has the rest.
Weak scaling keeps the batch of a device, strong scaling that of all devices together. The learning rate is the
workload's, which may go with the batch.
"""

import importlib
import os

import numpy as np

from bench import contract, rules

# Which of a cell's processes this is, and a path that all of them know and none has made (bench.ranks).
RANK, MEETING = "DLBENCH_RANK", "DLBENCH_MEETING"

# A process that waits for another one longer than this ends with an error. The longest compilation that was met took ten minutes.
PATIENCE_SECONDS = 900


def form(framework):
    """How a framework uses several devices: "processes", "one-process", or None where it does not."""
    return rules.framework_declaration(framework).get("parallel")


def rank():
    """Which of the cell's processes this is: 0 tells its events."""
    return int(os.environ.get(RANK, "0"))


def threads_of_each(framework, threads, devices):
    """CPU threads of one process, of those that the cell has."""
    return max(1, threads // devices) if form(framework) in (rules.PROCESSES, rules.MPI) else threads


def join(framework, setup):
    """The devices of this cell, its framework configured: Alone, OneProcess or Processes. In the latter case all of them are met."""
    if setup.devices == 1:
        return Alone()
    module = importlib.import_module("bench.frameworks.%s.parallel" % framework)
    if form(framework) == rules.ONE_PROCESS:
        return OneProcess(module)
    return Processes(module.Link(setup, os.environ.get(MEETING), PATIENCE_SECONDS), setup)


class Alone(object):
    """One device, one process."""

    rank, count = 0, 1

    def build(self, adapter_class, setup):
        return adapter_class(setup)

    def whole(self, training):
        """The adapter as one that is given whole batches and tells of whole batches: what the parity check wants."""
        return training

    def gather(self, value):
        """What each process gives, in their order. All of them must call it."""
        return [value]

    def leave(self):
        """Part from the other processes: the cell has ended well."""


class OneProcess(Alone):
    """Several devices in one process: the framework's parallel.py makes an adapter that shares each batch out among them.

    An adapter of single operations shares no batch: it uses all devices by itself.
    """

    def __init__(self, module):
        self._module = module

    def build(self, adapter_class, setup):
        shared = issubclass(adapter_class, contract.Training)
        return self._module.build(adapter_class, setup) if shared else adapter_class(setup)


class Processes(Alone):
    """One of several processes. `link.gather(value)` is the framework's own; its adapters average gradients by themselves."""

    def __init__(self, link, setup):
        self._link = link
        self.rank, self.count = setup.rank, setup.devices

    def whole(self, training):
        return Whole(training, self) if isinstance(training, contract.Training) else training

    def gather(self, value):
        return self._link.gather(value)

    def leave(self):
        self._link.leave()


class Whole(contract.Wrapper):
    """An adapter among several processes, seen as one: takes whole batches, computes its part, tells of the whole.

    A gradient and a parameter stay this process's own: that they are the whole's is what the parity check proves, of every process.
    """

    def __init__(self, training, group):
        super(Whole, self).__init__(training)
        self._group = group

    def probe(self, x, y):
        logits, loss, gradients = self.training.probe(self._part(x), self._part(y))
        parts = self._group.gather((np.asarray(logits), float(loss)))
        return (
            np.concatenate([part for part, _ in parts]),
            sum(loss_of_part for _, loss_of_part in parts) / len(parts),
            gradients,
        )

    def step(self, x, y):
        return self.training.step(self._part(x), self._part(y))

    def value(self, loss):
        return mean(self._group, self.training.value(loss))

    def predict(self, x):
        return np.concatenate(self._group.gather(np.asarray(self.training.predict(self._part(x)))))

    def _part(self, array):
        size = len(array) // self._group.count
        return array[self._group.rank * size : (self._group.rank + 1) * size]


def mean(group, value):
    """The mean of what the processes give."""
    return sum(group.gather(float(value))) / group.count


def worst(group, results):
    """The parity results of all processes as one list: each quantity's furthest from its bound."""
    lists = group.gather([(result.error, result.passed) for result in results])
    return [
        result._replace(error=max(error for error, _ in outcomes), passed=all(passed for _, passed in outcomes))
        for result, outcomes in zip(results, zip(*lists))
    ]
