"""Steps that were compiled for GPUs that are not here: for which GPUs, what the compiled program says, its record and its page."""

from __future__ import annotations

import functools
import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from bench import rules
from runner.catalog.images import IMAGES, CatalogError, Image
from runner.errors import first_problem
from runner.images.compile_program import Program
from runner.images.tried import adapter_sha256
from runner.paths import PROJECT
from runner.results import store
from runner.results.validate import Frozen

# images/targets.toml: the GPUs for which steps are compiled without one being here, and XLA's text of each.

TARGETS = IMAGES / "targets.toml"

# NVIDIA's limits of every GPU since Volta (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"), but for the
# threads of a multiprocessor, which are fewer on some consumer cards.
_TEXT = """\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared_bytes}
  threads_per_core_limit: 2048
  core_count: {multiprocessors}
  fpus_per_core: {fp32_lanes}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {memory_bytes_per_second}
  l2_cache_size: {l2_bytes}
  clock_rate_ghz: {clock_ghz}
  device_memory_size: {memory_bytes}
  shared_memory_per_block_optin: {shared_bytes_of_a_block}
  cuda_compute_capability {{
    major: {major}
    minor: {minor}{feature_extension}
  }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{
  major: {dnn[0]}
  minor: {dnn[1]}
  patch: {dnn[2]}
}}
device_description_str: "{model}"
"""


class Target(Frozen):
    """One GPU as XLA asks of it. Bytes and lanes are of a multiprocessor where nothing else is said."""

    # NVML's name, by which the plan knows it.
    model: str = Field(pattern=r"^[A-Za-z0-9 -]+$")
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    arch_specific: bool
    multiprocessors: int = Field(gt=0)
    fp32_lanes: int = Field(gt=0)
    clock_ghz: float = Field(gt=0)
    memory_bytes: int = Field(gt=0)
    memory_bytes_per_second: int = Field(gt=0)
    l2_bytes: int = Field(gt=0)
    shared_bytes: int = Field(gt=0)
    shared_bytes_of_a_block: int = Field(gt=0)

    def text(self, image: Image) -> str:
        """XLA's GpuTargetConfigProto as text, with the cuDNN that the image has."""
        major, minor = self.compute_capability.split(".")
        extension = "\n    feature_extension: ACCELERATED_FEATURES" if self.arch_specific else ""
        dnn = [*(image.cudnn or "0").split("."), "0", "0"]
        return _TEXT.format(**self.model_dump(), major=major, minor=minor, feature_extension=extension, dnn=dnn)


@cache
def load_targets() -> Mapping[str, Target]:
    """Name -> target, in the file's order. Raises CatalogError."""
    try:
        return {
            name: Target.model_validate(fields)
            for name, fields in tomllib.loads(TARGETS.read_text(encoding="utf-8")).items()
        }
    except (ValidationError, ValueError) as error:
        raise CatalogError(f"{TARGETS}: {error}; fix that target") from None


# docs/compiled: the record of the steps of an image that were compiled for GPUs that are not here, and the judgement of each.

RECORDS = PROJECT / "docs" / "compiled"

# ok: it compiled, and nothing of it is wrong; wrong: it compiled, and a fact is not as it should be; error: it did not compile;
# unsupported: the adapter says that this version of the framework cannot do it; unfinished: it took too long
Outcome = Literal["ok", "wrong", "error", "unsupported", "unfinished"]

_LONGEST = 300
# The element types of the factors in HLO that a half precision asks for.
_HALF = {"fp16": "f16", "bf16": "bf16", "fp8": "f8e4m3fn"}
# Those that a whole precision does not ask for: a program with them was rounded.
_ROUNDED = {"fp32": ("f16", "bf16", "f8"), "tf32": ("f16", "bf16", "f8"), "fp64": ("f16", "bf16", "f8", "f32")}


class CompiledStep(Frozen):
    """One adapter at one precision, compiled for one GPU. Of `ops`: the sums over its operations."""

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
    products: dict[str, int] = Field(default={})
    tf32: int = Field(0, ge=0)
    # NHWC or NCHW -> convolutions.
    layouts: dict[str, int] = Field(default={})
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


class CompiledImage(Frozen):
    image: str
    lock_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    # Framework -> target -> how many steps the plan offered there when the record was written.
    offered: dict[str, dict[str, int]] = Field(default={})
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


# docs/gpu-compiled.md, and the column of docs/gpu-images.md: what was compiled for GPUs that are not here.

PAGE = PROJECT / "docs" / "gpu-compiled.md"

