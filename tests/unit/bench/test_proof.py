"""The proof of the measured adapter: an adapter that trains as specified passes, and each that trains otherwise is refused.

The honest adapter is the reference itself. `mlp-mnist` is a network that is small enough to train here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, canonical, contract, parity, proof, rules
from tests.fixtures.adapters import Incomplete

Prove = Callable[[Any], list[parity.Result]]
WORKLOAD = "cnn-mnist"
SPECIFICATION = contract.specification(WORKLOAD)


class Reference(Incomplete):
    """The specification, computed by the reference, with a count of the optimiser's steps."""

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        self.parameters = {name: value.astype(np.float64) for name, value in parameters.items()}
        self.optimizer = SPECIFICATION.optimizer()
        self.count = 0

    def read(self) -> dict[str, np.ndarray]:
        return {name: value.astype(np.float32) for name, value in self.parameters.items()}

    def gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, dict[str, np.ndarray]]:
        found: tuple[np.ndarray, float, dict[str, np.ndarray]] = SPECIFICATION.loss_and_gradients(
            self.parameters, x.astype(np.float64), y, arithmetic.Exact()
        )
        return found

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        _, loss, gradients = self.gradients(x, y)
        self.optimizer.update(self.parameters, gradients, arithmetic.Exact())
        self.count += 1
        return loss

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.gradients(x, np.zeros(len(x), dtype=np.int32))[0]

    def updates(self) -> int | None:
        return self.count


class ForwardOnly(Reference):
    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.gradients(x, y)[1]


class EverySecond(Reference):
    """Takes every second step only, over its whole life."""

    calls = 0

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        self.calls += 1
        return super().step(x, y) if self.calls % 2 else self.gradients(x, y)[1]


class FirstBatch(Reference):
    """Keeps the first batch that it is given."""

    batch: Any = None

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        self.batch = self.batch or (x, y)
        return super().step(*self.batch)


class OneFrozen(Reference):
    """Never updates one bias."""

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        frozen = next(name for name in self.parameters if name.endswith(".b"))
        before = self.parameters[frozen].copy()
        loss = super().step(x, y)
        self.parameters[frozen] = before
        return loss


class KeepsItsMomentum(Reference):
    """Does not start the optimiser afresh."""

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        kept = getattr(self, "optimizer", None)
        super().load(parameters)
        self.optimizer = kept or self.optimizer


