"""The plan: what runs, what is left out, and the sentence that says why."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from runner.catalog.workloads import adapters, load_workloads
from runner.machine.devices import Machine, Process
from runner.plan.plan import PlanError, plan
from runner.plan.request import Request
from runner.run.dispatch import blocks, places, simulate
from tests.fixtures.plans import CPU, H200, MODES, NO_GPU, WORKLOADS, gpu_image, image, planned, reasons, with_gpu
from tests.fixtures.waiting import within


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
    named = planned(images, with_gpu(), precisions=("fp32",), images=("torch-*",))
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
            {"compute_capability": "13.0"},
            "NVIDIA H200 has compute capability 13.0, and the image holds code for 7.0 to 12.0",
        ),
    ],
)
def test_a_gpu_that_the_image_cannot_use_is_told_before_anything_is_pulled(
    folder: Path, changes: dict[str, str], reason: str
) -> None:
    found = planned([gpu_image(folder)], with_gpu(**changes), precisions=("fp32",))
    assert not found.cells
    assert reasons(found) == {reason}


def test_code_for_a_capability_serves_the_later_ones_of_its_major_version_unless_the_image_says_otherwise(
    folder: Path,
) -> None:
    """A GB10 has 12.1, and code for 12.0 runs on it."""
    gb10 = with_gpu(model="NVIDIA GB10", compute_capability="12.1")
    assert planned([gpu_image(folder)], gb10, precisions=("fp32",)).cells
    without = planned([gpu_image(folder, no_code_for=("12.1",))], gb10, precisions=("fp32",))
    assert reasons(without) == {"NVIDIA GB10 has compute capability 12.1, and the image holds no code for it"}


def test_a_hole_in_the_range_of_an_image_is_told(folder: Path) -> None:
    offered = [gpu_image(folder, no_code_for=("10.0",))]
    found = planned(offered, with_gpu(model="NVIDIA B200", compute_capability="10.0"), precisions=("fp32",))
    assert reasons(found) == {"NVIDIA B200 has compute capability 10.0, and the image holds no code for it"}
    assert not found.cells
    assert planned(offered, with_gpu(compute_capability="12.0"), precisions=("fp32",)).cells


def test_what_an_image_holds_only_as_ptx_takes_the_driver_of_the_cuda_that_wrote_it(folder: Path) -> None:
    offered = [gpu_image(folder, ptx_only={"9.0": "12.5"})]
    found = planned(offered, with_gpu(driver="550.163.01"), precisions=("fp32",))
    assert reasons(found) == {
        "NVIDIA H200 has compute capability 9.0, and for it the image holds some kernels only as PTX of CUDA 12.5, which a "
        "driver from 555.42.06 on can compile; the NVIDIA driver is 550.163.01"
    }
    assert planned(offered, with_gpu(driver="555.42.06"), precisions=("fp32",)).cells
    ada = with_gpu(driver="550.163.01", compute_capability="8.9")
    assert planned(offered, ada, precisions=("fp32",)).cells


@pytest.mark.parametrize(
    ("image_name", "capability", "driver", "runs"),
    [
        # The usual long-term driver of an H100 covers CUDA 12's compiled code, and no PTX of 12.5.
        ("tensorflow-2.21.0-cu128", "9.0", "550.163.01", False),
        ("tensorflow-2.21.0-cu128", "9.0", "570.86.15", True),
        ("tensorflow-2.18.1-cu125", "9.0", "535.183.01", False),
        ("tensorflow-2.18.1-cu125", "9.0", "550.163.01", True),
        ("tensorflow-2.18.1-cu125", "8.0", "535.183.01", True),
        ("tensorflow-2.15.1-cu122", "8.0", "525.60.13", True),
        ("tensorflow-2.15.1-cu122", "9.0", "525.60.13", False),
        ("onnxruntime-1.31.1-cu132", "10.3", "600.1", False),
        ("onnxruntime-1.31.1-cu132", "12.0", "600.1", True),
        ("paddle-2.6.2-cu118", "6.0", "580.65.06", False),
        ("paddle-2.6.2-cu118", "6.1", "580.65.06", True),
    ],
)
def test_the_catalogs_images_run_where_their_wheels_hold_code(
    image_name: str, capability: str, driver: str, runs: bool
) -> None:
    machine = with_gpu(compute_capability=capability, driver=driver)
    request = Request(precisions=("fp32",))
    found = plan(request, [load_catalog()[image_name]], load_workloads(), load_frameworks(), machine, lambda _: None)
    assert bool(found.cells) == runs, reasons(found)


@pytest.mark.parametrize("driver", ["525.60.13", "525.105.17", "1000.1"])
def test_driver_versions_are_compared_as_numbers(folder: Path, driver: str) -> None:
    assert planned([gpu_image(folder)], with_gpu(driver=driver), precisions=("fp32",)).cells


def test_a_workload_without_an_adapter_is_left_out(folder: Path) -> None:
    found = planned([image(folder, "tensorflow-1-cpu", frameworks=("tensorflow",))], precisions=("fp32",))
    assert reasons(found) == {f"its framework has no adapter for {name} yet" for name in WORKLOADS}


def test_the_frameworks_compute_what_the_adapters_are_for() -> None:
    workloads = {workload.module for workload in load_workloads().values()}
    frameworks = load_frameworks().values()
    computed = {(framework.name, module) for framework in frameworks for module in framework.modules & workloads}
    assert computed == adapters()


def test_what_the_engine_cannot_run_is_left_out_with_the_engines_reason(folder: Path) -> None:
    found = planned([image(folder)], unfit="no Python 3.6 was found", precisions=("fp32",))
    assert not found.cells
    assert reasons(found) == {"no Python 3.6 was found"}


def test_gpt2_fits_an_l4_at_bf16_and_no_4090_at_fp32(folder: Path) -> None:
    specified, declared = {"gpt2-124m": load_workloads()["gpt2-124m"]}, load_frameworks()
    wide = ("fp32", "amp-bf16")
    offered = [gpu_image(folder, precisions=("fp32", "bf16"))]

    def fit(name: str, bytes_: int) -> tuple[set[str], set[str]]:
        machine = with_gpu(model=name, compute_capability="8.9", memory_bytes=bytes_)
        found = planned(offered, machine, specified=specified, declared=declared, precisions=wide)
        return {cell.precision for cell in found.cells}, reasons(found)

    assert fit("NVIDIA L4", 23034 << 20)[0] == {"amp-bf16"}
    precisions, why = fit("NVIDIA GeForce RTX 4090", 24564 << 20)
    assert precisions == {"amp-bf16"}
    assert "gpt2-124m at fp32 needs 26 GB, and GPU 0 (NVIDIA GeForce RTX 4090) has 25.8 GB" in why
    assert fit("NVIDIA L40S", 48 << 30)[0] == set(wide)


def test_a_workload_that_the_gpus_memory_cannot_hold_is_left_out(folder: Path) -> None:
    large = {name: each.model_copy(update={"device_memory_gb": 100.0}) for name, each in WORKLOADS.items()}

    def found(**changes: Any) -> set[str]:
        return reasons(planned([gpu_image(folder)], with_gpu(**changes), specified=large))

    user = (Process(7, "python", "someone", None),)
    assert found() == set()
    assert found(memory_bytes=24 << 30) == {
        f"{name} needs 100 GB, and GPU 0 (NVIDIA H200) has 25.8 GB" for name in large
    }
    assert found(free_bytes=1 << 30) == set(), "what is in use now by nobody is the driver's own"
    assert found(free_bytes=1 << 30, processes=user) == {
        f"{name} needs 100 GB, and GPU 0 (NVIDIA H200) has 1.1 GB free" for name in large
    }
    # Where the driver does not say who computes on it, somebody may.
    assert found(free_bytes=1 << 30, processes=None) == found(free_bytes=1 << 30, processes=user)
    assert found(memory_bytes=None) == set(), "the memory of a GPU that does not tell it may suffice"


def test_a_thousand_cells_are_planned_in_a_second(folder: Path) -> None:
    images = [gpu_image(folder, f"torch-{number}-cu128") for number in range(125)]
    gpus = tuple(replace(H200, index=at, uuid=f"GPU-{at}", board=f"GPU-{at}", model=f"model {at}") for at in range(4))

    def simulated() -> int:
        found = planned(images, Machine(CPU, gpus, None), precisions=("fp32",), workloads=("cnn-cifar10", "gru-imdb"))
        jobs = blocks(found.cells, 1, 1)
        simulate(jobs, places(Machine(CPU, gpus, None), "cuda"), lambda cell: 30.0)
        return len(jobs)

    assert within(1.0, simulated) == 1000


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"workloads": ("cnn-cifar",)}, r"--workloads: there is no 'cnn-cifar' \(did you mean 'cnn-cifar10'\?\)"),
        ({"frameworks": ("torchh",)}, r"--frameworks: there is no 'torchh' \(did you mean 'torch'\?\)"),
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
    assert first.as_dict() == asdict(first) | {"id": first.id}
    assert len(first.id) == 16
    assert int(first.id, 16) >= 0
    for field, other in {"seed": 2, "lock_sha256": "0" * 64, "preset": "full", "device_model": "Other"}.items():
        assert replace(first, **{field: other}).id != first.id


def test_a_preset_s_own_batch_is_the_cell_s_and_makes_it_another(folder: Path) -> None:
    workloads = {"densenet121-chestxray": load_workloads()["densenet121-chestxray"]}
    (quick,), (full,) = (
        planned([image(folder)], specified=workloads, preset=preset).cells for preset in ("quick", "full")
    )
    assert (quick.batch, full.batch) == (8, 64)
    assert replace(quick, batch=64).id != quick.id


def test_a_new_lock_makes_new_cells(folder: Path) -> None:
    before = planned([image(folder)], precisions=("fp32",)).cells
    (folder / "requirements.lock").write_text("another lock\n")
    after = planned([image(folder)], precisions=("fp32",)).cells
    assert {cell.id for cell in before}.isdisjoint(cell.id for cell in after)


@pytest.mark.slow
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
    declared = load_frameworks()
    machine = Machine(
        CPU,
        tuple(
            replace(H200, index=at, uuid=f"GPU-{at}", model=f"GPU of {cc}", compute_capability=cc)
            for at, cc in enumerate(gpus)
        ),
        None if gpus else "there is none",
    )
    request = Request(
        frameworks=frameworks or (),
        workloads=workloads or (),
        precisions=precisions or (),
        modes=modes,
        images=("*",) * named,
    )
    found = plan(request, images, WORKLOADS, declared, machine, lambda _: None)

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
        for _ in (declared[framework].modes if modes == ("all",) else modes)
    )
    assert len(told) == expected
    assert all(skip.reason for skip in found.skips)
    assert len({cell.id for cell in found.cells}) == len(found.cells)
    # A cell is on the device that its image computes on, and on a GPU only where the machine has that one.
    accelerators = {image.name: image.accelerator for image in images}
    assert all(cell.device_kind == accelerators[cell.image] for cell in found.cells)
    assert {cell.device_model for cell in found.cells if cell.device_kind == "cuda"} <= {f"GPU of {cc}" for cc in gpus}
    assert {cell.device_model for cell in found.cells if cell.device_kind == "cpu"} <= {machine.cpu.model}


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


def test_a_mode_that_may_be_the_fastest_is_planned_beside_the_default_for_the_networks_of_the_rosetta_stone() -> None:
    images, declared = list(load_catalog().values()), load_frameworks()

    def modes(machine: Machine, **options: Any) -> set[tuple[str, str, str]]:
        found = plan(Request(**options), images, load_workloads(), declared, machine, lambda _: None)
        newest = [cell for cell in found.cells if cell.framework in FIRST_FRAMEWORKS and cell.mode != "default"]
        return {(cell.framework, cell.mode, cell.workload) for cell in newest}

    graphs = {("torch", "graph", workload) for workload in ROSETTA}
    assert modes(with_gpu()) == graphs | {("tensorflow", "xla", workload) for workload in ROSETTA}
    assert modes(with_gpu(), modes=("default",)) == set()
    assert modes(NO_GPU) == set(), "on a CPU the default is the faster one in each workload"
    # A step whose loss is scaled is not recorded.
    assert modes(with_gpu(), precisions=("amp-fp16",), frameworks=("torch",)) == set()


def test_a_mode_is_left_out_of_an_image_whose_framework_is_older_than_it(folder: Path) -> None:
    old = image(folder, "torch-1-cpu", framework_version="1.13.1")
    declared = {"torch": load_frameworks()["torch"]}
    asked: dict[str, Any] = {"precisions": ("fp32",), "workloads": ("gru-imdb",), "modes": ("default", "compile")}
    found = planned([old], declared=declared, **asked)
    assert [cell.mode for cell in found.cells] == ["default"]
    assert reasons(found) == {"PyTorch 1.13.1 has no mode 'compile'; 2.0 is the first that has it"}
    new = image(folder, "torch-2-cpu", framework_version="2.9.1")
    assert {cell.mode for cell in planned([new], declared=declared, **asked).cells} == {"default", "compile"}


def test_a_driver_whose_version_is_none_is_a_reason_and_no_traceback(folder: Path) -> None:
    assert reasons(planned([gpu_image(folder)], with_gpu(driver="abc"))) == {
        "the NVIDIA driver says 'abc' as its version, which is none"
    }


def test_a_mode_that_an_image_lacks_parts_of_is_left_out_with_the_reason(folder: Path) -> None:
    lacking = image(folder, no_modes={"compile": "its base image has no compiler"})
    asked: dict[str, Any] = {"precisions": ("fp32",), "workloads": ("gru-imdb",), "modes": ("default", "compile")}
    found = planned([lacking], **asked)
    assert [cell.mode for cell in found.cells] == ["default"]
    assert reasons(found) == {f"{lacking.name} cannot run mode 'compile': its base image has no compiler"}


def test_an_image_says_of_its_own_frameworks_modes_only_that_it_lacks_parts() -> None:
    declared = load_frameworks()
    lacking = [each for each in load_catalog().values() if each.no_modes]
    assert [each.name for each in lacking] == ["tensorflow-2.10.1-cu112"]
    for each in lacking:
        assert set(each.no_modes) <= {mode for name in each.frameworks for mode in declared[name].modes}


def test_an_untested_image_runs_only_where_its_name_is_spelled_out(folder: Path) -> None:
    images = [image(folder, untested="no machine had it")]
    for asked in ((), ("torch-*",)):
        found = planned(images, precisions=("fp32",), images=asked)
        assert not found.cells
        assert reasons(found) == {"untested: no machine had it; --images torch-1-cpu runs it all the same"}
    assert planned(images, precisions=("fp32",), images=("torch-1-cpu",)).cells
