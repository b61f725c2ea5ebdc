"""The plan: what runs, what is left out, and the sentence that says why."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.catalog import Image, load_catalog
from runner.dispatch import blocks, places, simulate
from runner.frameworks import load_frameworks
from runner.hardware import Cpu, Gpu, Machine, Process, Refused
from runner.plan import Cell, Plan, PlanError, Request, plan
from runner.workloads import adapters, load_workloads

CPU = Cpu("Test CPU", (0, 1), 8 << 30)
NO_GPU = Machine(CPU, (), "there is no NVIDIA driver on this machine")
H200 = Gpu(0, "GPU-1", "NVIDIA H200", "9.0", 141 << 30, "570.86.15", (0, 1))
WORKLOADS = {name: load_workloads()[name] for name in ("cnn-cifar10", "gru-imdb")}
ADAPTERS = {(framework, each.module) for framework in ("torch", "jax") for each in WORKLOADS.values()}
MODES = {"torch": ("default", "compile"), "jax": ("default", "no-jit"), "tensorflow": ("default",)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "requirements.lock").write_text("a lock\n")
    return tmp_path


def image(folder: Path, name: str = "torch-1-cpu", **fields: Any) -> Image:
    usual: dict[str, Any] = {
        "frameworks": ("torch",),
        "framework_version": "1.0",
        "python": "3.11",
        "accelerator": "cpu",
        "base": "python:3.11",
        "precisions": ("fp32",),
        "locked": date(2026, 1, 1),
        "download_gb": 1.0,
    }
    return Image(name=name, folder=folder, **(usual | fields))


def gpu_image(folder: Path, name: str = "torch-1-cu128", **fields: Any) -> Image:
    usual: dict[str, Any] = {
        "accelerator": "cuda",
        "cuda": "12.8.1",
        "cudnn": "9.10",
        "min_driver": "525.60.13",
        "min_compute_capability": "7.0",
        "max_compute_capability": "12.0",
        "precisions": ("fp32", "tf32"),
        "cpu_twin": "torch-1-cpu",
    }
    return image(folder, name, **(usual | fields))


def planned(images: list[Image], machine: Machine = NO_GPU, unfit: str | None = None, **asked: Any) -> Plan:
    return plan(Request(**asked), images, WORKLOADS, ADAPTERS, MODES, machine, lambda _: unfit, {"torch"})


def reasons(found: Plan) -> set[str]:
    return {skip.reason for skip in found.skips}


def with_gpu(**changes: Any) -> Machine:
    return Machine(CPU, (replace(H200, **changes),), None)


def test_without_a_gpu_the_cpu_twin_runs_and_the_gpu_image_says_why_it_does_not(folder: Path) -> None:
    found = planned([image(folder), gpu_image(folder)], precisions=("fp32",))
    assert {(cell.image, cell.workload) for cell in found.cells} == {("torch-1-cpu", name) for name in WORKLOADS}
    assert reasons(found) == {
        "the image needs a GPU and there is no NVIDIA driver on this machine; its CPU twin torch-1-cpu stands in"
    }


def test_with_a_gpu_the_gpu_image_runs_and_its_twin_only_when_it_is_named(folder: Path) -> None:
    images = [image(folder), gpu_image(folder)]
    found = planned(images, with_gpu(), precisions=("fp32",))
    assert {cell.image for cell in found.cells} == {"torch-1-cu128"}
    assert {cell.device_model for cell in found.cells} == {"NVIDIA H200"}
    assert all("--images names it" in skip.reason for skip in found.skips)
    named = planned(images, with_gpu(), precisions=("fp32",), named=("torch-*",))
    assert {cell.image for cell in named.cells} == {"torch-1-cpu", "torch-1-cu128"}


def test_a_cpu_image_that_is_nobodys_twin_runs_beside_a_gpu(folder: Path) -> None:
    found = planned([image(folder, "torch-2-cpu"), gpu_image(folder)], with_gpu(), precisions=("fp32",))
    assert {cell.image for cell in found.cells} == {"torch-2-cpu", "torch-1-cu128"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"driver": "520.61.05"},
            "the NVIDIA driver is 520.61.05, and the image's CUDA 12.8.1 needs 525.60.13 or newer",
        ),
        (
            {"compute_capability": "6.1"},
            "NVIDIA H200 has compute capability 6.1, and the image holds code for 7.0 to 12.0",
        ),
        (
            {"compute_capability": "12.1"},
            "NVIDIA H200 has compute capability 12.1, and the image holds code for 7.0 to 12.0",
        ),
    ],
)
def test_a_gpu_that_the_image_cannot_use_is_told_before_anything_is_pulled(
    folder: Path, changes: dict[str, str], reason: str
) -> None:
    found = planned([gpu_image(folder)], with_gpu(**changes), precisions=("fp32",))
    assert not found.cells
    assert reasons(found) == {reason}


@pytest.mark.parametrize("driver", ["525.60.13", "525.105.17", "1000.1"])
def test_driver_versions_are_compared_as_numbers(folder: Path, driver: str) -> None:
    assert planned([gpu_image(folder)], with_gpu(driver=driver), precisions=("fp32",)).cells


def test_tf32_is_left_out_on_a_cpu_and_on_a_gpu_before_ampere(folder: Path) -> None:
    both = ("fp32", "tf32")
    on_cpu = planned([image(folder)], precisions=both)
    assert {cell.precision for cell in on_cpu.cells} == {"fp32"}
    assert reasons(on_cpu) == {"a CPU has no TF32 unit"}
    on_volta = planned([gpu_image(folder)], with_gpu(model="Tesla V100", compute_capability="7.0"), precisions=both)
    assert {cell.precision for cell in on_volta.cells} == {"fp32"}
    assert reasons(on_volta) == {"Tesla V100 has no tf32: it takes compute capability 8.0"}
    on_hopper = planned([gpu_image(folder)], with_gpu(), precisions=both)
    assert {cell.precision for cell in on_hopper.cells} == {"fp32", "tf32"}


def test_mixed_precision_is_planned_where_framework_image_and_device_have_its_half_type(folder: Path) -> None:
    amp = {"torch": {"amp-bf16": {}, "amp-fp16": {"cpu": "it has no kernels"}}}

    def of(machine: Machine, made: Image, **asked: Any) -> Plan:
        request = Request(precisions=("amp-fp16", "amp-bf16"), workloads=("cnn-cifar10",), **asked)
        return plan(request, [made], WORKLOADS, ADAPTERS, MODES, machine, lambda _: None, {"torch"}, amp)

    halves = ("fp32", "fp16", "bf16")
    on_cpu = of(NO_GPU, image(folder, precisions=halves))
    assert {cell.precision for cell in on_cpu.cells} == {"amp-bf16"}
    assert reasons(on_cpu) == {"torch does not compute amp-fp16 on cpu: it has no kernels"}
    volta = with_gpu(model="Tesla V100", compute_capability="7.0")
    on_volta = of(volta, gpu_image(folder, precisions=halves))
    assert {cell.precision for cell in on_volta.cells} == {"amp-fp16"}
    assert reasons(on_volta) == {"Tesla V100 has no amp-bf16: it takes compute capability 8.0"}
    without = of(with_gpu(), gpu_image(folder, precisions=("fp32", "fp16")))
    assert reasons(without) == {"the image does not offer amp-bf16"}
    other = of(NO_GPU, image(folder, "jax-1-cpu", frameworks=("jax",), precisions=halves))
    assert reasons(other) == {"jax does not compute amp-fp16 here", "jax does not compute amp-bf16 here"}
    several = of(NO_GPU, image(folder, precisions=halves), devices=(2,))
    assert "amp-bf16 is measured on one device: loss scaling was not proved on several" in reasons(several)
    amp["torch"]["amp-bf16"] = {"cnn-cifar10": "it sums in the half type"}
    summed = of(with_gpu(), gpu_image(folder, precisions=halves))
    assert {cell.precision for cell in summed.cells} == {"amp-fp16"}
    assert reasons(summed) == {"torch does not compute amp-bf16 on cnn-cifar10: it sums in the half type"}


def test_a_precision_that_the_image_does_not_offer_is_left_out(folder: Path) -> None:
    found = planned([gpu_image(folder, precisions=("fp32",))], with_gpu(), precisions=("fp32", "tf32"))
    assert reasons(found) == {"the image does not offer tf32"}


def test_a_workload_without_an_adapter_is_left_out(folder: Path) -> None:
    found = planned([image(folder, "tensorflow-1-cpu", frameworks=("tensorflow",))], precisions=("fp32",))
    assert reasons(found) == {f"its framework has no adapter for {name} yet" for name in WORKLOADS}


def test_what_the_engine_cannot_run_is_left_out_with_the_engines_reason(folder: Path) -> None:
    found = planned([image(folder)], unfit="no Python 3.6 was found", precisions=("fp32",))
    assert not found.cells
    assert reasons(found) == {"no Python 3.6 was found"}


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
    known = {("torch", "resnet50_features")}
    asked = Request(devices=(2,), precisions=("fp32",))
    alone = plan(asked, [image(folder)], features, known, MODES, machine, lambda _: None, {"torch"})
    assert "only training" in next(iter(reasons(alone)))


def test_an_all_reduce_of_several_devices_shares_no_batch_and_scales_nothing(folder: Path) -> None:
    machine = Machine(replace(CPU, cpus=tuple(range(8))), (), "there is no NVIDIA driver on this machine")
    single = {"ops": load_workloads()["ops"]}
    asked = Request(devices=(1, 3), precisions=("fp32",))
    found = plan(asked, [image(folder)], single, {("torch", "ops")}, MODES, machine, lambda _: None, {"torch"})
    assert {(cell.devices, cell.scaling) for cell in found.cells} == {(1, ""), (3, "")}


def test_fp8_is_left_out_before_ada_and_where_the_image_has_none(folder: Path) -> None:
    single = {"ops": load_workloads()["ops"]}
    asked = Request(precisions=("fp8",))
    images = [gpu_image(folder, precisions=("fp32", "fp8"))]
    on_ampere, on_ada = (
        plan(asked, images, single, {("torch", "ops")}, MODES, with_gpu(**changes), lambda _: None)
        for changes in ({"model": "A100", "compute_capability": "8.0"}, {"compute_capability": "8.9"})
    )
    assert not on_ampere.cells
    assert reasons(on_ampere) == {"A100 has no fp8: it takes compute capability 8.9"}
    assert [cell.precision for cell in on_ada.cells] == ["fp8"]


def test_a_batch_of_several_devices_is_no_larger_than_what_there_is_to_train_on(folder: Path) -> None:
    machine = Machine(replace(CPU, cpus=tuple(range(8))), (), "there is no NVIDIA driver on this machine")
    perceptron, known = {"mlp-mnist": load_workloads()["mlp-mnist"]}, {("torch", "mlp_mnist")}

    def found(scaling: str) -> Plan:
        asked = Request(devices=(2,), precisions=("fp32",), scaling=scaling)
        return plan(asked, [image(folder)], perceptron, known, MODES, machine, lambda _: None, {"torch"})

    assert [cell.scaling for cell in found("strong").cells] == ["strong"]
    assert not found("weak").cells
    assert "takes a batch of 120000, and preset quick trains on 60000" in next(iter(reasons(found("weak"))))


def test_devices_that_cannot_share_a_preset_s_own_batch_are_left_out(folder: Path) -> None:
    """16 share the workload's 32, on which parity is proved, and not the 8 of preset quick."""
    machine = Machine(replace(CPU, cpus=tuple(range(32))), (), "there is no NVIDIA driver on this machine")
    workload, known = {"resnet50-imagenet": load_workloads()["resnet50-imagenet"]}, {("torch", "resnet50_imagenet")}

    def found(preset: str) -> Plan:
        asked = Request(preset=preset, devices=(16,), precisions=("fp32",), scaling="strong")
        return plan(asked, [image(folder)], workload, known, MODES, machine, lambda _: None, {"torch"})

    assert [cell.batch for cell in found("standard").cells] == [32]
    assert "16 devices cannot share the batch of 8 evenly" in next(iter(reasons(found("quick"))))


