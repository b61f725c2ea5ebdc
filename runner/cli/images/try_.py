"""The command `runner images try`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import CatalogError, Image
from runner.catalog.names import unknown_name
from runner.catalog.workloads import load_workloads
from runner.cli.images import Names, chosen
from runner.cli.shared import note
from runner.engines import trial
from runner.engines.base import EngineError, Settings
from runner.engines.docker.engine import DockerEngine
from runner.errors import UserError
from runner.images.tried import Tried, offered, read_record, recorded, shortcomings, write_record
from runner.text import visible

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
        typer.Option("--missing", help="Run only the checks that have no record of this lock, engine and adapter yet."),
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
) -> None:
    """Writes a record of each image into docs/tried. Exit code 1: an image is not made ready, a framework is not imported although
    it needs no driver of NVIDIA's, a check is wrong or in error, or none is ok. An image that is not made ready keeps its record."""
    if not 1 <= limit <= _LONGEST_LIMIT:
        raise UserError(f"--limit: {limit:g} is not a number of seconds from 1 to {_LONGEST_LIMIT}")
    frameworks, every = load_frameworks(), load_workloads()
    _there("--workloads", workloads, every)
    _there("--precision", precision, {name for workload in every.values() for name in workload.precisions})
    good = True
    for image in chosen(names):
        checks = [
            check
            for check in offered(image, frameworks, every.values())
            if (not workloads or check[1] in workloads) and (not precision or check[2] in precision)
        ]
        try:
            before = read_record(image)
        except CatalogError as error:
            before = None
            note(f"{error}; what was checked before is lost")
        if missing:
            checks = [check for check in checks if check not in recorded(image, engine, before)]
            if not checks:
                note(f"{image.name}: every check has its record")
                continue
        tried = _tried(image, engine, checks, limit, trial.TrialEngine(driver), keep)
        if tried is None:
            good = False
            continue
        for sentence in shortcomings(image, tried):
            note(f"runner: {visible(f'{image.name}: {sentence}', 4000)}")
            good = False
        typer.echo(str(write_record(image, tried)))
    note("`runner images files` writes docs/gpu-images.md from the records")
    raise typer.Exit(0 if good else 1)


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
) -> Tried | None:
    """The trial of one image; None, and the reason is printed, if it could not be made ready.

    The record is written with each check: an interrupted one keeps its checks.
    """

    def keep_record(tried: Tried) -> None:
        write_record(image, tried)

    try:
        if engine == "docker":
            docker = DockerEngine(Settings())
            return trial.attempt(docker, engine, docker.prepare(image, note), [], checks, limit, note, keep_record)
        prepared, left_out = trial.environment(image, venv, note)
    except EngineError as error:
        # This error is of the machine and its network, not of the image: the record stays as it is.
        note(f"runner: {visible(str(error), 4000)}")
        return None
    try:
        return trial.attempt(venv, engine, prepared, left_out, checks, limit, note, keep_record)
    finally:
        if not keep:
            trial.remove(prepared)
