"""How a training loop is measured: windows of steps, each ended by a device synchronisation and one clock reading.

A window holds nothing but what a person's own loop does: take a mini-batch, call the step. Everything computed about the windows
(noise, learning curve) is computed between them, outside the clock.
"""

import math
import time

from bench.errors import Overflow

# Warm-up ends when the last steps are no longer clearly faster than the ones before them.
WARMUP_GROUP = 3
WARMUP_GAIN = 0.05
# The clocks of an idle GPU rise when it gets work, and single steps of a small network are over before they have risen.
# It is not measured how long that takes; a second is many times the period in which a driver looks at the load.
WARMUP_SECONDS = {"cpu": 0.0, "cuda": 1.0}
# A window must be long against the clock and the synchronisation (microseconds). In 0.1 s both are at most 1e-4 of it.
WINDOW_SECONDS = 0.1
# Of a whole run. It may take days, and the host keeps some hundred bytes of each window in memory, and takes 200 000 events at most: a
# window has two to four.
MOST_WINDOWS = 40000
# A window is expected to take at most this multiple of the one before it.
WINDOWS_DIFFER = 1.5
# Every skipped step halves the loss scale. This number of halvings brings the largest float32 scale below the smallest loss.
MOST_SKIPPED = 256


class Sample(object):
    """One measured window. begin is on time.perf_counter's clock."""

    __slots__ = ("index", "stage", "begin", "seconds", "steps")

    def __init__(self, index, stage, begin, seconds, steps):
        self.index, self.stage, self.begin, self.seconds, self.steps = index, stage, begin, seconds, steps


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def noise(step_seconds):
    """Half width of the 95 % interval of the median, relative to it; None for fewer than six windows.

    The interval is the distribution-free one between two order statistics (ranks n/2 -+ 0.98 sqrt(n), from the binomial; e.g.
    Conover, Practical Nonparametric Statistics, 3.2): cheap enough to know after every window.
    """
    n = len(step_seconds)
    if n < 6:
        return None
    ordered = sorted(step_seconds)
    reach = 0.98 * math.sqrt(n)
    low = max(0, int(math.floor(n / 2.0 - reach)))
    high = min(n - 1, int(math.ceil(n / 2.0 + reach)))
    return 0.5 * (ordered[high] - ordered[low]) / median(ordered)


