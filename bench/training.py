"""Cells that train: windows of optimiser steps, the learning curve between them, accuracy on the held-out part."""

import math

import numpy as np

from bench import canonical, data, parallel, timing
from bench.cell import Cell


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
        return loaded

    def fill(self, training, data, random):
        training.load(canonical.draw_parameters(self.workload, random, False, self.variant))

    def measure(self, framework, training, data, random):
        group = self.group
        x, y = training.inputs(data.train_x, data.train_y)
        test = training.inputs(data.test_x, data.test_y)
        loop = timing.Loop(
            training.step,
            mini_batches(x, y, self.batch, random, group.rank, group.count),
            framework.synchronize,
            lambda sample, handle: self.tell_window(loop, sample, parallel.mean(group, training.value(handle))),
            agree=lambda seconds: group.gather(seconds)[0],
        )
        self.evaluate(training, test, loop)
        with self.phase("compile"):
            loop.window("first", 1)
        with self.phase("warm-up"):
            step_seconds = loop.warm_up(limit_seconds=(self.preset["seconds"] or 60) / 5.0)
        per_window = timing.steps_per_window(step_seconds)
        with self.phase("train"):
            if self.preset["epochs"]:
                self.train_epochs(training, test, loop, len(x) // self.batch, per_window, step_seconds)
            else:
                self.measure_windows(loop, per_window, step_seconds)
        self.steps = loop.steps
        if not self.preset["epochs"]:
            self.evaluate(training, test, loop)

    def train_epochs(self, training, test, loop, steps_an_epoch, per_window, step_seconds):
        """The specification's whole run: every epoch to its last whole batch, evaluated after each, outside the clock."""
        total = self.preset["epochs"] * steps_an_epoch
        windows = (total - loop.steps) / float(per_window) + self.preset["epochs"]
        self.tell_plan(windows, per_window, (total - loop.steps) * step_seconds, False)
        for epoch in range(1, self.preset["epochs"] + 1):
            loop.for_steps(per_window, epoch * steps_an_epoch - loop.steps)
            self.evaluate(training, test, loop)
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

    def evaluate(self, training, test, loop):
        """Accuracy on the whole batches of the held-out part; several processes take turns with them."""
        x, y = test
        batch, group = self.workload.BATCH, self.group
        right = seen = 0
        with self.phase("evaluate"):
            for start in range(group.rank * batch, len(x) - batch + 1, group.count * batch):
                logits = training.predict(x[start : start + batch])
                right += int((np.argmax(logits, axis=1) == y[start : start + batch]).sum())
                seen += batch
            right, seen = (sum(each) for each in zip(*group.gather((right, seen))))
        self.tell_metric("accuracy", "test", loop, right / float(max(seen, 1)))