class OtherEvaluation(Reference):
    """Evaluates with a factor that dropout left on would have."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        return super().predict(x) * 0.99


class EvaluatesWhatWasLoaded(Reference):
    """Its evaluation keeps the parameters that were loaded last, whatever was trained since."""

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        super().load(parameters)
        self.loaded = dict(self.parameters)

    def predict(self, x: np.ndarray) -> np.ndarray:
        trained, self.parameters = self.parameters, self.loaded
        logits = super().predict(x)
        self.parameters = trained
        return logits


class StandsStillAfterFour(Reference):
    """Trains for four steps after each load, and then only counts."""

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        if self.count < 4:
            return super().step(x, y)
        self.count += 1
        return self.gradients(x, y)[1]


class Diverges(Reference):
    """Its parameters are no numbers after the fourth step."""

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        loss = super().step(x, y)
        if self.count == 4:
            self.parameters = {name: value * np.nan for name, value in self.parameters.items()}
        return loss


@functools.cache
def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.RandomState(3)
    return [SPECIFICATION.draw_batch(random) for _ in range(4)]


def measured(adapter: Any) -> list[parity.Result]:
    """All that is proved of an adapter after four steps of training, where the check takes a step and a prediction of its own."""
    loaded = canonical.draw_parameters(SPECIFICATION, np.random.RandomState(1), False)
    adapter.load(loaded)
    for x, y in batches():
        adapter.step(x, y)
    results = proof.trained(adapter, loaded, proof.numbers(adapter), 4)
    return [*results, proof.goes_on(WORKLOAD, adapter), *proof.computes(WORKLOAD, adapter, "fp32")]


def measured_and_evaluated(adapter: Any) -> list[parity.Result]:
    """All that is proved of an adapter after five steps of training, the last of which is the last window, and two evaluations."""
    loaded = canonical.draw_parameters(SPECIFICATION, np.random.RandomState(1), False)
    adapter.load(loaded)
    evaluations = [adapter.predict(batches()[1][0])]
    for x, y in batches():
        adapter.step(x, y)
    before_last = proof.numbers(adapter)
    adapter.step(*batches()[0])
    evaluations.append(adapter.predict(batches()[1][0]))
    results = proof.trained(adapter, loaded, proof.numbers(adapter), 5, before_last)
    return [*results, *proof.computes(WORKLOAD, adapter, "fp32", evaluations=evaluations)]


WAYS = pytest.mark.parametrize("prove", [measured, measured_and_evaluated])


def failed(results: list[parity.Result]) -> set[str]:
    return {result.quantity for result in results if not result.passed}


@WAYS
def test_an_adapter_that_computes_the_specification_passes_and_every_quantity_that_is_due_is_there(
    prove: Prove,
) -> None:
    results = prove(Reference())
    assert failed(results) == set()
    # The losses and the items are compared by the cell, which has them.
    due = {quantity for phase, quantity in rules.due(WORKLOAD, "quick") if phase == "proof"}
    assert {result.quantity for result in results} == due - {"learning", *rules.TAKEN}
    more = {proof.LAST_STEPS, proof.EVALUATION}
    tensors = {spec.name for spec in SPECIFICATION.PARAMETERS}
    assert {r.tensor for r in results if r.quantity == "moved"} == tensors | more


@WAYS
@pytest.mark.parametrize(
    ("adapter", "quantities"),
    [
        (ForwardOnly, {"moved", "updates", "parameter"}),
        (EverySecond, {"updates", "parameter"}),
        (FirstBatch, {"parameter"}),
        (OneFrozen, {"moved", "parameter"}),
        (KeepsItsMomentum, {"parameter"}),
        (OtherEvaluation, {"prediction"}),
        (EvaluatesWhatWasLoaded, {"moved"}),
        (StandsStillAfterFour, {"moved"}),
        (Diverges, {"moved"}),
    ],
)
def test_an_adapter_that_trains_or_evaluates_otherwise_is_refused(
    prove: Prove, adapter: type, quantities: set[str]
) -> None:
    assert failed(prove(adapter())) == quantities


def test_two_evaluations_of_the_cell_spare_the_check_its_second_prediction() -> None:
    class Counted(Reference):
        predictions = 0

        def predict(self, x: np.ndarray) -> np.ndarray:
            self.predictions += 1
            return super().predict(x)

    counted = [Counted(), Counted()]
    proof.computes(WORKLOAD, counted[0], "fp32")
    proof.computes(WORKLOAD, counted[1], "fp32", evaluations=[np.zeros((2, 2), "float32"), np.ones((2, 2), "float32")])
    assert [adapter.predictions for adapter in counted] == [2, 1]


def test_one_number_that_moved_is_enough_and_none_is_not() -> None:
    class Read(Incomplete):
        def read(self) -> dict[str, np.ndarray]:
            return {"w": np.float32([1, 2, 4]), "b": np.float32([1, 2, 3])}

    results = proof.trained(Read(), {"w": np.float32([1, 2, 3]), "b": np.float32([1, 2, 3])}, proof.numbers(Read()), 7)
    assert [(result.tensor, result.passed) for result in results] == [("w", True), ("b", False)]
    assert [result.error for result in results] == pytest.approx([2 / 3, 1.0])


def test_a_framework_that_counts_no_steps_has_no_such_row() -> None:
    class Uncounted(Reference):
        def updates(self) -> None:
            return None

    assert "updates" not in {result.quantity for result in measured(Uncounted())}


@pytest.mark.parametrize(("counted", "passed"), [(100, True), (99, False), (101, False), (0, False)])
def test_the_optimiser_counts_the_steps_that_the_cell_counted(counted: int, passed: bool) -> None:
    class Counting(Incomplete):
        def read(self) -> dict[str, np.ndarray]:
            return {}

        def updates(self) -> int:
            return counted

    (result,) = proof.trained(Counting(), {}, {}, 100)
    assert result.passed is passed
    assert result.error == pytest.approx(abs(counted - 100) / 100)
