"""Several devices in one cell: how they share a batch, and what their processes exchange.

Training is data-parallel and synchronous: every device has the same parameters, computes its part of each batch, and takes its step with
the mean of all gradients. framework.json says how: "processes" is a process a device (bench.ranks starts them, and each runs the whole
cell); "mpi" is the same, started by mpiexec; "one-process" sees all devices. The framework's parallel.py has the rest.
Weak scaling keeps the batch of a device, strong scaling that of all devices together. The learning rate is the workload's, and may
depend on the batch.
"""

import importlib
import os

import numpy as np

from bench import contract, rules

# Which of a cell's processes this is, and a path where they meet: it does not exist yet (bench.ranks).
RANK, MEETING = "DLBENCH_RANK", "DLBENCH_MEETING"

# A process that waits longer for another one ends with an error, which says more than the host's limit of 900 s for preset quick: so it is
# well below that. The longest compilation so far took ten minutes, but all processes compile at once and wait for the slowest only.
PATIENCE_SECONDS = 600


def form(framework):
    """How a framework uses several devices: "processes", "one-process", or None where it does not."""
    return rules.framework_declaration(framework).get("parallel")


def rank():
    """Which of the cell's processes this is. 0 emits the cell's events."""
    return int(os.environ.get(RANK, "0"))


def threads_of_each(framework, threads, devices):
    """The CPU threads of one process, out of the cell's."""
    return max(1, threads // devices) if _a_process_each(framework) else threads


def threads_of_all(framework, threads, devices):
    """The CPU threads of all devices together, where one process has `threads`: devices in one process share them."""
    return threads * devices if _a_process_each(framework) else threads


def _a_process_each(framework):
    return form(framework) in (rules.PROCESSES, rules.MPI)


def join(framework, setup):
    """The devices of this cell, after its framework is configured: Alone, OneProcess, or Processes, which waits for all of them."""
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
        """The adapter as the parity check needs it: whole batches in, results of whole batches out."""
        return training

    def gather(self, value):
        """The values of all processes, by rank. All of them must call it."""
        return [value]

    def leave(self):
        """Leave the other processes: the cell has ended well."""


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
    """An adapter among several processes, seen as one: it takes whole batches and computes its part; its results are of the whole.

    Gradients and parameters stay this process's own. The parity check proves for every process that they are those of the whole batch.
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
    """The mean over the processes."""
    return sum(group.gather(float(value))) / group.count


def worst(group, results):
    """The parity results of all processes as one list: of each quantity, the largest error."""
    lists = group.gather([(result.error, result.passed) for result in results])
    return [
        result._replace(error=max(error for error, _ in outcomes), passed=all(passed for _, passed in outcomes))
        for result, outcomes in zip(results, zip(*lists))
    ]
