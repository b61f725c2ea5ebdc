"""The command `runner images ci-matrix`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from runner.catalog.architectures import AARCH64, why_not
from runner.cli.images import SomeNames, chosen
from runner.cli.shared import BaseImage
from runner.images.docker_client import connect
from runner.images.recipe import recipe
from runner.images.transfer import registry


def ci_matrix(
    names: SomeNames = None,
    missing_from: Annotated[
        str | None,
        typer.Option(
            metavar="REGISTRY", help="Only the images that this registry lacks: it has none of just these inputs."
        ),
    ] = None,
    base_image: BaseImage = None,
) -> None:
    """GitHub builds one job for each image of the matrix, and one more on a machine of the architecture that `index` names."""
    images = chosen(names)
    if not names:
        # Nobody has built these, so their jobs would be red for ever. Named, they are built.
        images = [image for image in images if image.untested is None]
    if missing_from:
        recipes = [recipe(image, base_image) for image in images]
        images = [lacking.image for lacking in registry.missing(connect(), recipes, missing_from)]
    rows = [
        {
            "image": image.name,
            "accelerator": image.accelerator,
            "index": AARCH64.docker if why_not(image, AARCH64.name) is None else "",
        }
        for image in images
    ]
    typer.echo(json.dumps({"include": rows}))
