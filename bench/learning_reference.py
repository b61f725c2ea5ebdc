"""Makes the losses that those of cells are held against (bench.learning): of cells whose adapter is the NumPy reference.

Data, feed, parameters and the rate are those of a cell, by the cell's own code. The adapter is bench.reference, with the workload's
dropout.

It computes in float32, which takes a third of the time. Rounding moves a loss by far less than another seed does (a test holds that).
Of a deep network the first run is in float64.
"""

import argparse
import collections
import itertools

import numpy as np

from bench import arithmetic, contract, rules
from bench.environment import cpu_count
from bench.training import TrainingCell

FIRST_SEED = 1001  # far from those that people take
# The seed of a cell that nobody gave another one (runner.plan.request).
DEFAULT_SEED = 1
# Other seeds that people take: of preset quick their cells are held as tightly.
FURTHER_SEEDS = range(2, 7)
# Four units of float32: rounding errors grow with the steps as this does, and a framework's own may be larger than NumPy's.
DISTURBANCE = 2.0**-22
STEPS, SEEDS = 48, 8
# Of one seed.
SEED_STEPS, SEED_RUNS = 24, 4
# Of a deep network. A cell tells the loss of each of its first seven steps: the first window has one, and a warm-up at least six.
DEEP_STEPS, DEEP_RUNS = 8, 6


class ReferenceTraining(contract.Training):
    """An adapter that is the reference in NumPy, dropout where the workload has it."""

    def __init__(self, workload, random, kind=np.float32, disturbed=0.0):
        """random: of the masks, and of a relative disturbance of the parameters at the start."""
        self.workload, self.kind, self.random, self.disturbed = workload, kind, random, disturbed
        self.parameters = self.optimizer = None

    def load(self, parameters):
        self.parameters = collections.OrderedDict()
        for name, value in parameters.items():
            noise = 1.0 + self.disturbed * self.random.standard_normal(value.shape) if self.disturbed else 1.0
            self.parameters[name] = (value * noise).astype(self.kind)
        self.optimizer = self.workload.optimizer()

    def read(self):
        return {name: value.astype(np.float32) for name, value in self.parameters.items()}

    def inputs(self, x, y):
        return x, y

    def probe(self, x, y):
        x = x.astype(self.kind) if x.dtype.kind == "f" else x
        how = {}
        if self.workload.DROPOUT:
            how["masks"] = [mask.astype(self.kind) for mask in self.workload.draw_masks(self.random, len(x))]
        return self.workload.loss_and_gradients(self.parameters, x, y, arithmetic.Exact(), **how)

    def step(self, x, y):
        _, loss, gradients = self.probe(x, y)
        self.optimizer.update(self.parameters, gradients, arithmetic.Exact())
        return loss

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        predict = self.workload.predict
        rounding, x = arithmetic.Exact(), x.astype(self.kind) if x.dtype.kind == "f" else x
        if predict:
            return predict(self.parameters, x, rounding)
        labels = np.zeros(len(x), np.int32)
        return self.workload.loss_and_gradients(self.parameters, x, labels, rounding)[0]

    def set_rate(self, rate):
        self.optimizer.rate = rate


class _Cell(TrainingCell):
    """A cell of no framework, whose events nobody reads."""

    def setup(self, training):
        return contract.Setup("cpu", "fp32", "default", cpu_count(), self.options.seed, training)


class _Silent(object):
    def emit(self, event, **fields):
        pass


def losses(name, preset, seed, steps, kind=np.float32, run=0):
    """The losses of the first steps of a cell of this seed, as the reference computes them in one of several runs.

    A run is other masks of dropout. Without dropout, each run but the first begins with the parameters disturbed by rounding.
    """
    options = argparse.Namespace(
        workload=name, preset=preset, seed=seed, data=None, devices=1, scaling="weak", precision="fp32"
    )
    cell = _Cell(options, _Silent())
    feed, random = cell.load_data(), np.random.RandomState(seed)
    disturbed = DISTURBANCE if run and not cell.workload.DROPOUT else 0.0
    training = ReferenceTraining(cell.workload, np.random.RandomState([seed, run]), kind, disturbed)
    cell.fill(training, feed, random)
    if cell.workload.rate:
        training.set_rate(cell.rate(0))
    batches = feed.batches(training, cell.batch, random)
    return [training.value(training.step(x, y)) for x, y in itertools.islice(batches, steps)]


def is_deep(name):
    """True if preset quick of a workload has another batch, as that of the deep networks has."""
    return "batch" in rules.workload_declaration(name)["presets"]["quick"]


def write_reference(name):
    """Store the losses of single seeds for the data of a preset, and those over many seeds; returns the files' paths."""
    if is_deep(name):
        return [write_deep(name)]
    presets = rules.workload_declaration(name)["presets"]
    batch = rules.workload_declaration(name)["batch"]
    chosen = dict.fromkeys(("quick", "standard"), (DEFAULT_SEED,)) | {"quick": (DEFAULT_SEED, *FURTHER_SEEDS)}
    paths = []
    for preset, seed in ((preset, seed) for preset, seeds in chosen.items() for seed in seeds):
        rows = [losses(name, preset, seed, SEED_STEPS, run=run) for run in range(SEED_RUNS)]
        items = presets[preset]["train_items"]
        paths.append(store(rules.losses_path_of_seed(name, batch, seed, items), name, rows))
    rows = [losses(name, "quick", FIRST_SEED + seed, STEPS) for seed in range(SEEDS)]
    return paths + [store(rules.losses_path(name, batch), name, rows)]


def write_deep(name):
    """Store the first losses of a deep network, of preset quick and the default seed; returns the file's path.

    The first run is in float64. The others are in float32 and begin with the parameters disturbed. Such runs part soon: in
    resnet50-imagenet the standard deviation is 2e-6 of the first loss, 0.7 % of the second and 3 % of the eighth. So each step has its own
    spread (bench.learning): the first loss is held to rounding, and the later ones to what rounding has become by then.
    """
    quick = rules.workload_declaration(name)["presets"]["quick"]
    rows = [
        losses(name, "quick", DEFAULT_SEED, DEEP_STEPS, np.float32 if run else np.float64, run)
        for run in range(DEEP_RUNS)
    ]
    return store(rules.losses_path_of_seed(name, quick["batch"], DEFAULT_SEED, quick["train_items"]), name, rows)


def store(path, name, rows):
    """Write losses (runs, steps) as text; returns the path."""
    head = "Losses of the first steps, a line a run, made by `python -m bench reference %s --learning`." % name
    np.savetxt(path, rows, "%.9g", header=head)
    return path
