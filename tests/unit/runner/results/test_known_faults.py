"""Published faults of CUDA's releases are told in the plan, beside the cell in the report, and by verify."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from reports.data import tables
from runner.catalog.images import load_catalog, read_pins
from runner.images.lock_facts import nvidia_version
from runner.results.datasheets import known_faults
from runner.run import outlook
from runner.verify import output
from tests.fixtures import stored, synthetic
from tests.fixtures.plans import make_cell

CUBLAS, PTXAS = "frees tensor memory twice", "edge cases of clamping"


@pytest.mark.parametrize(
    ("framework", "cuda", "capability", "said"),
    [
        ("torch", "12.8.90", "10.0", [CUBLAS]),
        ("jax", "13.1", "11.0", [CUBLAS]),
        ("torch", "12.8", "9.0", []),
        # An RTX 5090 has no tensor memory.
        ("torch", "12.8", "12.0", []),
        ("torch", "13.2.1", "10.3", []),
        ("torch", "12.6", "10.0", []),
        ("jax", "12.3", "8.0", [PTXAS]),
        ("torch", "12.3", "8.0", []),
        ("jax", "12.6.85", "8.0", []),
        ("jax", None, "8.0", []),
        ("jax", "12.3", None, []),
    ],
)
def test_a_fault_is_told_of_the_releases_and_gpus_that_have_it(
    framework: str, cuda: str | None, capability: str | None, said: list[str]
) -> None:
    sentences = known_faults(framework, cuda, capability)
    assert len(sentences) == len(said)
    assert all(part in sentence and "(https://" in sentence for part, sentence in zip(said, sentences, strict=True))


def test_the_release_of_cuda_tells_of_each_lock_what_its_own_pins_do() -> None:
    seen = 0
    for image in load_catalog().values():
        pins = {pin.name: pin.version for pin in read_pins(image.lock_path)}
        if image.accelerator != "cuda":
            continue
        if cublas := nvidia_version(pins, "nvidia-cublas"):
            faulty = Version("12.8") <= Version(cublas) < Version("13.2")
            assert faulty == bool(known_faults("torch", image.cuda, "10.0")), image.name
            seen += 1
        if image.frameworks[0] == "jax" and (nvcc := nvidia_version(pins, "nvidia-cuda-nvcc")):
            faulty = Version("12.0") <= Version(nvcc) < Version("12.6.85")
            assert faulty == bool(known_faults("jax", image.cuda, "8.0")), image.name
            seen += 1
    assert seen > 20


def test_the_plan_names_the_images_with_a_fault_once() -> None:
    cells = [
        make_cell(image=name, device_kind="cuda", device_model="B200", seed=seed)
        for name in ("a", "b")
        for seed in (1, 2)
    ]
    images = {"a": SimpleNamespace(cuda="12.8"), "b": SimpleNamespace(cuda="13.2")}
    machine = SimpleNamespace(gpus=[SimpleNamespace(model="B200", compute_capability="10.0")])
    prospect: Any = SimpleNamespace(machine=machine, images=images, plan=SimpleNamespace(cells=cells))
    (line,) = outlook.faults(prospect)
    assert line.startswith("known fault: a: ")
    assert CUBLAS in line


def test_the_report_and_verify_tell_it_beside_the_cell(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    synthetic.add_scaling(folder, {1: 0.1})
    of_gpu = {"cuda_version": "12.8", "compute_capability": "10.0"}
    stored.change(folder, "cells", lambda row: {**row, **of_gpu} if row["device_kind"] == "cuda" else row)
    data = tables.load([folder])
    noted = {(cell.key.device_kind, any(CUBLAS in words for words in cell.caveats)) for cell in data.cells}
    assert noted == {("cuda", True), ("cpu", False)}
    facts = SimpleNamespace(framework="torch", **of_gpu)
    finding: Any = SimpleNamespace(
        parity_passed=False, nearest=None, among=None, expectation=None, kernel_share=None, facts=facts, causes=()
    )
    (line,) = output._beside(finding)
    assert line.startswith("  known fault: ")
    assert CUBLAS in line
