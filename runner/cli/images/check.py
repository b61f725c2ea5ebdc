"""The command `runner images check`: what the locks hold."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.catalog.architectures import ARCHITECTURES, by_name, why_not
from runner.catalog.images import Image
from runner.catalog.workloads import adapters, load_workloads
from runner.cli.images import SomeNames, chosen
from runner.cli.shared import note
from runner.errors import UserError, one_code
from runner.images import consistency as rules
from runner.images import generated_files
from runner.text import plural


def check(
    names: SomeNames = None,
    strict: Annotated[bool, typer.Option("--strict", help="Count a base image without a digest as a problem.")] = False,
    architecture: Annotated[
        str | None,
        typer.Option(help="Show only whether each image runs on this architecture, such as aarch64, by its lock."),
    ] = None,
) -> None:
    """Exit code 0: no image has a problem, or with --architecture every image runs there; 1: some image has one, or does not; 2: a file
    cannot be read."""
    images = chosen(names)
    if architecture is not None:
        raise typer.Exit(_holds_on(images, architecture))
    problems = rules.check(images, load_workloads().values(), adapters())
    if not names:
        problems += [rules.Problem(path, sentence) for path, sentence in generated_files.out_of_step(images)]
    counted = [problem for problem in problems if strict or not problem.only_strict]
    for problem in counted:
        note(str(problem))
    unpinned = len(problems) - len(counted)
    typer.echo(
        f"{len(images)} images, {plural(len(counted), 'problem')}"
        + (f"; {unpinned} base images without a digest, which --strict counts" if unpinned else "")
    )
    raise typer.Exit(one_code(bool(counted), is_open=False))


def _holds_on(images: list[Image], name: str) -> int:
    """Print for each image whether its lock holds on an architecture. Returns the exit code. Raises UserError."""
    architecture = by_name(name)
    if architecture is None:
        raise UserError(f"--architecture: {name!r} is not known; known are {', '.join(ARCHITECTURES)}")
    reasons = {image.name: why_not(image, architecture.name) for image in images}
    for image, reason in reasons.items():
        typer.echo(f"{image}: {reason or 'every pin of its lock has a wheel there, with its hash'}")
    held = sum(reason is None for reason in reasons.values())
    typer.echo(f"{held} of {plural(len(images), 'image')} on {architecture.name}")
    return one_code(held < len(images), is_open=False)
