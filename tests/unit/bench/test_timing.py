"""Windows, warm-up and stopping, on a clock that the tests turn."""

import itertools
import random

import numpy as np
import pytest

from bench import timing


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


def test_a_count_of_steps_is_kept_exactly_in_windows_of_another_size() -> None:
    loop = Clock([0.1]).loop()
    loop.for_steps(7, 30)
    assert [sample.steps for sample in loop.samples] == [7, 7, 7, 7, 2]


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
