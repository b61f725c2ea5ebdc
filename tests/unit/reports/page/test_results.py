"""The numbers that the results table hands to the page's script."""

from __future__ import annotations

import pytest

from reports.page import results


@pytest.mark.parametrize("value", [1.06501, 1.06499, 85.8499, 0.02347501, 745.8349])
def test_a_figure_for_the_script_is_not_rounded_before_the_script_rounds_it(value: float) -> None:
    assert float(results._figure(value)) == value