class Loop(object):
    """Runs steps in windows. `step(x, y)` is asynchronous and returns a handle; `batches` yields mini-batches for ever.

    `observe(sample, handle)` is called after each window, outside the clock. `seconds` is the training time so far and `steps` the
    steps so far, with the first step and the warm-up. Several processes use one clock: `agree(seconds)` returns the first process's
    seconds, so that all take the same number of steps. `skipped()` is how many steps a loss scaler has skipped so far: their time counts,
    because training takes it, and the steps do not.
    """

    def __init__(self, step, batches, synchronize, observe, clock=time.perf_counter, agree=None, skipped=None):
        self._step, self._batches, self._synchronize = step, batches, synchronize
        self._observe, self._clock = observe, clock
        self._agree = agree or (lambda seconds: seconds)
        self._skipped = skipped or (lambda: 0)
        self.skipped = self._skipped()
        self.samples = []
        self.seconds = 0.0
        self.steps = 0
        # How many batches were taken, skipped steps with them; and the last one.
        self.taken, self.last = 0, None

    def window(self, stage, steps):
        """Run and keep a window; returns its seconds per step. A window whose steps were all skipped continues until a step is taken."""
        begin, seconds, trained = None, 0.0, 0
        for _ in range(MOST_SKIPPED):
            now, more, handle = self._run(steps)
            begin, seconds = now if begin is None else begin, seconds + more
            before, self.skipped = self.skipped, self._skipped()
            trained += steps - (self.skipped - before)
            if trained:
                break
        else:
            raise Overflow(
                "%d windows in a row had no step that the loss scaler did not skip; training diverged" % MOST_SKIPPED
            )
        sample = Sample(len(self.samples), stage, begin, seconds, trained)
        self.samples.append(sample)
        self.seconds += seconds
        self.steps += trained
        self._observe(sample, handle)
        return seconds / trained

    def _run(self, steps):
        """Run `steps` steps: (when they began, the seconds that they took, the handle of the last)."""
        step, batches, handle = self._step, self._batches, None
        self._synchronize()
        begin = self._clock()
        for _ in range(steps):
            x, y = next(batches)
            handle = step(x, y)
        self._synchronize()
        seconds = self._agree(self._clock() - begin)
        self.taken, self.last = self.taken + steps, (x, y)
        return begin, seconds, handle

    def further(self):
        """Take one more step after the last window, and wait for the device. It counts, and has no sample. Returns its handle."""
        self.last = next(self._batches)
        handle = self._step(*self.last)
        self._synchronize()
        before, self.skipped = self.skipped, self._skipped()
        self.taken, self.steps = self.taken + 1, self.steps + 1 - (self.skipped - before)
        return handle

    def unmeasured(self, steps):
        """Run steps that are not recorded, and wait for the device."""
        for _ in range(steps):
            x, y = next(self._batches)
            self._step(x, y)
        self._synchronize()

    def warm_up(self, limit_seconds, least_seconds=0.0, most_steps=float("inf")):
        """Run single steps until they stop getting faster, or for limit_seconds; returns the expected seconds per step.

        If least_seconds are given, windows of several steps follow until they are over and the windows stop getting faster: a step
        alone between two synchronisations takes longer than one of many, in a framework that runs ahead of its device. They end
        before more than most_steps are taken.
        """
        begin, most = self.seconds, self.steps + most_steps
        step_seconds = self._until_steady(1, begin + limit_seconds)
        several = 0
        # Until the windows are about as long as they should be: at first the clocks are low.
        while least_seconds and 2 * several <= steps_per_window(step_seconds):
            several = min(steps_per_window(step_seconds), most - self.steps)
            done = several == 1 and self.seconds - begin >= least_seconds
            if several < 1 or done or self.seconds - begin > limit_seconds:
                break
            step_seconds = self._until_steady(several, begin + limit_seconds, begin + least_seconds, most)
        return step_seconds

    def _until_steady(self, steps, end, not_before=0.0, most=float("inf")):
        """Windows of `steps` steps until they stop getting faster; returns the seconds per step of the last ones.

        end, not_before: in seconds of the training so far. most: steps of the training, which the windows do not exceed.
        """
        times = []
        while True:
            times.append(self.window("warm-up", steps))
            last = median(times[-WARMUP_GROUP:])
            if self.seconds > end or self.steps + steps > most:
                return last
            if len(times) >= 2 * WARMUP_GROUP and self.seconds >= not_before:
                before = median(times[-2 * WARMUP_GROUP : -WARMUP_GROUP])
                if last > before * (1.0 - WARMUP_GAIN):
                    return last

    def until_quiet(
        self, steps_per_window, least_windows, wanted_noise, limit_seconds, before=lambda share, left: False
    ):
        """Steady windows until the noise is reached (not before least_windows) or the time is spent.

        before(share, left): called before each window, outside the clock; the share of the time that is spent, and how many windows are
        probably left, with this one. Where it is true the window has one step.
        Returns (why it stopped: "noise" or "time", the noise reached or None).
        """
        times = []
        begin, spent = self._clock(), 0.0
        while True:
            expected = self._expected(steps_per_window)
            over = limit_seconds - spent - WINDOWS_DIFFER * expected
            left = 1 + math.ceil(max(0.0, over) / expected) if expected else math.inf
            times.append(self.window("steady", 1 if before(spent / limit_seconds, left) else steps_per_window))
            reached = noise(times)
            if len(times) >= least_windows and reached is not None and reached <= wanted_noise:
                return "noise", reached
            spent = self._agree(self._clock() - begin)
            if spent >= limit_seconds:
                return "time", reached

    def _expected(self, steps):
        """The seconds of a window of `steps` steps, by the window before it."""
        before = self.samples[-1:]
        return steps * before[0].seconds / before[0].steps if before else 0.0

    def noise(self):
        """The noise of the steady windows so far, or None."""
        return noise([s.seconds / s.steps for s in self.samples if s.stage == "steady"])

    def for_steps(self, steps_per_window, steps, before=lambda: None):
        """Steady windows for exactly `steps` steps. before(): called before each window; the most steps that it may have, or None."""
        left = steps
        while left > 0:
            count = min(before() or steps_per_window, steps_per_window, left)
            self.window("steady", count)
            left -= self.samples[-1].steps


def steps_per_window(step_seconds):
    """How many steps make a window long enough for the clock."""
    return max(1, int(math.ceil(WINDOW_SECONDS / max(step_seconds, 1e-9))))


def steps_per_window_of(steps, per_window):
    """How many steps a window of a run of `steps` has: `per_window`, or more where the run would have more than MOST_WINDOWS."""
    return max(per_window, -(-steps // MOST_WINDOWS))
