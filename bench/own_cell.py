"""Cells of a person's own network: windows of its steps, and its steps held against the same file in float64 (bench.own_float64)."""

import hashlib
import itertools
import os

import numpy as np

from bench import environment, own_float64, own_network, parity, rules, timing
from bench.cell import RunningCell
from bench.errors import DataError, Unsupported

# Steps from drawn parameters: the first is proved beside the measured one, and images are held against one another by the losses of all.
# And from how many such parameters where float64 proves nothing.
FIRST_STEPS, SEEDS = 3, 4


class OwnCell(RunningCell):
    """Its file lies in the folder of --data, which holds nothing else."""

    def __init__(self, options, emitter):
        super(OwnCell, self).__init__(options, emitter)
        self.module = None
        self.batches = []
        # own_float64.Steps: from drawn parameters, and of the step that was measured.
        self.first = None
        self.before = self.after = self.told = self.of_step = None
        # The settings by which the host holds images against one another.
        self.facts = {}

    def adapter_class(self):
        if self.options.data is None:
            raise DataError("a network of one's own needs --data: the folder that holds its file alone")
        self.module = own_network.load(self.options.data, self.options.framework)
        self.module.FRAMEWORK = self.options.framework
        offered = ("fp32",) + tuple(getattr(self.module, "PRECISIONS", ()))
        if self.options.precision not in offered:
            raise Unsupported("its PRECISIONS do not name %s" % self.options.precision)
        self.batch = self.module.ITEMS
        own_network.state_of(self.options.framework)
        return lambda setup: own_network.Measured(self.module, setup)

    def load_data(self):
        self.batches = own_network.draw(self.module, self.options.seed)
        self.data_digest = _digest(self.batches)
        items = len(self.batches) * self.batch
        self.emit("data", name=rules.OWN, source="generated", sha256=self.data_digest, train_items=items, test_items=0)
        return self.batches

    def check_parity(self, network):
        """Take the first steps, from drawn parameters. They are compared in the phase "proof", together with the measured step."""
        shapes = sorted("%s %s" % (name, value.shape) for name, value in network.read().items())
        names = hashlib.sha256("\n".join(shapes).encode()).hexdigest()[:16]
        self.facts = {rules.OWN_BATCHES: self.data_digest[:16], rules.OWN_NAMES: names}
        self.first = self.first_steps(network, 0)
        self.hold_batches()
        own_float64.refuse_large(self.first.after)

    def first_steps(self, network, seed):
        """The Steps from parameters that are drawn by a seed."""
        return own_float64.taken("the first step", network, network.begin(seed), self.batches[:FIRST_STEPS])

    def hold_batches(self):
        """Raise DataError if a step changed its batch: the next step with it, and the one that is taken again, would have another."""
        if _digest(self.batches) != self.data_digest:
            raise DataError(
                "%s: step() changes its batch in place: copy what it changes, as x = x.clone() or x = x.copy() does"
                % os.path.basename(self.module.__file__)
            )

    def fill(self, network, batches, random):
        """It has drawn its own parameters."""

    def measure(self, framework, network, batches, random):
        shapes = {name: value.shape for name, value in network.values().items() if name.startswith("parameter/")}
        loop = timing.Loop(
            lambda batch, _: network.step(*batch),
            ((batch, None) for batch in itertools.cycle(batches)),
            framework.synchronize,
            lambda sample, handle: self.emit_window(sample, network, handle),
        )
        self.network, self.loop = network, loop
        with self.phase("compile"):
            loop.window("first", 1)
        with self.phase("warm-up"):
            step_seconds = loop.warm_up(self.preset["seconds"] / 5.0, timing.WARMUP_SECONDS[self.options.device])
        self.forget_peak(framework)
        with self.phase("train"):
            self.measure_windows(loop, timing.steps_per_window(step_seconds), step_seconds, self.keep)
            if self.after is None:
                self.before = network.values()
                self.take(network.value(loop.further()))
        self.device_peak_bytes, self.steps = framework.device_peak_bytes(), loop.steps
        for name, shape in shapes.items():
            if self.after[name].shape != shape:
                raise DataError("%s changed its shape from %s to %s" % (name, shape, self.after[name].shape))

    def emit_window(self, sample, network, handle):
        self.emit_sample(sample)
        loss = network.value(handle)
        self.emit("metric", name="loss", split="train", step=self.loop.steps, seconds=self.loop.seconds, value=loss)
        if self.before is not None and self.after is None:
            self.take(loss)

    def keep(self, share, left):
        """True before the window of the step that is proved: at the moment that the host drew, or the last one."""
        moment = self.options.proved_at
        if self.after is not None or (share < moment if moment is not None else left > 1):
            return False
        self.host_peak_bytes = self.host_peak_bytes or environment.host_peak_bytes()
        self.before = self.network.values()
        return True

    def take(self, loss):
        """Keep what the step told and left that began at `before`."""
        self.after, self.told, self.of_step = self.network.values(), loss, self.loop.last[0]

    def proved(self, network):
        """A list of parity.Result, of the first steps and of the measured one.

        Where its steps draw random numbers, a network without them takes the measured step once more.
        """
        self.hold_batches()
        measured = own_float64.Steps("a measured step", self.before, self.after, [self.of_step], [self.told], None)
        results, twin = [], own_network.Measured(self.module, self.setup(False))
        in_eval = network.in_eval()
        if in_eval:
            self.facts[rules.OWN_EVAL] = in_eval
        dropout = getattr(self.module, "DROPOUT", False)
        try:
            if dropout == "always":
                raise own_float64.NotInFloat64("its steps always draw random numbers, as its DROPOUT says")
            if dropout:
                results.append(self.moved("a measured step, with random numbers"))
                what = "a measured step, without random numbers"
                measured = own_float64.taken(what, twin, self.before, [self.of_step])
                drew = own_float64.differ(self.after, measured.after, self.before) > own_float64.RANDOM
                self.facts[rules.OWN_RANDOM] = "drawn" if drew else "none"
            cases = [own_float64.held(twin, case, self.options.precision) for case in (self.first, measured)]
            losses, checks = own_float64.check(self.options, cases)
        except own_float64.NotInFloat64 as error:
            self.leave_to_images(twin, str(error))
            return results or [self.moved("a measured step")]
        self.facts[rules.OWN_LOSSES] = _listed(losses)
        return results + [parity.Result(*(each + (each[2] <= each[3],))) for each in checks]

    def moved(self, what):
        """The parity.Result of how many parameters that the first step moved the measured one left as they were."""
        first, names = self.first, [name for name in self.before if name.startswith("parameter/")]
        moving = [name for name in names if not np.array_equal(first.before[name], first.after[name])]
        stayed = sum(np.array_equal(self.before[name], self.after[name]) for name in moving)
        return parity.Result("moved", what, stayed, 0.5, stayed < 0.5)

    def leave_to_images(self, twin, why):
        """Tell the losses of several seeds as they are measured: by these the host holds images against one another."""
        for what in sorted(rules.OWN_LEFT_OUT):
            self.emit("left-out", what=what, reason=why)
        cases = [self.first]
        for seed in range(1, SEEDS):
            twin.restore(self.first.before)
            cases.append(self.first_steps(twin, seed))
        self.facts[rules.OWN_SEEDS] = _listed([loss for case in cases for loss in case.losses])
        scatters = [own_float64.scatter(twin, case, self.options.precision).loss for case in cases]
        self.facts[rules.OWN_SCATTER] = "%.3g" % max(scatters)
        self.facts[rules.OWN_WHY] = why[:300]

    def found(self):
        return self.facts


def _digest(batches):
    digest = hashlib.sha256()
    for array in (array for batch in batches for array in batch):
        digest.update(("%s %s " % (array.dtype, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _listed(losses):
    return ", ".join("%.10g" % loss for loss in losses)
