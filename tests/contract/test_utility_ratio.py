"""The rate of a matrix product in `ops` is the one that PyTorch's own benchmark utility reads in the same process, within 3 %."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.contract.speed_verdict import UTILITY, verdict_of
from tests.fixtures.weekly import drawn

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PAIRS = "15"  # of one process


@pytest.mark.timeout(600)
@pytest.mark.parametrize("side", drawn("DLBENCH_SPEED", 2, [128, 512]))
def test_a_product_reads_as_the_framework_s_own_utility_reads_it(run_in: Callable[..., str], side: int) -> None:
    def one_process() -> float:
        return float(json.loads(run_in("torch-2.13.0-cpu", "utility_ratio.py", str(side), PAIRS))["ratio"])

    verdict, ratios = verdict_of(one_process, UTILITY)
    assert verdict == "alike", f"{verdict}: {ratios}"
