"""The highest rates that an environment reaches, measured right before its cells by bench/ceilings.py, in any engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.engines import cell_cache
from runner.engines.base import Engine, EngineError, ReadyImage, Running, Slot
from runner.engines.probe import printed
from runner.errors import UserError, first_problem

PROBE = "bench.ceilings"

_LIMIT_SECONDS = 120.0
_MAX_BYTES = 64 * 1024

Rate = Annotated[float, Field(gt=0, lt=1e19, allow_inf_nan=False)]
Rates = Annotated[tuple[Rate, ...], Field(min_length=3, max_length=100)]


class CeilingsError(UserError):
    """The ceilings could not be measured; the message says why."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NumpyRates(_Frozen):
    """Windows of NumPy's rates on the CPU, a second."""

    matmul_flops: Rates  # float32, 1024 x 1024
    copy_bytes: Rates  # read and written
    core_operations: Rates  # square roots of one core, in its cache: moves with its clock


class FrameworkRates(_Frozen):
    """Windows of the framework's rates on the cell's device, a second."""

    matmul_flops: Rates
    copy_bytes: Rates
    launches: Rates  # of the smallest operation


class Ceilings(_Frozen):
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
        running = engine.start(probe, arguments, slot, label, None, cache)
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
