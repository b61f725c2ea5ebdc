"""The command `runner images pin`."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli.images import Names, chosen
from runner.cli.shared import BaseImage
from runner.images import registry as registries
from runner.images.docker_client import connect
from runner.images.lock import pin_base, pin_published
from runner.images.recipe import recipe


def pin(
    names: Names,
    registry: Annotated[
        str | None, typer.Option(help="Pin the images that were pushed to this registry, instead of the base images.")
    ] = None,
    base_image: BaseImage = None,
) -> None:
    """Asks the base images' registries for the digests; with --registry, asks that one."""
    images = chosen(names)
    client = connect()
    for image in images:
        if registry:
            reference = registries.digest_of(client, recipe(image, base_image), registry)
            pin_published(image, reference)
            typer.echo(f"{image.name} {reference}")
        else:
            typer.echo(f"{image.name} {image.base} {pin_base(image, client)}")
