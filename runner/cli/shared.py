"""Options that several commands have. Only Typer is loaded here, as in runner/cli/main.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script, on standard output.")]
Out = Annotated[Path, typer.Option(help="Folder of the results.")]
BaseImage = Annotated[
    str | None, typer.Option(envvar="DLBENCH_BASE_IMAGE", help="Base image of a site without a registry.")
]
Seed = Annotated[
    int, typer.Option(help="Of the data, the parameters and the order of the cells.", min=0, max=2**31 - 1)
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which a cell is taken to hang; default: 900 (quick), 3600 (standard), 172800 (full).",
        min=1,
    ),
]


def write_report(folder: Path) -> Path:
    """Write the report on a run into its folder."""
    from reports.page.render import render

    render([folder], folder / "report.html")
    return folder / "report.html"
