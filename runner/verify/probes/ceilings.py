"""The highest rates that an environment reaches, measured right before its cells by bench/ceilings.py, in any engine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, ValidationError

from runner.engines import cell_cache
from runner.engines.base import Engine, EngineError, Launch, ReadyImage, Running, Slot
from runner.engines.probe import printed
from runner.engines.process.process import start_process
from runner.errors import UserError, first_problem
from runner.results.on_disk.roles import is_reference_blas
from runner.results.validate import Frozen

PROBE = "bench.ceilings"

_LIMIT_SECONDS = 120.0
_MAX_BYTES = 64 * 1024

Rate = Annotated[float, Field(gt=0, lt=1e19, allow_inf_nan=False)]
Rates = Annotated[tuple[Rate, ...], Field(min_length=3, max_length=100)]


class CeilingsError(UserError):
    """The ceilings could not be measured; the message says why."""


class NumpyRates(Frozen):
    """Windows of NumPy's rates on the CPU, a second."""

    matmul_flops: Rates  # float32, 1024 x 1024
    copy_bytes: Rates  # read and written
    core_operations: Rates  # square roots of one core, in its cache: moves with its clock


class FrameworkRates(Frozen):
    """Windows of the framework's rates on the cell's device, a second."""

    matmul_flops: Rates
    copy_bytes: Rates
    launches: Rates  # of the smallest operation


class Ceilings(Frozen):
    """The rates of one environment."""

    load: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None  # runnable processes before the probe
    cpus: Annotated[int, Field(ge=1, le=100_000)] | None  # of the machine, whoever may use them
    debug: bool
    numpy: NumpyRates
    framework: FrameworkRates | None
    # The paths of the libraries of linear algebra that the probe had loaded; none of a probe from before they were listed.
    libraries: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=50)] = ()

    def sentence(self, framework: str) -> str:
        """The rates that stand for the windows, of NumPy and of this framework."""
        own = f", {framework} {best(self.framework.matmul_flops) / 1e9:.0f}" if self.framework else ""
        copy = best(self.numpy.copy_bytes) / 1e9
        return f"matrix product NumPy {best(self.numpy.matmul_flops) / 1e9:.0f}{own} GFLOP/s, copy {copy:.1f} GB/s"


def best(rates: Sequence[float]) -> float:
    """The rate that stands for the windows: the highest, since other work can only lower a rate."""
    return max(rates)


def is_machine_busy(ceilings: Ceilings) -> bool:
    """True if other work than the runner kept more than half of the CPUs busy before the probe."""
    return ceilings.load is not None and ceilings.cpus is not None and ceilings.load - 1 > 0.5 * ceilings.cpus


def measure(engine: Engine, prepared: ReadyImage, framework: str, precision: str, slot: Slot, label: str) -> Ceilings:
    """Run the probe where the cells will run. Raises CeilingsError."""
    arguments = [framework, slot.device_kind, precision]
    return parse(printed_by(engine, prepared, PROBE, arguments, slot, label, _LIMIT_SECONDS))


def printed_by(
    engine: Engine,
    prepared: ReadyImage,
    module: str,
    arguments: Sequence[str],
    slot: Slot,
    label: str,
    limit_seconds: float,
    watch: Callable[[Running], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> bytes:
    """The output of a probe, a module of the bench; `watch` surrounds it while it runs. Raises CeilingsError."""
    # The command of a cell ends in `-m bench`.
    probe = replace(prepared, command=(*prepared.command[:-1], module))
    try:
        cache = cell_cache.folder_of(engine.name, prepared.image.name, prepared.digest)
        running = engine.start(Launch(probe, arguments, slot, label, cache))
    except EngineError as error:
        raise CeilingsError(str(error)) from error
    with watch(running):
        said = printed(running, limit_seconds, _MAX_BYTES)
        cell_cache.disarm(cache)
    if said.ended.code != 0 or said.too_long:
        last = said.ended.log_tail.strip().splitlines()[-1:] or ["its standard error is empty"]
        raise CeilingsError(f"the probe ended with exit code {said.ended.code}: {last[0][:300]}")
    return said.output


def parse(text: bytes | str) -> Ceilings:
    """The ceilings from the probe's line, or from a stored one. Raises CeilingsError."""
    try:
        return Ceilings.model_validate_json(text)
    except ValidationError as error:
        raise CeilingsError(first_problem(error)) from None


# The yardstick of a CPU: the matrix product of the runner's own NumPy, on the same cores, right beside an environment's own.
#
# The runner's NumPy is a pinned wheel with OpenBLAS. No reference is needed to see that an installation is far below it.

# Of a product in float32, beside the yardstick's. The catalog's images reached 1.1 to 1.35 (PyTorch), 0.5 to 1.5 (JAX) and 1.3 to 1.8
# (TensorFlow) in two probes each beside much other work; these are set low. A framework that is not here has no expectation.
USUAL_SHARE = {"torch": 0.8, "jax": 0.5, "tensorflow": 0.5}
# NumPy's own.
_USUAL_OF_NUMPY = 0.8
# This number of times below that an installation is sick: other releases, fewer threads of few, and a busy machine are within it.
FACTOR = 3.0

# The probe then measures NumPy alone.
_NO_FRAMEWORK = "none"

_LIMIT_SECONDS_YARDSTICK = 30.0
_MOST_BYTES = 64 * 1024

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
            start_process(Launch(probe, [_NO_FRAMEWORK, "cpu", "fp32"], slot, label, cache)),
            _LIMIT_SECONDS_YARDSTICK,
            _MOST_BYTES,
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
    return next((path for path in libraries if is_reference_blas(path)), None)