def test_a_cell_of_one_device_has_the_id_that_it_had_before_there_was_scaling() -> None:
    cell = Cell("torch-1-cpu", "torch", "gru-imdb", "fp32", "quick", "default", "cpu", "CPU", 1, 64, 1, "0" * 64)
    assert cell.id == "185a41cffb023abb"
    assert replace(cell, devices=2, scaling="weak").id != replace(cell, devices=2, scaling="strong").id


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


def test_a_workload_that_the_gpus_memory_cannot_hold_is_left_out(folder: Path) -> None:
    large = {name: each.model_copy(update={"device_memory_gb": 100.0}) for name, each in WORKLOADS.items()}

    def found(**changes: Any) -> set[str]:
        request = Request(precisions=("fp32",))
        return reasons(plan(request, [gpu_image(folder)], large, ADAPTERS, MODES, with_gpu(**changes), lambda _: None))

    user = (Process(7, "python", "someone", None),)
    assert found() == set()
    assert found(memory_bytes=24 << 30) == {
        f"{name} needs 100 GB, and GPU 0 (NVIDIA H200) has 25.8 GB" for name in large
    }
    assert found(free_bytes=1 << 30) == set(), "what is in use now by nobody is the driver's own"
    assert found(free_bytes=1 << 30, processes=user) == {
        f"{name} needs 100 GB, and GPU 0 (NVIDIA H200) has 1.1 GB free" for name in large
    }


