"""The commands `runner images check` and `runner images libraries`: what the locks hold, and what the wheels of the locks do."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from runner.catalog.workloads import adapters, load_workloads
from runner.cli.images import SomeNames, chosen
from runner.cli.shared import note
from runner.errors import UserError
from runner.images import consistency as rules
from runner.images import generated_files
from runner.images.libraries import library_record
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


def libraries(names: SomeNames = None) -> None:
    """Reads only wheels whose lock is new: gigabytes, of which nothing is kept. Exit code 0: all libraries are found; 1: some are not."""
    bad = False
    for image in (image for image in chosen(names) if image.accelerator == "cuda"):
        record = library_record.read_record()
        try:
            if library_record.resolution(image, record) is None:
                record = library_record.read_lock(image, record, datetime.date.today(), note)
            library_record.write_record(library_record.worked_out(image, record))
        except OSError as error:
            raise UserError(f"{image.name}: a wheel could not be read: {error}; try again") from None
        typer.echo(f"{image.name}: {library_record.cell_text(image)}")
        resolution = library_record.resolution(image, record)
        bad = bad or resolution is None or bool(resolution.missing)
    raise typer.Exit(1 if bad else 0)
