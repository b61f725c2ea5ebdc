"""Causes: each fault's facts name it with evidence and fix, and a healthy cell names none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.verify.causes import Case, causes, dropped
from runner.verify.probes.ceilings import Ceilings
from runner.verify.references.saved import Telemetry, summarise_telemetry
from tests.unit.runner.verify.test_references import facts


def ceilings(own: float = 1.0, numpy: float = 1.0, core: float = 1.0, copy: float = 1.0, **changes: Any) -> Ceilings:
    """Ceilings of a healthy machine, times a share each."""
    rates = {"matmul_flops": [6e10 * numpy] * 3, "copy_bytes": [2e10 * copy] * 3, "core_operations": [1e9 * core] * 3}
    framework = {"matmul_flops": [6e10 * own] * 3, "copy_bytes": [2e10] * 3, "launches": [5e5] * 3}
    fixed = {"load": 0.1, "cpus": 16, "debug": False, "numpy": rates, "framework": framework}
    return Ceilings.model_validate(fixed | changes)


CPU = facts(
    device_kind="cpu", device_model="Some CPU", compute_capability=None, cuda_version=None, cudnn_version=None,
    settings={"threads": 16, "mkldnn": True}, device={},
)  # fmt: skip
HEALTHY_CPU = Case(CPU, ceilings(), CPU, ceilings())
HEALTHY_GPU = Case(
    facts(), ceilings(), facts(), ceilings(), machine_gpus=8,
    telemetry=Telemetry(sm_megahertz=1980, throttled={"power cap": 0.5}),
    reference_telemetry=Telemetry(sm_megahertz=1980, throttled={"power cap": 0.48}),
)  # fmt: skip


def with_facts(case: Case, **changes: Any) -> Case:
    return replace(case, facts=case.facts.model_copy(update=changes))


TF32_REFERENCE = facts(settings={"tf32_cudnn": True, "threads": 16})

FAULTS: dict[str, tuple[str, Case]] = {
    "one thread": ("fewer threads", with_facts(HEALTHY_CPU, settings={"threads": 1, "mkldnn": True})),
    "one thread, no reference": ("fewer threads", replace(with_facts(HEALTHY_CPU, settings={"threads": 1}), reference=None)),
    "affinity": ("fewer CPUs", with_facts(HEALTHY_CPU, cpu_count=1, settings={"threads": 1, "mkldnn": True})),
    "clock of the CPU": ("a slower core", replace(HEALTHY_CPU, ceilings=ceilings(0.7, 0.7, 0.7))),
    "memory": ("slower memory", replace(HEALTHY_CPU, ceilings=ceilings(copy=0.6))),
    "slow product": ("a slow matrix product", replace(HEALTHY_CPU, ceilings=ceilings(own=0.85))),
    "slow product on a GPU": ("a slow matrix product", replace(HEALTHY_GPU, ceilings=ceilings(own=0.85))),
    "no oneDNN": ("mkldnn is off", with_facts(HEALTHY_CPU, settings={"threads": 16, "mkldnn": False})),
    "busy": ("a busy machine", replace(HEALTHY_CPU, ceilings=ceilings(load=12.0))),
    "debug": ("a debug build", replace(HEALTHY_CPU, ceilings=ceilings(debug=True))),
    "debug by name": ("a debug build", with_facts(HEALTHY_CPU, framework_version="2.9.1+debug")),
    "heat midway": ("it slowed down midway", replace(HEALTHY_CPU, slowdown=1.2)),
    "CPU build on a GPU machine": ("CPU-only build", replace(with_facts(HEALTHY_CPU, framework_version="2.13.0+cpu"), machine_gpus=4)),
    "CPU build that refuses": (
        "CPU-only build",
        Case(facts(framework_version=None), failure="torch 2.9 is built without CUDA", error_kind="unsupported"),
    ),
    "no GPU found": ("the framework finds no GPU", Case(facts(), failure="jax 0.10 finds no GPU", error_kind="unsupported")),
    "tf32 off": ("TF32 is off", replace(HEALTHY_GPU, reference=TF32_REFERENCE)),
    "tf32 asked for": ("TF32 is off", with_facts(HEALTHY_GPU, precision="tf32")),
    "no cuDNN": ("no cuDNN", with_facts(HEALTHY_GPU, cudnn_version="none")),
    "old CUDA": ("a CUDA older than the GPU", with_facts(HEALTHY_GPU, cuda_version="11.2")),
    "x4": ("a narrow PCIe link", with_facts(HEALTHY_GPU, device={"pcie_width": 16, "pcie_width_now": 4})),
    "power limit": ("a lower power limit", with_facts(HEALTHY_GPU, device={"power_limit_watts": 500.0})),
    "power": ("throttled: power cap", replace(HEALTHY_GPU, telemetry=Telemetry(throttled={"power cap": 0.9}))),
    "heat": (
        "throttled: software thermal slowdown",
        replace(HEALTHY_GPU, telemetry=Telemetry(throttled={"software thermal slowdown": 0.4})),
    ),
    "clock": ("a lower clock", replace(HEALTHY_GPU, telemetry=Telemetry(sm_megahertz=1410))),
    "busy GPU": ("a busy GPU", with_facts(HEALTHY_GPU, device={"foreign_processes": 2})),
    "busy meanwhile": ("a busy GPU", replace(HEALTHY_GPU, foreign_processes=("python (process 7 of eve, 3.0 GB)",))),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_evidence_and_its_fix(fault: str) -> None:
    name, case = FAULTS[fault]
    found = {cause.name: cause for cause in causes(case)}
    assert name in found
    assert len(found[name].evidence) > 20
    assert found[name].fix


@pytest.mark.parametrize(
    "case",
    [
        HEALTHY_CPU,
        HEALTHY_GPU,
        Case(CPU),
        Case(facts()),
        # A workload that slows down by itself does so in its reference too.
        replace(HEALTHY_CPU, slowdown=1.2, reference_slowdown=1.18),
    ],
)
def test_a_healthy_cell_has_no_cause(case: Case) -> None:
    assert causes(case) == []


def test_a_machine_that_is_slower_as_a_whole_does_not_blame_the_framework() -> None:
    names = [cause.name for cause in causes(replace(HEALTHY_CPU, ceilings=ceilings(0.6, 0.6, 0.6)))]
    assert "a slow matrix product" not in names
    assert "a slower core" in names


def test_beside_other_work_rates_accuse_nobody() -> None:
    slow = ceilings(own=0.5, core=0.5, copy=0.5, load=12.0)
    assert [cause.name for cause in causes(replace(HEALTHY_CPU, ceilings=slow))] == ["a busy machine"]
    small = ceilings(load=1.9, cpus=2)  # the runner's own work is in the load
    assert causes(replace(HEALTHY_CPU, ceilings=small)) == []


def test_a_reference_from_before_the_reasons_had_one_name_each_explains_the_same_throttling() -> None:
    earlier = Telemetry(sm_megahertz=1980, throttled={"power": 0.48, "heat": 0.3})
    hot = Telemetry(sm_megahertz=1980, throttled={"power cap": 0.5, "hardware thermal slowdown": 0.3})
    assert causes(replace(HEALTHY_GPU, telemetry=hot, reference_telemetry=earlier)) == []


def test_the_evidence_carries_the_figures() -> None:
    cause = next(c for c in causes(FAULTS["slow product"][1]) if c.name == "a slow matrix product")
    assert "85 %" in cause.evidence
    assert "NumPy's 100 %" in cause.evidence


def test_telemetry_is_told_of_the_steady_windows_only_and_without_the_cpu() -> None:
    rows = [
        {"device": "GPU-1", "seconds": s, "sm_megahertz": 1000.0 + s, "throttle_reasons": 0x20 if s > 8 else 0x1}
        for s in range(12)
    ]
    rows += [{"device": "cpu", "seconds": 5.0, "cpu_seconds": 1.0}]
    found = summarise_telemetry(rows, [(2.0, 5.0), (5.0, 10.0)], {"temperature_celsius": 60.0})
    shares = {"software thermal slowdown": 2 / 9}
    assert found == Telemetry(sm_megahertz=1006.0, throttled=shares, medians={"temperature_celsius": 60.0})
    assert summarise_telemetry(rows, [], {}) is None
    assert summarise_telemetry([], [(0.0, 1.0)], {}) is None


def test_a_cuda_version_that_is_no_version_names_no_cause() -> None:
    assert causes(with_facts(HEALTHY_GPU, cuda_version="of somebody's own making")) == []


@pytest.mark.parametrize(
    ("settings", "reference", "cause", "evidence"),
    [
        ({"deterministic": True}, {"deterministic": False}, "deterministic algorithms are on", "deterministic is True here, and False"),
        ({"default_dtype": "torch.float64"}, {"default_dtype": "torch.float32"}, "float64 by default", "torch.float32 in the reference"),
        ({"cpu_capability": "DEFAULT"}, {"cpu_capability": "AVX2"}, "vector instructions are not used", "DEFAULT here, and AVX2"),
        ({"allocator": "/lib/libc_malloc_debug.so.0"}, {}, "another allocator", "libc_malloc_debug.so.0 here, and not set"),
        ({"variable XLA_FLAGS": "--slow"}, {}, "XLA_FLAGS is set", "--slow here, and not set in the reference"),
        ({"file /etc/nccl.conf": "NCCL_P2P_DISABLE=1"}, {}, "/etc/nccl.conf is set", "NCCL_P2P_DISABLE=1 here"),
        ({"mkldnn": False}, {"mkldnn": True}, "mkldnn is off", "reads back as off"),
        ({"numpy_blas": "blas"}, {"numpy_blas": "scipy-openblas"}, "another numpy blas", "blas is blas here, and scipy-openblas"),
        ({"build_type": "Debug"}, {"build_type": "Release"}, "a debug build", "Debug here, and Release"),
    ],
)  # fmt: skip
def test_a_fact_of_an_installation_that_slows_it_down_is_named_with_both_values(
    settings: dict[str, Any], reference: dict[str, Any], cause: str, evidence: str
) -> None:
    def of(own: dict[str, Any], other: dict[str, Any]) -> Case:
        bare = HEALTHY_CPU.facts.model_copy(update={"settings": own})
        return replace(HEALTHY_CPU, facts=bare, reference=bare.model_copy(update={"settings": other}))

    (found, *rest) = causes(of(settings, reference))
    assert found.name == cause
    assert evidence in found.evidence
    assert found.fix
    # What both have explains nothing, and a healthier installation is accused of nothing.
    assert causes(of(settings, settings)) == []
    if "numpy_blas" not in settings:
        assert rest == []
        assert causes(of(reference, settings)) == []


@pytest.mark.parametrize(
    "name",
    [
        "JAX_DISABLE_JIT", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE", "TORCHDYNAMO_DISABLE",
        "CUDA_FORCE_PTX_JIT", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "NCCL_P2P_DISABLE", "XLA_A_SWITCH_OF_NO_LIST",
    ],
)  # fmt: skip
def test_a_variable_is_told_by_how_its_name_begins(name: str) -> None:
    assert str(dropped({name: "1"})).startswith(f"cells do not get {name}=1")


def test_variables_that_cells_do_not_get_are_told_with_their_effect() -> None:
    sentence = str(dropped({"OMP_NUM_THREADS": "1", "CUDA_LAUNCH_BLOCKING": "1", "HOME": "/home/me", "XLA_FLAGS": ""}))
    assert "CUDA_LAUNCH_BLOCKING=1 (each kernel is waited for), OMP_NUM_THREADS=1 (the number of threads)" in sentence
    assert "HOME" not in sentence
    assert dropped({"HOME": "/home/me"}) is None
