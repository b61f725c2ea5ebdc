"""The yardstick of a CPU: the matrix product of the runner's own NumPy, on the same cores, right beside an environment's own.

The runner's NumPy is a pinned wheel with OpenBLAS. No reference is needed to see that an installation is far below it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from runner.engines import cell_cache
from runner.engines.base import EngineError, ReadyImage, Slot
from runner.engines.probe import printed
from runner.engines.process.process import start_process
from runner.verify.probes.ceilings import PROBE, Ceilings, CeilingsError, best, parse

# Of a product in float32, beside the yardstick's. The catalog's images reached 1.1 to 1.35 (PyTorch), 0.5 to 1.5 (JAX) and 1.3 to 1.8
# (TensorFlow) in two probes each beside much other work; these are set low. A framework that is not here has no expectation.
USUAL_SHARE = {"torch": 0.8, "jax": 0.5, "tensorflow": 0.5}
# NumPy's own.
_USUAL_OF_NUMPY = 0.8
# This number of times below that an installation is sick: other releases, fewer threads of few, and a busy machine are within it.
FACTOR = 3.0

# The probe then measures NumPy alone.
_NO_FRAMEWORK = "none"

_LIMIT_SECONDS = 30.0
_MOST_BYTES = 64 * 1024

# Debian's reference BLAS lies in a folder of that name, built from source in the usual folders of libraries. Every other one has a name.
_REFERENCE_BLAS = re.compile(r"(/blas|/lib|/lib64|/[a-z0-9_]+-linux-gnu[a-z0-9]*)/lib(c?blas)\.so[.0-9]*$")
OF_THE_DISTRIBUTION = (
    "on Debian and Ubuntu `apt-get install libopenblas0-pthread` puts OpenBLAS in its place; or install the wheel"
)
_OF_OTHERS = "look at the BLAS that it is linked to, its build, and the threads that it may use"


@dataclass(frozen=True)
class Shortfall:
    """A matrix product that is far below what its cores can do: what was seen, and the fix."""

    saw: str
    fix: str


def measure_yardstick(slot: Slot, label: str) -> Ceilings:
    """The runner's own NumPy on the CPUs of a slot. Raises CeilingsError."""
    probe = ReadyImage(None, "", (sys.executable, "-m", PROBE))
    try:
        cache = cell_cache.folder_of("host", "yardstick", sys.executable)
        said = printed(
            start_process(probe, [_NO_FRAMEWORK, "cpu", "fp32"], slot, label, None, cache), _LIMIT_SECONDS, _MOST_BYTES
        )
        cell_cache.disarm(cache)
    except EngineError as error:
        raise CeilingsError(str(error)) from error
    if said.ended.code != 0 or said.too_long:
        raise CeilingsError(f"the runner's own probe ended with exit code {said.ended.code}")
    return parse(said.output)


def shortfall(framework: str, rates: Ceilings, yardstick: Ceilings) -> Shortfall | None:
    """A product in float32 of this environment that its cores do not explain; None where there is none, or nothing is expected."""
    here = best(yardstick.numpy.matmul_flops)
    found = [("NumPy", best(rates.numpy.matmul_flops), _USUAL_OF_NUMPY)]
    if rates.framework and framework in USUAL_SHARE:
        found.insert(0, (framework, best(rates.framework.matmul_flops), USUAL_SHARE[framework]))
    low = [(name, rate) for name, rate, usual in found if rate * FACTOR < usual * here]
    if not low:
        return None
    each = " and ".join(f"{name}'s {rate / 1e9:.0f}" for name, rate in low)
    saw = f"the runner's own NumPy does {here / 1e9:.0f} GFLOP/s on these cores, and {each}"
    if blas := reference_blas(rates.libraries):
        return Shortfall(
            f"{saw}: its BLAS is the reference one, {blas}, which is not made for speed", OF_THE_DISTRIBUTION
        )
    return Shortfall(saw, _OF_OTHERS)


def reference_blas(libraries: Sequence[str]) -> str | None:
    """The path of the reference BLAS, if it is the one that is loaded."""
    return next((path for path in libraries if _REFERENCE_BLAS.search(path)), None)
