"""A training cell's events with an adapter that is no network, but fast: AUC by finding, waiting, a batch of its own, weight files."""

import contextlib
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import canonical, contract, environment, proof, timing, weights
from bench.errors import DataError, Unsupported
from bench.measured import STEPS
from bench.training import TrainingCell
from tests.fixtures.adapters import Incomplete
from tests.fixtures.events import Emitter

NAME = "densenet121-chestxray"
DENSENET = contract.specification(NAME)


class Brightness(Incomplete):
    """Logits that tell the images apart; a step that adds 1 to every parameter."""

    def __init__(self) -> None:
        self.loaded: dict[str, np.ndarray] = {}
        self.batches: list[int] = []
        self.rates: list[tuple[int, float]] = []  # and how many steps were taken before

    def set_rate(self, rate: float) -> None:
        self.rates.append((len(self.batches), rate))

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        self.loaded = parameters

    def read(self) -> dict[str, np.ndarray]:
        return {name: value + len(self.batches) for name, value in self.loaded.items()}

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        self.batches.append(len(x))
        return 0.5

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.repeat(x.mean(axis=(1, 2, 3))[:, None], 14, axis=1)


def made(name: str, monkeypatch: pytest.MonkeyPatch, cache: Path, **preset: Any) -> tuple[TrainingCell, Emitter]:
    monkeypatch.setenv("DLBENCH_CACHE", str(cache))
    emitter = Emitter()
    options = SimpleNamespace(
        workload=name,
        preset="quick",
        data=None,
        seed=1,
        threads=2,
        device="cpu",
        devices=1,
        scaling="weak",
        precision="fp32",
        mode="default",
        framework="torch",
        proved_at=None,
    )
    cell = TrainingCell(options, emitter)
    # These adapters compute nothing that the reference knows.
    monkeypatch.setattr(cell, "hold_evaluation", lambda parameters: [])
    cell.preset = {
        "seconds": 0.3,
        "windows": 1000,
        "noise": 1e-9,
        "train_items": 9,
        "test_items": 5,
        "epochs": None,
        **preset,
    }
    return cell, emitter


def measured(cell: TrainingCell, adapter: Brightness) -> None:
    feed = cell.load_data()
    cell.fill(adapter, feed, np.random.RandomState(1))
    cell.measure(contract.Framework(SimpleNamespace(synchronize=lambda: None)), adapter, feed, np.random.RandomState(1))


def test_the_first_build_starts_the_framework_and_the_checked_adapter_is_gone_before_the_measured_one_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cell, emitter = made("gru-imdb", monkeypatch, tmp_path)
    cell.options.profile = False
    alive: list[int] = []

    class Adapter(Brightness):
        def __init__(self, setup: Any) -> None:
            super().__init__()
            switches["threads"] = 2
            alive.append(sum(seen() is not None for seen in built))
            built.append(weakref.ref(self))

    built: list[weakref.ref[Adapter]] = []
    switches: dict[str, Any] = {"threads": 1}
    framework = SimpleNamespace(
        configure=lambda setup: switches.update(threads=1),
        device_peak_bytes=lambda: None,
        settings=lambda: dict(switches),
        settings_of=lambda adapter: {"xla": True},
        remembered=lambda folder: contextlib.nullcontext(),
    )
    monkeypatch.setattr(contract, "check", lambda options: None)
    monkeypatch.setattr(contract, "load_framework", lambda name: framework)
    monkeypatch.setattr(contract, "load_adapter", lambda *names: Adapter)
    monkeypatch.setattr(environment, "describe", lambda *facts: {"settings": {"mode": "default", "threads": 1}})
    monkeypatch.setattr(cell, "check_parity", lambda adapter: canonical.parity_case(cell.workload))
    for name in ("load_data", "fill", "measure", "prove", "emit_memory", "share_of_kernels"):
        monkeypatch.setattr(cell, name, lambda *things: None)
    cell.run()
    phases = [event["name"] for event in emitter.events if event["event"] == "phase" and event["state"] == "begin"]
    assert phases == ["import", "data", "build", "parity", "build"]
    # The second one says what the built adapter uses.
    described = [event["settings"] for event in emitter.events if event["event"] == "environment"]
    assert [each.get("threads") for each in described] == [1, 2]
    assert described[1] == {**described[0], "threads": 2, "xla": True}
    assert alive == [0, 0]
    assert canonical._drawn == {}


