"""Compile an image's adapters for GPUs that are not here, in an environment of the whole lock: images/ahead_of_time.py does it."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pydantic import Field

from runner.catalog.images import IMAGES
from runner.engines import cell_cache, probe
from runner.engines.base import Engine, Launch, ReadyImage, Slot
from runner.errors import EngineError
from runner.images.compile_program import Program, UnreadableProgramError, read_program
from runner.images.compiled import CompiledStep, Outcome, Target, faults, steps_faults, sum_of
from runner.images.tried import adapter_sha256
from runner.results.validate import Strict
from runner.text import visible

SCRIPT = IMAGES / "ahead_of_time.py"

# The frameworks of which the script compiles the steps, and of the others why it does not.
COMPILED = ("jax", "keras_jax")
_ELSEWHERE = (
    "its framework compiles for a GPU that it finds, and takes no description of one: "
    "of those that are here, XLA's topologies in JAX take one"
)

# A program of DenseNet is 5 MB of text, 0.5 MB compressed; `ops` has 40 programs a target.
_MOST_BYTES = 256 * 1024 * 1024
_MOST_TEXT = 128 * 1024 * 1024


class _Bytes(Strict):
    arguments: int = Field(ge=0)
    results: int = Field(ge=0)
    aliased: int = Field(ge=0)
    temporary: int = Field(ge=0)

    @property
    def together(self) -> int:
        return self.arguments + self.results - self.aliased + self.temporary


class _Line(Strict):
    """A line of the script: one program for one target."""

    program: str = Field(max_length=100)
    target: str
    # The digest of all programs of the step for this target.
    programs_sha256: str | None = None
    # They are those of the record, and were not compiled.
    as_recorded: bool = False
    error: str | None = None
    # Why JAX refuses it.
    left_out: str | None = None
    bytes: _Bytes | None = None
    text: str = ""


def why_not(framework: str) -> str | None:
    """Why the steps of a framework cannot be compiled for a GPU that is not here; None where they can."""
    return None if framework in COMPILED else f"{framework}: {_ELSEWHERE}"


def compile_step(
    engine: Engine,
    prepared: ReadyImage,
    step: tuple[str, str, str],
    batch: int,
    targets: Mapping[str, Target],
    limit: float,
    recorded: Mapping[str, CompiledStep],
) -> list[CompiledStep]:
    """Compile a (framework, workload, precision) for each target, in one process that takes at most `limit` seconds.

    A target of which `recorded` holds the same programs keeps its record, which then is of today's adapter.
    """
    framework, workload, precision = step
    image = prepared.image
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    task = {
        "framework": framework,
        "workload": workload,
        "precision": precision,
        "batch": batch,
        "threads": len(cpus),
        "targets": {name: target.text(image) for name, target in targets.items()},
        "recorded": {name: step.programs_sha256 for name, step in recorded.items()},
    }
    script = replace(prepared, command=(prepared.command[0], str(SCRIPT)))
    cache = cell_cache.folder_of(engine.name, image.name, prepared.digest)
    running = engine.start(Launch(script, [json.dumps(task)], Slot("cpu", (), cpus, None), "images-compile", cache))
    try:
        said = probe.printed(running, limit, _MOST_BYTES)
    finally:
        cell_cache.disarm(cache)
    lines, adapter = _by_target(said.output), adapter_sha256(framework, workload)
    results = []
    for name, target in targets.items():
        if name in recorded and any(line.as_recorded for line in lines.get(name, ())):
            results.append(recorded[name].model_copy(update={"adapter_sha256": adapter}))
            continue
        judged = _judged(workload, precision, target, lines.get(name, ()), said, limit)
        programs = next((line.programs_sha256 for line in lines.get(name, ())), None)
        results.append(_recorded(step, name, batch, judged, adapter, programs))
    return results


def _recorded(
    step: tuple[str, str, str], target: str, batch: int, judged: _Judged, adapter: str, programs: str | None
) -> CompiledStep:
    framework, workload, precision = step
    total = judged.total
    return CompiledStep(
        framework=framework,
        workload=workload,
        precision=precision,
        target=target,
        outcome=judged.outcome,
        date=date.today(),
        batch=batch,
        programs=judged.programs,
        left_out=judged.left_out,
        launches=total.launches,
        results=total.results,
        aliased=total.aliased,
        products=dict(sorted(total.products.items())),
        tf32=total.tf32,
        layouts=dict(sorted(total.layouts.items())),
        bytes=judged.bytes,
        adapter_sha256=adapter,
        programs_sha256=programs,
        reason=" ".join(visible(judged.reason).split())[:300],
    )


def _by_target(output: bytes) -> dict[str, list[_Line]]:
    lines: dict[str, list[_Line]] = {}
    # The last one may have been cut off.
    for raw in output.split(b"\n")[:-1]:
        try:
            line = _Line.model_validate_json(raw)
        except ValueError as error:
            raise EngineError(f"{SCRIPT.name} printed {visible(raw[:80].decode(errors='replace'))!r}") from error
        lines.setdefault(line.target, []).append(line)
    return lines


@dataclass(frozen=True)
class _Judged:
    """The outcome of a step for one target, and its facts."""

    outcome: Outcome
    reason: str = ""
    programs: int = 0
    left_out: int = 0
    total: Program = field(default_factory=Program)
    bytes: int = 0


def _judged(
    workload: str, precision: str, target: Target, lines: Sequence[_Line], said: probe.Printed, limit: float
) -> _Judged:
    if said.late:
        return _Judged("unfinished", f"it did not end within {limit:g} seconds")
    if said.too_long or said.ended.code or not lines:
        refusal = probe.refusal(said.ended.log_tail)
        last = [line for line in said.ended.log_tail.splitlines() if line.strip()][-1:]
        reason = refusal or "".join(last) or f"it printed nothing and ended with exit code {said.ended.code}"
        return _Judged("unsupported" if refusal else "error", reason)
    programs: list[Program] = []
    failed, clauses = [], []
    left_out = [line for line in lines if line.left_out is not None]
    for line in (line for line in lines if line.left_out is None):
        try:
            programs.append(_program(line))
        except (UnreadableProgramError, zlib.error, ValueError) as error:
            failed.append(f"{line.program}: {error}")
        else:
            clauses += steps_faults(line.program, programs[-1])
    if not programs and not failed:
        return _Judged("unsupported", f"{left_out[0].program}: {left_out[0].left_out}")
    total = sum_of(programs)
    most = max((line.bytes.together for line in lines if line.bytes), default=0)
    clauses = failed or clauses + faults(workload, precision, total, most, target.memory_bytes)
    outcome: Outcome = "error" if failed else "wrong" if clauses else "ok"
    return _Judged(outcome, "; ".join(clauses), len(programs), len(left_out), total, most)


def _program(line: _Line) -> Program:
    """Raises UnreadableProgramError, zlib.error and ValueError."""
    if line.error is not None:
        raise UnreadableProgramError(line.error)
    return read_program(zlib.decompressobj().decompress(base64.b64decode(line.text), _MOST_TEXT).decode())