def test_a_thousand_cells_are_planned_in_a_second(folder: Path) -> None:
    images = [gpu_image(folder, f"torch-{number}-cu128") for number in range(125)]
    gpus = tuple(replace(H200, index=at, uuid=f"GPU-{at}", board=f"GPU-{at}", model=f"model {at}") for at in range(4))
    begin = time.process_time()
    found = planned(images, Machine(CPU, gpus, None), precisions=("fp32",), workloads=("cnn-cifar10", "gru-imdb"))
    jobs = blocks(found.cells, 1, 1)
    simulate(jobs, places(Machine(CPU, gpus, None), "cuda"), lambda cell: 30.0)
    assert len(jobs) == 1000
    assert time.process_time() - begin <= 1.0


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"workloads": ("cnn-cifar",)}, r"--workloads: there is no 'cnn-cifar' \(did you mean 'cnn-cifar10'\?\)"),
        ({"frameworks": ("pytorch",)}, r"--frameworks: there is no 'pytorch' \(did you mean 'torch'\?\)"),
        ({"precisions": ("fp8",)}, r"--precision: there is no 'fp8'.*; there is amp-bf16, amp-fp16, fp32, tf32"),
    ],
)
def test_a_name_that_does_not_exist_is_told_with_those_that_do(
    folder: Path, asked: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PlanError, match=sentence):
        planned([image(folder)], **asked)