@pytest.mark.parametrize("known", [True, False])
def test_the_check_takes_a_step_of_its_own_only_where_the_numbers_before_the_last_window_are_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: bool
) -> None:
    cell, _ = made("cnn-mnist", monkeypatch, tmp_path, train_items=1000)
    cell.stored, cell.not_compared = None, "nothing is trained here"
    monkeypatch.setattr(proof, "computes", lambda *things: [])
    adapter = Brightness()
    monkeypatch.setattr(cell, "took", lambda adapter, now, loaded: [])
    cell.fill(adapter, None, np.random.RandomState(1))
    for at in range(3):
        cell.keep(adapter, 1, at / 3.0, 1 if known and at == 2 else 9)
        adapter.step(np.zeros(5), np.zeros(5))
    (went_on,) = [result for result in cell.proved(adapter) if result.tensor == proof.LAST_STEPS]
    assert went_on.passed
    assert len(adapter.batches) == (3 if known else 4)


class Counts(Brightness):
    """Counts the batches that are predicted before the first step and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.predicted = [0, 0]

    def predict(self, x: np.ndarray) -> np.ndarray:
        self.predicted[bool(self.batches)] += 1
        return super().predict(x)


@pytest.mark.parametrize(("preset", "before"), [({}, 1), ({"seconds": None, "train_items": 16, "epochs": 1}, 3)])
def test_before_training_one_batch_is_predicted_and_of_a_whole_run_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, preset: dict[str, Any], before: int
) -> None:
    # Of 20 pictures, eight a batch. A whole run validates as well.
    cell, emitter = made(NAME, monkeypatch, tmp_path, test_items=20, **preset)
    adapter = Counts()
    measured(cell, adapter)
    assert adapter.predicted[0] == before
    assert adapter.predicted[1] >= 3
    at_first = [event for event in emitter.events if event["event"] == "metric" and event["step"] == 0]
    assert bool(at_first) == bool(preset)


def test_the_first_and_the_last_evaluation_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cell, _ = made(NAME, monkeypatch, tmp_path)
    adapter = Counts()
    measured(cell, adapter)
    first, last = cell.evaluations
    assert first.shape == last.shape == (5, 14)
    # This network does not learn, so its evaluation did not move.
    assert np.array_equal(first, last)


def test_a_cell_tells_each_finding_s_auc_their_mean_and_how_long_it_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, emitter = made(NAME, monkeypatch, tmp_path)
    adapter = Brightness()
    measured(cell, adapter)
    metrics = [event for event in emitter.events if event["event"] == "metric"]
    after = {event["name"]: event["value"] for event in metrics if event["split"] == "test"}
    assert set(after) == {"AUC of " + finding for finding in DENSENET.FINDINGS} | {"mean AUC"}
    known = [value for name, value in after.items() if name != "mean AUC" and value is not None]
    assert 0 < len(known) < 14  # of five images some finding has labels of one kind
    assert after["mean AUC"] == pytest.approx(np.mean(known))
    samples = [event for event in emitter.events if event["event"] == "sample"]
    waited = [event["value"] for event in metrics if event["name"] == "waiting for data"]
    assert len(waited) == len(samples)
    assert all(0 <= share <= 1 for share in waited)
    assert sum(waited) > 0.5 * len(waited)  # the step takes no time: all of it goes by in waiting
    # quick has a batch of its own
    assert set(adapter.batches) == {8}
    assert all(sample["items"] == 8 * sample["steps"] for sample in samples)


def test_steps_that_a_loss_scaler_skipped_are_told_and_no_items_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Skipping(Brightness):
        def skipped(self) -> int:
            return int(len(self.batches) > 1)  # the second was

    cell, emitter = made(NAME, monkeypatch, tmp_path)
    adapter = Skipping()
    measured(cell, adapter)
    (told,) = [event for event in emitter.events if event.get("name") == "skipped steps"]
    assert (told["value"], told["split"]) == (1, "train")
    samples = [event for event in emitter.events if event["event"] == "sample"]
    assert all(sample["items"] == 8 * sample["steps"] for sample in samples)
    # Steps that are held, where the last windows were none of them.
    assert 0 <= cell.steps - sum(sample["steps"] for sample in samples) <= STEPS
    assert cell.steps == len(adapter.batches) - 1


def test_a_whole_run_validates_after_each_epoch_and_tests_once_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, emitter = made(NAME, monkeypatch, tmp_path, seconds=None, train_items=16, test_items=6, epochs=3)
    measured(cell, Brightness())
    told = [(event["split"], event["step"]) for event in emitter.events if event.get("name") == "mean AUC"]
    steps = cell.steps
    assert told[0] == ("test", 0)
    assert [split for split, _ in told[1:]] == ["validation"] * 3 + ["test"]
    assert told[-1] == ("test", steps)


def test_a_run_of_imagenet_follows_the_schedule_and_is_evaluated_after_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps an epoch at a batch of 8; warm-up takes some of the first ones."""
    cell, emitter = made("resnet50-imagenet", monkeypatch, tmp_path, seconds=None, train_items=17, epochs=32)
    adapter = Brightness()
    measured(cell, adapter)
    at = dict(adapter.rates)  # the last that was set before each step
    first = 0.1 * 8 / 256
    assert [at[2 * epoch] for epoch in (29, 30, 31)] == pytest.approx([first, first / 10, first / 10])
    told = [event for event in emitter.events if event.get("name") == "accuracy"]
    assert [(event["split"], event["step"]) for event in told[-20:]] == [("test", 2 * epoch) for epoch in range(13, 33)]
    assert told[-1]["step"] == cell.steps == 64


