"""Inference: the reference's new layers against direct sums, weight files good and bad, and the cell's events."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, bounds, canonical, contract, parity, reference, weights
from bench.errors import DataError
from bench.inference import InferenceCell
from tests.fixtures.events import Emitter

RESNET = contract.specification("resnet50-features")


def test_a_strided_convolution_is_the_sum_that_it_stands_for() -> None:
    random = np.random.RandomState(0)
    x, w = random.standard_normal((2, 3, 9, 8)), random.standard_normal((4, 3, 3, 3))
    y, _ = reference.conv2d(x, w, 0.0, 1, arithmetic.Exact(), stride=2)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    assert y.shape == (2, 4, 5, 4)
    for row, column in ((0, 0), (2, 3), (4, 1)):
        seen = padded[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
        np.testing.assert_allclose(y[:, :, row, column], np.einsum("nchw,ochw->no", seen, w), rtol=1e-12)


def test_a_batch_normalisation_uses_the_running_statistics() -> None:
    x = np.arange(8.0).reshape(1, 2, 2, 2)
    scale, shift = np.array([2.0, 1.0]), np.array([1.0, 0.0])
    mean, variance = np.array([1.0, 5.0]), np.array([4.0, 1.0])
    y = reference.batch_norm(x, scale, shift, mean, variance, 0.0, arithmetic.Exact())
    np.testing.assert_allclose(y[0, 0], x[0, 0] - 1.0 + 1.0)
    np.testing.assert_allclose(y[0, 1], x[0, 1] - 5.0)


def test_resnet_50_has_the_parameters_that_it_is_known_for() -> None:
    """25 557 032 trained ones in the whole network, less the classifier's 2 049 000; and two statistics for each normalised channel."""
    counts = dict.fromkeys(("weight", "scale", "bias", "mean", "variance"), 0)
    for spec in RESNET.PARAMETERS:
        counts[spec.kind] += int(np.prod(spec.shape))
    assert counts["weight"] + counts["scale"] + counts["bias"] == 25_557_032 - 2_049_000
    assert counts["scale"] == counts["bias"] == counts["mean"] == counts["variance"] == 26_560


def test_the_bound_of_the_features_lets_float32_through_and_no_mistake() -> None:
    with np.load(parity.reference_path("resnet50-features")) as stored:
        assert 2.0**-24 <= float(stored["bound/fp32/features/features"]) < 1e-4
        assert float(stored["bound/tf32/features/features"]) < 1e-1
        assert stored["value/features/features"].shape == (contract.Specification.BUCKETS,)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_stored_features_are_what_the_code_computes() -> None:
    exact = bounds.quantities(RESNET, arithmetic.Exact())["features", "features"]
    assert exact.shape == (4, RESNET.FEATURES)
    with np.load(parity.reference_path("resnet50-features")) as stored:
        np.testing.assert_allclose(parity.sketch("features", exact), stored["value/features/features"], rtol=1e-8)


# -- weight files ------------------------------------------------------------------------------------------------------