def test_the_cells_id_is_its_content(folder: Path) -> None:
    first, second, *_ = planned([image(folder)], precisions=("fp32",)).cells
    assert first.id != second.id
    assert replace(first).id == first.id
    assert len(first.id) == 16
    assert int(first.id, 16) >= 0
    for field, other in {"seed": 2, "lock_sha256": "0" * 64, "preset": "full", "device_model": "Other"}.items():
        assert replace(first, **{field: other}).id != first.id


def test_a_preset_s_own_batch_is_the_cell_s_and_makes_it_another(folder: Path) -> None:
    known = {"densenet121-chestxray": load_workloads()["densenet121-chestxray"]}
    adapters = {("torch", "densenet121_chestxray")}
    (quick,), (full,) = (
        plan(Request(preset=preset), [image(folder)], known, adapters, MODES, NO_GPU, lambda _: None).cells
        for preset in ("quick", "full")
    )
    assert (quick.batch, full.batch) == (8, 64)
    assert replace(quick, batch=64).id != quick.id


def test_a_new_lock_makes_new_cells(folder: Path) -> None:
    before = planned([image(folder)], precisions=("fp32",)).cells
    (folder / "requirements.lock").write_text("another lock\n")
    after = planned([image(folder)], precisions=("fp32",)).cells
    assert {cell.id for cell in before}.isdisjoint(cell.id for cell in after)


