"""Windows, warm-up and stopping, on a clock that the tests turn."""

import itertools
import random

import numpy as np
import pytest

from bench import timing
from runner.admission import record


class Clock:
    """A device that takes `durations` for its steps, one after another; the last one for ever."""

    def __init__(self, durations: list[float]) -> None:
        self.now = 0.0
        self.pending = 0.0
        self.durations = itertools.chain(durations, itertools.repeat(durations[-1]))
        self.synchronised = 0

    def step(self, x: object, y: object) -> str:
        self.pending += next(self.durations)  # asynchronous: the time passes when the device is waited for
        return "loss"

    def synchronize(self) -> None:
        self.synchronised += 1
        self.now += self.pending
        self.pending = 0.0

    def loop(self, observe=lambda sample, handle: None) -> timing.Loop:
        return timing.Loop(self.step, itertools.repeat((0, 0)), self.synchronize, observe, clock=lambda: self.now)


def test_a_window_holds_the_device_s_work_and_not_only_its_dispatch() -> None:
    loop = Clock([0.2]).loop()
    assert loop.window("steady", 5) == pytest.approx(0.2)
    assert loop.samples[0].seconds == pytest.approx(1.0)
    assert (loop.steps, loop.seconds) == (5, pytest.approx(1.0))


def test_work_left_from_before_is_not_in_the_window() -> None:
    clock = Clock([1.0])
    clock.pending = 7.0
    assert clock.loop().window("steady", 1) == pytest.approx(1.0)


def test_warm_up_goes_on_while_the_steps_get_faster() -> None:
    clock = Clock([10, 9, 8, 5, 4, 3, 1, 1, 1, 1, 1, 1])
    loop = clock.loop()
    assert loop.warm_up(limit_seconds=1000) == pytest.approx(1.0)
    assert len(loop.samples) >= 9
    assert {sample.stage for sample in loop.samples} == {"warm-up"}


def test_warm_up_ends_at_its_limit_even_after_one_step() -> None:
    loop = Clock([30.0]).loop()
    loop.warm_up(limit_seconds=2)
    assert len(loop.samples) == 1


class Rising(Clock):
    """A GPU that idled: a step takes four times as long during its first second. Each synchronisation takes the host's time besides."""

    def step(self, x: object, y: object) -> str:
        self.pending += 0.001 * (4 if self.now + self.pending < 1.0 else 1)
        return "loss"

    def synchronize(self) -> None:
        super().synchronize()
        self.now += 0.005


def test_warm_up_of_a_gpu_lasts_until_its_clock_has_risen() -> None:
    short, long = Rising([1.0]).loop(), Rising([1.0]).loop()
    assert short.warm_up(limit_seconds=10) > 0.004
    assert long.warm_up(limit_seconds=10, least_seconds=1.0) == pytest.approx(0.001, rel=0.1)
    assert long.seconds >= 1.0


def test_a_window_s_steps_are_not_counted_from_steps_that_each_wait_for_the_device() -> None:
    """One step with its synchronisation takes 6 ms, one of many 1 ms."""
    clock = Rising([1.0])
    clock.now = 2.0
    step_seconds = clock.loop().warm_up(limit_seconds=10, least_seconds=1.0)
    assert timing.steps_per_window(step_seconds) > 70


def test_steps_as_long_as_a_window_are_warm_when_the_first_ones_were() -> None:
    loop = Clock([0.5]).loop()
    loop.warm_up(limit_seconds=100, least_seconds=1.0)
    assert loop.steps == 2 * timing.WARMUP_GROUP


def test_warm_up_ends_before_more_steps_than_a_short_run_may_spend() -> None:
    loop = Rising([1.0]).loop()
    loop.window("first", 1)
    loop.warm_up(limit_seconds=10, least_seconds=1.0, most_steps=20)
    assert loop.steps <= 21


def test_sampling_stops_on_noise_reached_but_not_before_the_least_windows() -> None:
    loop = Clock([0.1]).loop()
    assert loop.until_quiet(1, 30, 0.01, 1000.0) == ("noise", pytest.approx(0.0, abs=1e-12))
    assert len(loop.samples) == 30


