"""docs/compiled: the record of the steps of an image that were compiled for GPUs that are not here, and the judgement of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench import rules
from runner.catalog.images import CatalogError, Image
from runner.errors import first_problem
from runner.images.absent.program import Program
from runner.images.tried import adapter_sha256
from runner.paths import PROJECT
from runner.results import store

RECORDS = PROJECT / "docs" / "compiled"

# ok: it compiled, and nothing of it is wrong; wrong: it compiled, and a fact is not as it should be; error: it did not compile;
# unsupported: the adapter says that this version of the framework cannot do it; unfinished: it took too long
Outcome = Literal["ok", "wrong", "error", "unsupported", "unfinished"]

_LONGEST = 300
# The element types of the factors in HLO that a half precision asks for.
_HALF = {"fp16": "f16", "bf16": "bf16", "fp8": "f8e4m3fn"}
# Those that a whole precision does not ask for: a program with them was rounded.
_ROUNDED = {"fp32": ("f16", "bf16", "f8"), "tf32": ("f16", "bf16", "f8"), "fp64": ("f16", "bf16", "f8", "f32")}


class CompiledStep(BaseModel):
    """One adapter at one precision, compiled for one GPU. Of `ops`: the sums over its operations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: str
    workload: str
    precision: str
    # A name of images/targets.toml.
    target: str
    outcome: Outcome
    date: date
    batch: int = Field(gt=0)
    programs: int = Field(0, ge=0)
    # Operations that JAX refuses at this precision: a cell leaves them out, too.
    left_out: int = Field(0, ge=0)
    launches: int = Field(0, ge=0)
    # Arrays that the program returns, and those of them that take the memory of an argument.
    results: int = Field(0, ge=0)
    aliased: int = Field(0, ge=0)
    # The element type of the factors -> products.
    products: dict[str, int] = {}
    tf32: int = Field(0, ge=0)
    # NHWC or NCHW -> convolutions.
    layouts: dict[str, int] = {}
    # Of arguments, results and temporary memory, without what results share with arguments.
    bytes: int = Field(0, ge=0)
    # The adapter of which it was compiled, or of which it was found to be the same program.
    adapter_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    # Of what XLA got: its flags, its text of the target, the StableHLO of each program. None in a record of before it was stored.
    programs_sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    # Why it is not ok.
    reason: str = Field("", max_length=_LONGEST)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.framework, self.workload, self.precision, self.target


class CompiledImage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str
    lock_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    # Framework -> target -> how many steps the plan offered there when the record was written.
    offered: dict[str, dict[str, int]] = {}
    steps: tuple[CompiledStep, ...] = ()


def faults(workload: str, precision: str, program: Program, takes: int = 0, memory: int = 0) -> list[str]:
    """The facts of a compiled program that are not as they should be, a clause each. It takes `takes` bytes of the GPU's `memory`."""
    clauses = []
    if takes > memory:
        clauses.append(f"it takes {takes / 1e9:.1f} GB, and the GPU has {memory / 1e9:.1f} GB")
    own = program.results - program.aliased
    # A training step returns all that it changes, and the loss.
    if rules.workload_declaration(workload)["task"] == "train" and own != 1:
        clauses.append(
            f"{own} of its {program.results} results take memory of their own, and only the loss should: "
            "parameters or the optimiser's state are not donated"
        )
    singles = program.products["f32"]
    if precision == "tf32" and program.tf32 < singles:
        clauses.append(f"only {program.tf32} of its {singles} products of float32 may use TF32")
    if precision != "tf32" and program.tf32:
        clauses.append(
            f"{program.tf32} of its {singles} products of float32 may use TF32, which {precision} does not ask for"
        )
    clauses += [
        f"{count} of its products take factors of {element}, which {precision} does not ask for"
        for element, count in sorted(program.products.items())
        if element.startswith(_ROUNDED.get(precision, ()))
    ]
    half = _HALF.get(rules.MIXED.get(precision, precision))
    if half and not program.products[half]:
        clauses.append(f"none of its products takes factors of {half}")
    return clauses


def steps_faults(name: str, program: Program) -> list[str]:
    """The same of one operation of `ops`, for what depends on the operation: an optimiser's step replaces its arguments."""
    if name.endswith(" step") and program.aliased < program.results:
        return [f"{name} does not donate all of its arguments"]
    return []


def record_path(image: Image) -> Path:
    return RECORDS / f"{image.name}.json"


def read_compiled(image: Image) -> CompiledImage | None:
    """The record of an image; None before there is one. Raises CatalogError."""
    path = record_path(image)
    if not path.is_file():
        return None
    try:
        return CompiledImage.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CatalogError(f"{path}: {first_problem(error)}; take the file back from the repository") from None


def is_current(
    image: Image, record: CompiledImage, step: CompiledStep, today: Callable[[str, str], str] = adapter_sha256
) -> bool:
    """True if a step was compiled of today's lock and adapter, whose digest `today` gives."""
    same = record.lock_sha256 == image.lock_sha256
    return same and step.adapter_sha256 == today(step.framework, step.workload)


def recorded(image: Image) -> dict[tuple[str, str, str, str], CompiledStep]:
    """The steps that were compiled to an end of today's lock, whatever the adapter was."""
    record = read_compiled(image)
    steps = record.steps if record and record.lock_sha256 == image.lock_sha256 else ()
    return {step.key: step for step in steps if step.outcome != "unfinished"}


def write_compiled(
    image: Image, steps: Sequence[CompiledStep], offered: Mapping[str, Mapping[str, int]] | None = None
) -> Path:
    """Put steps into the record of an image, in place of those with the same key. Those of another lock are dropped. A line a step.

    One that did not end takes the place of none that did.
    `offered`: framework -> target -> how many steps the plan offers there, of the targets that were asked for.
    """
    before = read_compiled(image)
    kept = before.steps if before and before.lock_sha256 == image.lock_sha256 else ()
    ended = {step.key for step in kept if step.outcome != "unfinished"}
    steps = [step for step in steps if step.outcome != "unfinished" or step.key not in ended]
    new = {step.key: step for step in (*kept, *steps)}
    counts = {framework: dict(of) for framework, of in (before.offered if before else {}).items()}
    for framework, of in (offered or {}).items():
        counts[framework] = counts.get(framework, {}) | dict(of)
    lines = [new[key].model_dump_json(exclude_defaults=True) for key in sorted(new)]
    path = record_path(image)
    path.parent.mkdir(exist_ok=True)
    head = f'{{"image":"{image.name}","lock_sha256":"{image.lock_sha256}","offered":{json.dumps(counts)},"steps":[\n'
    store.write_bytes(path, (head + ",\n".join(lines) + "\n]}\n").encode())
    return path


def sum_of(programs: Sequence[Program]) -> Program:
    return sum(programs, Program(0, 0, 0, Counter(), 0, Counter()))
