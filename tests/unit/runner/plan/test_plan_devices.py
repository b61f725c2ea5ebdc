"""The plan of cells of several GPUs or processes: who shares what, and what cannot be shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog, read_pins
from runner.catalog.workloads import load_workloads
from runner.machine.devices import Machine, Refused
from runner.plan.plan import Plan
from tests.fixtures.plans import CPU, H200, WORKLOADS, gpu_image, image, make_cell, planned, reasons, with_gpu


def test_two_gpus_of_one_model_share_their_cells_and_another_model_has_its_own(folder: Path) -> None:
    gpus = (H200, replace(H200, index=1, uuid="GPU-2"), replace(H200, index=2, uuid="GPU-3", model="NVIDIA L4"))
    found = planned([gpu_image(folder)], Machine(CPU, gpus, None), precisions=("fp32",))
    assert len(found.cells) == 2 * len(WORKLOADS)
    assert {cell.device_model for cell in found.cells} == {"NVIDIA H200", "NVIDIA L4"}


def test_every_cell_on_every_gpu_is_a_cell_of_that_gpu(folder: Path) -> None:
    gpus = (H200, replace(H200, index=1, uuid="GPU-2", board="GPU-2"))
    refused = (Refused("2", "NVIDIA H200", "GPU 2 (NVIDIA H200) is in use by python"),)
    machine = Machine(CPU, gpus, None, refused)
    found = planned([gpu_image(folder)], machine, precisions=("fp32",), each_gpu=True)
    assert {(cell.workload, cell.device_uuid) for cell in found.cells} == {
        (name, uuid) for name in WORKLOADS for uuid in ("GPU-1", "GPU-2")
    }
    assert len({cell.id for cell in found.cells}) == len(found.cells)
    assert reasons(found) == {refused[0].reason}


def test_a_cell_of_several_gpus_needs_so_many_of_one_model(folder: Path) -> None:
    gpus = (
        H200,
        replace(H200, index=1, uuid="GPU-2", board="GPU-2"),
        replace(H200, uuid="GPU-3", board="GPU-3", model="NVIDIA L4"),
    )
    found = planned([gpu_image(folder)], Machine(CPU, gpus, None), precisions=("fp32",), devices=(1, 2))
    assert {(cell.device_model, cell.devices) for cell in found.cells} == {
        ("NVIDIA H200", 1),
        ("NVIDIA H200", 2),
        ("NVIDIA L4", 1),
    }
    assert reasons(found) == {"it takes 2 GPUs, and of NVIDIA L4 there is 1 to use"}


@pytest.mark.parametrize(
    "name", [image.name for image in load_catalog().values() if "chainer" in image.frameworks and not image.untested]
)
def test_every_image_of_a_framework_over_mpi_has_one_and_trains_on_two_devices(name: str) -> None:
    image = load_catalog()[name]
    assert load_frameworks()["chainer"].parallel == "mpi"
    assert {"mpi4py", "mpich"} <= {pin.name for pin in read_pins(image.lock_path)}
    one = replace(H200, model="NVIDIA A40", compute_capability="8.6")
    machine = Machine(CPU, (one, replace(one, index=1, uuid="GPU-2", board="GPU-2")), None)
    workloads = {name: each for name, each in load_workloads().items() if each.task == "train"}
    found = planned([image], machine, specified=workloads, declared=load_frameworks(), devices=(2,), preset="standard")
    assert {cell.workload for cell in found.cells} >= {"cnn-cifar10", "gru-imdb", "cnn-mnist", "resnet50-imagenet"}
    assert {(cell.devices, cell.device_kind) for cell in found.cells} == {(2, image.accelerator)}


def test_a_cpu_cell_of_several_devices_is_processes_that_share_the_cpu(folder: Path) -> None:
    found = planned([image(folder)], devices=(1, 2, 4), precisions=("fp32",))
    assert {(cell.devices, cell.scaling, cell.takes) for cell in found.cells} == {(1, "", 1), (2, "weak", 1)}
    assert reasons(found) == {"4 devices of a CPU are 4 processes that share its CPUs, of which there are 2 to use"}
    strong = planned([image(folder)], devices=(1, 2), scaling="strong", precisions=("fp32",))
    assert {cell.id for cell in found.cells} & {cell.id for cell in strong.cells} == {
        cell.id for cell in found.cells if cell.devices == 1
    }
    assert next(cell.label for cell in strong.cells if cell.devices == 2).endswith("cnn-cifar10 fp32 x2 strong")


def test_what_cannot_be_shared_among_devices_is_left_out(folder: Path) -> None:
    machine = Machine(replace(CPU, cpus=tuple(range(8))), (), "there is no NVIDIA driver on this machine")
    other = planned([image(folder, "jax-1-cpu", frameworks=("jax",))], machine, devices=(2,), precisions=("fp32",))
    assert not other.cells
    assert reasons(other) == {"jax uses one device here; those that use several: torch"}
    odd = planned([image(folder)], machine, devices=(3,), workloads=("cnn-cifar10",), precisions=("fp32",))
    assert reasons(odd) == {"3 devices cannot share cnn-cifar10's batch of 64 evenly, and parity is proved on it"}
    features = {"resnet50-features": load_workloads()["resnet50-features"]}
    alone = planned([image(folder)], machine, specified=features, devices=(2,))
    assert "only training" in next(iter(reasons(alone)))


def test_an_all_reduce_of_several_devices_shares_no_batch_and_scales_nothing(folder: Path) -> None:
    machine = Machine(replace(CPU, cpus=tuple(range(8))), (), "there is no NVIDIA driver on this machine")
    single = {"ops": load_workloads()["ops"]}
    found = planned([image(folder)], machine, specified=single, devices=(1, 3))
    assert {(cell.devices, cell.scaling) for cell in found.cells} == {(1, ""), (3, "")}


def test_a_batch_of_several_devices_is_no_larger_than_what_there_is_to_train_on(folder: Path) -> None:
    machine = Machine(replace(CPU, cpus=tuple(range(8))), (), "there is no NVIDIA driver on this machine")
    perceptron = {"mlp-mnist": load_workloads()["mlp-mnist"]}

    def found(scaling: str) -> Plan:
        return planned([image(folder)], machine, specified=perceptron, devices=(2,), scaling=scaling)

    assert [cell.scaling for cell in found("strong").cells] == ["strong"]
    assert not found("weak").cells
    assert "takes a batch of 120000, and preset quick trains on 60000" in next(iter(reasons(found("weak"))))


def test_devices_that_cannot_share_a_preset_s_own_batch_are_left_out(folder: Path) -> None:
    """16 share the workload's 32, on which parity is proved, and not the 8 of preset quick."""
    machine = Machine(replace(CPU, cpus=tuple(range(32))), (), "there is no NVIDIA driver on this machine")
    workloads = {"resnet50-imagenet": load_workloads()["resnet50-imagenet"]}

    def found(preset: str) -> Plan:
        return planned([image(folder)], machine, specified=workloads, preset=preset, devices=(16,), scaling="strong")

    assert [cell.batch for cell in found("standard").cells] == [32]
    assert "16 devices cannot share the batch of 8 evenly" in next(iter(reasons(found("quick"))))


