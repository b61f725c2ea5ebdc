"""The steps of every cell: import, data, parity, build, measure, proof. Each is a phase, and emits events."""

import contextlib
import functools
import math
import time

import numpy as np

from bench import canonical, contract, environment, parallel, parity, profiling, proof, rules, timing
from bench.data import default_cache
from bench.errors import Unsupported


def setup_of(options, seed, training):
    """The arguments of every adapter. Every process has its part of the threads, and its own dropout."""
    threads = parallel.threads_of_each(options.framework, options.threads or environment.cpu_count(), options.devices)
    where = options.device, options.precision, options.mode, threads
    rank = parallel.rank()
    return contract.Setup(*(where + (seed + rank, training, options.devices, rank)))


class RunningCell(object):
    """Runs one cell and emits its events. `options` are the parsed arguments of `python -m bench run`.

    A task is a subclass. `load_data()` returns the data that its other methods use. `fill(adapter, data, random)` gives the adapter its
    parameters. `measure(framework, adapter, data, random)` emits the plan, the samples and the metrics. `random` comes from the seed.
    """

    def __init__(self, options, emitter):
        self.options = options
        self.emitter = emitter
        self.emit = emitter.emit
        self.workload = contract.specification(options.workload)
        self.declared = rules.workload_declaration(options.workload)
        self.preset = self.declared["presets"][options.preset]
        self.stop, self.noise, self.steps = "none", None, 0
        self.variant = ""
        # The peak of the host's memory before copies for the proof were made.
        self.host_peak_bytes = None
        self.loop = None  # the timing.Loop of a task that has steps
        self.device_peak_bytes = None  # at the end of the measured windows, of a task that has them
        self.group = parallel.Alone()
        # Makes the context in which functions that are only checked may be read from the cache on the disk. Nothing that is measured is.
        self.remembered = contextlib.ExitStack
        # The items in a step of all devices together. A preset may have its own, which is part of what the cell is.
        self.batch = self.preset.get("batch") or self.declared["batch"]

    @contextlib.contextmanager
    def phase(self, name):
        begin = time.perf_counter()
        self.emit("phase", name=name, state="begin", seconds=None)
        yield
        self.emit("phase", name=name, state="end", seconds=time.perf_counter() - begin)

    def setup(self, training):
        o = self.options
        return setup_of(o, o.seed, training)

    def settings(self):
        """The task's own settings, emitted with the framework's."""
        return {}

    def run(self):
        o = self.options
        with self.phase("import"):
            contract.check(o)
            reason = rules.gpu_only_reason(o.workload, self.declared.get("gpu_only"), o.device)
            if reason:
                raise Unsupported(reason)
            framework = contract.load_framework(o.framework)
            framework.configure(self.setup(True))
            self.remembered = functools.partial(framework.remembered, default_cache())
            adapter_class = self.adapter_class()
            self.group = parallel.join(o.framework, self.setup(True))
        described = environment.describe(framework, o.workload, self.setup(True), self.emitter.zero)
        if self.variant:
            described["settings"].update(variant=self.variant, variant_reason=adapter_class.VARIANT_REASON)
        if o.devices > 1:
            threads = parallel.threads_of_all(o.framework, self.setup(True).threads, o.devices)
            described["settings"].update(devices=o.devices, threads_of_all=threads)
        if o.devices > 1 and self.declared["task"] == "train":
            described["settings"].update(scaling=o.scaling, batch_of_all=self.batch)
            described["settings"].update(learning_rate="the workload's, whatever the batch of all devices")
        described["settings"].update(self.settings())
        self.emit("environment", **described)
        with self.phase("data"):
            data = self.load_data()
        # The first build of a process starts the framework: torch imports the rest of itself there, and JAX starts XLA.
        with self.phase("build"):
            unmeasured = self.group.build(adapter_class, self.setup(False))
        with self.phase("parity"), self.remembered():
            self.check_parity(unmeasured)
        # Their memory would count in the peak of the measured one.
        del unmeasured
        canonical.forget()
        with self.phase("build"):
            adapter = self.group.build(adapter_class, self.setup(True))
            random = np.random.RandomState(o.seed)
            self.fill(adapter, data, random)
        # Before a build nobody knows what it switches, such as a compiler.
        used = dict(described["settings"], **framework.settings())
        used.update(framework.settings_of(adapter))
        if used != described["settings"]:
            self.emit("environment", **dict(described, settings=used))
        if adapter.compile:
            with self.phase("compile"):
                adapter.compile()
        self.measure(framework, adapter, data, random)
        self.emit_memory(self.device_peak_bytes or framework.device_peak_bytes())
        self.prove(adapter, described["settings"], framework.settings())
        if self.found():
            self.emit("environment", **dict(described, settings=dict(used, **self.found())))
        self.share_of_kernels()
        if o.profile:
            self.profile()
        self.group.leave()

    def adapter_class(self):
        """The class of the adapter, or a function that makes it from a contract.Setup."""
        o = self.options
        adapter_class = contract.load_adapter(o.framework, o.workload)
        self.variant = parity.variant_of(adapter_class, o.workload)
        return adapter_class

    def found(self):
        """Further settings of the environment, which are known after the proof."""
        return {}

    def forget_peak(self, framework):
        """After the warm-up: the peak of the device's memory is to be that of the measured windows."""
        if framework.device_peak_bytes() is not None and not framework.forget_device_peak():
            reason = "%s cannot count it anew after the warm-up, so it may be an autotuner's or the parity check's"
            self.emit("left-out", what=rules.PEAK_OF_WINDOWS, reason=reason % self.options.framework)

    def share_of_kernels(self):
        """Emit in which share of a step's time kernels ran on the GPU, or why that is not known. After all that is measured."""
        if self.loop is None:
            return
        reason = profiling.no_share_reason(self.options)
        if not reason:
            steady = [sample.seconds / sample.steps for sample in self.loop.samples if sample.stage == "steady"]
            with self.phase("profile"):
                try:
                    share, steps = profiling.kernel_share(self.options.framework, self.loop, timing.median(steady))
                    self.emit("kernels", share=share, steps=steps)
                except Unsupported as error:
                    reason = str(error)
        if reason:
            self.emit("left-out", what=rules.SHARE_OF_KERNELS, reason=reason)

    def profile(self):
        """Runs after everything is measured: a profiler slows the steps and takes memory."""
        if self.loop is None:
            reason = "a profile is of the operations of a step, and %s has none" % self.options.workload
            self.emit("left-out", what="the profile", reason=reason)
            return
        with self.phase("profile"):
            operations, step_seconds = profiling.profile(self.options.framework, self.options.device, self.loop)
        for operation in operations:
            self.emit("profile", steps=profiling.STEPS, step_seconds=step_seconds, **operation._asdict())

    def check_parity(self, adapter):
        o = self.options
        results = parity.check(o.workload, self.group.whole(adapter), o.precision, o.devices)
        for result in parallel.worst(self.group, results):
            self.emit_parity(result)

    def prove(self, adapter, told, now):
        """Hold the measured adapter itself against the reference. It comes after the memory event: it takes memory of its own.

        told, now: the framework's settings before anything was built, and after the measurement.
        """
        with self.phase("proof"):
            environment.refuse_other_threads(told, now)
            for result in parallel.worst(self.group, self.proved(adapter)):
                self.emit_parity(result)

    def proved(self, adapter):
        """A list of parity.Result of the measured adapter."""
        o = self.options
        return proof.computes(o.workload, adapter, o.precision, o.devices)

    def emit_parity(self, result):
        self.emit(
            "parity",
            quantity=result.quantity,
            tensor=result.tensor,
            error=result.error if math.isfinite(result.error) else None,
            bound=result.bound,
            passed=result.passed,
            variant=self.variant,
        )

    def emit_memory(self, device_peak_bytes):
        """The host's memory of all processes together, and the device's of the fullest."""
        peaks = self.group.gather((self.host_peak_bytes or environment.host_peak_bytes(), device_peak_bytes))
        device_peaks = [peak for _, peak in peaks if peak is not None]
        self.emit(
            "memory",
            host_peak_bytes=sum(peak for peak, _ in peaks),
            device_peak_bytes=max(device_peaks) if device_peaks else None,
        )

    def emit_sample(self, sample):
        self.emit(
            "sample",
            index=sample.index,
            stage=sample.stage,
            begin=sample.begin - self.emitter.zero,
            seconds=sample.seconds,
            steps=sample.steps,
            items=sample.steps * self.batch,
        )

    def emit_plan(self, windows, steps_per_window, seconds, short):
        self.emit(
            "plan",
            windows=max(1, int(math.ceil(windows))),
            steps_per_window=steps_per_window,
            items_per_step=self.batch,
            seconds=seconds,
            short=short,
        )

    def measure_windows(self, loop, per_window, step_seconds, before=lambda share, left: False):
        """Steady windows until the preset's noise is reached or its time is spent. before: as timing.Loop.until_quiet takes it."""
        seconds = self.preset["seconds"]
        self.emit_plan(seconds / (per_window * step_seconds), per_window, seconds, True)
        self.stop, self.noise = loop.until_quiet(
            per_window, self.preset["windows"], self.preset["noise"], seconds, before
        )
