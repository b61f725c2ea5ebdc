"""The command `runner list`: the names that options take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from runner.cli.shared import PLAIN, Out

Kind = Literal["workloads", "frameworks", "precisions", "images", "runs"]

app = typer.Typer(**PLAIN)


@app.command()
def list_names(
    kind: Annotated[Kind, typer.Argument(help="The names of what.")],
    out: Out = Path("results"),
) -> None:
    """A line has a name, and what it stands for."""
    from runner.text import visible

    named = names_of(kind, out)
    longest = max(map(len, named), default=0)
    for name, what in named.items():
        typer.echo(visible(f"{name:{longest}}  {what}".rstrip(), 300))


def names_of(kind: Kind, out: Path) -> dict[str, str]:
    """Each name with what it stands for."""
    # The shell's completion asks for one kind at a time.
    if kind == "workloads":
        from runner.catalog.workloads import load_workloads

        return {name: workload.title for name, workload in load_workloads().items()}
    if kind == "frameworks":
        from runner.catalog.frameworks import load_frameworks

        return {name: framework.title for name, framework in load_frameworks().items()}
    if kind == "precisions":
        from runner.catalog.workloads import load_workloads

        measured: dict[str, list[str]] = {}
        for name, workload in load_workloads().items():
            for precision in workload.precisions:
                measured.setdefault(precision, []).append(name)
        return {precision: f"of {len(names)} workloads" for precision, names in measured.items()}
    if kind == "images":
        from runner.catalog.images import load_catalog

        return {name: " ".join(image.frameworks) for name, image in load_catalog(locks=False).items()}
    from runner.results.store import LATEST, runs_below

    runs = [folder.name for folder in reversed(runs_below(out))]
    return {LATEST: runs[0], **dict.fromkeys(runs, "")} if runs else {}
