"""The command `runner history`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from reports.answers import run_history as answers
from reports.answers.export import comma_separated
from reports.data.model import Tables
from reports.data.tables import STEPS, load, load_readable
from runner.cli.shared import (
    AnyFormat,
    Margin,
    Out,
    Page,
    chosen_runs,
    note,
    print_rows,
    renewed,
    stored_runs,
    write_page,
)
from runner.errors import UserError
from runner.json_document import print_document
from runner.results.store import write_bytes
from runner.terminal import folded
from runner.text import visible


def history(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, by id or folder; default: all.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show what did not change, and the open cells.")
    ] = False,
    margin: Margin = 5.0,
    out: Out = Path("results"),
    otava: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also write a CSV a cell into this folder, and the otava.yaml with which `otava analyze` of Apache Otava reads them.",
        ),
    ] = None,
    output_format: AnyFormat = "text",
    output: Page = None,
) -> None:
    """A run counts as one measurement, however many repeats it has. CSV and JSON hold every row.

    Exit code 0: nothing became slower by more than the margin; 1: something did, or did, perhaps by less, or fails since; 3: some cell is
    open. compare means the same by these.
    """
    tables = load(chosen_runs(runs, out), STEPS) if runs else _readable(stored_runs(out))
    moves = answers.history(tables, margin / 100)
    if otava is not None:
        # Only this needs it.
        from reports.answers import other_formats

        for path, text in other_formats.otava(moves, tables, otava).items():
            write_bytes(path, text.encode())
    rows = moves.rows if everything else moves.moved
    if output is not None:
        # The page's libraries take longer to load than the history takes.
        from reports.page.change_pages import history_page

        write_page(output, output_format, history_page(moves, tables, everything=everything))
    elif output_format == "json":
        print_document(answers.document(moves))
    elif output_format == "csv":
        typer.echo(comma_separated(answers.every_record(moves)), nl=False)
    elif output_format == "markdown":
        typer.echo(answers.markdown(moves, rows), nl=False)
    else:
        if moves.together:
            print(folded(moves.together))
        # If nothing moved, show that of each cell.
        if shown := rows or moves.rows:
            print_rows(answers.table(shown), answers.compact(shown))
        for line in (*(one.line for one in moves.broken), moves.summary, *((answers.HOW,) if shown else ())):
            print(folded(line))
    raise typer.Exit(moves.exit_code)


def _readable(folders: Sequence[Path]) -> Tables:
    """The rows of those runs that can be read. An unreadable run is named and skipped: nobody asked for it by name."""
    tables, skipped = load_readable(renewed(folders, readable=True), STEPS)
    for error in skipped:
        note(f"skipped: {visible(error)}")
    if not tables.runs:
        # A disk that fails, or a cache that nobody can write, is no fault of the runs: the newest says it, with its code.
        try:
            renewed(folders[-1:])
        except UserError as error:
            if isinstance(error.__context__, OSError):
                raise
        raise UserError("no run can be read, so there is no history; restore one of them, or name another --results")
    return tables
