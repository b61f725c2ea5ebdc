"""docs/gpu-compiled.md, and the column of docs/gpu-images.md: what was compiled for GPUs that are not here."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from runner.catalog.images import Image
from runner.images.absent.compiled import CompiledImage, CompiledStep, is_current, read_compiled
from runner.images.absent.targets import load_targets
from runner.images.tried import adapter_sha256
from runner.paths import PROJECT

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