def test_a_run_by_time_stays_at_the_first_rate_which_is_that_of_the_batch_of_all_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, emitter = made("resnet50-imagenet", monkeypatch, tmp_path)
    adapter = Brightness()
    measured(cell, adapter)
    assert [rate for _, rate in adapter.rates] == [pytest.approx(0.1 * 8 / 256)]
    assert cell.settings()["learning_rate"].startswith("0.003125 at first")
    cell.batch = 64
    assert cell.settings()["learning_rate"].startswith("0.025 at first")
    (told,) = [event for event in emitter.events if event["event"] == "data"]
    assert (told["name"], told["source"], told["train_items"], told["test_items"]) == ("imagenet", "generated", 9, 5)


def test_random_tensors_from_memory_have_no_metric_to_learn_and_nothing_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, emitter = made("densenet121-synthetic", monkeypatch, tmp_path, train_items=16)
    measured(cell, Brightness())
    names = {(event["name"], event["split"]) for event in emitter.events if event["event"] == "metric"}
    assert names == {("loss", "train"), ("waiting for data", "train")}
    (told,) = [event for event in emitter.events if event["event"] == "data"]
    assert (told["source"], told["train_items"], told["test_items"]) == ("generated", 16, 0)
    assert "pool" in told["name"]


def test_training_begins_from_a_given_file_with_a_classifier_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, _ = made(NAME, monkeypatch, tmp_path)
    assert cell.settings()["parameters"] == "canonical"
    given = dict(canonical.draw_parameters(DENSENET, np.random.RandomState(3), True))
    given["classifier.weight"] = np.zeros((1000, 1024), np.float32)  # as ImageNet's has it
    np.savez(tmp_path / f"{NAME}.npz", **given)
    cell.options.data = str(tmp_path)
    assert cell.settings()["parameters"] == "pretrained, of a given file"
    adapter = Brightness()
    cell.fill(adapter, None, np.random.RandomState(1))
    assert set(adapter.loaded) == {spec.name for spec in DENSENET.PARAMETERS}
    assert adapter.loaded["classifier.weight"].shape == (14, 1024)
    assert adapter.loaded["classifier.weight"].any()
    np.testing.assert_array_equal(adapter.loaded["features.conv0.weight"], given["features.conv0.weight"])
    assert weights.find(str(tmp_path), "cnn-cifar10") is None


