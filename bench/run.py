"""One cell, from import to end: parity, warm-up, measured windows, evaluation, each told as events."""

import contextlib
import importlib
import math
import sys
import time
import traceback

import numpy as np

from bench import canonical, environment, frameworks, parity, timing, workloads
from bench.errors import BenchError, Unsupported
from bench.protocol import MAX_STRING
from bench.setup import Setup


def load_framework(name):
    """bench.frameworks.<name>.framework; importing it imports the framework itself."""
    try:
        return importlib.import_module("bench.frameworks.%s.framework" % name)
    except ImportError as error:
        raise Unsupported("this interpreter cannot import the framework %r: %s" % (name, error))


def check_mode(name, mode):
    """Raises Unsupported for a mode that the framework does not declare."""
    declared = frameworks.declaration(name)["modes"]
    if mode not in declared:
        has = ", ".join("%s (%s)" % pair for pair in sorted(declared.items()))
        raise Unsupported("%s has no mode %r; it has: %s" % (name, mode, has))


def load_training(framework, workload):
    """The adapter class of a workload in a framework."""
    path = "bench.frameworks.%s.%s" % (framework, workload.replace("-", "_"))
    try:
        return importlib.import_module(path).Training
    except ImportError as error:
        raise Unsupported("%s has no adapter for %s: %s" % (framework, workload, error))


def mini_batches(x, y, size, random):
    """Whole mini-batches for ever: every epoch shuffled by observation, the remainder left out."""
    while True:
        order = random.permutation(len(x))
        for start in range(0, len(x) - size + 1, size):
            pick = order[start : start + size]
            yield x[pick], y[pick]


