"""Each framework's own profiler, read in the environment of its image: five products of matrices are five calls of one operation."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

# It compares times.
pytestmark = [pytest.mark.slow, pytest.mark.keyed(False)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("image", "framework"),
    [("torch-2.13.0-cpu", "torch"), ("jax-0.10.2-cpu", "jax"), ("tensorflow-2.21.0-cpu", "tensorflow")],
)
def test_five_products_are_five_calls_that_take_most_of_the_time(
    run_in: Callable[..., str], image: str, framework: str
) -> None:
    found = json.loads(run_in(image, "profiled_product.py", framework).splitlines()[-1])
    longest = max(found, key=lambda each: each["seconds"])
    assert longest["calls"] == 5, found
    assert longest["on"] == "cpu"
    assert longest["seconds"] > 0.5 * sum(each["seconds"] for each in found)
