"""What the planner reads of the workloads, and which framework computes which."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import rules
from runner.catalog.workloads import BENCH, WorkloadError, adapters, load_workloads


def test_the_workloads_of_the_bench_are_read() -> None:
    found = load_workloads()
    assert {"cnn-cifar10", "gru-imdb"} <= set(found)
    assert set(found["cnn-cifar10"].presets) == {"quick", "standard", "full"}
    assert found["cnn-cifar10"].module == "cnn_cifar10"


def test_a_workload_may_compute_what_another_does_and_a_preset_may_have_a_batch_of_its_own() -> None:
    found = load_workloads()
    files, memory = found["densenet121-chestxray"], found["densenet121-synthetic"]
    assert files.module == memory.module == "densenet121_chestxray"
    assert [files.batch_of(preset) for preset in ("quick", "standard", "full")] == [8, 64, 64]
    assert memory.metric is None


def test_a_field_that_is_wrong_is_told_with_its_file(tmp_path: Path) -> None:
    fields = json.loads((BENCH / "workloads" / "gru-imdb.json").read_text())
    fields["presets"]["quick"]["seconds"] = -1
    path = tmp_path / "gru-imdb.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(WorkloadError, match=rf"{path}: presets.quick.seconds: "):
        load_workloads(tmp_path)


def test_a_data_set_that_has_no_module_is_told_with_those_that_have_one(tmp_path: Path) -> None:
    fields = json.loads((BENCH / "workloads" / "gru-imdb.json").read_text())
    path = tmp_path / "gru-imdb.json"
    path.write_text(json.dumps({**fields, "data": "imbd"}))
    sets = "bytes, chestxray, cifar10, imagenet, imdb, mnist, random-images, random-tokens"
    with pytest.raises(WorkloadError, match=rf"{path}: data: there is no data set 'imbd'; name one of {sets}$"):
        load_workloads(tmp_path)


def test_a_file_that_is_called_otherwise_than_its_workload_is_refused(tmp_path: Path) -> None:
    shutil.copy(BENCH / "workloads" / "gru-imdb.json", tmp_path / "other.json")
    with pytest.raises(WorkloadError, match="'gru-imdb' is not the file's name"):
        load_workloads(tmp_path)


def test_an_adapter_may_be_in_any_language(tmp_path: Path) -> None:
    files = ["torch/cnn_cifar10.py", "torch/__init__.py", "torch/_mixed.py", "torch/framework.py", "torch/profile.py"]
    for name in [*files, "knet/cnn_cifar10.jl", "knet/.hidden.jl", "knet/bench.jl"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        (path.parent / "framework.json").write_text(json.dumps({"title": "x", "modes": {"default": "x"}}))
    assert adapters(tmp_path) == {("torch", "cnn_cifar10"), ("knet", "cnn_cifar10")}


def test_a_framework_may_compute_with_the_adapters_of_another_folder(tmp_path: Path) -> None:
    for name in ("keras", "jax", "keras_jax"):
        (tmp_path / name).mkdir()
    for name in ("keras/cnn_cifar10.py", "keras/gru_imdb.py", "keras_jax/gru_imdb.py", "jax/profile.py", "jax/ops.py"):
        (tmp_path / name).touch()
    declared = {"title": "Keras on JAX", "modes": {"default": "jit"}, "adapters": "keras", "backend": "jax"}
    (tmp_path / "keras_jax" / "framework.json").write_text(json.dumps(declared))
    assert adapters(tmp_path) == {("keras_jax", "cnn_cifar10"), ("keras_jax", "gru_imdb")}
    folder = str(tmp_path)
    assert rules.adapter_module("keras_jax", "cnn_cifar10", folder) == "bench.frameworks.keras.cnn_cifar10"
    assert rules.adapter_module("keras_jax", "gru_imdb", folder) == "bench.frameworks.keras_jax.gru_imdb"
    assert rules.adapter_module("keras_jax", "profile", folder) == "bench.frameworks.jax.profile"
    assert rules.adapter_module("keras_jax", "ops", folder) is None


def test_every_adapter_computes_a_workload() -> None:
    assert {module for _, module in adapters()} == {workload.module for workload in load_workloads().values()}
