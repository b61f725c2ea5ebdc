"""The command `runner images pin`."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.catalog.images import Image
from runner.cli.images import SomeNames, chosen, one_after_another, raise_together
from runner.cli.shared import BaseImage, note
from runner.errors import UserError
from runner.images.docker_client import connect
from runner.images.locking import pin_base, pin_published
from runner.images.recipe import recipe
from runner.images.transfer import registry as registries


def pin(
    names: SomeNames = None,
    registry: Annotated[
        str | None, typer.Option(help="Pin the images that were pushed to this registry, instead of the base images.")
    ] = None,
    base_image: BaseImage = None,
) -> None:
    """Asks the base images' registries for the digests; with --registry, asks that one, by default for all tested images."""
    if registry:
        images = [image for image in chosen(names) if names or image.untested is None]
        _pin_published(images, registry, base_image)
        return
    if not names:
        raise UserError("name the images whose base is to be pinned, such as 'torch-*', or give --registry")
    # First: a mistake in a file is said on a machine without an engine, too.
    images = chosen(names)
    client = connect()
    one_after_another(
        lambda image: typer.echo(f"{image.name} {image.base} {pin_base(image, client)}"),
        images,
    )


def _pin_published(images: list[Image], registry: str, base_image: str | None) -> None:
    """Raises UserError, once the images that are there are pinned, for those that are not."""
    client = connect()
    absent: list[UserError] = []
    there = []
    for image in images:
        image_recipe = recipe(image, base_image)
        try:
            reference = registries.digest_of(client, image_recipe, registry)
        except registries.RegistryError as error:
            absent.append(error)
            continue
        pin_published(image, reference)
        there.append(image_recipe)
        typer.echo(f"{image.name} {reference}")
    for name in registries.pin_layers(client, there, registry):
        note(f"{name}: its digest is in images/{registries.LAYERS.name}")
    raise_together(absent, len(there))
