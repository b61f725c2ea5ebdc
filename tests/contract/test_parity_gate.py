"""The parity gate against mistakes of mixed precision and of several devices, planted one at a time in real PyTorch adapters.

Those of float32 are in test_mutants.py.
"""

import json
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow

UNCHANGED = {"Half amp-fp16", "Half amp-bf16"}
# What each planted mistake must at least be caught by, and so many times beyond the bound. Mixed precision has wide bounds.
CAUGHT_IN_HALF = {
    "LossNotUnscaled amp-fp16": ("gradient", 1000),
    "WeightsKeptInHalf amp-fp16": ("parameter", 1000),
    "WeightsKeptInHalf amp-bf16": ("parameter", 1000),
    "LossInHalf amp-fp16": ("loss", 3),
    "LossInHalf amp-bf16": ("loss", 10),
    "BiasDroppedInHalf amp-fp16": ("logits", 100),
    "BiasDroppedInHalf amp-bf16": ("logits", 20),
    "StepSkippedUnseen amp-fp16": ("parameter", 5),
    "NotInHalf amp-fp16": ("error: amp-fp16: the logits err", 5),
    "NotInHalf amp-bf16": ("error: amp-bf16: the logits err", 5),
}

# The same of what devices that share a batch tell each other.
CAUGHT_BY_DEVICES = {"StatisticsKept": "parameter", "GradientsSummed": "gradient"}


@pytest.fixture(scope="module")
def verdicts(run_in: Callable[[str, str], str]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(run_in("torch-2.13.0-cpu", "planted_faults.py"))
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(UNCHANGED))
def test_the_network_written_another_way_passes(verdicts: dict[str, dict[str, object]], name: str) -> None:
    assert verdicts[name]["failed"] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(CAUGHT_IN_HALF))
def test_a_mistake_planted_in_mixed_precision_is_caught(verdicts: dict[str, dict[str, object]], name: str) -> None:
    failed, (quantity, times) = verdicts[name]["failed"], CAUGHT_IN_HALF[name]
    assert isinstance(failed, list)
    assert any(entry.startswith(quantity) for entry in failed), failed
    assert float(str(verdicts[name]["worst"])) > times


@pytest.mark.timeout(900)
def test_no_planted_mistake_is_left_out_here(verdicts: dict[str, dict[str, object]]) -> None:
    assert set(verdicts) == UNCHANGED | set(CAUGHT_IN_HALF)


@pytest.mark.timeout(900)
def test_devices_that_do_not_share_what_they_must_are_caught(run_in: Callable[[str, str], str]) -> None:
    found = json.loads(run_in("torch-2.13.0-cpu", "planted_devices.py"))
    assert found.pop("Shared")["failed"] == []
    assert set(found) == set(CAUGHT_BY_DEVICES)
    for name, quantity in CAUGHT_BY_DEVICES.items():
        assert any(entry.startswith(quantity) for entry in found[name]["failed"]), name
        assert found[name]["worst"] > 10, name
