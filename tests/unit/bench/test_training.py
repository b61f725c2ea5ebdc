"""Cells that train: which batches in which order, how often they evaluate and on what; with a network that learns nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import timing
from bench.data import Dataset
from bench.errors import DataError
from bench.feeds import ArrayFeed, in_order
from bench.training import TrainingCell
from tests.fixtures.adapters import Incomplete
from tests.fixtures.events import Emitter

ALONE: dict[str, Any] = {"device": "cpu", "devices": 1, "scaling": "weak"}


class Placed:
    """A batch as the adapter made it: an object that no one can slice or count."""

    def __init__(self, first: int, rows: int) -> None:
        self.first, self.rows = first, rows


class Adapter(Incomplete):
    """Numbers stand for images; says class 0 of everything."""

    def __init__(self) -> None:
        self.stepped: list[Placed] = []
        self.made: list[tuple[int, int]] = []

    def inputs(self, x: np.ndarray, y: np.ndarray) -> tuple[Placed, Placed]:
        self.made.append((int(x[0]), len(x)))
        return Placed(int(x[0]), len(x)), Placed(int(x[0]), len(y))

    def step(self, x: Placed, y: Placed) -> float:
        assert x.first == y.first
        self.stepped.append(x)
        return 1.0

    def read(self) -> dict[str, np.ndarray]:
        return {"steps": np.array([float(len(self.stepped))])}

    def predict(self, x: Placed) -> np.ndarray:
        return np.eye(10)[np.zeros(x.rows, dtype=int)]


def dataset(train: int, test: int) -> Dataset:
    """Image i is the number i, its label i % 10."""
    x, y = np.arange(train), np.arange(train, dtype=np.int32) % 10
    return Dataset("mnist", "generated", "0" * 64, x, y, 10**6 + np.arange(test), np.arange(test, dtype=np.int32) % 10)


def measured(workload: str, data: Dataset, **preset: Any) -> tuple[Adapter, list[dict[str, Any]]]:
    emitter, adapter = Emitter(), Adapter()
    cell = TrainingCell(
        SimpleNamespace(
            workload=workload, preset="quick", precision="fp32", data=None, seed=1, proved_at=None, **ALONE
        ),
        emitter,
    )
    # The network learns nothing, so no reference computes what it says.
    cell.hold_evaluation = lambda parameters: []
    cell.preset = {"seconds": 0.2, "windows": 6, "noise": 1e-9, "epochs": None, **preset}
    feed = ArrayFeed(data, cell.workload.SHUFFLE, cell.group)
    cell.measure(
        SimpleNamespace(synchronize=lambda: None, device_peak_bytes=lambda: None),
        adapter,
        feed,
        np.random.RandomState(1),
    )
    return adapter, emitter.events


def metrics(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "metric" and event["name"] == name]


def test_fixed_batches_are_made_once_and_taken_in_file_order_for_ever() -> None:
    adapter, _ = measured("cnn-mnist", dataset(3500, 2000))
    assert adapter.made == [(0, 1000), (1000, 1000), (2000, 1000), (10**6, 1000), (10**6 + 1000, 1000)]
    assert len(adapter.stepped) > 9
    assert [batch.first for batch in adapter.stepped[:7]] == [0, 1000, 2000, 0, 1000, 2000, 0]


def test_the_whole_set_is_one_batch_and_a_smaller_test_set_is_evaluated_whole() -> None:
    adapter, events = measured("mlp-mnist", dataset(60_000, 500))
    assert adapter.made == [(0, 60_000), (10**6, 500)]
    assert {batch.rows for batch in adapter.stepped} == {60_000}
    assert [(told["split"], told["value"]) for told in metrics(events, "accuracy")] == [("test", 0.1)]
    assert {event["items"] // event["steps"] for event in events if event["event"] == "sample"} == {60_000}


def test_without_a_test_set_the_first_training_batch_is_evaluated_and_called_so() -> None:
    adapter, events = measured("cnn-mnist", dataset(2000, 0))
    assert adapter.made == [(0, 1000), (1000, 1000), (0, 1000)]
    assert [(told["split"], told["value"]) for told in metrics(events, "accuracy")] == [("train", 0.1)]


def test_a_whole_run_of_200_epochs_is_200_steps_and_is_evaluated_ten_times() -> None:
    adapter, events = measured("mlp-mnist", dataset(60_000, 100), seconds=None, windows=None, noise=None, epochs=200)
    assert len(adapter.stepped) == 200
    assert [told["step"] for told in metrics(events, "accuracy")] == [0, *range(20, 201, 20)]


def test_a_long_whole_run_has_longer_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WINDOW_SECONDS", 0.0)
    monkeypatch.setattr(timing, "MOST_WINDOWS", 30)
    adapter, events = measured("mlp-mnist", dataset(60_000, 100), seconds=None, windows=None, noise=None, epochs=200)
    assert len(adapter.stepped) == 200
    steady = [event["steps"] for event in events if event["event"] == "sample" and event["stage"] == "steady"]
    assert len(steady) <= 30 + 10
    (plan,) = [event for event in events if event["event"] == "plan"]
    assert plan["steps_per_window"] == max(steady) == 7


@pytest.mark.parametrize(("epochs", "ends"), [(1, [3]), (3, [3, 6, 9]), (25, [*range(6, 73, 6), 75])])
def test_a_whole_run_ends_with_an_evaluation_after_its_last_epoch(epochs: int, ends: list[int]) -> None:
    _, events = measured("cnn-mnist", dataset(3000, 1000), seconds=None, windows=None, noise=None, epochs=epochs)
    told = [each["step"] for each in metrics(events, "accuracy")]
    # the warm-up takes some seven steps: what ended before is evaluated where it ended
    assert told[-1] == max(ends[-1], told[1])
    assert len(told) == 1 + len(ends)


@pytest.mark.parametrize("left", [0, -2])
def test_a_whole_run_that_is_over_with_its_warm_up_holds_no_step(left: int) -> None:
    cell = TrainingCell(SimpleNamespace(workload="mlp-mnist", preset="full", data="/data", seed=1, **ALONE), Emitter())
    assert cell.watched(None, None, left) is None


def test_data_that_do_not_fill_a_batch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = TrainingCell(SimpleNamespace(workload="mlp-mnist", preset="quick", data="/data", seed=1, **ALONE), Emitter())
    monkeypatch.setattr("bench.data.load", lambda *arguments: dataset(59_999, 100))
    with pytest.raises(
        DataError, match=r"mlp-mnist trains on batches of 60000 here, and there are 59999 items .* \(/data\)"
    ):
        cell.load_data()


class InOrder:
    """Takes a batch as it comes."""

    def inputs(self, x: np.ndarray, y: np.ndarray) -> tuple[list[int], list[int]]:
        return x.tolist(), y.tolist()


def test_processes_take_their_own_parts_of_batches_in_file_order() -> None:
    x = np.arange(9)
    parts = [[batch for batch, _, _ in in_order(InOrder(), x, x, 4, rank, 2)] for rank in (0, 1)]
    assert parts == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert [batch for batch, _, _ in in_order(InOrder(), x, x, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
