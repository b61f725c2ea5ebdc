"""The bounds by which this host judges a cell's checks are those of the bench in this checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench import canonical, contract, dropout, learning, mixed, operators, proof, rules
from bench import parity as of_bench
from bench.workloads import ops
from runner.results import parity
from runner.results.parity import Checked

NETWORKS = [name for name in rules.workload_names() if rules.workload_declaration(name)["task"] != "operators"]


def references() -> Iterator[tuple[str, str, int]]:
    for workload in NETWORKS:
        for variant in ("", *contract.specification(workload).VARIANTS):
            for devices in (1, 2):
                yield workload, variant, devices


@pytest.mark.parametrize(("workload", "variant", "devices"), [*references()])
def test_the_host_reads_the_reference_that_the_bench_reads(workload: str, variant: str, devices: int) -> None:
    assert str(parity.reference_path(workload, variant, devices)) == of_bench.reference_path(workload, variant, devices)
    assert variant in parity.variants(workload)


@pytest.mark.parametrize(("workload", "variant", "devices"), [*references()])
def test_every_tensor_that_the_bench_checks_is_due(workload: str, variant: str, devices: int) -> None:
    specification = contract.specification(workload)
    trained = set(canonical.compared(specification, variant))
    # What the cell loads, and holds against what it was after training.
    names = {spec.name for spec in canonical.specifications(specification, variant)} - {*specification.SYMMETRIC}
    own = parity.bounds(workload, "fp32", variant, devices)
    expected = {"gradient": trained, "parameter": names} if not specification.features else {"features": {"features"}}
    if specification.decoded:
        expected = {"logits": {specification.tensor_of(number, step) for number in (1, 2) for step in range(13)}}
    if rules.has_dropout(workload):
        expected["movement"] = names
    assert {q: {tensor for key, tensor in own if key == q} for q in expected} == expected


def test_the_bounds_of_a_precision_are_those_that_are_stored() -> None:
    with np.load(of_bench.reference_path("gru-imdb")) as stored:
        expected = float(stored["bound/amp-bf16/gradient/gru.u"])
    assert parity.bounds("gru-imdb", "amp-bf16", "", 1)["gradient", "gru.u"] == expected
    assert expected > parity.bounds("gru-imdb", "fp32", "", 1)["gradient", "gru.u"]


def test_either_of_two_values_that_a_specification_accepts_has_one_bound() -> None:
    own = parity.bounds("resnet50-imagenet", "fp32", "", 1)
    assert not [tensor for _, tensor in own if tensor.endswith(".biased")]
    assert ("parameter", "bn1.running_var") in own


def test_bounds_that_no_reference_holds_are_those_of_the_bench() -> None:
    assert of_bench.DECAY_BOUND == parity._DECAY
    assert dropout.MARGIN == parity._DEVIATIONS
    expected = {
        ", first step": dropout.FIRST_STEP,
        ", at rest": dropout.AT_REST,
        ", digits": rules.EXACT[", digits"],
    }
    assert expected == parity._FIRST_STEP
    in_half = {(", first step", name): dropout.FIRST_STEP_IN_HALF[mixed.half(name)] for name in rules.MIXED}
    assert in_half == parity._FIRST_STEP_IN_HALF


@pytest.mark.parametrize("precision", operators.ROUNDOFF)
def test_the_bound_of_an_operation_is_that_of_the_widest_one(precision: str) -> None:
    bounds = (operators.bound_of(each, precision) for each in [*ops.OPERATIONS.values(), *ops.OPTIMIZERS.values()])
    widest = max(bounds) + ops.SLOPE_ERROR
    assert widest <= parity._OPERATIONS[precision] < 1.2 * widest


def test_no_stored_losses_allow_more_than_the_bound_of_the_losses() -> None:
    widest = 0.0
    for path in Path(rules.WORKLOADS).glob("*.learning.txt"):
        runs = np.loadtxt(path, ndmin=2)
        steps = np.arange(runs.shape[1])
        others = [(np.delete(runs, run, axis=0), runs[run]) for run in range(len(runs))]
        widest = max(widest, *(learning._deviations(rest, row[steps], steps)[0] for rest, row in others))
    assert learning.MARGIN * widest < parity._LEARNING < 1.3 * learning.MARGIN * widest


def test_a_bound_of_the_dropout_file_is_its_deviation_times_the_margin() -> None:
    cell = Checked("cnn-cifar10", "fp32", "quick", 1)
    row = {"quantity": "landing", "tensor": "conv1.w", "variant": ""}
    assert parity.allowed(row, cell, 1) == dropout.MARGIN * float(dropout.stored("cnn-cifar10")["landing", "conv1.w"])
    assert parity.allowed(row | {"tensor": "dense2.b, first step"}, cell, 1) == dropout.FIRST_STEP
    assert parity.allowed(row | {"variant": "../../secret"}, cell, 1) is None


CNN = Checked("cnn-cifar10", "fp32", "quick", 1)
TENSORS = [spec.name for spec in contract.specification("cnn-cifar10").PARAMETERS]


def rows(quantity: str, tensors: list[str], phase: str = "parity") -> list[dict[str, object]]:
    return [
        {"phase": phase, "quantity": quantity, "tensor": tensor, "variant": "", "error": 0.0, "bound": 0.0}
        for tensor in tensors
    ]


@pytest.mark.parametrize("quantity", ["movement", "parameter"])
def test_three_steps_before_the_measurement_stand_in_for_two_as_an_older_bench_took_them(quantity: str) -> None:
    checked = {("parity", quantity)}
    assert ("parity", quantity) in parity.due(CNN, checked)
    assert len(parity.due(CNN, checked)) == len(rules.due(CNN.workload, CNN.preset))
    assert parity.incomplete(rows(quantity, TENSORS), CNN, 10, []) is None
    assert f"did not check {quantity} conv1.b" in str(parity.incomplete(rows(quantity, TENSORS[2:]), CNN, 10, []))


def test_without_either_the_two_steps_are_due() -> None:
    assert ("parity", "movement") in parity.due(CNN, set())
    assert ("parity", "parameter") not in parity.due(CNN, set())


def test_the_names_of_what_an_older_bench_held_to_have_moved_are_known_and_count_once() -> None:
    older, newer = [*parity._OLDER_TENSOR], [proof.LAST_STEPS, proof.EVALUATION]
    assert [*parity._OLDER_TENSOR.values()] == newer == [*parity._MOVED_TOGETHER]
    assert parity.incomplete(rows("moved", [*TENSORS, *newer], "proof"), CNN, 10, []) is None
    assert parity.incomplete(rows("moved", [*TENSORS, *older], "proof"), CNN, 10, []) is None
    assert "did not check moved" in str(parity.incomplete(rows("moved", [*TENSORS, *older[:1]], "proof"), CNN, 10, []))
    assert "2 times" in str(parity.incomplete(rows("moved", [*TENSORS, *newer, *older], "proof"), CNN, 10, []))


def test_the_items_that_a_cell_took_are_held_to_the_bounds_of_the_bench_and_all_are_due() -> None:
    def bound(quantity: str, tensor: str, cell: Checked = CNN) -> float | None:
        return parity.allowed({"quantity": quantity, "tensor": tensor, "variant": ""}, cell, 1)

    for (quantity, tensor), expected in rules.taken("fp32").items():
        assert bound(quantity, tensor) == expected
        lacking = rows(
            quantity, [other for key, other in rules.taken("fp32") if key == quantity and other != tensor], "proof"
        )
        assert f"did not check {quantity} {tensor}" in str(parity.incomplete(lacking, CNN, 10, []))
    half = Checked("cnn-cifar10", "amp-bf16", "quick", 1)
    assert bound("evaluated", "logits", half) == rules.LOGITS_OF_EVALUATION["amp-bf16"]
    assert bound("items", "logits") is None


def test_random_tensors_have_no_items_to_count() -> None:
    owed = {name: rules.due(name, "quick") for name in ("densenet121-chestxray", "densenet121-synthetic")}
    assert {*owed["densenet121-chestxray"]} - {*owed["densenet121-synthetic"]} == {("proof", q) for q in rules.TAKEN}