_HEAD = """\
# Steps compiled for GPUs that are not here

This page is written by `runner images files`, from the records in `docs/compiled`. `runner images try NAME --compile-for H100,A100` makes
a record: XLA compiles a step for a GPU of which it has a description only (`images/targets.toml`), in an environment of the image's whole
lock. The step is the one that a cell measures, with the batch of preset `standard`, and all that it donates. **No kernel has run, so
no time follows from this page.** Nothing is tuned, because tuning runs kernels: which kernel of cuDNN or cuBLAS a GPU gets is not seen,
and XLA may take cuBLAS on the GPU where a kernel of Triton is counted here.

- *Launches*: the kernels and the calls of cuBLAS and cuDNN that one step starts, loops counted by their turns.
- *NHWC 11*: so many convolutions have this order of axes, which XLA chooses by GPU, type and cuDNN.
- *MB*: device memory of the arguments, the results that take no argument's memory, and the temporary arrays.
- *Donated*: how many of the results take the memory of an argument. A training step must donate all but the loss.
- *Products*: matrix products and convolutions by the type of their factors, and how many of those of float32 may round their factors to
  TF32: none unless the precision is tf32, where it must be all.
- A line of `ops` is the sum over its operations, each at its smallest size; its MB are those of the largest.
- An empty field: the plan offers no such cell on that GPU. *Of older code*: the adapter or the lock was edited since, and
  `--missing` has not yet asked whether XLA would get another program.

Other frameworks have no line. TensorFlow 2.21 gives its program before XLA's optimisation at most where there is no GPU
(`experimental_get_compiler_ir` with `platform_name="CUDA"` at the stage `optimized_hlo`: "not supported on this device"; asked of its CPU
build). PyTorch's Inductor asks the driver for the properties of the device before it writes a kernel of Triton. The kernels of cuDNN and
cuBLAS that both call are compiled already.
"""


def page_text(images: Iterable[Image]) -> str:
    targets = list(load_targets())
    head = ["image", "framework", "workload", "precision", *targets, "donated", "products", "compiled on"]
    rows = [head, ["---"] * len(head)]
    notes = []
    # A page asks for each adapter many times, and the answer takes a walk over the bench.
    today = functools.cache(adapter_sha256)
    for image in images:
        if not (record := read_compiled(image)):
            continue
        reasons = {step.reason for step in record.steps}
        if len(reasons) == 1 and all(step.outcome == "unsupported" for step in record.steps):
            notes.append(
                f"- `{image.name}`: none of its {len(record.steps)} steps was compiled: {_plain(reasons.pop())}\n"
            )
            continue
        by_step: dict[tuple[str, str, str], list[CompiledStep]] = {}
        for step in record.steps:
            by_step.setdefault((step.framework, step.workload, step.precision), []).append(step)
        rows += [
            [f"`{image.name}`", *key, *_row(image, record, steps, targets, today)] for key, steps in by_step.items()
        ]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return _HEAD + "\n" + table + ("\nNot in the table:\n\n" + "".join(notes) if notes else "")


def _row(
    image: Image,
    record: CompiledImage,
    steps: Sequence[CompiledStep],
    targets: Sequence[str],
    today: Callable[[str, str], str],
) -> list[str]:
    by_target = {step.target: step for step in steps}
    compiled = [step for step in steps if step.programs]
    old = "" if all(is_current(image, record, step, today) for step in steps) else " **of older code**"
    return [
        *(_cell(by_target[name]) if name in by_target else "" for name in targets),
        _distinct(f"{step.aliased} of {step.results}" for step in compiled),
        _distinct(map(_products, compiled)),
        f"{max(step.date for step in steps)}{old}",
    ]


def _cell(step: CompiledStep) -> str:
    if step.outcome != "ok":
        return f"**{step.outcome}**: {_plain(step.reason)}"
    layouts = "".join(f", {name} {count}" for name, count in step.layouts.items())
    refused = f", {step.left_out} refused by JAX" if step.left_out else ""
    of = f"{step.programs} programs{refused}, " if step.programs > 1 else ""
    return f"{of}{step.launches} launches{layouts}, {step.bytes / 1e6:.0f} MB"


def _products(step: CompiledStep) -> str:
    types = ", ".join(f"{name} {count}" for name, count in step.products.items())
    return types + (f" ({step.tf32} TF32)" if "f32" in step.products else "")


def _distinct(texts: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(texts))


def column(image: Image, framework: str) -> str:
    """How many of the steps of a framework that the plan offers were compiled and are ok, target by target."""
    record = read_compiled(image)
    offered = record.offered.get(framework, {}) if record else {}
    if record is None or not offered:
        return "-"
    ok = Counter(step.target for step in record.steps if (step.framework, step.outcome) == (framework, "ok"))
    return ", ".join(f"{name} {ok[name]} of {offered[name]}" for name in load_targets() if name in offered)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").replace("_", "\\_")
