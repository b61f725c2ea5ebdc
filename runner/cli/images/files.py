"""The command `runner images files`."""

from __future__ import annotations

import typer

from runner.cli.images import chosen
from runner.images.generated_files import write


def files() -> None:
    """Prints the path of each file."""
    for path in write(chosen(None)):
        typer.echo(str(path))
