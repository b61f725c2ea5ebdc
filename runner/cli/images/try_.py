"""The command `runner images try`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from runner.catalog.architectures import for_machine, kernel_machine
from runner.catalog.frameworks import Framework, load_frameworks
from runner.catalog.images import CatalogError, Image
from runner.catalog.names import PresetName, unknown_name
from runner.catalog.workloads import Workload, load_workloads
from runner.cli.images import Names, chosen
from runner.cli.shared import note
from runner.engines import compilation, trial
from runner.engines.base import EngineError, Settings
from runner.engines.docker.engine import DockerEngine
from runner.engines.process.venv import VenvEngine
from runner.errors import ExitCode, UserError, code_of, one_code, whole_code
from runner.images import compiled
from runner.images.tried import Tried, adapter_sha256, offered, read_record, recorded, shortcomings, write_record
from runner.machine.devices import Cpu, Gpu, Machine
from runner.plan.plan import plan
from runner.plan.request import Request
from runner.text import visible

# Cells that the plan offers an image on GPUs that are not here.

# The preset whose batch is that of the published procedure. `quick` has smaller ones, for CPUs.
PRESET: PresetName = "standard"

# No driver is too old.
_DRIVER = "99999"


def offered_steps(
    image: Image,
    workloads: Mapping[str, Workload],
    frameworks: Mapping[str, Framework],
    targets: Mapping[str, compiled.Target],
) -> dict[tuple[str, str, str], tuple[int, list[str]]]:
    """(framework, workload, precision) -> (batch, the names of the targets on which the plan has it, in the order of `targets`).

    A workload that computes another one adds nothing: its program is that one's.
    """
    own = {name: workload for name, workload in workloads.items() if workload.computes is None}
    every = tuple(dict.fromkeys(precision for workload in own.values() for precision in workload.precisions))
    request = Request(images=(image.name,), precisions=every, modes=("default",), preset=PRESET)
    steps: dict[tuple[str, str, str], tuple[int, list[str]]] = {}
    for name, target in targets.items():
        gpu = Gpu(0, f"GPU-{name}", target.model, target.compute_capability, target.memory_bytes, _DRIVER, ())
        machine = Machine(Cpu("", (), 0), (gpu,), None)
        for cell in plan(request, [image], own, frameworks, machine, lambda _: None).cells:
            step = cell.framework, cell.workload, cell.precision
            steps.setdefault(step, (cell.batch, []))[1].append(name)
    return steps


# A day, in seconds.
_LONGEST_LIMIT = 86400


def try_(
    names: Names,
    engine: Annotated[
        Literal["venv", "docker"],
        typer.Option(help="venv: an environment made from the lock, removed again; docker: the built image."),
    ] = "venv",
    workloads: Annotated[list[str] | None, typer.Option(help="Check these workloads only; may be repeated.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Check at these precisions only; may be repeated.")
    ] = None,
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="Run only the checks that have no record of this lock, engine and adapter yet. With --compile-for, a step of another "
            "adapter is lowered, and compiled only where XLA would get another program.",
        ),
    ] = False,
    limit: Annotated[float, typer.Option(help="Seconds that one check may take.")] = 900,
    driver: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="With engine venv, a folder of libraries that stand in for those of NVIDIA's driver, or of the base image.",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the environment.")] = False,
    compile_for: Annotated[
        str | None,
        typer.Option(
            help="Check nothing on this CPU, and compile the steps for these GPUs of images/targets.toml, e.g. H100,A100: "
            "JAX, and Keras on JAX, in an environment of the whole lock, which is kept. The record is in docs/compiled."
        ),
    ] = None,
) -> None:
    """Writes a record of each image into docs/tried. Exit code 1: a framework is not imported although it needs no driver of NVIDIA's,
    a check is wrong or in error, none is ok, or not every image is made ready; 4: none is, for want of a package index, an engine or
    room. An image that is not made ready keeps its record."""
    if not 1 <= limit <= _LONGEST_LIMIT:
        raise UserError(f"--limit: {limit:g} is not a number of seconds from 1 to {_LONGEST_LIMIT}")
    every = load_workloads()
    _there("--workloads", workloads, every)
    _there("--precision", precision, {name for workload in every.values() for name in workload.precisions})
    wanted = _Wanted(tuple(workloads or ()), tuple(precision or ()), missing, limit)
    if compile_for is not None:
        if engine != "venv" or driver or keep:
            why = "it uses the environment of --engine venv, and keeps it"
            raise UserError(f"--compile-for takes no --engine, --driver or --keep: {why}")
        codes = [_compiled(image, compile_for.split(","), wanted) for image in chosen(names)]
        note("`runner images files` writes docs/gpu-compiled.md from the records")
    else:
        here = [for_machine(image, kernel_machine()) for image in chosen(names)]
        codes = [_checked(image, engine, wanted, trial.TrialEngine(driver), keep) for image in here]
        note("`runner images files` writes docs/gpu-images.md from the records")
    raise typer.Exit(whole_code(codes))


def _checked(
    image: Image, engine: Literal["venv", "docker"], wanted: _Wanted, venv: trial.TrialEngine, keep: bool
) -> ExitCode:
    """Check the adapters of an image on this CPU, and write its record; the exit code of that."""
    checks = [
        check
        for check in offered(image, load_frameworks(), load_workloads().values())
        if wanted.has(check[1], check[2])
    ]
    try:
        before = read_record(image)
    except CatalogError as error:
        before = None
        note(f"{error}; what was checked before is lost")
    if wanted.missing:
        checks = [check for check in checks if check not in recorded(image, engine, before)]
        if not checks:
            note(f"{image.name}: every check has its record")
            return ExitCode.OK
    try:
        tried = _tried(image, engine, checks, wanted.limit, venv, keep)
    except EngineError as error:
        # This error is of the machine and its network, not of the image: the record stays as it is.
        note(f"runner: {visible(str(error), 4000)}")
        return code_of(error)
    sentences = shortcomings(image, tried)
    for sentence in sentences:
        note(f"runner: {visible(f'{image.name}: {sentence}', 4000)}")
    typer.echo(str(write_record(image, tried)))
    return one_code(bool(sentences), is_open=False)


class _Wanted(NamedTuple):
    """The checks or steps that were asked for; empty names: all."""

    workloads: tuple[str, ...]
    precisions: tuple[str, ...]
    missing: bool
    limit: float

    def has(self, workload: str, precision: str) -> bool:
        return workload in (self.workloads or (workload,)) and precision in (self.precisions or (precision,))


def _compiled(image: Image, names: list[str], wanted: _Wanted) -> ExitCode:
    """Compile the steps of an image for GPUs that are not here; the exit code of that. A record is written with each step."""
    targets = compiled.load_targets()
    _there("--compile-for", names, targets)
    for why in filter(None, map(compilation.why_not, image.frameworks)):
        note(f"{image.name}: {why}")
    records = compiled.recorded(image) if wanted.missing else {}
    steps = offered_steps(image, load_workloads(), load_frameworks(), {name: targets[name] for name in names})
    counts: dict[str, Counter[str]] = {}
    for (framework, *_), (_, offered_on) in steps.items():
        counts.setdefault(framework, Counter()).update(offered_on)
    good, prepared = True, None
    for step, (batch, offered_on) in steps.items():
        framework, workload, precision = step
        before = {name: records[*step, name] for name in offered_on if (*step, name) in records}
        today = adapter_sha256(framework, workload) if before else ""
        left = {
            name: targets[name] for name in offered_on if name not in before or before[name].adapter_sha256 != today
        }
        if not left or compilation.why_not(framework) or not wanted.has(workload, precision):
            continue
        try:
            prepared = prepared or VenvEngine().prepare(image, note)
            same = {record.programs_sha256 for record in before.values()} - {None}
            results = compilation.compile_step(VenvEngine(), prepared, step, batch, left, wanted.limit, before)
        except EngineError as error:
            note(f"runner: {visible(str(error), 4000)}")
            return ExitCode.FOUND if prepared else code_of(error)
        for one in results:
            say = one.reason or f"{one.launches} launches"
            say += ", the program of the record" if one.programs_sha256 in same else ""
            note(f"{image.name} {framework} {workload} {precision} {one.target}: {one.outcome}: {visible(say, 400)}")
            good = good and one.outcome in ("ok", "unsupported")
        compiled.write_compiled(image, results, counts)
    return one_code(not good, is_open=False)


def _there(option: str, given: list[str] | None, existing: Iterable[str]) -> None:
    """Raises UserError where a word of the user's is none of these."""
    if why := unknown_name(option, given or [], sorted(existing)):
        raise UserError(why)


def _tried(
    image: Image,
    engine: Literal["venv", "docker"],
    checks: list[tuple[str, str, str]],
    limit: float,
    venv: trial.TrialEngine,
    keep: bool,
) -> Tried:
    """The trial of one image. Raises EngineError if it could not be made ready.

    The record is written with each check: an interrupted one keeps its checks.
    """

    def keep_record(tried: Tried) -> None:
        write_record(image, tried)

    if engine == "docker":
        docker = DockerEngine(Settings())
        return trial.attempt(docker, engine, docker.prepare(image, note), [], checks, limit, note, keep_record)
    prepared, left_out = trial.environment(image, venv, note)
    try:
        return trial.attempt(venv, engine, prepared, left_out, checks, limit, note, keep_record)
    finally:
        if not keep:
            trial.remove(prepared)
