"""The plan of precisions: which device, image and framework has which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import Image
from runner.catalog.workloads import load_workloads
from runner.machine.devices import Machine
from runner.plan.plan import Plan, plan
from runner.plan.request import Request
from tests.fixtures.plans import FRAMEWORKS, NO_GPU, WORKLOADS, gpu_image, image, planned, reasons, with_gpu


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


def test_tf32_is_left_out_where_the_framework_has_no_switch_for_it(folder: Path) -> None:
    frameworks = FRAMEWORKS | {"torch": FRAMEWORKS["torch"].model_copy(update={"no_tf32": "it has no switch for it"})}
    request = Request(precisions=("fp32", "tf32"), workloads=("cnn-cifar10",))
    found = plan(request, [gpu_image(folder)], WORKLOADS, frameworks, with_gpu(), lambda _: None)
    assert {cell.precision for cell in found.cells} == {"fp32"}
    assert reasons(found) == {"torch does not compute in tf32: it has no switch for it"}


def test_mixed_precision_is_planned_where_framework_image_and_device_have_its_half_type(folder: Path) -> None:
    amp: dict[str, dict[str, str]] = {"amp-bf16": {}, "amp-fp16": {"cpu": "it has no kernels"}}

    def of(machine: Machine, made: Image, devices: tuple[int, ...] = (1,)) -> Plan:
        frameworks = FRAMEWORKS | {"torch": FRAMEWORKS["torch"].model_copy(update={"half": amp})}
        names = {"precisions": ("amp-fp16", "amp-bf16"), "workloads": ("cnn-cifar10",)}
        request = Request.model_validate(names | {"devices": devices})
        return plan(request, [made], WORKLOADS, frameworks, machine, lambda _: None)

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
    amp["amp-bf16"] = {"cnn-cifar10": "it sums in the half type"}
    summed = of(with_gpu(), gpu_image(folder, precisions=halves))
    assert {cell.precision for cell in summed.cells} == {"amp-fp16"}
    assert reasons(summed) == {"torch does not compute amp-bf16 on cnn-cifar10: it sums in the half type"}


def test_a_precision_that_the_image_does_not_offer_is_left_out(folder: Path) -> None:
    found = planned([gpu_image(folder, precisions=("fp32",))], with_gpu(), precisions=("fp32", "tf32"))
    assert reasons(found) == {"the image does not offer tf32"}


def test_what_an_image_does_not_compute_on_a_cpu_as_it_is_specified_is_left_out_there_only(folder: Path) -> None:
    declared = {"torch": load_frameworks()["torch"]}
    fields: dict[str, Any] = {
        "precisions": ("fp32", "fp16"),
        "not_on_cpu": {"amp-fp16": "it adds up products in float16"},
    }
    asked: dict[str, Any] = {"declared": declared, "precisions": ("fp32", "amp-fp16"), "workloads": ("cnn-cifar10",)}
    lacking = image(folder, **fields)
    found = planned([lacking], **asked)
    assert {cell.precision for cell in found.cells} == {"fp32"}
    assert reasons(found) == {f"{lacking.name} does not compute amp-fp16 on a CPU: it adds up products in float16"}
    on_gpu = planned([gpu_image(folder, **fields)], with_gpu(), **asked)
    assert {cell.precision for cell in on_gpu.cells} == {"fp32", "amp-fp16"}


def test_fp8_is_left_out_before_ada_and_where_the_image_has_none(folder: Path) -> None:
    single = {"ops": load_workloads()["ops"]}
    images = [gpu_image(folder, precisions=("fp32", "fp8"))]
    on_ampere, on_ada = (
        planned(images, with_gpu(**changes), specified=single, precisions=("fp8",))
        for changes in ({"model": "A100", "compute_capability": "8.0"}, {"compute_capability": "8.9"})
    )
    assert not on_ampere.cells
    assert reasons(on_ampere) == {"A100 has no fp8: it takes compute capability 8.9"}
    assert [cell.precision for cell in on_ada.cells] == ["fp8"]
