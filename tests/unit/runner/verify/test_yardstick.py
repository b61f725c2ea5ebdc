"""What the CPUs of a cell can do, beside what an installation reaches on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from bench import ceilings as probe
from runner.catalog.images import PROJECT
from runner.doctor import preflight
from runner.engines.base import Slot
from runner.verify.probes.ceilings import _NO_FRAMEWORK, FACTOR, USUAL_SHARE, Ceilings, parse, reference_blas, shortfall

REFERENCE = "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0"
DEBIAN = "/usr/bin/python3"


def rates(numpy: float, framework: float | None = None, libraries: tuple[str, ...] = ()) -> Ceilings:
    """An environment with these products, in GFLOP/s."""

    def windows(rate: float) -> list[float]:
        return [0.9e9 * rate, 1e9 * rate, 0.8e9 * rate]

    usual = {"copy_bytes": windows(10), "core_operations": windows(1)}
    own = {"matmul_flops": windows(framework), "copy_bytes": windows(10), "launches": windows(1)} if framework else None
    report = {"load": 0.1, "cpus": 2, "debug": False, "framework": own, "libraries": libraries}
    return parse(json.dumps({**report, "numpy": {"matmul_flops": windows(numpy), **usual}}))


def test_a_product_far_below_what_its_cores_can_do_is_named_with_its_blas_and_the_fix() -> None:
    short = shortfall("torch", rates(6, 6, (REFERENCE,)), rates(190))
    assert short is not None
    assert short.saw == (
        "the runner's own NumPy does 190 GFLOP/s on these cores, and torch's 6 and NumPy's 6: "
        f"its BLAS is the reference one, {REFERENCE}, which is not made for speed"
    )
    assert "libopenblas0-pthread" in short.fix
    other = shortfall("torch", rates(180, 6), rates(190))
    assert other is not None
    assert other.saw.endswith("and torch's 6")
    assert "threads" in other.fix


@pytest.mark.parametrize("framework", USUAL_SHARE)
def test_up_to_a_third_of_the_usual_share_it_is_healthy(framework: str) -> None:
    least = 100 * USUAL_SHARE[framework] / FACTOR
    assert shortfall(framework, rates(100, 1.02 * least), rates(100)) is None
    assert shortfall(framework, rates(100, 0.98 * least), rates(100)) is not None


def test_the_probe_and_the_runner_call_no_framework_by_one_name() -> None:
    assert probe.NO_FRAMEWORK == _NO_FRAMEWORK


def test_of_a_framework_without_an_expectation_only_numpy_is_judged() -> None:
    assert shortfall("tinygrad", rates(100, 1), rates(100)) is None
    assert shortfall("tinygrad", rates(0.98 * 80 / FACTOR), rates(100)) is not None
    assert shortfall("tinygrad", rates(1.02 * 80 / FACTOR), rates(100)) is None


@pytest.mark.parametrize(
    ("path", "is_reference"),
    [
        (REFERENCE, True),
        ("/usr/lib64/libblas.so.3.9.0", True),
        ("/usr/lib/libcblas.so.3", True),
        ("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3", False),
        ("/usr/lib/x86_64-linux-gnu/libopenblasp-r0.3.21.so", False),
        ("/opt/intel/mkl/lib/libmkl_rt.so.2", False),
        ("/home/a/numpy.libs/libscipy_openblas64_-32a4b2a6.so", False),
        ("/usr/lib/x86_64-linux-gnu/atlas/libblas.so.3", False),
        ("/usr/lib/x86_64-linux-gnu/blis-openmp/libblas.so.4", False),
    ],
)
def test_the_reference_blas_is_known_by_its_path(path: str, is_reference: bool) -> None:
    assert reference_blas(("/usr/lib/x86_64-linux-gnu/libdnnl.so.2.6", path)) == (path if is_reference else None)


def test_the_libraries_of_linear_algebra_are_those_that_are_loaded(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/blas/libblas.so.3.11.0\n"
        "7f01-7f02 r--p 00000000 08:01 1 /usr/lib/blas/libblas.so.3.11.0\n"
        "7f02-7f03 r-xp 00000000 08:01 2 /usr/lib/a folder/libmkl_rt.so.2\n"
        "7f03-7f04 r-xp 00000000 08:01 3 /usr/lib/libc.so.6\n"
        "7f04-7f05 rw-p 00000000 00:00 0 \n"
        "7f05-7f06 rw-p 00000000 00:00 0 [heap]\n"
    )
    assert probe.linear_algebra(str(maps)) == ["/usr/lib/a folder/libmkl_rt.so.2", "/usr/lib/blas/libblas.so.3.11.0"]
    assert probe.linear_algebra(str(tmp_path / "none")) == []


def _probed(python: str) -> Ceilings:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [python, "-m", "bench.ceilings", probe.NO_FRAMEWORK, "cpu", "fp32"]
    return parse(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.alone
def test_a_distribution_s_numpy_with_the_reference_blas_is_far_below_the_runner_s() -> None:
    """The real one, where this machine has it."""
    there = subprocess.run([DEBIAN, "-c", "import numpy"], capture_output=True, check=False)
    if there.returncode != 0 or not reference_blas((sick := _probed(DEBIAN)).libraries):
        pytest.skip(f"left out, because {DEBIAN} has no NumPy with the reference BLAS")
    own = _probed(sys.executable)
    assert shortfall("none", own, _probed(sys.executable)) is None
    short = shortfall("none", sick, own)
    assert short is not None
    assert "its BLAS is the reference one" in short.saw


@pytest.mark.parametrize(
    ("libraries", "status"), [((), preflight.OPEN), ((REFERENCE,), preflight.FAIL)], ids=["another", "the reference"]
)
def test_beside_other_work_only_the_reference_blas_is_told(
    libraries: tuple[str, ...], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = {"load": 7.5}
    own, here = (each.model_copy(update=busy) for each in (rates(6, 6, libraries), rates(40)))
    monkeypatch.setattr(preflight.ceilings, "measure_yardstick", lambda *_: here)
    product = preflight._beside_yardstick("product", "torch", own, cast(Slot, None))
    assert product.status == status
    ceilings = preflight._ceilings("ceilings", own, "torch", None)
    assert ceilings.status == preflight.OPEN
    assert (REFERENCE in ceilings.means, "libopenblas0-pthread" in ceilings.fix) == (bool(libraries),) * 2
