"""LLaMA's network and the mixture of experts in NumPy: gradients, positions, groups, the choice of experts and its margin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import arithmetic, bounds, canonical, contract, items, stacked
from bench import reference as layers
from bench.llama import BALANCE, Llama
from runner.results.plausible.counts import MULTIPLY_ADDS

SIZES = {"vocabulary": 17, "length": 9, "layers": 2, "heads": 4, "groups": 2, "width": 16, "hidden": 12}
PLAIN, ROUTED = Llama(**SIZES), Llama(**SIZES, experts=4, chosen=2)
NETWORKS = {"llama-bytes": PLAIN, "moe-bytes": ROUTED}


def parameters(network: Llama) -> dict[str, Any]:
    random = np.random.RandomState(1)
    ranges = {"scale": (0.5, 1.5), "weight": (-0.5, 0.5)}
    return {spec.name: random.uniform(*ranges[spec.kind], spec.shape) for spec in network.parameters()}


def batch(many: int = 2, length: int = 7) -> tuple[Any, Any]:
    drawn = np.random.RandomState(2).randint(0, 17, (many, length + 1))
    return drawn[:, :-1], drawn[:, 1:]


def loss(network: Llama, p: dict[str, Any]) -> float:
    return float(network.loss_and_gradients(p, *batch(), arithmetic.Exact())[1])


@pytest.mark.parametrize(("kind", "name"), [(k, spec.name) for k, n in NETWORKS.items() for spec in n.parameters()])
def test_the_gradient_is_the_loss_s_difference(kind: str, name: str) -> None:
    network = NETWORKS[kind]
    p, step = parameters(network), 1e-6
    direction = np.random.RandomState(3).standard_normal(p[name].shape)
    gradient = network.loss_and_gradients(p, *batch(), arithmetic.Exact())[2][name]
    sides = [loss(network, {**p, name: p[name] + sign * step * direction}) for sign in (1, -1)]
    assert (gradient * direction).sum() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("kind", NETWORKS)
def test_no_position_sees_a_later_one(kind: str) -> None:
    p, (x, _) = parameters(NETWORKS[kind]), batch()
    changed = x.copy()
    changed[:, 4] = (x[:, 4] + 1) % 17
    before, after = (NETWORKS[kind].logits(p, ids, arithmetic.Exact()) for ids in (x, changed))
    # An expert whose byte went elsewhere gets another number of rows, and BLAS may add them up in another order then.
    assert np.allclose(before[:, :4], after[:, :4], rtol=0, atol=1e-12)
    assert (abs(before[:, 4:] - after[:, 4:]) > 1e-9).any(axis=2).all()


def test_the_product_of_two_rotated_vectors_depends_on_their_distance_only() -> None:
    exact = arithmetic.Exact()
    cosine, sine = layers.rotation(9, 8, 10000.0, exact)
    q, k = np.random.RandomState(1).standard_normal((2, 8))
    turned = [layers.rotate(np.tile(part, (9, 1)), cosine, sine, exact) for part in (q, k)]
    products = turned[0] @ turned[1].T
    assert products[5, 2] == pytest.approx(products[8, 5], rel=1e-12)
    assert products[5, 2] != pytest.approx(products[5, 3], rel=1e-3)
    assert np.allclose(layers.rotate(turned[0], cosine, -sine, exact), q)
    # Number i is a pair with number i + 4: at position 1 the first pair is turned by an angle of 1.
    assert turned[0][1, 0] == pytest.approx(q[0] * np.cos(1) - q[4] * np.sin(1))


def test_a_head_of_keys_serves_heads_of_queries_that_are_neighbours() -> None:
    p, (x, _) = parameters(PLAIN), batch()
    # The second head of values gives nothing: so the third and the fourth head of queries add nothing.
    for block in range(2):
        p[f"h{block}.v"][4:] = 0
    before = PLAIN.logits(p, x, arithmetic.Exact())
    for block in range(2):
        p[f"h{block}.o"][:, 8:] += 1
    assert np.array_equal(PLAIN.logits(p, x, arithmetic.Exact()), before)
    p["h0.o"][:, 4:8] += 1
    assert not np.array_equal(PLAIN.logits(p, x, arithmetic.Exact()), before)


def test_the_weights_of_the_chosen_experts_sum_to_one_and_the_others_count_nothing() -> None:
    """Four experts that are one network compute what that network computes, whatever the router says."""
    p = parameters(ROUTED)
    for name in [name for name in p if ".e" in name]:
        p[name] = p[name.replace(name.split(".")[1], "e0")]
    alike = {name.replace(".e0.", "."): value for name, value in p.items() if "router" not in name}
    x, y = batch()
    assert np.allclose(ROUTED.logits(p, x, arithmetic.Exact()), PLAIN.logits(alike, x, arithmetic.Exact()), rtol=1e-12)
    # A router without weights chooses no expert more than chance does: the first two, and P is a quarter each. The term is 1 a block.
    for block in range(2):
        p[f"h{block}.router"][...] = 0
    spread = ROUTED.loss_and_gradients(p, x, y, arithmetic.Exact())[1] - loss(PLAIN, alike)
    assert spread == pytest.approx(2 * BALANCE)


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_step_s_operations_are_counted_as_published(kind: str) -> None:
    """6 N + 12 L C T a token, N without the table that is looked up and without the experts that are not chosen."""
    network = contract.specification(kind).NETWORK
    size = sum(int(np.prod(spec.shape)) for spec in network.parameters() if spec.name != "wte")
    left_out = network.layers * (network.experts - network.chosen) * 3 * network.hidden * network.width
    a_token = 6 * (size - left_out) + 12 * network.layers * network.width * network.length
    assert 6 * MULTIPLY_ADDS[kind] == a_token * network.length


# -- choices -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_choice_of_the_canonical_case_is_settled_by_a_hundred_errors_of_float32() -> None:
    workload, exact = contract.specification("moe-bytes"), arithmetic.Exact()
    bounds.quantities(workload, exact)
    disturbed = arithmetic.MonteCarlo(np.random.RandomState(99), 2.0**-24, 0.0)
    bounds.quantities(workload, disturbed)
    # Six blocks of a prediction and of three steps.
    assert len(exact.choices) == 24
    bounds.refuse_close_choices("fp32", exact.choices, disturbed.choices)
    taken = np.argsort(-exact.choices[0][0], axis=1)[:, :2]
    counts = np.bincount(taken.ravel(), minlength=4)
    assert counts.max() > 1.25 * counts.mean(), "an expert that drops what is above its capacity shows"


def test_a_reference_whose_choices_hang_on_rounding_is_refused() -> None:
    numbers = np.array([[3.0, 2.0, 1.999, 0.0]])
    exact, other = arithmetic.Exact(), arithmetic.Exact()
    assert exact.largest(numbers, 2).tolist() == [[0, 1]]
    other.largest(numbers + 1e-6, 2)
    bounds.refuse_close_choices("fp32", exact.choices, other.choices)
    other.choices.clear()
    other.largest(numbers + 1e-4, 2)
    with pytest.raises(ValueError, match="is settled by 10 errors of fp32 only; it must be 100"):
        bounds.refuse_close_choices("fp32", exact.choices, other.choices)


def test_logits_are_compared_up_to_the_first_choice_that_rounding_may_turn() -> None:
    first, second = np.full((6, 3), 4.0), np.full((6, 3), 4.0)
    near, clear = 2.0**-15, 2.0**-13
    gaps = np.array([clear, clear, near, clear, clear, clear]), np.array([clear, clear, clear, clear, near, clear])
    held = items.settled([(first, gaps[0]), (second, gaps[1])], 2)
    assert held.tolist() == [[True, True, False], [True, False, False]]
    assert items.settled([], 2) == slice(None)


def test_the_canonical_case_names_two_experts_for_each_byte() -> None:
    drawn, _ = canonical.parity_case(contract.specification("moe-bytes"))
    named = (drawn["wte"][:, :4] > 0).sum(axis=1)
    assert named.tolist() == [2] * 256


def test_matrices_are_joined_as_a_framework_has_them_and_taken_apart_again() -> None:
    random = np.random.RandomState(1)
    p = {name: random.standard_normal((rows, 3)) for name, rows in (("q", 4), ("k", 2), ("v", 2))}
    rows = {name: len(value) for name, value in p.items()}
    for shape in (None, (3, 8), (2, 3, 4)):
        array = stacked.joined(p, list(p), shape)
        assert array.shape == (shape or (8, 3))
        again = stacked.parts(array, list(p), rows, shape is not None)
        assert all(np.array_equal(again[name], value) for name, value in p.items())
    assert np.array_equal(stacked.joined(p, list(p), (3, 8)), np.concatenate(list(p.values())).T)
