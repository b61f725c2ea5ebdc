"""The command `runner images reproduce`."""

from __future__ import annotations

import typer

from runner.catalog.images import Image
from runner.cli.images import Names, chosen, one_after_another
from runner.cli.shared import BaseImage, note
from runner.errors import one_code
from runner.images import builder
from runner.images.docker_client import connect


def reproduce(names: Names, base_image: BaseImage = None) -> None:
    """Builds without any earlier layer, and compares with the image that is here, or that the registry has. Exit code 1: one differs."""
    client = connect()
    different: list[str] = []

    def build_twice(image: Image) -> None:
        image_id = builder.build(image, base_image, note, client)
        difference = builder.build_again(client, builder.recipe_here(client, image, base_image), image_id, note)
        different.extend([difference] if difference else [])
        typer.echo(f"{image.name} {image_id} " + (f"differs: {difference}" if difference else "is reproduced"))

    one_after_another(build_twice, chosen(names))
    raise typer.Exit(one_code(bool(different), is_open=False))
