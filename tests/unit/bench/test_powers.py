"""The number of steps is read from beta^t for as long as float32 holds it."""

from __future__ import annotations

import numpy as np

from bench import powers


def test_every_step_is_told_from_the_power_until_it_is_too_small_to_tell() -> None:
    power, beta, taken = np.float32(1), np.float32(0.999), 0
    while power >= powers.LEAST:
        assert powers.steps(power) == taken
        power, taken = power * beta, taken + 1
    assert taken > 80_000
    assert powers.steps(power) is None
    assert powers.steps(np.float32(0)) is None
