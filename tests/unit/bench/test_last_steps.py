"""The last steps that training took, without a load: Adam's by the batch's gradient, those under dropout by what is exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, canonical, contract, dropout, last_steps, parity, rules

GRU = contract.specification("gru-imdb")
CNN = contract.specification("cnn-cifar10")
STEPS = 8
ITEMS = 8


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    drawn = [GRU.draw_batch(np.random.RandomState(step)) for step in range(STEPS)]
    # Words are not as often as others: a tenth of the ids are drawn from ten.
    return [(np.where(x % 10 == 0, x % 97 + 1, x)[:ITEMS].astype("int32"), y[:ITEMS]) for x, y in drawn]


def trained(
    taken: list[tuple[np.ndarray, np.ndarray]], decay: float = 0.0, frozen: Any = None
) -> list[dict[str, np.ndarray]]:
    """The parameters in float32 around the last two steps of Adam, of which the last may lack the gradient of some rows."""
    p = {
        name: value.astype(np.float32)
        for name, value in canonical.draw_parameters(GRU, np.random.RandomState(1), False).items()
    }
    optimizer, copies = GRU.optimizer(), []
    optimizer.decay = decay
    for step, (x, y) in enumerate(taken):
        copies.append({name: value.copy() for name, value in p.items()})
        gradients = GRU.loss_and_gradients(p, x, y, arithmetic.Exact())[2]
        if frozen is not None and step == len(taken) - 1:
            gradients["embedding"][frozen] = 0
        optimizer.update(p, gradients, arithmetic.Exact())
        p = {name: value.astype(np.float32) for name, value in p.items()}
    return [*copies[-2:], p]


def refused(copies: list[dict[str, np.ndarray]], x: np.ndarray, y: np.ndarray) -> set[str]:
    return {one.tensor for one in last_steps.check("gru-imdb", copies, x, y, STEPS) if not one.passed}


def test_steps_of_adam_on_the_batches_that_were_due_pass() -> None:
    results = last_steps.check("gru-imdb", trained(batches()), *batches()[-1], STEPS)
    assert [one.tensor.split(", ", 1)[1] for one in results] == ["last step, rows at rest", "last step, direction"]
    assert [one for one in results if not one.passed] == []
    assert results[0].error == 0


def test_a_last_step_on_other_items_other_labels_or_a_part_of_the_batch_is_refused() -> None:
    due = batches()
    x, y = due[-1]
    assert "embedding, last step, rows at rest" in refused(trained([*due[:-1], due[0]]), x, y)
    assert any("direction" in tensor for tensor in refused(trained([*due[:-1], (x, 1 - y)]), x, y))
    assert refused(trained([*due[:-1], (x[: ITEMS // 2], y[: ITEMS // 2])]), x, y)


def test_after_many_steps_of_adam_nothing_is_held() -> None:
    copies = trained(batches())
    assert last_steps.check("gru-imdb", copies, *batches()[-1], last_steps.MOST_STEPS + 1) == []
    assert last_steps.check("gru-imdb", copies, *batches()[-1], last_steps.MOST_STEPS) != []


def test_a_row_that_the_last_batch_named_and_that_did_not_train_is_refused() -> None:
    x, y = batches()[-1]
    gradient = GRU.loss_and_gradients(trained(batches())[1], x, y, arithmetic.Exact())[2]["embedding"]
    largest = np.abs(gradient).max(axis=1).argsort()[-3:]
    assert refused(trained(batches(), frozen=largest), x, y) >= {"embedding, last step, rows at rest"}


def test_a_decay_of_rows_that_no_batch_named_is_refused() -> None:
    assert "embedding, last step, rows at rest" in refused(trained(batches(), decay=0.01), *batches()[-1])


@pytest.mark.parametrize(
    ("workload", "precision", "devices", "held"),
    [
        ("gru-imdb", "fp32", 1, True),
        ("gru-imdb", "tf32", 1, True),
        ("cnn-cifar10", "fp32", 1, True),
        ("gru-imdb", "fp32", 2, False),
        ("gru-imdb", "amp-bf16", 1, False),
        ("resnet50-imagenet", "fp32", 1, False),
    ],
)
def test_a_cell_whose_last_steps_are_not_held_has_a_reason(
    workload: str, precision: str, devices: int, held: bool
) -> None:
    options = SimpleNamespace(workload=workload, precision=precision, devices=devices)
    assert (last_steps.reason(options, contract.specification(workload)) is None) == held


def steps_of_momentum(kept: Any = np.asarray, rate: float = 1.0) -> list[dict[str, np.ndarray]]:
    """The tensors of the CNN's last layer around two steps. A tenth of the units is silent in the second one."""
    random = np.random.RandomState(3)
    places = {
        "dense2.w": np.zeros((10, 512), np.float32),
        "dense1.w": random.uniform(-0.1, 0.1, (512, 64)).astype(np.float32),
    }
    velocity = {name: np.zeros_like(value) for name, value in places.items()}
    copies = [dict(places)]
    for step in range(2):
        for name, value in places.items():
            gradient = random.normal(0, 0.01, value.shape).astype(np.float32)
            if name == "dense2.w" and step:
                gradient[:, ::10] = 0
            velocity[name] = np.float32(0.9) * kept(velocity[name]) + gradient
            places[name] = value - np.float32(0.01 * (rate if step else 1.0)) * velocity[name]
        copies.append(dict(places))
    return copies


