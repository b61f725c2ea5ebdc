"""Student's quantiles where Welch's degrees of freedom lie: between whole numbers, and just above one."""

from __future__ import annotations

import pytest

from runner.results.student import student_quantile, student_tail


# From scipy.stats.t.ppf of SciPy 1.17.1.
@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [
        (0.975, 1.01, 12.412738499102536),
        (0.6, 1.1, 0.318327022513684),
        (0.975, 1.5, 6.016663104427929),
        (0.9975, 2.3, 10.885692745873651),
    ],
)
def test_quantiles_between_whole_degrees_of_freedom(probability: float, freedom: float, quantile: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, rel=1e-7)


@pytest.mark.parametrize("freedom", [1.0, 1.003, 1.2, 1.999, 2.5, 7.7, 300.0, 999_999.0])
@pytest.mark.parametrize("probability", [0.5001, 0.6, 0.975, 0.99999])
def test_the_tail_beyond_a_quantile_is_what_was_asked_for(probability: float, freedom: float) -> None:
    assert student_tail(student_quantile(probability, freedom), freedom) == pytest.approx(
        2 * (1 - probability), rel=1e-7
    )
