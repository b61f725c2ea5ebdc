"""The command `runner images check`."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.catalog.workloads import adapters, load_workloads
from runner.cli.images import SomeNames, chosen
from runner.cli.shared import note
from runner.images import consistency as rules
from runner.images import generated_files
from runner.text import plural


def check(
    names: SomeNames = None,
    strict: Annotated[bool, typer.Option("--strict", help="Count a base image without a digest as a problem.")] = False,
) -> None:
    """Exit code 0: no image has a problem; 1: some image has one; 2: a file cannot be read."""
    images = chosen(names)
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
    raise typer.Exit(1 if counted else 0)
