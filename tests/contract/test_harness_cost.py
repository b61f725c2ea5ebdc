"""The harness adds nothing to the loop that a person's own best loop does not do."""

from collections.abc import Callable

import pytest

ATTEMPTS = 5  # a neighbour on the machine can disturb one; it cannot make the harness cheaper than it is


@pytest.mark.timeout(900)
def test_a_step_under_the_bench_costs_at_most_2_percent_more_than_in_a_plain_loop(
    run_in: Callable[[str, str], str],
) -> None:
    ratios = []
    for _ in range(ATTEMPTS):
        ratios.append(float(run_in("torch-2.13.0-cpu", "harness_cost.py")))
        if ratios[-1] <= 1.02:
            break
    assert min(ratios) <= 1.02, ratios
