"""The command `runner images push`."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli.images import Names, chosen
from runner.cli.shared import BaseImage
from runner.errors import UserError
from runner.images import build as builder
from runner.images import registry as registries
from runner.images.docker_client import connect
from runner.images.recipe import recipe


def push(
    registry: Annotated[str, typer.Argument(help="Such as ghcr.io/owner.")], names: Names, base_image: BaseImage = None
) -> None:
    """Prints registry/name@digest of each image."""
    images = chosen(names)
    client = connect()
    for image in images:
        image_recipe = recipe(image, base_image)
        if builder.built(client, image_recipe) is None:
            raise UserError(f"{image.name} is not built, or stale; `runner images build {image.name}` makes it")
        typer.echo(f"{image.name} {registries.push(client, image_recipe, registry)}")
