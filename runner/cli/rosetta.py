"""The command `runner rosetta`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reports.page import rosetta_stone as stone
from runner.catalog.names import full_name
from runner.results.store import write_bytes


def rosetta(
    workload: Annotated[str, typer.Argument(help="Such as cnn-cifar10.")],
    frameworks: Annotated[list[str], typer.Argument(help="Two or more frameworks, such as torch chainer.")],
    html: Annotated[
        Path | None,
        typer.Option("-o", "--output", "--html", help="Write one self-contained HTML page into this file instead."),
    ] = None,
) -> None:
    """Each framework's file is printed with its explanation."""
    workload, frameworks = full_name(workload), list(map(full_name, frameworks))
    if html is None and sys.stdout.isatty():
        return stone.terminal(workload, frameworks)
    if html is None:
        return typer.echo(stone.plain(workload, frameworks))
    write_bytes(html, stone.page(workload, frameworks).encode())
    return typer.echo(str(html))
