"""The datasheets of GPUs: each name of NVML finds its own, and no figure of a row contradicts the others."""

from __future__ import annotations

import pytest

from runner.results import gpu_facts

RATES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")

# NVML's name -> TFLOP/s at bf16, GB/s.
NAMES = {
    "NVIDIA A30": (165, 933),
    "NVIDIA GeForce RTX 3080": (61.3, 912),
    "NVIDIA GeForce RTX 4080": (97.5, 716.8),
    "NVIDIA GeForce RTX 5070": (61.7, 672),
    "NVIDIA RTX 6000 Ada Generation": (364.2, 960),
    "NVIDIA H20": (148, 4000),
    "NVIDIA H100 NVL": (835.5, 3938),
    "NVIDIA H100 80GB HBM3": (989.4, 3350),
    "NVIDIA H200 NVL": (835.5, 4800),
    "NVIDIA H200": (989.4, 4800),
    "NVIDIA GH200 480GB": (989.4, 4000),
    "NVIDIA GB200": (2500, 8000),
    "NVIDIA B300 SXM6 AC": (2250, 8000),
    "NVIDIA GB300": (2500, 8000),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_nvml_has_the_figures_of_that_gpu_and_of_no_other(name: str) -> None:
    sheet = gpu_facts.datasheet(name, "amp-bf16")
    assert sheet is not None
    assert sheet.flops is not None
    assert (sheet.flops / 1e12, sheet.bytes / 1e9) == pytest.approx(NAMES[name])


@pytest.mark.parametrize(
    "name", ["NVIDIA H100", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA H20-3e", "NVIDIA H200 MIG 1g.18gb"]
)
def test_a_gpu_of_another_name_has_none(name: str) -> None:
    assert gpu_facts.datasheet(name, "fp32") is None


@pytest.mark.parametrize("row", gpu_facts._rows(), ids=lambda row: row["model"])
def test_a_shorter_number_is_never_slower(row: dict[str, str]) -> None:
    # That GPU computes fp16 at a 64th of fp32.
    slow = {"GeForce GTX 1080 Ti": "fp16"}.get(row["model"])
    rates = [float(row[name]) for name in RATES if row[name] and name != slow]
    assert rates == sorted(rates)
    if row["tf32"] and row["bf16"]:
        # GeForce computes tf32 at the rate of fp32 and bf16 at twice that; the others have half of bf16 at tf32.
        assert float(row["bf16"]) == pytest.approx(2 * float(row["tf32"]), rel=0.05)
    if row["fp8"]:
        assert float(row["fp8"]) == pytest.approx(2 * float(row["bf16"]), rel=0.05)
