"""In which order cells are measured where time is short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from runner.catalog.workloads import load_workloads
from runner.machine.devices import Machine
from runner.plan.plan import Cell, plan, tiers
from runner.plan.request import Request
from tests.fixtures.plans import NO_GPU, image, make_cell, with_gpu


def planned(machine: Machine, **options: Any) -> list[list[Cell]]:
    """The groups of the real catalog's cells on a machine."""
    images, declared = load_catalog(), load_frameworks()
    found = plan(Request(**options), list(images.values()), load_workloads(), declared, machine, lambda _: None)
    groups = tiers(found.cells, images)
    assert sorted(cell.id for group in groups for cell in group) == sorted(cell.id for cell in found.cells)
    return groups


def test_a_cpu_machine_begins_with_the_frameworks_that_most_people_use_and_the_rosetta_workloads() -> None:
    first, second, third, *_ = planned(NO_GPU)
    assert list(dict.fromkeys(cell.framework for cell in first)) == list(FIRST_FRAMEWORKS)
    assert {(cell.framework, cell.workload) for cell in first} == {
        (framework, workload) for framework in FIRST_FRAMEWORKS for workload in ROSETTA
    }
    assert {cell.workload for cell in second} == set(ROSETTA)
    assert {"keras_torch", "mxnet_gluon", "chainer"} <= {cell.framework for cell in second}
    assert not {cell.workload for cell in third} <= set(ROSETTA)


def test_a_gpu_machine_begins_with_the_newest_image_that_the_driver_runs_of_each_framework() -> None:
    first = planned(with_gpu(driver="550.54.15"))[0]
    assert {cell.framework: cell.image for cell in first} == {
        "torch": "torch-2.9.1-cu128",
        # TensorFlow 2.21 takes a newer driver on an H200.
        "tensorflow": "tensorflow-2.18.1-cu125",
        "jax": "jax-0.12.0.1-cu128",
    }
    newer = planned(with_gpu(driver="595.10"))[0]
    assert {cell.image for cell in newer} >= {"torch-2.15.0-cu132", "jax-0.12.0.1-cu132"}


def test_the_cells_of_a_gpu_come_before_those_of_the_cpu() -> None:
    kinds = [cell.device_kind for group in planned(with_gpu()) for cell in group]
    assert "cuda" in kinds
    assert "cpu" in kinds
    assert kinds == sorted(kinds, reverse=True)


def test_a_further_precision_comes_with_the_first_and_a_mode_after_the_usual_one() -> None:
    first, second, *_ = planned(with_gpu(), precisions=("fp32", "tf32"), modes=("all",))
    assert {(cell.precision, cell.mode) for cell in first} == {("fp32", "default"), ("tf32", "default")}
    assert {(cell.precision, cell.mode) for cell in second} == {("fp32", "default")}


def test_versions_are_compared_as_numbers_and_one_that_is_none_is_the_oldest(tmp_path: Path) -> None:
    versions = {"a": "2.9.0", "b": "2.10.0", "c": "mine"}
    cells = [make_cell(image=name) for name in versions]
    images = {name: image(tmp_path, framework_version="2.0") for name in versions}
    images = {name: images[name].model_copy(update={"framework_version": versions[name]}) for name in versions}
    assert [[cell.image for cell in group] for group in tiers(cells, images)] == [["b"], ["a", "c"]]


def test_images_that_were_named_and_a_network_of_ones_own_are_compared_first(tmp_path: Path) -> None:
    """A person names two images and a network: all repeats of the newer image alone would answer nothing."""
    named = {"torch-2.13.0-cpu": "2.13.0", "docker:mine:1": "1.13.0"}
    versions = named | {"torch-2.12.1-cpu": "2.12.1"}
    cells = [make_cell(image=name, workload=work) for name in versions for work in ("net@0123456789ab", "gpt-bytes")]
    images = {name: image(tmp_path, framework_version="2.0") for name in versions}
    images = {name: images[name].model_copy(update={"framework_version": versions[name]}) for name in versions}
    first, *_ = tiers(cells, images, named=(*named, "torch-2.12*"))
    assert {(cell.image, cell.workload) for cell in first} == {(name, "net@0123456789ab") for name in named}


def test_no_cells_are_no_groups() -> None:
    assert tiers([], {}) == []
