"""Cells that compute token by token: a prompt at once, then one token of each sequence a step, over a cache of keys and values.

A step is one token of each sequence, from the host and back: who reads a text waits for it. The clock is read as each token arrives, so
the time between tokens has a median and a 99th percentile. The time to the first token is a prompt's, outside the windows.
"""

import hashlib
import itertools
import time

import numpy as np

from bench import arithmetic, canonical, parity, rules, timing
from bench.cell import RunningCell

# Prompts that are timed before the first window. Each sequence that a cell begins later is timed, too.
FEWEST_PROMPTS = 5
# A 99th percentile of fewer would be the largest.
FEWEST_TOKENS = 100
# A greedy token is held where the reference's largest logit leads the next by so many errors that a logit may have.
CLEAR = 8.0
# Binary digits of the longest shorter type: of float16, and of e4m3.
SHORTER_DIGITS = {"float32": 11, "half": 4}


class DecodingCell(RunningCell):
    """Inference with the parameters that the seed draws, on random tokens."""

    def load_data(self):
        """How many sequences the preset has. The digest is of these; a cell that lasts longer draws further ones."""
        each = self.batch * self.workload.GENERATED
        sequences = self.preset["test_items"] // each
        digest = hashlib.sha256()
        for number in range(sequences):
            digest.update(memoryview(self.draw(number)).cast("B"))
        items = each * sequences
        name = self.declared["data"]
        self.emit("data", name=name, source="generated", sha256=digest.hexdigest(), train_items=0, test_items=items)
        return sequences

    def draw(self, number):
        return self.workload.draw_sequence(self.options.seed, number, self.batch)

    def fill(self, decoding, data, random):
        decoding.load(canonical.draw_parameters(self.workload, random, True, self.variant))

    def measure(self, framework, decoding, data, random):
        self.decoding, self.sequences = decoding, map(self.draw, itertools.count())
        self.arrived, self.between = [], []
        self.loop = timing.Loop(self.step, self.tokens(), framework.synchronize, self.observe)
        with self.phase("compile"):
            self.prefill()
            self.loop.window("first", 1)
        with self.phase("warm-up"):
            limit_seconds = (self.preset["seconds"] or 60) / 5.0
            step_seconds = self.loop.warm_up(limit_seconds, timing.WARMUP_SECONDS[self.options.device])
        self.forget_peak(framework)
        per_window = self.steps_per_window(step_seconds)
        with self.phase("evaluate"):
            for _ in range(FEWEST_PROMPTS):
                self.emit_metric(rules.FIRST_TOKEN, self.prefill())
            if self.preset["epochs"]:
                self.measure_all(data * self.preset["epochs"], per_window, step_seconds)
            else:
                self.measure_windows(self.loop, per_window, step_seconds, lambda share, left: self.begin_if_over())
            self.emit_between()
        self.device_peak_bytes = framework.device_peak_bytes()
        # The last windows may end within a sequence. A mistake at its last positions shows at its end alone.
        while not self.over():
            self.step(self.fed[len(self.told) - 1], None)
        logits, cache = np.array(decoding.logits()), [np.array(array) for array in decoding.cached()]
        self.steps, self.last = self.loop.steps, (self.sequence, list(self.told), logits, cache)

    def steps_per_window(self, step_seconds):
        """A power of two, so that a window ends where a sequence ends."""
        steps = 1
        while steps < min(timing.steps_per_window(step_seconds), self.workload.GENERATED):
            steps *= 2
        return steps

    def measure_all(self, sequences, per_window, step_seconds):
        """All tokens of so many sequences."""
        windows = sequences * self.workload.GENERATED // per_window
        self.emit_plan(windows, per_window, windows * per_window * step_seconds, False)
        for _ in range(windows):
            self.begin_if_over()
            self.loop.window("steady", per_window)
        self.stop, self.noise = "count", self.loop.noise()

    def prefill(self):
        """Begin the next sequences. Returns the seconds until their first token is on the host, which waits for the device."""
        self.sequence = next(self.sequences)
        # A copy: a view would bring the tokens that come later along.
        prompts = self.sequence[:, : self.workload.PROMPT].copy()
        begin = time.perf_counter()
        token = self.decoding.prefill(prompts)
        seconds = time.perf_counter() - begin
        self.told, self.fed = [token], np.ascontiguousarray(self.sequence[:, self.workload.PROMPT :].T)
        return seconds

    def over(self):
        """True if the sequences have had all their tokens."""
        return len(self.told) > self.workload.GENERATED

    def begin_if_over(self):
        if self.over():
            self.emit_metric(rules.FIRST_TOKEN, self.prefill())

    def tokens(self):
        """The tokens of each step. Only a window of the warm-up reaches over the end of a sequence."""
        while True:
            if self.over():
                self.prefill()
            yield self.fed[len(self.told) - 1], None

    def step(self, tokens, _):
        # A copy, within the clock: an array that is not in host memory is brought there, and none can be filled in after its step.
        self.told.append(np.array(self.decoding.step(tokens)))
        self.arrived.append(time.perf_counter())

    def observe(self, sample, _):
        """After a window, outside the clock: its first token took from the window's begin on."""
        if sample.stage == "steady":
            self.between.extend(np.diff([sample.begin] + self.arrived))
        self.arrived = []
        self.emit_sample(sample)

    def emit_metric(self, name, value):
        self.emit(
            "metric", name=name, split="test", step=self.loop.steps, seconds=self.loop.seconds, value=float(value)
        )

    def emit_between(self):
        self.emit_metric(rules.BETWEEN_TOKENS, np.median(self.between))
        if len(self.between) >= FEWEST_TOKENS:
            self.emit_metric(rules.BETWEEN_TOKENS_99, np.percentile(self.between, 99))
        else:
            reason = "%d steps were measured, and it needs %d" % (len(self.between), FEWEST_TOKENS)
            self.emit("left-out", what=rules.BETWEEN_TOKENS_99, reason=reason)

    def proved(self, adapter):
        parameters = canonical.draw_parameters(
            self.workload, np.random.RandomState(self.options.seed), True, self.variant
        )
        results = last_sequence(self.workload, parameters, self.options.precision, *self.last)
        results += super(DecodingCell, self).proved(adapter)
        # The steps that a profiler runs come next, with the parameters of the proof.
        self.prefill()
        return results


