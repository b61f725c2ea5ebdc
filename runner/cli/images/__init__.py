"""The commands `runner images ...`: a file a command. This file loads Typer only, so that the help starts fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from runner.cli.shared import PLAIN, LazyGroup

if TYPE_CHECKING:
    from runner.catalog.images import Image


class ImageCommands(LazyGroup):
    package = "runner.cli.images"
    names: ClassVar[Mapping[str, str]] = {
        "list": "Show every image of the catalog.",
        "show": "Show all facts of images, and what their locks install.",
        "check": "Prove from the locks, without a network, that images hold what image.toml says.",
        "build": "Build images with the Docker Engine.",
        "push": "Push images that are built here.",
        "lock": "Make the hashed locks of images again, with uv.",
        "pin": "Write the digests of base images or of published images into image.toml.",
        "prune": "Remove the images and environments that older locks and benches left on this machine.",
        "files": "Write compose.gpu.yml and images/docker-bake.json again, from the catalog.",
        "ci-matrix": "Print the images as the matrix of a GitHub workflow: one line of JSON.",
    }


app = typer.Typer(cls=ImageCommands, no_args_is_help=True, **PLAIN)


@app.callback()
def images_group() -> None:
    pass


Names = Annotated[list[str], typer.Argument(help="Image names or patterns.")]
SomeNames = Annotated[list[str] | None, typer.Argument(help="Image names or patterns; default: all.")]


def chosen(names: list[str] | None, locks: bool = True) -> list[Image]:
    """The images that these names or patterns choose. Without `locks`, a missing or stale lock is no error."""
    from runner.catalog.images import load_catalog, select_images

    return select_images(load_catalog(locks=locks), names or ["*"])
