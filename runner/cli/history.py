"""The command `runner history`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.answers import history as answers
from reports.answers.export import comma_separated, terminal
from reports.data.tables import load
from runner.cli.shared import AnyFormat, Margin, Out, chosen_runs, print_json, stored_runs


def history(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, by id or folder; default: all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also show noise and the undecided cells.")] = False,
    margin: Margin = 5.0,
    out: Out = Path("results"),
    output_format: AnyFormat = "text",
) -> None:
    """CSV and JSON hold every row.

    Exit code 0: nothing moved; 1: something moved; 2: some cell is undecided.
    """
    moves = answers.history(load(chosen_runs(runs, out) if runs else stored_runs(out)), margin / 100)
    rows = moves.rows if everything else moves.moved
    if output_format == "json":
        print_json(answers.document(moves))
    elif output_format == "csv":
        typer.echo(comma_separated(answers.records(moves)), nl=False)
    elif output_format == "markdown":
        typer.echo(answers.markdown(moves, rows), nl=False)
    else:
        if rows:
            terminal(answers.table(rows))
        typer.echo(moves.summary)
    raise typer.Exit(moves.exit_code)
