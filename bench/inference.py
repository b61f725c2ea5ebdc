"""Cells that compute features: one batch after another from host memory to the device and back, both copies inside the clock."""

import collections
import hashlib
import itertools

import numpy as np

from bench import canonical, timing, weights
from bench.cell import RunningCell

# batches: float32 arrays in host memory; parameters: name -> array read from the user's file, or None for canonical ones
Inputs = collections.namedtuple("Inputs", "batches parameters")


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
