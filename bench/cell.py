"""What every cell does, whatever it measures: import, data, parity, build, measure, each a phase told as events."""

import contextlib
import math
import time

import numpy as np

from bench import environment, parity, workloads
from bench.adapters import check_mode, load_adapter, load_framework
from bench.errors import Unsupported
from bench.setup import Setup


class Cell(object):
    """Runs one cell and tells it through `emitter`. `options` are the parsed arguments of `python -m bench run`.

    A task is a subclass: `load_data()` returns what its other methods use, `fill(adapter, data, random)` gives the adapter its parameters,
    and `measure(framework, adapter, data, random)` tells the plan, the samples and the metrics. `random` is the cell's, from its seed.
    """

    def __init__(self, options, emitter):
        self.options = options
        self.emitter = emitter
        self.emit = emitter.emit
        self.workload = workloads.module(options.workload)
        self.declared = workloads.declaration(options.workload)
        self.preset = self.declared["presets"][options.preset]
        # a preset may have a batch of its own: the cell's, which is part of what it is
        self.batch = self.preset.get("batch") or self.declared["batch"]
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

    def settings(self):
        """What a task does by itself, told with the framework's settings."""
        return {}

    def run(self):
        o = self.options
        with self.phase("import"):
            check_mode(o.framework, o.mode)
            framework = load_framework(o.framework)
            framework.configure(self.setup(True))
            adapter_class = load_adapter(o.framework, o.workload)
            self.variant = parity.variant_of(adapter_class, o.workload)
        described = environment.describe(framework, self.setup(True), self.emitter.zero)
        if self.variant:
            described["settings"].update(variant=self.variant, variant_reason=adapter_class.VARIANT_REASON)
        described["settings"].update(self.settings())
        self.emit("environment", **described)
        if o.precision not in self.declared["precisions"]:
            raise Unsupported("%s has no precision %s" % (o.workload, o.precision))
        with self.phase("data"):
            data = self.load_data()
        with self.phase("parity"):
            self.check_parity(adapter_class(self.setup(False)))
        with self.phase("build"):
            adapter = adapter_class(self.setup(True))
            random = np.random.RandomState(o.seed)
            self.fill(adapter, data, random)
        if hasattr(adapter, "compile"):
            with self.phase("compile"):
                adapter.compile()
        self.measure(framework, adapter, data, random)
        self.emit(
            "memory", host_peak_bytes=environment.host_peak_bytes(), device_peak_bytes=framework.device_peak_bytes()
        )

    def check_parity(self, adapter):
        for result in parity.check(self.options.workload, adapter, self.options.precision):
            self.tell_parity(result)

    def tell_parity(self, result):
        self.emit(
            "parity",
            quantity=result.quantity,
            tensor=result.tensor,
            error=result.error if math.isfinite(result.error) else None,
            bound=result.bound,
            passed=result.passed,
            variant=self.variant,
        )

    def tell_sample(self, sample):
        self.emit(
            "sample",
            index=sample.index,
            stage=sample.stage,
            begin=sample.begin - self.emitter.zero,
            seconds=sample.seconds,
            steps=sample.steps,
            items=sample.steps * self.batch,
        )

    def tell_plan(self, windows, steps_per_window, seconds, short):
        self.emit(
            "plan",
            windows=max(1, int(math.ceil(windows))),
            steps_per_window=steps_per_window,
            items_per_step=self.batch,
            seconds=seconds,
            short=short,
        )

    def measure_windows(self, loop, per_window, step_seconds):
        """Steady windows until the preset's noise is reached or its time is spent."""
        seconds = self.preset["seconds"]
        self.tell_plan(seconds / (per_window * step_seconds), per_window, seconds, True)
        self.stop, self.noise = loop.until_quiet(per_window, self.preset["windows"], self.preset["noise"], seconds)
