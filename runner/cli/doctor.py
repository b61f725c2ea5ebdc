"""The command `runner doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.cli.shared import BaseImage, Out, TextOrJson
from runner.doctor import diagnosis as checks


def doctor(
    base_image: BaseImage = None,
    image: Annotated[
        str | None,
        typer.Option(help="The image to start a container of; default: one of this project's on this machine."),
    ] = None,
    out: Out = Path("results"),
    output_format: TextOrJson = "text",
) -> None:
    """Starts a container with every GPU. An engine is optional: without one, cells run in environments.

    Exit code 0: nothing failed; 1: something failed; 2: the checks could not be made.
    """
    raise typer.Exit(checks.run(output_format == "json", base_image, image, out))