SPECIFICATIONS = [canonical.weight("a", (2, 3), 3, 2), canonical.bias("b", 2)]
VALUES = {"a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.array([0.5, -1.0], dtype="float16")}


def safetensors(values: dict[str, np.ndarray], **changes: Any) -> bytes:
    """The bytes of a safetensors file, as its specification has them."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blob = b""
    for name, value in values.items():
        dtype = {"float32": "F32", "float16": "F16", "int64": "I64", "uint16": "BF16"}[value.dtype.name]
        header[name] = {"dtype": dtype, "shape": value.shape, "data_offsets": [len(blob), len(blob) + value.nbytes]}
        blob += value.tobytes()
    text = json.dumps(header | changes).encode()
    return struct.pack("<Q", len(text)) + text + blob


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_weight_file_is_read_as_float32_and_what_is_beside_is_left_out(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"resnet50-features{suffix}"
    values = VALUES | {"counter": np.array([3])}
    if suffix == ".npz":
        np.savez(path, **values)
    else:
        path.write_bytes(safetensors(values))
    assert weights.find(str(tmp_path), "resnet50-features") == str(path)
    found = weights.read(str(path), SPECIFICATIONS)
    assert list(found) == ["a", "b"]
    assert all(value.dtype == np.float32 for value in found.values())
    np.testing.assert_array_equal(found["a"], VALUES["a"])
    np.testing.assert_array_equal(found["b"], [0.5, -1.0])


def test_no_folder_and_no_file_mean_canonical_parameters(tmp_path: Path) -> None:
    assert weights.find(None, "resnet50-features") is None
    assert weights.find(str(tmp_path), "resnet50-features") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (safetensors({"a": VALUES["a"]}), "b: missing; the file must hold 2 tensors; it holds a"),
        (safetensors({"module.a": VALUES["a"]}), r"a: missing; .*; module\.a is there: take the prefix off all names"),
        (safetensors(VALUES | {"a": np.zeros((3, 2), "float32")}), r"a: it is float32 \(3, 2\)"),
        (safetensors(VALUES | {"b": np.array([np.nan, 0], "float32")}), "b: .*finite"),
        (safetensors(VALUES)[:-3], "no readable safetensors"),
        (safetensors(VALUES, a={"dtype": "F32"}), "no readable safetensors"),
        (struct.pack("<Q", 2**60) + b"{}", "its header is said"),
        (b"", "no readable safetensors"),
        (struct.pack("<Q", 2) + b"[]", "no readable safetensors"),
    ],
)
def test_a_bad_weight_file_is_told_with_its_tensor_and_the_fix(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "resnet50-features.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        weights.read(str(path), SPECIFICATIONS)
    assert str(path) in str(caught.value)


def test_bfloat16_is_read_as_the_numbers_that_it_holds(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(safetensors(VALUES | {"b": np.array([0x3F00, 0xBF80], "uint16")}))
    np.testing.assert_array_equal(weights.read(str(tmp_path / "w.safetensors"), SPECIFICATIONS)["b"], [0.5, -1.0])


def test_weights_in_another_program_s_format_are_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "resnet50-features.pth").write_bytes(b"")
    with pytest.raises(DataError, match=r"features\.pth is not read: make resnet50-features\.safetensors of it"):
        weights.find(str(tmp_path), "resnet50-features")
    (tmp_path / "resnet50-features.npz").write_bytes(b"")
    assert weights.find(str(tmp_path), "resnet50-features") == str(tmp_path / "resnet50-features.npz")


def test_pickled_code_in_an_npz_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "resnet50-features.npz"
    np.savez(path, a=np.array([{"x": 1}], dtype=object), b=VALUES["b"])
    with pytest.raises(DataError, match="no readable npz"):
        weights.read(str(path), SPECIFICATIONS)


def test_two_weight_files_are_one_too_many(tmp_path: Path) -> None:
    for suffix in weights.SUFFIXES:
        (tmp_path / f"resnet50-features{suffix}").write_bytes(b"")
    with pytest.raises(DataError, match="remove one"):
        weights.find(str(tmp_path), "resnet50-features")


# -- the cell ----------------------------------------------------------------------------------------------------------


class Mean(contract.Inference):
    """An adapter that is not ResNet, but fast: the mean of each image, over and over."""

    def __init__(self, setup: Any = None) -> None:
        self.loaded: dict[str, np.ndarray] = {}

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        self.loaded = parameters

    def inputs(self, x: np.ndarray) -> np.ndarray:
        return x

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.repeat(x.mean(axis=(1, 2, 3))[:, None], RESNET.FEATURES, axis=1)


@pytest.mark.parametrize(("epochs", "stop"), [(None, "time"), (1, "count")])
def test_a_cell_measures_windows_of_images_and_a_whole_run_is_one_pass_after_another(
    epochs: int | None, stop: str
) -> None:
    emitter = Emitter()
    options = SimpleNamespace(workload="resnet50-features", preset="quick", data=None, seed=1, device="cpu")
    cell = InferenceCell(options, emitter)
    cell.preset = {
        "seconds": None if epochs else 0.5,
        "windows": 1000,
        "noise": 1e-9,
        "test_items": 64,
        "epochs": epochs,
    }
    data = cell.load_data()
    adapter = Mean()
    cell.fill(adapter, data, np.random.RandomState(1))
    assert set(adapter.loaded) == {spec.name for spec in RESNET.PARAMETERS}
    cell.measure(contract.Framework(SimpleNamespace(synchronize=lambda: None)), adapter, data, None)
    samples = [event for event in emitter.events if event["event"] == "sample"]
    assert {sample["stage"] for sample in samples} == {"first", "warm-up", "steady"}
    assert all(sample["items"] == 32 * sample["steps"] for sample in samples)
    assert cell.stop == stop
    steady = sum(sample["steps"] for sample in samples if sample["stage"] == "steady")
    (plan,) = [event for event in emitter.events if event["event"] == "plan"]
    assert plan["short"] is (epochs is None)
    if epochs:
        assert steady == 2  # 64 images in batches of 32
    (told,) = [event for event in emitter.events if event["event"] == "data"]
    assert (told["source"], told["test_items"]) == ("generated", 64)


class Remembered(Mean):
    """From its second batch on it returns the features of the first, as a batch that came before is answered from memory."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        self.before = getattr(self, "before", None) if len(x) == RESNET.BATCH else None
        self.before = super().predict(x) if self.before is None else self.before
        return self.before


class HalfOfALargeBatch(Mean):
    """Of more pictures than parity holds at once, the second half has the features of the first."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        half = super().predict(x)[: len(x) // 2]
        return np.concatenate([half, half]) if len(x) > 4 else super().predict(x)


@pytest.mark.parametrize(("adapter", "passes"), [(Mean, True), (Remembered, False), (HalfOfALargeBatch, False)])
def test_pictures_that_were_measured_are_held_in_the_shape_of_the_parity_check(
    adapter: type[Mean], passes: bool
) -> None:
    options = SimpleNamespace(
        workload="resnet50-features", preset="quick", data=None, seed=1, device="cpu", precision="fp32"
    )
    cell = InferenceCell(options, Emitter())
    cell.preset = {"seconds": 0.2, "windows": 5, "noise": 1e-9, "test_items": 64, "epochs": None}
    measured = adapter()
    data = cell.load_data()
    cell.measure(contract.Framework(SimpleNamespace(synchronize=lambda: None)), measured, data, None)
    result = cell.hold_measured(measured)
    assert (result.tensor, result.passed) == ("features, measured pictures", passes)


def test_the_same_seed_makes_the_same_images_and_a_given_file_is_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "resnet50-features.npz", **canonical.draw_parameters(RESNET, np.random.RandomState(3), True))
    told = []
    for folder in (None, None, str(tmp_path)):
        emitter = Emitter()
        cell = InferenceCell(
            SimpleNamespace(workload="resnet50-features", preset="quick", data=folder, seed=1), emitter
        )
        cell.preset = dict(cell.preset, test_items=32)
        data = cell.load_data()
        told.append(emitter.events[0])
        assert (data.parameters is None) == (folder is None)
    assert told[0]["sha256"] == told[1]["sha256"] != told[2]["sha256"]
    assert "given file" in told[2]["name"]


def test_the_case_of_an_inference_workload_has_inputs_and_no_labels() -> None:
    _, batches = canonical.parity_case(RESNET)
    _, again = canonical.parity_case(RESNET)
    assert [y for _, y in batches] == [None] * len(batches)
    assert all((x == same).all() and x is not same for (x, _), (same, _) in zip(batches, again, strict=True))