def test_a_cell_survives_the_manifest_and_a_changed_one_is_refused(folder: Path) -> None:
    cell, *_ = planned([image(folder)], precisions=("fp32",), workloads=("gru-imdb",)).cells
    assert Cell.from_dict(cell.as_dict()) == cell
    with pytest.raises(PlanError, match="does not have the content"):
        Cell.from_dict(cell.as_dict() | {"batch": 65})
    with pytest.raises(PlanError, match="other fields"):
        Cell.from_dict(cell.as_dict() | {"colour": "red"})


@settings(deadline=None)  # the whole catalog; how long planning may take has a test of its own
@given(
    frameworks=st.none() | st.sets(st.sampled_from(["torch", "tensorflow", "jax"]), min_size=1).map(tuple),
    workloads=st.none() | st.sets(st.sampled_from(sorted(WORKLOADS)), min_size=1).map(tuple),
    precisions=st.none() | st.sets(st.sampled_from(["fp32", "tf32"]), min_size=1).map(tuple),
    gpus=st.lists(st.sampled_from(["6.0", "7.0", "8.0", "9.0", "12.0"]), max_size=3),
    named=st.booleans(),
    modes=st.sampled_from([("default",), ("all",)]),
)
def test_every_combination_of_the_real_catalog_either_runs_or_says_why_not(
    frameworks: tuple[str, ...] | None,
    workloads: tuple[str, ...] | None,
    precisions: tuple[str, ...] | None,
    gpus: list[str],
    named: bool,
    modes: tuple[str, ...],
) -> None:
    images = list(load_catalog().values())
    declared = {name: tuple(each.modes) for name, each in load_frameworks().items()}
    machine = Machine(
        CPU,
        tuple(
            replace(H200, index=at, uuid=f"GPU-{at}", model=f"GPU of {cc}", compute_capability=cc)
            for at, cc in enumerate(gpus)
        ),
        None if gpus else "there is none",
    )
    request = Request(
        frameworks=frameworks, workloads=workloads, precisions=precisions, modes=modes, named=("*",) * named
    )
    found = plan(request, images, WORKLOADS, adapters(), declared, machine, lambda _: None)

    def key(each: Any) -> tuple[str, ...]:
        return each.image, each.framework, each.workload, each.precision, each.mode, each.device_kind, each.device_model

    told = [key(each) for each in (*found.cells, *found.skips)]
    assert len(set(told)) == len(told)
    models = sorted(set(gpus)) or [""]
    expected = sum(
        len(models) if image.accelerator == "cuda" else 1
        for image in images
        for framework in image.frameworks
        if frameworks is None or framework in frameworks
        for workload in WORKLOADS.values()
        if workloads is None or workload.name in workloads
        for _ in precisions or workload.precisions
        for _ in (declared[framework] if modes == ("all",) else modes)
    )
    assert len(told) == expected
    assert all(skip.reason for skip in found.skips)
    assert len({cell.id for cell in found.cells}) == len(found.cells)
    assert all(cell.device_kind == "cpu" for cell in found.cells) or gpus


def test_modes_are_planned_where_a_framework_declares_them_and_told_where_it_does_not(folder: Path) -> None:
    images = [image(folder), image(folder, "jax-1-cpu", frameworks=("jax",))]
    found = planned(images, precisions=("fp32",), workloads=("gru-imdb",), modes=("default", "compile"))
    assert {(cell.framework, cell.mode) for cell in found.cells} == {
        ("torch", "default"),
        ("torch", "compile"),
        ("jax", "default"),
    }
    assert reasons(found) == {"jax has no mode 'compile'; it has default, no-jit"}
    everything = planned(images, precisions=("fp32",), workloads=("gru-imdb",), modes=("all",))
    assert {(cell.framework, cell.mode) for cell in everything.cells} == {
        (name, mode) for name in ("torch", "jax") for mode in MODES[name]
    }
    with pytest.raises(PlanError, match="did you mean 'compile'"):
        planned(images, modes=("compil",))


def test_an_untested_image_runs_only_where_its_name_is_spelled_out(folder: Path) -> None:
    images = [image(folder, untested="no machine had it")]
    for asked in ((), ("torch-*",)):
        found = planned(images, precisions=("fp32",), named=asked)
        assert not found.cells
        assert reasons(found) == {"untested: no machine had it; --images torch-1-cpu runs it all the same"}
    assert planned(images, precisions=("fp32",), named=("torch-1-cpu",)).cells