def eight_digits(values: np.ndarray) -> np.ndarray:
    return (np.float32(values).view(np.uint32) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def silent(copies: list[dict[str, np.ndarray]]) -> float:
    trail = dropout.Trail(copies[0], "dense2.w")
    for copy in copies[1:]:
        trail.add(copy)
    (result,) = [one for one in trail.results(CNN.optimizer()) if one.tensor.endswith("silent units")]
    return result.error / result.bound


def test_silent_units_move_on_by_momentum_and_by_nothing_else() -> None:
    assert silent(steps_of_momentum()) == 0.0
    assert silent(steps_of_momentum(eight_digits)) > 1.5
    assert silent(steps_of_momentum(rate=0.95)) == 2.0


@pytest.mark.parametrize(
    ("taken", "passes"),
    [(slice(None), True), (slice(32), False), (slice(8), False), (slice(None, None, -1), True)],
)
def test_the_last_bias_moves_by_the_labels_of_the_batch(taken: slice, passes: bool) -> None:
    random = np.random.RandomState(5)
    logits, y = random.normal(0, 0.3, (64, 10)), random.randint(0, 10, 64)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    velocity, places = random.normal(0, 0.05, 10), [random.normal(0, 0.01, 10)]
    for gradient in (velocity, 0.9 * velocity + (p - np.eye(10)[y])[taken].mean(axis=0)):
        places.append(places[-1] - 0.01 * gradient)
    copies = [{"dense2.b": np.float32(place)} for place in places]
    (result,) = last_steps.of_labels(CNN, copies, y, logits)
    assert (result.tensor, result.passed) == ("dense2.b, last step, labels", passes)
    # Of a batch that the network has learned nothing is said, and no logits are asked for.
    assert not last_steps.needs_logits("cnn-cifar10", {1: 2.3, 40: 0.5})
    assert last_steps.needs_logits("cnn-cifar10", {1: 2.3, 40: 1.9})
    assert not last_steps.needs_logits("gru-imdb", {1: 2.3})
    assert last_steps.of_labels(CNN, copies, y, 20 * np.eye(10)[y]) == []


@pytest.mark.parametrize(("decay", "passes"), [(0.0, True), (1e-4, False)])
def test_no_bit_of_a_row_changes_that_no_batch_has_named(decay: float, passes: bool) -> None:
    parameters, batches = canonical.parity_case(GRU)
    after = {name: value.copy() for name, value in parameters.items()}
    named = np.unique(batches[0][0])
    after["embedding"][named] += 1
    after["embedding"] -= np.float32(0.001 * decay) * after["embedding"]
    (result,) = parity._at_rest(GRU, parameters, after, batches[:1])
    assert (result.tensor, result.passed) == ("embedding, rows at rest", passes)


def test_the_bounds_of_what_is_exact_are_those_of_the_bench() -> None:
    of_digits = {", digits", ", silent units", ", activations"}
    assert set(rules.EXACT) == of_digits | {", rows at rest", ", direction", ", labels"}
