"""Cells that train: windows of optimiser steps, the learning curve between them, the metric on the held-out part."""

import functools
import hashlib
import itertools
import math

import numpy as np

from bench import (
    auc,
    canonical,
    data,
    environment,
    items,
    learning,
    measured,
    mixed,
    parallel,
    parity,
    proof,
    rules,
    timing,
    weights,
)
from bench.cell import RunningCell
from bench.data import chestxray, png
from bench.errors import Unsupported
from bench.feeds import ArrayFeed, PictureFeed, PoolFeed, Waited

MOST_EVALUATIONS = 10  # of a whole run


class TrainingCell(RunningCell):
    """Training from canonical parameters; the held-out part is evaluated after it, in a whole run also before and between epochs."""

    def __init__(self, options, emitter):
        super(TrainingCell, self).__init__(options, emitter)
        self.alone = self.batch  # the batch of one device by itself
        self.batch = rules.batch_of_all(self.batch, options.devices, options.scaling)
        self.skipped = 0
        # The file of the losses that this cell's are held against, or the reason for none.
        self.stored = self.not_compared = None
        self.losses = {}  # steps so far -> loss, at the end of each window
        # Of the canonical batch, of the parameters whose weight decay is checked, for the phase "proof".
        self.gradients = {}
        # The measured.Watch of the steps that are held, or None; the parameters before the last window, as far as it is known.
        self.watch = self.before_last = None
        # The logits of the first held-out batch, of the first evaluation and of the last one.
        self.evaluations = []
        # [(logits, labels)] of each batch of the last evaluation of the test part.
        self.evaluated = []
        # The parity.Results of each evaluation of a whole run.
        self.held = []
        # The feed, and the state of the random numbers before its first batch.
        self.feed = self.order = None
        # Seconds that the loop had waited for batches at the end of the last window; None for a feed that makes them before.
        self.waited = None

    def settings(self):
        """The treatment of the data and the types of the computation, for the environment."""
        half = mixed.half(self.options.precision)
        settings = {"half_type": half, "loss_scaling": half == "float16"} if half else {}
        if data.stays_in_files(self.declared["data"]):
            settings.update(png_decoder=png.DECODER, loader_threads=self.setup(True).threads)
            settings.update(parameters="pretrained, of a given file" if self.weight_file() else "canonical")
        if self.workload.rate:
            settings.update(learning_rate="%g at first, proportional to the batch of all devices" % self.rate(0))
        return settings

    def rate(self, epoch):
        """The learning rate in an epoch, of a workload with a schedule."""
        return self.workload.rate(epoch, self.batch, self.alone)

    def weight_file(self):
        """The user's pretrained parameters beside the pictures, or None."""
        pretrained = self.declared["data"] == chestxray.NAME
        return weights.find(self.options.data, self.options.workload) if pretrained else None

    def load_data(self):
        """A feed of bench.feeds."""
        name, items, seed = self.declared["data"], self.preset["train_items"], self.options.seed
        if name in rules.RANDOM:
            feed = PoolFeed(items, self.workload.draw_items, seed, self.group)
            self.waited = 0.0
            name += " (a pool of %d batches)" % feed.POOL
            source, sha256 = "generated", hashlib.sha256(b"seed %d" % seed).hexdigest()
        else:
            loaded = data.load(name, self.options.data, items, self.preset["test_items"], seed, data.default_cache())
            if data.stays_in_files(name):
                feed = PictureFeed(loaded, self.setup(True).threads, self.group, self.options.devices)
                self.waited = 0.0
            else:
                feed = ArrayFeed(loaded, self.workload.SHUFFLE, self.group)
            name, source, sha256 = loaded.name, loaded.source, loaded.sha256
        if self.batch % self.options.devices:
            raise Unsupported(
                "%d devices cannot share a batch of %d evenly; ask for a divisor of it, or for --scaling weak"
                % (self.options.devices, self.batch)
            )
        if feed.train_items < self.batch:
            raise data.DataError(
                "%s trains on batches of %d here, and there are %d items to train with (%s): give more, or take fewer devices"
                % (self.options.workload, self.batch, feed.train_items, self.options.data or "generated")
            )
        o = self.options
        self.stored = rules.stored_losses(o.workload, self.batch, o.seed, feed.train_items, o.precision)
        self.not_compared = rules.losses_reason(self.stored, source, o.devices)
        items = {"train_items": feed.train_items, "test_items": feed.test_items}
        self.emit("data", name=name, source=source, sha256=sha256, **items)
        return feed

    def check_parity(self, adapter):
        """If the phase "proof" checks the measured adapter's steps, not all are checked here."""
        o = self.options
        if rules.checks_all_before(o.preset):
            super(TrainingCell, self).check_parity(adapter)
            return
        whole = self.group.whole(adapter)
        results, gradients = parity.check_network(o.workload, whole, o.precision, o.devices)
        self.gradients = {tensor: gradients[tensor] for tensor in self.workload.DECAYED}
        if rules.has_dropout(o.workload):
            results += parity.check_first_steps(o.workload, whole, o.precision, o.devices)
        for result in parallel.worst(self.group, results):
            self.emit_parity(result)

    def proved(self, adapter):
        """Check that the measured steps trained, and the measured adapter's results."""
        o = self.options
        loaded = self.drawn(np.random.RandomState(o.seed))
        # A framework may leave out what has no gradient: it computes the same.
        for tensor in self.workload.SYMMETRIC:
            del loaded[tensor]
        before_last = self.before_last
        # Read once: in a framework that stores a layer in another order a read takes as long as a quarter of a step.
        now = proof.numbers(adapter)
        results = proof.trained(adapter, loaded, now, self.steps, before_last)
        if all(result.quantity != "updates" for result in results):
            reason = "%s's optimiser of this workload keeps no count of its steps" % o.framework
            self.emit("left-out", what=rules.COUNT_OF_UPDATES, reason=reason)
        results += self.took(adapter, now, loaded)
        whole = self.group.whole(adapter)
        if before_last is None:
            results.append(proof.goes_on(o.workload, whole, o.devices))
        more = proof.computes(o.workload, whole, o.precision, o.devices, self.gradients or None, self.evaluations)
        return results + self.learned() + more

    def took(self, adapter, now, loaded):
        """Check the items of the last step and of the last evaluation, and the measured steps that were watched.

        now: the parameters, before others are loaded; loaded: those that training began with.
        """
        o, random = self.options, self.declared["data"] in rules.RANDOM
        checked = [] if random else items.check(self.feed, adapter, self.loop, self.order, self.batch)
        if not random:
            checked += items.worst(self.held or self.hold_evaluation(now))
        if self.watch is None or self.watch.steps is None:
            reason = measured.reason(o.devices) or "fewer than %d steps were taken" % measured.STEPS
            self.emit("left-out", what=rules.MEASURED_STEPS, reason=reason)
            return checked
        steps, batches = self.watch.steps, None
        if not random:
            last = steps.copies[-1].taken
            batches = [items.of_step(self.feed, self.order, self.batch, step) for step in (last - 2, last - 1)]
        # It loads, probes and predicts, and takes no step: none of these functions was measured.
        with self.remembered():
            return checked + measured.check(o.workload, adapter, steps, batches, o.precision, loaded)

    def hold_evaluation(self, parameters):
        """Hold the last evaluation of the test part: a list of parity.Result. parameters: as it had them."""
        o = self.options
        return items.evaluated(o.workload, self.feed, parameters, o.precision, self.batch, self.evaluated, self.variant)

    def watched(self, training, loop, steps=None):
        """The measured.Watch of a cell, or None; steps: of a run of so many. Its last ones are measured, too."""
        # A short whole run may be over with its warm-up.
        if measured.reason(self.options.devices) or (steps is not None and steps < 1):
            return None
        moment = self.options.proved_at
        if steps is not None:
            last = steps - measured.STEPS
            moment = (last if moment is None else min(last, int(moment * steps))) / float(steps)
        return measured.Watch(training, loop, moment, self.rate(0) if self.workload.rate else None)

    def keep(self, training, per_window, share, left):
        """Called before each window, with the share of the measurement that is over and how many windows are probably left."""
        if self.watch is None:
            if left <= 1:
                self.host_peak_bytes = self.host_peak_bytes or environment.host_peak_bytes()
                self.before_last = proof.numbers(training)
            return False
        if not self.watch.wants(share, left, per_window):
            return False
        self.host_peak_bytes = self.host_peak_bytes or environment.host_peak_bytes()
        return self.watch.copy()

    def end_of_watch(self, loop):
        """After the last window: the steps that are held, where none of the windows were."""
        if self.watch is None:
            return
        if self.watch.steps is None:
            self.host_peak_bytes = self.host_peak_bytes or environment.host_peak_bytes()
            self.watch.end(further=not self.preset["epochs"])
        copies = self.watch.copies
        self.before_last = next((c.parameters for c in copies[::-1] if c.taken < loop.taken), None)

    def learned(self):
        """Check that the reported losses are the network's: a list of parity.Result."""
        if self.not_compared:
            self.emit("left-out", what=rules.LOSSES_COMPARED, reason=self.not_compared)
            return []
        return learning.check(self.stored, self.losses)

    def fill(self, training, feed, random):
        training.load(self.drawn(random))

    def drawn(self, random):
        """The parameters that training begins with: canonical name -> float32 array."""
        drawn = canonical.draw_parameters(self.workload, random, False, self.variant)
        path = self.weight_file()
        # The file's classifier is for another set of classes, so it is left out.
        if path:
            own = [spec for spec in self.workload.PARAMETERS if not spec.name.startswith("classifier.")]
            drawn.update(weights.read(path, own))
        return drawn

    def measure(self, framework, training, feed, random):
        self.feed, self.order = feed, random.get_state()
        batches = feed.batches(training, self.batch, random)
        if self.waited is not None:
            batches = Waited(batches)
        loop = timing.Loop(
            training.step,
            batches,
            framework.synchronize,
            lambda sample, handle: self.emit_window(
                loop, sample, parallel.mean(self.group, training.value(handle)), batches
            ),
            agree=lambda seconds: self.group.gather(seconds)[0],
            skipped=training.skipped,
        )
        if self.preset["epochs"]:
            self.evaluate(training, feed, loop)
        else:
            self.predict_first(training, feed)
        # A run that is shorter than an epoch of the real data keeps the first rate.
        if self.workload.rate:
            training.set_rate(self.rate(0))
        with self.phase("compile"):
            loop.window("first", 1)
        with self.phase("warm-up"):
            step_seconds = self.warm_up(loop, feed.train_items // self.batch)
        self.forget_peak(framework)
        per_window = timing.steps_per_window(step_seconds)
        with self.phase("train"):
            if self.preset["epochs"]:
                self.train_epochs(training, feed, loop, feed.train_items // self.batch, per_window, step_seconds)
            else:
                self.watch = self.watched(training, loop)
                keep = functools.partial(self.keep, training, per_window)
                self.measure_windows(loop, per_window, step_seconds, keep)
                self.end_of_watch(loop)
        self.device_peak_bytes = framework.device_peak_bytes()
        self.steps, self.loop = loop.steps, loop
        if not self.preset["epochs"]:
            self.evaluate(training, feed, loop)

    def warm_up(self, loop, steps_an_epoch):
        """Returns the expected seconds per step. Of a whole run, which counts these steps, a tenth at most warms up."""
        epochs = self.preset["epochs"]
        most_steps = epochs * steps_an_epoch // 10 if epochs else float("inf")
        return loop.warm_up(
            (self.preset["seconds"] or 60) / 5.0, timing.WARMUP_SECONDS[self.options.device], most_steps
        )

    def train_epochs(self, training, feed, loop, steps_an_epoch, per_window, step_seconds):
        """The specification's whole run: every epoch to its last whole batch, evaluated ten times, outside the clock.

        With a schedule of the learning rate it is evaluated after each epoch. If there is a validation part, that part is evaluated,
        and the test once at the end, with the last weights: choosing the best by validation would be another procedure.
        """
        epochs = self.preset["epochs"]
        scheduled = self.workload.rate is not None
        every = 1 if scheduled else max(1, epochs // MOST_EVALUATIONS)
        ends = list(range(every, epochs, every)) + [epochs]
        left = epochs * steps_an_epoch - loop.steps
        per_window = timing.steps_per_window_of(left, per_window)
        self.watch = self.watched(training, loop, left)
        begin = loop.steps

        def before():
            """The most steps of the next window: one, or as many as are left until the steps that are held."""
            done = loop.steps - begin
            if self.keep(training, per_window, done / float(left), left - done):
                return 1
            due = int(round(self.watch.moment * left)) if self.watch else 0
            return due - done if due > done else None

        self.emit_plan(left / float(per_window) + len(ends), per_window, left * step_seconds, False)
        for epoch in ends:
            if scheduled:
                training.set_rate(self.rate(epoch - 1))
                if self.watch:
                    self.watch.rate = self.rate(epoch - 1)
            loop.for_steps(per_window, epoch * steps_an_epoch - loop.steps, before)
            self.evaluate(training, feed, loop, "validation" if feed.validated else "test")
        if feed.validated:
            self.evaluate(training, feed, loop)
        self.end_of_watch(loop)
        self.stop, self.noise = "count", loop.noise()

    def emit_window(self, loop, sample, loss, batches):
        self.emit_sample(sample)
        self.losses[loop.steps] = loss
        if self.watch:
            self.watch.after(loss)
        self.emit_metric("loss", "train", loop, loss)
        if loop.skipped > self.skipped:
            self.skipped = loop.skipped
            self.emit_metric(rules.SKIPPED_STEPS, "train", loop, loop.skipped)
        if self.waited is not None:
            self.emit_metric(
                rules.WAITING_FOR_DATA, "train", loop, min(1.0, (batches.seconds - self.waited) / sample.seconds)
            )
            self.waited = batches.seconds

    def emit_metric(self, name, split, loop, value):
        value = math.nan if value is None else float(value)
        self.emit(
            "metric",
            name=name,
            split=split,
            step=loop.steps,
            seconds=loop.seconds,
            value=value if math.isfinite(value) else None,
        )

    def predict_first(self, training, feed):
        """Keep the logits of the first held-out batch before training. An untrained network's metric is chance: no more is computed."""
        if self.declared["metric"] is None:
            return
        with self.phase("evaluate"):
            self.keep_logits(self.predicted(training, itertools.islice(feed.held_out(training, self.batch), 1)))

    def predicted(self, training, batches):
        """[(logits, labels)] of each of these batches and of those of the other processes, in file order."""
        training.share_statistics()
        own = [(training.predict(x)[: len(y)], y) for x, y in batches]
        return items.in_file_order(self.group.gather(own))

    def keep_logits(self, pairs):
        """Keep the logits of the first batch of an evaluation of the test part, for the phase "proof"."""
        if pairs:
            self.evaluations = self.evaluations[:1] + [np.array(pairs[0][0], dtype=np.float32)]

    def evaluate(self, training, feed, loop, split="test"):
        """The workload's metric on the held-out part, or on that for validation, where the workload has a metric."""
        if self.declared["metric"] is None:
            return
        with self.phase("evaluate"):
            batches = feed.validation if split == "validation" else feed.held_out
            pairs = self.predicted(training, batches(training, self.batch))
            if pairs and split == "test":
                self.keep_logits(pairs)
                self.evaluated = pairs
            # A time to a loss is read off one of these, so each is held. The reference takes a second or less, outside the clock.
            if pairs and split == "test" and self.preset["epochs"]:
                self.held += self.hold_evaluation(proof.numbers(training))
        if not pairs:
            return
        if self.workload.FINDINGS:
            labels, logits = np.concatenate([y for _, y in pairs]), np.concatenate([logits for logits, _ in pairs])
            aucs, mean = auc.of_classes(labels, logits)
            for finding, value in zip(self.workload.FINDINGS, aucs):
                self.emit_metric(rules.auc_of(finding), split, loop, value)
            self.emit_metric("mean AUC", split, loop, mean)
        else:
            split = split if feed.test_items else "train"
            score = self.workload.score or _accuracy
            total = sum(len(y) * score(y, logits) for logits, y in pairs)
            self.emit_metric(self.declared["metric"]["name"], split, loop, total / float(sum(len(y) for _, y in pairs)))


def _accuracy(labels, logits):
    return np.mean(np.argmax(logits, axis=1) == labels)
