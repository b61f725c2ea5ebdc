"""Repeats that disagree by decades: an interval as wide as that, and no arithmetic that gives up."""

from __future__ import annotations

import math

import numpy as np

from reports.answers import scaling
from runner.results.statistics import p_value, ratio_estimate, step_estimate

APART = [[0.1] * 20, [10.0] * 20]
STEADY = [[0.1] * 20, [0.1] * 20]


def test_repeats_a_hundredfold_apart_in_a_column_of_many_have_an_interval_and_no_overflow() -> None:
    found = ratio_estimate(APART, STEADY, level=1 - 0.05 / 100)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < 1e-100
    assert 1e100 < found.high < math.inf


def test_such_repeats_are_no_evidence() -> None:
    found = ratio_estimate(APART, STEADY)
    assert found is not None
    chance = p_value(found)
    assert chance is not None
    assert chance > 0.2
    alone = step_estimate([[1e-9] * 20, [1e10] * 20])
    assert alone is not None
    assert alone.high is not None
    assert alone.high < math.inf


def test_a_scaling_model_is_drawn_through_repeats_that_differ_thirtyfold() -> None:
    points = {1: [np.full(20, 0.1), np.full(20, 3.0)], 2: [np.full(20, 0.1)] * 2, 4: [np.full(20, 0.1)] * 2}
    found = scaling.model(points, False, [8, 128])
    assert all(0 <= bound.seconds < math.inf for bound in found.bounds)
