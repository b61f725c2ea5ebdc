"""The command `runner report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from reports.data.tables import load
from reports.page.render import render
from reports.page.summary import markdown
from runner.cli.shared import Out, chosen_runs
from runner.errors import UserError


def write_report(folder: Path) -> Path:
    """Write the report on a run into its folder."""
    render([folder], folder / "report.html")
    return folder / "report.html"


def report(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, by id or folder; default: the newest.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    out: Out = Path("results"),
    output_format: Annotated[
        Literal["html", "markdown"],
        typer.Option("--format", help="html writes the report; markdown prints a summary for a README instead."),
    ] = "html",
) -> None:
    """Prints the path of the report."""
    folders = chosen_runs(runs, out)
    if output_format == "markdown":
        return typer.echo(markdown(load(folders)), nl=False)
    try:
        render(folders, output)
    except OSError as error:
        raise UserError(
            f"--output {output} cannot be written ({error.strerror}); name a file in a folder of yours"
        ) from None
    return typer.echo(str(output))