class Cell(object):
    """Runs one cell and tells it through `emitter`. `options` are the parsed arguments of `python -m bench run`."""

    def __init__(self, options, emitter):
        self.options = options
        self.emitter = emitter
        self.emit = emitter.emit
        self.workload = workloads.module(options.workload)
        self.declared = workloads.declaration(options.workload)
        self.preset = self.declared["presets"][options.preset]
        self.stop, self.noise, self.steps = "none", None, 0
        self.variant = ""

    @contextlib.contextmanager
    def phase(self, name):
        begin = time.perf_counter()
        self.emit("phase", name=name, state="begin", seconds=None)
        yield
        self.emit("phase", name=name, state="end", seconds=time.perf_counter() - begin)

    def setup(self, training):
        o = self.options
        return Setup(o.device, o.precision, o.mode, o.threads or environment.cpu_count(), o.seed, training)

    def run(self):
        o = self.options
        with self.phase("import"):
            check_mode(o.framework, o.mode)
            framework = load_framework(o.framework)
            framework.configure(self.setup(True))
            training_class = load_training(o.framework, o.workload)
            self.variant = parity.variant_of(training_class, o.workload)
        described = environment.describe(framework, self.setup(True), self.emitter.zero)
        if self.variant:
            described["settings"].update(variant=self.variant, variant_reason=training_class.VARIANT_REASON)
        self.emit("environment", **described)
        if o.precision not in self.declared["precisions"]:
            raise Unsupported("%s has no precision %s" % (o.workload, o.precision))
        with self.phase("data"):
            data = self.load_data()
        with self.phase("parity"):
            self.check_parity(training_class(self.setup(False)))
        with self.phase("build"):
            training = training_class(self.setup(True))
            random = np.random.RandomState(o.seed)
            training.load(canonical.draw_parameters(self.workload, random, False, self.variant))
        if hasattr(training, "compile"):
            with self.phase("compile"):
                training.compile()
        self.train(framework, training, data, random)
        self.emit(
            "memory", host_peak_bytes=environment.host_peak_bytes(), device_peak_bytes=framework.device_peak_bytes()
        )

    def load_data(self):
        from bench import data

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

    def check_parity(self, training):
        for result in parity.check(self.options.workload, training, self.options.precision):
            self.emit(
                "parity",
                quantity=result.quantity,
                tensor=result.tensor,
                error=result.error if math.isfinite(result.error) else None,
                bound=result.bound,
                passed=result.passed,
                variant=self.variant,
            )

    def train(self, framework, training, data, random):
        batch = self.workload.BATCH
        x, y = training.inputs(data.train_x, data.train_y)
        test = training.inputs(data.test_x, data.test_y)
        loop = timing.Loop(
            training.step,
            mini_batches(x, y, batch, random),
            framework.synchronize,
            lambda sample, handle: self.tell_window(loop, sample, training.value(handle)),
        )
        self.evaluate(training, test, loop)
        with self.phase("compile"):
            loop.window("first", 1)
        with self.phase("warm-up"):
            step_seconds = loop.warm_up(limit_seconds=(self.preset["seconds"] or 60) / 5.0)
        per_window = timing.steps_per_window(step_seconds)
        with self.phase("train"):
            if self.preset["epochs"]:
                self.train_epochs(training, test, loop, len(x) // batch, per_window, step_seconds)
            else:
                self.train_windows(loop, per_window, step_seconds)
        self.steps = loop.steps
        if not self.preset["epochs"]:
            self.evaluate(training, test, loop)

    def train_windows(self, loop, per_window, step_seconds):
        seconds = self.preset["seconds"]
        self.emit(
            "plan",
            windows=max(1, int(math.ceil(seconds / (per_window * step_seconds)))),
            steps_per_window=per_window,
            items_per_step=self.workload.BATCH,
            seconds=seconds,
            short=True,
        )
        self.stop, self.noise = loop.until_quiet(per_window, self.preset["windows"], self.preset["noise"], seconds)

    def train_epochs(self, training, test, loop, steps_an_epoch, per_window, step_seconds):
        """The specification's whole run: every epoch to its last whole batch, evaluated after each, outside the clock."""
        total = self.preset["epochs"] * steps_an_epoch
        self.emit(
            "plan",
            windows=int(math.ceil((total - loop.steps) / float(per_window))) + self.preset["epochs"],
            steps_per_window=per_window,
            items_per_step=self.workload.BATCH,
            seconds=(total - loop.steps) * step_seconds,
            short=False,
        )
        for epoch in range(1, self.preset["epochs"] + 1):
            loop.for_steps(per_window, epoch * steps_an_epoch - loop.steps)
            self.evaluate(training, test, loop)
        self.stop = "count"
        self.noise = timing.noise([s.seconds / s.steps for s in loop.samples if s.stage == "steady"])

    def tell_window(self, loop, sample, loss):
        self.emit(
            "sample",
            index=sample.index,
            stage=sample.stage,
            begin=sample.begin - self.emitter.zero,
            seconds=sample.seconds,
            steps=sample.steps,
            items=sample.steps * self.workload.BATCH,
        )
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
        """Accuracy on the whole batches of the held-out part."""
        x, y = test
        batch = self.workload.BATCH
        right = seen = 0
        with self.phase("evaluate"):
            for start in range(0, len(x) - batch + 1, batch):
                logits = training.predict(x[start : start + batch])
                right += int((np.argmax(logits, axis=1) == y[start : start + batch]).sum())
                seen += batch
        self.tell_metric("accuracy", "test", loop, right / float(max(seen, 1)))


def error_kind(error, framework):
    """The protocol's kind of an exception: the frame that raised it tells the bench's own bugs from the framework's."""
    if isinstance(error, BenchError):
        return error.kind
    if isinstance(error, MemoryError) or (framework is not None and framework.is_out_of_memory(error)):
        return "out-of-memory"
    frames = traceback.extract_tb(error.__traceback__)
    inside = frames and frames[-1][0].startswith(environment.FOLDER)
    return "bug" if inside else "framework"


def run(options, emitter):
    """Run a cell; returns the process's exit status. Every way out tells `end`."""
    cell = None
    try:
        cell = Cell(options, emitter)
        cell.run()
    except Exception as error:  # the boundary: whatever it was, the host must hear it
        framework = sys.modules.get("bench.frameworks.%s.framework" % options.framework)
        emitter.emit(
            "error",
            kind=error_kind(error, framework),
            message=str(error)[:MAX_STRING] or type(error).__name__,
            traceback=traceback.format_exc()[-MAX_STRING:],
        )
        emitter.emit("end", status="failed", stop="none", noise=None, steps=cell.steps if cell else 0)
        return 1
    emitter.emit("end", status="ok", stop=cell.stop, noise=cell.noise, steps=cell.steps)
    return 0
