"""The command `runner images push`."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli.images import Names, chosen
from runner.cli.shared import BaseImage, note
from runner.errors import UserError
from runner.images import build as builder
from runner.images.docker_client import connect, list_images
from runner.images.recipe import recipe
from runner.images.transfer import registry as registries


def push(
    registry: Annotated[str, typer.Argument(help="Such as ghcr.io/owner.")],
    names: Names,
    base_image: BaseImage = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished", help="Push under the tag latest only: the tag of the inputs says that an image is finished."
        ),
    ] = False,
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="SHA256", help="Give the tag of the inputs only to an image with this digest, such as a signed one."
        ),
    ] = None,
) -> None:
    """Prints registry/name@digest of each image."""
    images = chosen(names)
    if digest and len(images) != 1:
        raise UserError(f"--digest: it is of one image, and {len(images)} are named")
    client = connect()
    here = list_images(client)
    for image in images:
        image_recipe = recipe(image, base_image)
        if builder.built(here, image_recipe) is None:
            raise UserError(f"{image.name} is not built, or stale; `runner images build {image.name}` makes it")
        pushed = registries.push(client, image_recipe, registry, note, finish=not unfinished, digest=digest)
        typer.echo(f"{image.name} {pushed}")
