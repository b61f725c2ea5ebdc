"""The commands `runner images push` and `runner images export`: how built images reach other machines."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runner.catalog.architectures import AARCH64, by_name
from runner.catalog.images import Image
from runner.cli.images import Names, chosen, one_after_another
from runner.cli.shared import BaseImage, note
from runner.engines.apptainer import sif
from runner.errors import UserError
from runner.images import builder
from runner.images.docker_client import connect, list_images
from runner.images.recipe import recipe
from runner.images.transfer import folder
from runner.images.transfer import registry as registries

# The most images to name that cannot be exported.
_NAMED = 5


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
    index: Annotated[
        str | None,
        typer.Option(
            metavar="ARCHITECTURE",
            help="Push an index of this image and of the one for this architecture, such as arm64, that a machine of it has pushed there.",
        ),
    ] = None,
) -> None:
    """Prints registry/name@digest of each image."""
    images = chosen(names)
    if digest and len(images) != 1:
        raise UserError(f"--digest: it is of one image, and {len(images)} are named")
    # An index is pushed from x86-64, whose tags have no ending.
    if index is not None and by_name(index) != AARCH64:
        raise UserError(f"--index: {index!r} is not another architecture than this image's; write {AARCH64.docker}")
    client = connect()
    here = list_images(client)

    def push_one(image: Image) -> None:
        image_recipe = recipe(image, base_image)
        if builder.built(here, image_recipe) is None:
            raise UserError(f"{image.name} is not built, or stale; `runner images build {image.name}` makes it")
        pushed = registries.push(
            client,
            image_recipe,
            registry,
            note,
            finish=not unfinished,
            digest=digest,
            index=AARCH64.docker if index else None,
        )
        typer.echo(f"{image.name} {pushed}")

    one_after_another(push_one, images)


class Form(StrEnum):
    """The forms of an image in a folder."""

    DOCKER = "docker"
    SIF = "sif"


def export(
    names: Names,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A folder that all nodes see.")],
    base_image: BaseImage = None,
    form: Annotated[
        Form, typer.Option("--as", help="The form: a file of `docker save`, or a SIF for --engine apptainer.")
    ] = Form.DOCKER,
) -> None:
    """A run loads them with `--images-from FOLDER`. Prints the file of each image."""
    images = chosen(names)
    client = connect()
    here = list_images(client)
    recipes = {image.name: recipe(image, base_image) for image in images}
    if missing := [one.image.name for one in recipes.values() if builder.built(here, one) is None]:
        some = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else "")
        raise UserError(f"not built, or stale: {some}; `runner images build {shlex.join(names)}` makes them")
    if form is Form.SIF:
        sif.version()

    def export_one(image: Image) -> None:
        one = recipes[image.name]
        if form is Form.SIF:
            path = sif.export(client, one, str(builder.built(here, one)), to, note)
            typer.echo(f"{one.image.name} {path} {path.stat().st_size / 1e9:.2f} GB")
            return
        note(f"exporting {one.image.name}")
        entry, new = folder.export(client, one, to)
        said = "" if new else " (was there)"
        typer.echo(f"{one.image.name} {to / entry.sha256}.tar {entry.bytes / 1e9:.2f} GB{said}")

    one_after_another(export_one, images)
