"""Cells that compute features: one batch after another from host memory to the device and back, both copies inside the clock."""

import collections
import hashlib
import itertools

import numpy as np

from bench import canonical, parity, timing, weights
from bench.cell import RunningCell

# batches: float32 arrays in host memory; parameters: name -> array read from the user's file, or None for canonical ones
Inputs = collections.namedtuple("Inputs", "batches parameters")

# Two computations of the same pictures are compared, and each may err by a bound.
TWICE = 2.0


class InferenceCell(RunningCell):
    """Inference mode with the canonical parameters, or with a weight file found in the data folder. The images are random."""

    def load_data(self):
        batch, shape = self.workload.BATCH, self.workload.SHAPE
        random = np.random.RandomState(self.options.seed)
        batches = [
            random.uniform(0.0, 1.0, (batch,) + shape).astype("float32")
            for _ in range(self.preset["test_items"] // batch)
        ]
        digest = hashlib.sha256()
        for images in batches:
            digest.update(memoryview(images).cast("B"))
        path = weights.find(self.options.data, self.options.workload)
        parameters = weights.read(path, canonical.specifications(self.workload)) if path else None
        name = self.declared["data"]
        if path:
            name += " (parameters of a given file)"
            for value in parameters.values():
                digest.update(memoryview(value).cast("B"))
        items = batch * len(batches)
        self.emit("data", name=name, source="generated", sha256=digest.hexdigest(), train_items=0, test_items=items)
        return Inputs(batches, parameters)

    def fill(self, inference, data, random):
        inference.load(data.parameters or canonical.draw_parameters(self.workload, random, True, self.variant))

    def measure(self, framework, inference, data, random):
        batches = [(inference.inputs(images), None) for images in data.batches]
        features = np.empty((len(batches), self.workload.BATCH, self.workload.FEATURES), dtype=np.float32)
        places = itertools.cycle(range(len(batches)))

        def step(x, _):
            features[next(places)] = inference.predict(x)

        loop = timing.Loop(
            step, itertools.cycle(batches), framework.synchronize, lambda sample, _: self.emit_sample(sample)
        )
        with self.phase("compile"):
            loop.window("first", 1)
        with self.phase("warm-up"):
            limit_seconds = (self.preset["seconds"] or 60) / 5.0
            step_seconds = loop.warm_up(limit_seconds, timing.WARMUP_SECONDS[self.options.device])
            if self.preset["epochs"]:  # the published procedure: one whole pass before the one that is timed
                step_seconds = loop.window("warm-up", len(batches))
        self.forget_peak(framework)
        per_window = timing.steps_per_window(step_seconds)
        with self.phase("evaluate"):
            if self.preset["epochs"]:
                steps = self.preset["epochs"] * len(batches)
                self.emit_plan(steps / float(per_window), per_window, steps * step_seconds, False)
                loop.for_steps(per_window, steps)
                self.stop, self.noise = "count", loop.noise()
            else:
                self.measure_windows(loop, per_window, step_seconds)
        self.device_peak_bytes = framework.device_peak_bytes()
        self.steps, self.loop = loop.steps, loop
        # The batches that were taken at least once, and their features of the last time.
        self.taken = list(zip(data.batches, features))[: loop.taken]

    def proved(self, inference):
        """The canonical pictures, and before them, as other parameters are loaded for these, some that were measured."""
        results = [self.hold_measured(inference)]
        return results + super(InferenceCell, self).proved(inference)

    def hold_measured(self, inference):
        """Pictures of the last pass, which the seed draws, are computed again, so many at once as parity holds: a parity.Result.

        As many pictures as a batch has, so it takes the time of a step. The error is in bounds.
        """
        random = np.random.RandomState(self.options.seed)
        many = len(self.workload.draw_batch(random)[0])
        batches, errors = random.permutation(len(self.taken)), []
        for turn in range(self.workload.BATCH // many):
            images, measured = self.taken[batches[turn % len(batches)]]
            rows = random.choice(len(images), many, replace=False)
            again = np.array(inference.predict(inference.inputs(images[rows])), dtype=np.float64)
            errors.append(parity.relative_error(measured[rows], again))
        bound = parity.bounds_of(self.options.workload, self.options.precision)["features", "features"]
        return parity.exact("features", ", measured pictures", max(errors) / (TWICE * bound))
