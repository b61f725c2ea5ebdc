"""The parity gate against mistakes planted one at a time in real PyTorch adapters, in the image's own environment."""

import json
from collections.abc import Callable

import pytest

UNCHANGED = {"Unchanged", "WithCell"}
# What each planted mistake must at least be caught by; the first name of a quantity is enough.
CAUGHT_BY = {
    "DoubleSoftmax": "loss",
    "DropoutLeftOn": "logits",
    "PaddingOnOneSide": "logits",
    "TransposedPicture": "logits",
    "FlattenedChannelsLast": "logits",
    "SummedLoss": "gradient",
    "MomentumWithUnitGain": "parameter",
    "Dampening": "parameter",
    "Nesterov": "parameter",
    "WeightDecay": "parameter",
    "ResetBefore": "logits",
    "UpdateGateTurned": "logits",
    "GatesInAnotherOrder": "logits",
    "RecurrentBiasForgotten": "logits",
    "AdamWithoutBiasCorrection": "parameter",
}


@pytest.fixture(scope="module")
def verdicts(run_in: Callable[[str, str], str]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(run_in("torch-2.13.0-cpu", "planted_faults.py"))
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(UNCHANGED))
def test_the_network_written_another_way_passes(verdicts: dict[str, dict[str, object]], name: str) -> None:
    assert verdicts[name]["failed"] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(CAUGHT_BY))
def test_a_planted_mistake_is_caught_by_far(verdicts: dict[str, dict[str, object]], name: str) -> None:
    failed = verdicts[name]["failed"]
    assert isinstance(failed, list)
    assert any(entry.startswith(CAUGHT_BY[name]) for entry in failed)
    assert float(str(verdicts[name]["worst"])) > 100, (
        "a mistake lies far outside the bound, so the bound need not be exact"
    )


@pytest.mark.timeout(900)
def test_no_planted_mistake_is_left_out_here(verdicts: dict[str, dict[str, object]]) -> None:
    assert set(verdicts) == UNCHANGED | set(CAUGHT_BY)
