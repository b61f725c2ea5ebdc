"""Cells that train: windows of optimiser steps, the learning curve between them, accuracy on the held-out part."""

import itertools
import math

import numpy as np

from bench import canonical, data, parallel, timing
from bench.cell import Cell
from bench.errors import DataError

MOST_EVALUATIONS = 10  # of a whole run


def in_order(training, x, y, size, rank=0, count=1):
    """[(inputs, labels as the step wants them, labels)] of the whole mini-batches in file order, each made once by the adapter.

    Of `count` processes each takes its own part of every batch.
    """
    batches, part = [], size // count
    for start in range(rank * part, len(x) - size + 1 + rank * part, size):
        labels = y[start : start + part]
        batches.append(tuple(training.inputs(x[start : start + part], labels)) + (labels,))
    return batches


def mini_batches(x, y, size, random, rank=0, count=1):
    """Whole mini-batches for ever: every epoch shuffled by observation, the remainder left out.

    Of `count` processes, which shuffle alike, each takes its own part of every batch.
    """
    part = size // count
    while True:
        order = random.permutation(len(x))
        for start in range(0, len(x) - size + 1, size):
            pick = order[start + rank * part : start + (rank + 1) * part]
            yield x[pick], y[pick]


class TrainingCell(Cell):
    """Training from canonical parameters; the held-out part is evaluated before and after, or after each epoch of a whole run."""

    def __init__(self, options, emitter):
        super(TrainingCell, self).__init__(options, emitter)
        self.batch = parallel.batch_of_all(self.declared["batch"], options.devices, options.scaling)

    def load_data(self):
        loaded = data.load(
            self.declared["data"],
            self.options.data,
            self.preset["train_items"],
            self.preset["test_items"],
            self.options.seed,
            data.default_cache(),
        )
        self.emit(
            "data",
            name=loaded.name,
            source=loaded.source,
            sha256=loaded.sha256,
            train_items=len(loaded.train_x),
            test_items=len(loaded.test_x),
        )
        if len(loaded.train_x) < self.batch:
            message = "%s trains on batches of %d here, and the data in %s are %d: give the whole set, or fewer devices"
            found = self.options.workload, self.batch, self.options.data, len(loaded.train_x)
            raise DataError(message % found)
        return loaded

    def fill(self, training, data, random):
        training.load(canonical.draw_parameters(self.workload, random, False, self.variant))

    def measure(self, framework, training, data, random):
        group, size = self.group, min(self.workload.BATCH, len(data.test_x))
        if self.workload.SHUFFLE:
            x, y = training.inputs(data.train_x, data.train_y)
            batches = mini_batches(x, y, self.batch, random, group.rank, group.count)
        else:
            ordered = in_order(training, data.train_x, data.train_y, self.batch, group.rank, group.count)
            batches = itertools.cycle([(x, y) for x, y, _ in ordered])
        evaluated = "test", in_order(training, data.test_x, data.test_y, max(1, size))[group.rank :: group.count]
        if not len(data.test_x):  # nothing is held out: the first batch of what it trains on
            first = data.train_x[: self.batch], data.train_y[: self.batch]
            evaluated = "train", in_order(training, *first, size=self.batch, rank=group.rank, count=group.count)
        loop = timing.Loop(
            training.step,
            batches,
            framework.synchronize,
            lambda sample, handle: self.tell_window(loop, sample, parallel.mean(group, training.value(handle))),
            agree=lambda seconds: group.gather(seconds)[0],
        )
        self.evaluate(training, evaluated, loop)
        with self.phase("compile"):
            loop.window("first", 1)
        with self.phase("warm-up"):
            step_seconds = loop.warm_up(limit_seconds=(self.preset["seconds"] or 60) / 5.0)
        per_window = timing.steps_per_window(step_seconds)
        with self.phase("train"):
            if self.preset["epochs"]:
                self.train_epochs(training, evaluated, loop, len(data.train_x) // self.batch, per_window, step_seconds)
            else:
                self.measure_windows(loop, per_window, step_seconds)
        self.steps, self.loop = loop.steps, loop
        if not self.preset["epochs"]:
            self.evaluate(training, evaluated, loop)

    def train_epochs(self, training, evaluated, loop, steps_an_epoch, per_window, step_seconds):
        """The specification's whole run: every epoch to its last whole batch, evaluated ten times or after each, outside the clock."""
        epochs = self.preset["epochs"]
        every = max(1, epochs // MOST_EVALUATIONS)
        ends = list(range(every, epochs, every)) + [epochs]
        left = epochs * steps_an_epoch - loop.steps
        self.tell_plan(left / float(per_window) + len(ends), per_window, left * step_seconds, False)
        for epoch in ends:
            loop.for_steps(per_window, epoch * steps_an_epoch - loop.steps)
            self.evaluate(training, evaluated, loop)
        self.stop, self.noise = "count", loop.noise()

    def tell_window(self, loop, sample, loss):
        self.tell_sample(sample)
        self.tell_metric("loss", "train", loop, loss)

    def tell_metric(self, name, split, loop, value):
        value = float(value)
        self.emit(
            "metric",
            name=name,
            split=split,
            step=loop.steps,
            seconds=loop.seconds,
            value=value if math.isfinite(value) else None,
        )

    def evaluate(self, training, evaluated, loop):
        """Accuracy on the whole batches of what is held out. evaluated: (split, what in_order() made of it, of this process)."""
        split, batches = evaluated
        right = seen = 0
        with self.phase("evaluate"):
            for x, _, labels in batches:
                right += int((np.argmax(training.predict(x), axis=1) == labels).sum())
                seen += len(labels)
            right, seen = (sum(each) for each in zip(*self.group.gather((right, seen))))
        self.tell_metric("accuracy", split, loop, right / float(max(seen, 1)))