def test_devices_that_cannot_share_a_preset_s_own_batch_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, _ = made("resnet50-imagenet", monkeypatch, tmp_path)
    cell.options.devices = 16  # they share the workload's batch of 32, and not the 8 of preset quick
    with pytest.raises(Unsupported, match="16 devices cannot share a batch of 8 evenly"):
        cell.load_data()


def test_fewer_images_than_a_batch_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, _ = made(NAME, monkeypatch, tmp_path, train_items=4)
    with pytest.raises(DataError, match="batches of 8 here, and there are 4 items"):
        cell.load_data()


class Counting:
    """A framework that counts the most memory of the device, and what was measured when it forgot the count."""

    def __init__(self, cell: TrainingCell, can_forget: bool) -> None:
        self.cell, self.can_forget, self.peak, self.stages = cell, can_forget, 1000, []

    def synchronize(self) -> None:
        pass

    def device_peak_bytes(self) -> int:
        return self.peak

    def forget_device_peak(self) -> bool:
        told = self.cell.emitter.events
        self.stages = [event["stage"] for event in told if event["event"] == "sample"]
        self.peak = 300 if self.can_forget else self.peak
        return self.can_forget


@pytest.mark.parametrize(("can_forget", "peak"), [(True, 300), (False, 1000)])
def test_the_peak_of_memory_is_that_of_the_measured_windows_or_the_cell_says_that_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_forget: bool, peak: int
) -> None:
    cell, emitter = made(NAME, monkeypatch, tmp_path)
    framework = Counting(cell, can_forget)
    feed = cell.load_data()
    adapter = Brightness()
    cell.fill(adapter, feed, np.random.RandomState(1))
    cell.measure(framework, adapter, feed, np.random.RandomState(1))
    assert cell.device_peak_bytes == peak
    assert set(framework.stages) == {"first", "warm-up"}
    why = [event["reason"] for event in emitter.events if event["event"] == "left-out"]
    assert [reason[:37] for reason in why] == ([] if can_forget else ["torch cannot count it anew after the "])


@pytest.mark.keyed(False)  # it measures time
def test_the_warm_up_of_a_gpu_lasts_and_a_whole_run_spends_a_tenth_of_its_steps_on_it_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(timing.WARMUP_SECONDS, "cuda", 0.25)

    def warm_up(device: str, **preset: Any) -> list[dict[str, Any]]:
        cell, emitter = made(NAME, monkeypatch, tmp_path, **preset)
        cell.options.device = device
        measured(cell, Brightness())
        return [event for event in emitter.events if event["event"] == "sample" and event["stage"] == "warm-up"]

    by_time = {device: warm_up(device, seconds=2.5, windows=6, noise=9.0) for device in ("cpu", "cuda")}
    assert {window["steps"] for window in by_time["cpu"]} == {1}
    assert sum(window["seconds"] for window in by_time["cuda"]) >= 0.25
    assert max(window["steps"] for window in by_time["cuda"]) > 1
    whole = warm_up("cuda", seconds=None, epochs=150)
    # One step an epoch: the first six steps show whether they get faster, and fifteen are a tenth.
    assert 6 <= sum(window["steps"] for window in whole) <= 15