def test_a_cell_of_one_device_has_the_id_that_it_had_before_there_was_scaling() -> None:
    cell = make_cell()
    assert cell.id == "185a41cffb023abb"
    assert replace(cell, devices=2, scaling="weak").id != replace(cell, devices=2, scaling="strong").id
    one_gpu = {"device_kind": "cuda", "device_model": "NVIDIA H200", "device_uuid": "GPU-1"}
    assert make_cell(image="i", **one_gpu, seeds="each").id != cell.id
    assert make_cell(image="i", **one_gpu, devices=2, scaling="weak").id == "5ad85176429b5827"


def test_mig_instances_do_not_work_together(folder: Path) -> None:
    parts = tuple(replace(H200, uuid=f"MIG-{at}", board="GPU-1", instance=at) for at in range(2))
    found = planned([gpu_image(folder)], Machine(CPU, parts, None), precisions=("fp32",), devices=(2,))
    assert not found.cells
    assert reasons(found) == {"NVIDIA H200: MIG instances cannot work together, and it takes 2 GPUs"}


def test_a_model_of_which_every_gpu_is_refused_says_why(folder: Path) -> None:
    refused = (Refused("0", "NVIDIA H200", "GPU 0 (NVIDIA H200) is in use by python"),)
    found = planned([gpu_image(folder)], Machine(CPU, (), refused[0].reason, refused), precisions=("fp32",))
    assert reasons(found) == {refused[0].reason}
    assert {skip.device_model for skip in found.skips} == {"NVIDIA H200"}


def test_what_is_for_gpus_only_says_so_on_a_cpu_and_runs_on_a_gpu(folder: Path) -> None:
    specified = {"gpt2-124m": load_workloads()["gpt2-124m"]}
    asked: dict[str, Any] = {"specified": specified, "declared": load_frameworks(), "precisions": ("fp32",)}
    on_a_cpu = planned([image(folder)], **asked)
    assert not on_a_cpu.cells
    assert {reason[:43] for reason in reasons(on_a_cpu)} == {"gpt2-124m is measured on GPUs only: a step "}
    assert {cell.workload for cell in planned([gpu_image(folder)], with_gpu(), **asked).cells} == {"gpt2-124m"}


def test_a_workload_whose_canonical_batch_is_one_window_takes_one_device(folder: Path) -> None:
    specified = {"gpt-bytes": load_workloads()["gpt-bytes"]}
    found = planned(
        [image(folder)], specified=specified, declared=load_frameworks(), devices=(2,), precisions=("fp32",)
    )
    assert not found.cells
    assert reasons(found) == {"2 devices cannot share gpt-bytes's batch of 1 evenly, and parity is proved on it"}
