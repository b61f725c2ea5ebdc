"""The command `runner images reproduce`."""

from __future__ import annotations

import typer

from runner.cli.images import Names, chosen
from runner.cli.shared import BaseImage, note
from runner.errors import one_code
from runner.images import builder
from runner.images.docker_client import connect


def reproduce(names: Names, base_image: BaseImage = None) -> None:
    """Builds without any earlier layer, and compares with the image that is here, or that the registry has. Exit code 1: one differs."""
    client = connect()
    different = False
    for image in chosen(names):
        image_id = builder.build(image, base_image, note, client)
        difference = builder.build_again(client, builder.recipe_here(client, image, base_image), image_id, note)
        different = different or difference is not None
        typer.echo(f"{image.name} {image_id} " + (f"differs: {difference}" if difference else "is reproduced"))
    raise typer.Exit(one_code(different, is_open=False))
