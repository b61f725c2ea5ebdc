"""Student's quantiles where Welch's degrees of freedom lie: between whole numbers, and just above one."""

from __future__ import annotations

from itertools import combinations

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from runner.results.statistics import holm
from runner.results.student import questions, range_quantile, student_quantile, student_tail, variance_tail


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


@pytest.mark.parametrize("freedom", [1.0, 1.01, 1.3, 2.0, 3.7, 10.0, 123.4, 1e5])
def test_tails_and_quantiles_are_those_of_scipy_on_a_grid(freedom: float) -> None:
    for t in (1e-3, 0.01, 0.5, 1.0, 2.5, 12.0, 300.0):
        assert student_tail(t, freedom) == pytest.approx(2 * float(scipy.stats.t.sf(t, freedom)), rel=1e-8, abs=1e-250)
    for probability in (0.51, 0.6, 0.9, 0.975, 0.9999, 1 - 1e-7):
        assert student_quantile(probability, freedom) == pytest.approx(
            float(scipy.stats.t.ppf(probability, freedom)), rel=1e-7
        )


@pytest.mark.parametrize("below", [1.0, 2.0, 7.7, 38.0, 1e4])
@pytest.mark.parametrize("above", [1.0, 2.0, 3.5, 20.0])
def test_tails_of_a_quotient_of_variances_are_those_of_scipy_on_a_grid(above: float, below: float) -> None:
    assert variance_tail(0.0, above, below) == 1
    for ratio in (1e-4, 0.1, 0.9, 1.0, 3.0, 40.0, 1e4):
        expected = float(scipy.stats.f.sf(ratio, above, below))
        assert variance_tail(ratio, above, below) == pytest.approx(expected, rel=1e-7, abs=1e-250)


@pytest.mark.parametrize("freedom", [1.0, 10.0, 1e5, 999_999.0])
def test_a_quantile_just_above_the_median_ends(freedom: float) -> None:
    for above in (2.3e-16, 1e-15, 1e-12, 1e-9):
        assert 0 < student_quantile(0.5 + above, freedom) < 1e-4


@given(values=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(values: list[float]) -> None:
    """A hypothesis is rejected when every set of hypotheses with it is (Marcus, Peritz and Gabriel, Biometrika 63, 1976)."""
    places = range(len(values))
    subsets = [set(some) for size in range(1, len(values) + 1) for some in combinations(places, size)]
    closed = [
        max(min(1.0, len(some) * min(values[other] for other in some)) for some in subsets if at in some)
        for at in places
    ]
    assert holm(values) == pytest.approx(closed)


@pytest.mark.parametrize("levels", [2, 3, 6, 20, 100])
@pytest.mark.parametrize("freedom", [2, 3, 8, 38, 1_000_000])
def test_quantiles_of_the_studentized_range_are_those_of_scipy(levels: int, freedom: int) -> None:
    for probability in (0.9, 0.95, 0.99):
        quantile = float(scipy.stats.studentized_range.ppf(probability, levels, min(freedom, 100_000)))
        assert range_quantile(probability, levels, freedom) == pytest.approx(quantile, rel=1e-4)


@pytest.mark.parametrize(("levels", "freedom"), [(2, 1.0), (3, 1.3), (6, 2.4), (20, 1.6)])
def test_quantiles_of_the_studentized_range_between_whole_degrees_of_freedom(levels: int, freedom: float) -> None:
    quantile = float(scipy.stats.studentized_range.ppf(0.95, levels, freedom))
    assert range_quantile(0.95, levels, freedom) == pytest.approx(quantile, rel=1e-4)


@pytest.mark.parametrize("freedom", [1.1, 2.0, 5.7, 38.0, float("inf")])
def test_all_pairs_count_as_fewer_questions_than_there_are_and_one_pair_as_one(freedom: float) -> None:
    assert questions(2, freedom, 0.05) == pytest.approx(1, rel=1e-3)
    counted = [questions(levels, freedom, 0.05) for levels in range(2, 30)]
    assert counted == sorted(counted)
    assert all(many <= levels * (levels - 1) / 2 * 1.001 for levels, many in enumerate(counted, start=2))
