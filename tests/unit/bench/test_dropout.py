"""Training with dropout against the reference's own runs: honest movements pass, and other masks are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, contract, digits, dropout, parity, rules
from bench.workloads import cnn_cifar10
from tests.fixtures.adapters import Incomplete
from tests.fixtures.weekly import only_with

SOME = only_with("DLBENCH_CURVES", "some mistakes of each kind are tried")
NAME = "cnn-cifar10"
Masks = Callable[[np.random.RandomState, int], list[np.ndarray]]


def draws(count: int, scale: float = 1.0, shift: float = 1.0, seed: int = 0) -> list[Any]:
    """The `parts` of runs of two steps: what each adds to two tensors has a mean, and a normal error that is as large."""
    random = np.random.RandomState(seed)
    mean = {"w": np.linspace(0.5, 1.5, 400), "b": np.linspace(1.0, 2.0, 40)}
    runs = []
    for _ in range(count):
        added = [
            {name: shift * value + scale * random.standard_normal(value.shape) for name, value in mean.items()}
            for _ in range(2)
        ]
        second = {name: added[0][name] + (0.9 * added[0][name] + added[1][name]) for name in mean}
        runs.append(dropout.parts([added[0], second], 0.9))
    return runs


@pytest.fixture(scope="module")
def stored() -> dict[Any, np.ndarray]:
    return dropout.with_chance(draws(64))


def refused(run: Any, stored: dict[Any, np.ndarray]) -> set[tuple[str, str]]:
    return {(one.quantity, one.tensor) for one in dropout.results(run, stored) if not one.passed}


def test_what_a_step_adds_is_its_movement_less_the_momentum_times_the_one_before() -> None:
    added = [np.array([1.0]), np.array([10.0]), np.array([100.0])]
    velocity, place, moved = np.zeros(1), np.zeros(1), []
    for one in added:
        velocity = 0.9 * velocity + one
        place = place + velocity
        moved.append({"w": place})
    found = dropout.parts(moved, 0.9)
    assert [float(found[str(step), "w"][0]) for step in (1, 2, 3)] == pytest.approx([1.0, 10.0, 100.0])
    assert found[dropout.TOGETHER, "w"] == pytest.approx(place)


def test_runs_of_the_same_kind_pass(stored: dict[Any, np.ndarray]) -> None:
    assert [refused(one, stored) for one in draws(300, seed=1)] == [set()] * 300


def test_the_statistics_are_centred_on_nothing(stored: dict[Any, np.ndarray]) -> None:
    """The stored mean is of 64 runs, so it errs itself; neither statistic may take that for a difference."""
    found = [dropout.statistics(one, stored) for one in draws(400, seed=2)]
    for key in found[0]:
        values = np.array([one[key] for one in found])
        assert abs(values.mean()) < 4 * values.std() / np.sqrt(64), key
        assert values.std() == pytest.approx(float(stored[key]), rel=0.35), key


@pytest.mark.parametrize(
    ("scale", "shift", "quantity"),
    [(0.4, 1.0, "dropout"), (1.8, 1.0, "dropout"), (1.0, 0.4, "landing"), (0.0, 0.0, "landing")],
)
def test_another_spread_or_another_mean_is_refused(
    stored: dict[Any, np.ndarray], scale: float, shift: float, quantity: str
) -> None:
    for one in draws(50, scale, shift, seed=3):
        assert quantity in {name for name, _ in refused(one, stored)}


def test_a_movement_that_is_not_finite_is_refused(stored: dict[Any, np.ndarray]) -> None:
    (run,) = draws(1)
    assert ("landing", "w") in refused({**run, ("1", "w"): run["1", "w"] * np.nan}, stored)


def with_rates(*rates: float) -> Masks:
    def draw(random: np.random.RandomState, items: int) -> list[np.ndarray]:
        return [
            (random.random_sample((items, *shape)) >= rate) / (1 - rate)
            for rate, shape in zip(rates, cnn_cifar10.DROPOUT_SHAPES, strict=True)
        ]

    return draw


def not_scaled(random: np.random.RandomState, items: int) -> list[np.ndarray]:
    return [(mask > 0) * 1.0 for mask in cnn_cifar10.draw_masks(random, items)]


def one_for_all_rows(random: np.random.RandomState, items: int) -> list[np.ndarray]:
    return [np.repeat(mask[:1], items, axis=0) for mask in cnn_cifar10.draw_masks(random, items)]


def the_same_in_each_step(random: np.random.RandomState, items: int) -> list[np.ndarray]:
    return cnn_cifar10.draw_masks(np.random.RandomState(77), items)


MISTAKES: dict[str, Masks] = {
    "0.25 everywhere": with_rates(0.25, 0.25, 0.25),
    "kept and dropped swapped": with_rates(0.75, 0.75, 0.5),
    "after dense1 only": with_rates(0.0, 0.0, 0.5),
    "a rate of 0.01": with_rates(0.01, 0.01, 0.01),
    "not after the first pool": with_rates(0.0, 0.25, 0.5),
    "not after the second pool": with_rates(0.25, 0.0, 0.5),
    "not scaled": not_scaled,
    "one mask for all rows": one_for_all_rows,
    "the same masks in each step": the_same_in_each_step,
}


def checked(monkeypatch: pytest.MonkeyPatch, masks: Masks, seed: int) -> set[tuple[str, str]]:
    changed = contract.specification(NAME)
    vars(changed)["draw_masks"] = masks
    monkeypatch.setattr(contract, "specification", lambda name: changed)
    return refused(dropout.parts(dropout.movements(NAME, seed), cnn_cifar10.MOMENTUM), dropout.stored(NAME))


@pytest.mark.slow
def test_masks_that_the_stored_runs_have_not_seen_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(monkeypatch, cnn_cifar10.draw_masks, 10_000) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    [pytest.param(name, marks=[SOME] * (at % 3 > 0)) for at, name in enumerate(MISTAKES)],
)
def test_other_masks_are_refused(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    assert checked(monkeypatch, MISTAKES[mistake], 20_000)


@pytest.mark.slow
def test_the_stored_runs_are_those_of_the_code() -> None:
    """The first run lies about the stored mean as the stored deviations say, and the stored mean is not that run."""
    found = dropout.statistics(dropout.parts(dropout.movements(NAME, 0), cnn_cifar10.MOMENTUM), dropout.stored(NAME))
    assert all(abs(value) < 5 * float(dropout.stored(NAME)[key]) for key, value in found.items())
    assert all(abs(value) > 0 for value in found.values())
    first = dropout.stored(NAME)["first step",]
    np.testing.assert_allclose(first, dropout.first_step(NAME), rtol=1e-9)


class Adapter(Incomplete):
    """The reference with its masks, as an adapter."""

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        self.parameters = {name: value.astype(np.float64) for name, value in parameters.items()}
        self.optimizer = cnn_cifar10.optimizer()
        self.random = np.random.RandomState(30_000)

    def read(self) -> dict[str, np.ndarray]:
        return {name: value.astype(np.float32) for name, value in self.parameters.items()}

    def changed(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return gradients

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        masks = cnn_cifar10.draw_masks(self.random, len(x))
        computed = cnn_cifar10.loss_and_gradients(
            self.parameters, x.astype(np.float64), y, arithmetic.Exact(), masks=masks
        )
        self.optimizer.update(self.parameters, self.changed(computed[2]), arithmetic.Exact())
        return float(computed[1])


class OtherRate(Adapter):
    """A rate that is a hundredth lower."""

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        super().load(parameters)
        self.optimizer.rate *= 0.99


class Decaying(Adapter):
    """A weight decay of 1e-4 on all layers but the last."""

    def changed(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        decayed = {name: g + 1e-4 * self.parameters[name] for name, g in gradients.items() if "dense2" not in name}
        return {**gradients, **decayed}


class Clipped(Adapter):
    """The norm of all gradients together is at most 1."""

    def changed(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        norm = np.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
        return {name: g * min(1.0, 1.0 / norm) for name, g in gradients.items()}


def bfloat16(values: np.ndarray) -> np.ndarray:
    return ((np.float32(values).view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def float16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def tensor_float(values: np.ndarray) -> np.ndarray:
    """TensorFloat-32, the digits behind its eleven cut off."""
    return (np.float32(values).view(np.uint32) & 0xFFFFE000).view(np.float32)


class HalfGradients(Adapter):
    """Gradients that were computed in bfloat16."""

    def changed(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: bfloat16(g) for name, g in gradients.items()}


class HalfGradientsOfOneLayer(Adapter):
    """The gradient of one convolution was computed in bfloat16."""

    def changed(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**gradients, "conv3.w": bfloat16(gradients["conv3.w"])}


Rounding = Callable[[np.ndarray], np.ndarray]


def stepped(rounding: Rounding, rate_in_velocity: bool, tensor: str = "w") -> list[dict[str, np.ndarray]]:
    """Where two tensors stand after each of three steps of momentum in float32; the gradient of one of them is rounded."""
    random = np.random.RandomState(5)
    places = {name: random.uniform(-0.1, 0.1, (300, 250)).astype(np.float32) for name in ("v", "w")}
    velocity = {name: np.zeros_like(value) for name, value in places.items()}
    rate, momentum, steps = np.float32(0.01), np.float32(0.9), [dict(places)]
    for _ in range(3):
        for name, value in places.items():
            gradient = random.normal(0, 0.01, value.shape).astype(np.float32)
            gradient = rounding(gradient) if name == tensor else gradient
            velocity[name] = momentum * velocity[name] + (rate * gradient if rate_in_velocity else gradient)
            places[name] = value - (velocity[name] if rate_in_velocity else rate * velocity[name])
        steps.append(dict(places))
    return steps


def digits_of(steps: list[dict[str, np.ndarray]]) -> Any:
    told = digits.telling(steps[0])
    shares = digits.digits(cnn_cifar10.optimizer(), [digits.sample(one, told) for one in steps])
    most = max(shares, key=shares.__getitem__)
    return parity.exact(most, ", digits", shares[most])


@pytest.mark.parametrize("rate_in_velocity", [False, True])
@pytest.mark.parametrize("rounding", [bfloat16, float16, tensor_float])
def test_the_digits_of_each_tensor_show_a_gradient_of_fewer_digits_than_float32_has(
    rounding: Rounding, rate_in_velocity: bool
) -> None:
    for tensor in ("v", "w"):
        result = digits_of(stepped(rounding, rate_in_velocity, tensor))
        assert (result.tensor, result.passed) == (f"{tensor}, digits", False)
        assert result.error == pytest.approx(1.0)


@pytest.mark.parametrize("rate_in_velocity", [False, True])
def test_the_digits_of_float32_gradients_look_like_a_half_type_by_chance_only(rate_in_velocity: bool) -> None:
    result = digits_of(stepped(np.asarray, rate_in_velocity))
    assert result.passed
    assert result.error == pytest.approx(2 * digits.NEAR, abs=0.03)


def test_a_tensor_with_too_few_telling_numbers_is_not_judged_by_its_digits() -> None:
    steps = [{"b": one["w"][:1, : digits.FEWEST // 3]} for one in stepped(bfloat16, False)]
    assert digits.FEWEST == 64
    assert digits_of(steps).error == 0.0


def test_the_numbers_of_a_large_tensor_that_are_looked_at_lie_next_to_zero() -> None:
    value = np.linspace(-1.0, 1.0, 10 * digits.DIGITS_OF).reshape(-1, 8)
    told = digits.telling({"w": value, "b": value[0]})
    assert len(told["w"]) == pytest.approx(digits.DIGITS_OF, rel=0.01)
    assert np.abs(value.ravel()[told["w"]]).max() < 0.11
    assert len(told["b"]) == 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_adapter_with_the_specified_dropout_passes() -> None:
    assert [one for one in dropout.check(NAME, Adapter(), "fp32") if not one.passed] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("adapter", "tensor"),
    [
        (OtherRate, "dense2.b, first step"),
        (Decaying, "at rest"),
        pytest.param(Clipped, "dense2.b, first step", marks=SOME),
        pytest.param(HalfGradients, "digits", marks=SOME),
        (HalfGradientsOfOneLayer, "conv3.w, digits"),
    ],
)
def test_what_single_steps_show_is_refused_whatever_the_masks(adapter: type, tensor: str) -> None:
    refusals = [one for one in dropout.check(NAME, adapter(), "fp32") if not one.passed]
    assert any(one.tensor.endswith(tensor) for one in refusals)


@pytest.mark.parametrize("name", rules.workload_names())
def test_a_workload_with_dropout_has_stored_runs_and_no_other_has(name: str) -> None:
    trained = rules.workload_declaration(name)["task"] == "train"
    assert rules.has_dropout(name) == (trained and contract.specification(name).DROPOUT)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_running_sum_in_the_half_type_errs_by_no_more_than_the_first_step_may_in_any_order(kind: str) -> None:
    """The gradients of the last bias, whose layer is zero: each of the classes is as likely as the others."""
    workload = contract.specification("cnn-cifar10")
    labels = dropout.case(workload)[1][0][1]
    terms = np.full((len(labels), workload.CLASSES), 1.0 / workload.CLASSES)
    terms[np.arange(len(labels)), labels] -= 1.0
    terms /= len(labels)
    exact, random = terms.sum(axis=0), np.random.RandomState(1)
    half = arithmetic.Mixed(random, getattr(arithmetic, kind.upper()), 1.0, nearest=True).half
    errors = []
    for _ in range(300):
        total = np.zeros(workload.CLASSES)
        for term in half(terms[random.permutation(len(terms))]):
            total = half(total + term)
        errors.append(np.linalg.norm(total - exact) / np.linalg.norm(exact))
    assert dropout.FIRST_STEP_IN_HALF[kind] / 2 < max(errors) < dropout.FIRST_STEP_IN_HALF[kind]