def last_sequence(workload, parameters, precision, sequence, told, logits, cache):
    """The checks of the last sequence that was measured, as it was measured: a list of parity.Result.

    sequence (N, T): its tokens; told: the greedy tokens (N,) so far, of the prompt and of each step; logits (N, vocabulary): the last
    ones; cache: the keys and values. NumPy computes a few rows without a cache, in float32, which errs by a thousandth of the bound.

    logits               their relative error: they hang on the whole cache
    greedy tokens        how many are others than the reference's, where its choice is clear
    digits of the cache  the share of its numbers that have those of a shorter type only
    """
    rows = np.linspace(0, len(sequence) - 1, min(workload.COMPARED, len(sequence))).astype(np.int64)
    begin, end = workload.PROMPT - 1, workload.PROMPT - 1 + len(told)
    bounds = rules.decoded(precision)
    wrong, seen, due = 0, [], []
    # Row by row: the logits of all positions of one row are 51 MB.
    for row in rows:
        exact = workload.NETWORK.logits(parameters, sequence[row : row + 1, :end], arithmetic.Exact())[0, begin:]
        second, first = np.partition(exact, -2, axis=1)[:, -2:].T
        clear = first - second > CLEAR * bounds[rules.DECODED, "logits"] * np.sqrt(np.mean(exact**2, axis=1))
        wrong += np.count_nonzero((exact.argmax(axis=1) != [tokens[row] for tokens in told]) & clear)
        seen.append(logits[row])
        due.append(exact[-1])
    errors = {"logits": parity.relative_error(np.array(seen), np.array(due)), rules.GREEDY: float(wrong)}
    errors[rules.DIGITS_OF_CACHE] = shorter_share(cache, precision)
    limits = {tensor: bounds[rules.DECODED, tensor] for tensor in errors}
    return [
        parity.Result(rules.DECODED, tensor, error, limits[tensor], bool(error <= limits[tensor]))
        for tensor, error in errors.items()
    ]


def shorter_share(cache, precision):
    """The share of the numbers in the cache, which are not 0, that a shorter type holds as well; 1 where all are 0.

    Of float32 that is float16, whose digits bfloat16 and fp8 have, too; of a half type fp8 (e4m3).
    """
    digits = SHORTER_DIGITS["half" if precision in rules.WIDE else "float32"]
    count = shorter = 0
    for array in cache:
        fractions = np.frexp(array[array != 0])[0].astype(np.float64) * 2.0**digits
        count, shorter = count + fractions.size, shorter + np.count_nonzero(fractions == np.round(fractions))
    return shorter / float(count) if count else 1.0
