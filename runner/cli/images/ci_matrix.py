"""The command `runner images ci-matrix`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from runner.cli.images import SomeNames, chosen
from runner.images.files import changed_images


def ci_matrix(
    names: SomeNames = None,
    changed_since: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Only the images that changed since this commit.")
    ] = None,
) -> None:
    """GitHub builds one job for each image of the matrix."""
    images = chosen(names)
    if changed_since:
        images = changed_images(images, changed_since)
    rows = [{"image": image.name, "accelerator": image.accelerator} for image in images]
    typer.echo(json.dumps({"include": rows}))
