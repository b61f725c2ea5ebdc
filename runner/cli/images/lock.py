"""The command `runner images lock`."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from runner.cli.images import Names, chosen
from runner.cli.shared import note
from runner.errors import UserError
from runner.images.lock import make_lock


def lock(
    names: Names,
    date: Annotated[
        str | None, typer.Option(help="Take nothing newer than this day (YYYY-MM-DD); default: today.")
    ] = None,
) -> None:
    """Prints the path of each lock."""
    try:
        day = datetime.date.fromisoformat(date) if date else datetime.date.today()
    except ValueError:
        raise UserError(f"--date: {date!r} is not a day; write it like 2026-11-20") from None
    for image in chosen(names, locks=False):
        typer.echo(str(make_lock(image, day, note)))