def test_sampling_stops_when_the_time_is_spent() -> None:
    generator = random.Random(1)
    loop = Clock([generator.uniform(0.1, 1.0) for _ in range(1000)]).loop()
    why, reached = loop.until_quiet(1, 30, 0.001, 20.0)
    assert why == "time"
    assert reached is not None
    assert reached > 0.001
    assert 20 <= loop.seconds < 21.1


def calls_before(loop: timing.Loop, *limits: float) -> list[bool]:
    """Of each steady window, whether it was called the last one before it began."""
    left: list[float] = []
    loop.until_quiet(1, *limits, before=lambda share, windows: left.append(windows))
    assert len(left) == sum(sample.stage == "steady" for sample in loop.samples)
    return [windows <= 1 for windows in left]


def test_the_window_that_spends_the_time_is_known_before_it_begins() -> None:
    *others, last = calls_before(Clock([0.3]).loop(), 1000, 0.0, 10.0)
    assert last
    # 9.6 s are spent before the one before it, and it may take one and a half times as long as the one before.
    assert sum(others) <= 1
    assert len(others) == 33


def test_a_single_window_that_is_longer_than_the_time_is_known_by_the_steps_of_the_warm_up() -> None:
    loop = Clock([30.0]).loop()
    loop.warm_up(limit_seconds=2)
    assert calls_before(loop, 30, 0.01, 10.0) == [True]


def test_a_window_that_takes_much_longer_than_the_one_before_it_is_not_known_to_be_the_last() -> None:
    assert calls_before(Clock([1.0, 1.0, 20.0]).loop(), 30, 0.01, 10.0) == [False, False, False]


def test_a_count_of_steps_is_kept_exactly_in_windows_of_another_size() -> None:
    loop = Clock([0.1]).loop()
    loop.for_steps(7, 30)
    assert [sample.steps for sample in loop.samples] == [7, 7, 7, 7, 2]
    loop.for_steps(7, 20, before=lambda: 3 if len(loop.samples) == 6 else None)
    assert [sample.steps for sample in loop.samples[5:]] == [7, 3, 7, 3]


def test_a_window_before_which_a_copy_is_made_has_one_step() -> None:
    loop = Clock([0.1]).loop()
    shares: list[float] = []
    loop.until_quiet(5, 1, -1.0, 2.0, before=lambda share, left: bool(shares.append(share)) or 0.2 < share < 0.4)
    assert shares == sorted(shares)
    assert [sample.steps for sample in loop.samples] == [5, *(1 if 0.2 < share < 0.4 else 5 for share in shares[1:])]


def test_noise_says_nothing_for_too_few_windows() -> None:
    assert timing.noise([1.0] * 5) is None
    assert timing.noise([1.0] * 6) == 0.0


def test_the_interval_behind_noise_covers_the_true_median() -> None:
    generator = np.random.default_rng(1)
    inside = 0
    for _ in range(1000):
        values = np.exp(generator.normal(0, 0.3, 40))  # its median is 1
        ordered = np.sort(values)
        reach = 0.98 * np.sqrt(40)
        inside += ordered[int(20 - reach)] <= 1 <= ordered[min(39, int(np.ceil(20 + reach)))]
    assert inside >= 940


def test_a_window_is_long_against_the_clock() -> None:
    assert timing.steps_per_window(0.3) == 1
    assert timing.steps_per_window(0.001) == 100
    assert timing.steps_per_window(0.0) > 1000


def test_a_whole_run_of_days_has_no_more_windows_than_the_host_takes() -> None:
    """ResNet-50's 90 epochs are four million steps: windows of 0.1 s would be a million, of three events each."""
    per_window = timing.steps_per_window_of(4_003_600, 3)
    assert 4_003_600 / per_window <= timing.MOST_WINDOWS
    assert 4 * timing.MOST_WINDOWS <= 0.9 * record.parcel.MAX_EVENTS
    assert 4 * 200 * timing.MOST_WINDOWS <= record.parcel.MAX_TOTAL_BYTES
    # A run of minutes keeps its windows of 0.1 s.
    assert timing.steps_per_window_of(7810, 3) == 3
