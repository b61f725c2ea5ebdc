"""The loads of the frameworks that have them, on the CPU: each runs, and does about what a CPU can."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

# It loads a device, and asks if the same bits come each time.
pytestmark = [pytest.mark.slow, pytest.mark.keyed(False)]


@pytest.mark.parametrize(("image", "framework"), [("torch-2.13.0-cpu", "torch"), ("jax-0.10.2-cpu", "jax")])
def test_a_framework_loads_a_device_with_products_in_three_precisions_and_a_copy(
    image: str, framework: str, run_in: Callable[..., str]
) -> None:
    loads = {
        each["name"]: each for each in json.loads(run_in(image, "full_load.py", framework).splitlines()[-1])["loads"]
    }
    assert list(loads) == ["bf16 product", "tf32 product", "fp32 product", "copy"]
    for name, each in loads.items():
        assert len(each["rates"]) >= 3, name
        assert 1e8 < min(each["rates"]) < max(each["rates"]) < 1e14, (name, each["rates"])


@pytest.mark.parametrize(("image", "framework"), [("torch-2.13.0-cpu", "torch"), ("jax-0.10.2-cpu", "jax")])
def test_a_framework_gives_the_same_bits_each_time_and_in_another_process(
    image: str, framework: str, run_in: Callable[..., str]
) -> None:
    found = [json.loads(run_in(image, "same_bits.py", framework).splitlines()[-1])["products"] for _ in range(2)]
    for first, second in zip(*found, strict=True):
        assert first["runs"] == first["alike"] >= 3, first["name"]
        assert first["odd"] == []
        assert (first["name"], first["sums"]) == (second["name"], second["sums"])
    assert [one["name"] for one in found[0]] == ["bf16 product", "tf32 product", "fp32 product"]
