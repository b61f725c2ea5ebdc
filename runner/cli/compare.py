"""The commands `runner compare` and `runner history`: what changed between runs, and after which event."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from reports.answers import comparison as answers
from reports.answers import export, partners, run_history
from reports.data.model import Tables
from reports.data.tables import COMPARED, STEPS, load, load_readable
from reports.wording import listing
from runner.catalog.names import full_name
from runner.cli.shared import (
    AnyFormat,
    Margin,
    Out,
    Page,
    chosen_runs,
    note,
    print_rows,
    renewed,
    split_words,
    stored_runs,
    write_page,
)
from runner.errors import UserError
from runner.results.store import RunStore, StoreError, created, run_folder, runs_below, write_bytes
from runner.terminal import folded
from runner.text import print_document, visible

# The command `runner history`.


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
    tables = load(folders := chosen_runs(runs, out), _asked(folders)) if runs else _readable(stored_runs(out))
    moves = run_history.history(tables, margin / 100)
    if otava is not None:
        # Only this needs it.
        from reports.answers import other_formats

        for path, text in other_formats.otava(moves, tables, otava).items():
            write_bytes(path, text.encode())
    rows = moves.rows if everything else moves.moved
    if output is not None:
        # The page's libraries take longer to load than the history takes.
        from reports.page.render import history_page

        write_page(output, output_format, history_page(moves, tables, everything=everything))
    elif output_format == "json":
        print_document(run_history.document(moves))
    elif output_format == "csv":
        typer.echo(export.comma_separated(run_history.every_record(moves)), nl=False)
    elif output_format == "markdown":
        typer.echo(run_history.markdown(moves, rows), nl=False)
    else:
        if moves.together:
            print(folded(moves.together))
        # If nothing moved, show that of each cell.
        if shown := rows or moves.rows:
            print_rows(run_history.table(shown), run_history.compact(shown))
        for line in (*(one.line for one in moves.broken), moves.summary, *((run_history.HOW,) if shown else ())):
            print(folded(line))
    raise typer.Exit(moves.exit_code)


def _asked(folders: Sequence[Path]) -> Sequence[str]:
    """The tables for a history. Two runs have the rows of `runner compare`, from the step times that it prints."""
    return COMPARED if len(folders) == 2 else STEPS


def _readable(folders: Sequence[Path]) -> Tables:
    """The rows of those runs that can be read. An unreadable run is named and skipped: nobody asked for it by name."""
    tables, skipped = load_readable(renewed(folders, readable=True), _asked(folders))
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


MOST_RUNS = 30  # that are looked through for the two sides
MOST_OTHERS = 10  # beside two runs, that show how far sessions differ: more of them take time and show little more


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A run, image, framework, GPU or CUDA version: the baseline. IMAGE:FRAMEWORK where an image has several.",
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Another of the same kind, compared with A.")],
    runs: Annotated[
        list[str] | None,
        typer.Option(
            "--run", "--runs", help="The run to look the others up in; default: the newest run that has both."
        ),
    ] = None,
    by: Annotated[
        Literal["run", "image", "framework", "gpu", "cuda"] | None,
        typer.Option(help="The kind of A and B; default: found by name."),
    ] = None,
    margin: Margin = 5.0,
    out: Out = Path("results"),
    output_format: AnyFormat = "text",
    output: Page = None,
) -> None:
    """Each cell is slower, faster, the same within the margin, or open: the data do not tell.

    Of two runs all cells together are a row, too. Other runs of the same cells beside them show how far two runs differ: from four on.

    Exit code 0: nothing in B is slower by more than the margin; 1: one is, or perhaps by less, or no longer runs; 3: some row is open.
    """
    a, b = (word if (run_folder(word, out) / "run.json").is_file() else full_name(word) for word in (a, b))
    pair = [run_folder(name, out) for name in (a, b)]
    are_runs = [(folder / "run.json").is_file() for folder in pair]
    if by in (None, "run") and not runs and len(set(are_runs)) == 2:
        raise _half_a_pair(*((a, b) if are_runs[0] else (b, a)), out)
    if by in (None, "run") and all(are_runs):
        names = [RunStore(folder).run_id for folder in pair]
        comparison = answers.comparison(_with_others(pair), names[0], names[1], "run", margin / 100)
        if sides := answers.different_images(comparison):
            where = "" if out == Path("results") else f" --results {out}"
            one, other = (listing([*side[:3], *([f"{len(side) - 3} more"] if len(side) > 3 else [])]) for side in sides)
            raise UserError(
                f"{a} and {b} have no image in common, so no cell of one is in the other: {a} has {one}, {b} has "
                f"{other}; compare two images: runner compare {sides[0][0]} {sides[1][0]} --run {a},{b}{where}"
            )
    else:
        named = list(split_words(runs))
        tables = load(chosen_runs(named, out), COMPARED) if named else _newest_with_both(out, a, b, by)
        comparison = answers.comparison(tables, a, b, by, margin / 100)
    if output is not None:
        # The page's libraries take longer to load than the comparison takes.
        from reports.page.render import compare_page

        write_page(output, output_format, compare_page(comparison))
    else:
        _print(comparison, output_format)
    raise typer.Exit(comparison.exit_code)


def _print(comparison: answers.Comparison, form: str) -> None:
    """Print the comparison in a form."""
    if form == "json":
        print_document(answers.document(comparison))
    elif form == "csv":
        typer.echo(export.comma_separated(answers.records(comparison)), nl=False)
    elif form == "markdown":
        typer.echo(answers.markdown(comparison), nl=False)
    else:
        if comparison.rows:
            print_rows(answers.table(comparison), answers.compact(comparison))
        for line in [*answers.remarks(comparison), *([answers.method(comparison)] if comparison.rows else [])]:
            print(folded(line))


def _with_others(pair: Sequence[Path]) -> Tables:
    """The two runs, and the nearest of those beside them that measured the same cells. An unreadable run is skipped."""
    sides = {folder.resolve(): _planned(RunStore(folder)) for folder in pair}
    shared = set.intersection(*sides.values())
    others = []
    for path in sorted({path.parent for side in sides for path in side.parent.glob("*/run.json")} - sides.keys()):
        with contextlib.suppress(StoreError):
            if shared and shared <= _planned(RunStore(path)):
                others.append(path)
    order = sorted([*others, *sides], key=created)
    near = sorted(others, key=lambda path: min(abs(order.index(path) - order.index(side)) for side in sides))[
        :MOST_OTHERS
    ]
    tables, _ = load_readable(renewed([*pair, *near], readable=True), COMPARED)
    names = {run.run_id for run in tables.runs}
    # A side that cannot be read says why.
    return tables if names >= {RunStore(side).run_id for side in sides} else load(renewed(pair), COMPARED)


def _planned(store: RunStore) -> set[str]:
    return {str(entry["id"]) for entry in store.manifest()["plan"]}


def _half_a_pair(run: str, other: str, out: Path) -> UserError:
    newest = [visible(folder.name) for folder in runs_below(out)[:-6:-1]]
    return UserError(
        f"{visible(run, 200)} is a run, and {visible(other, 200)} is none; name another run. The newest below {out} are: "
        f"{', '.join(newest) or 'none'}"
    )


def _newest_with_both(out: Path, a: str, b: str, by: str | None) -> Tables:
    """The newest run that has both sides, which it names; without one, the newest run. A run of `runner verify` often has one side."""
    folders = stored_runs(out)[:-MOST_RUNS:-1]
    for folder in folders:
        tables = load(renewed([folder]), COMPARED)
        if partners.has_both(tables, a, b, by):
            note(f"looked up in run {visible(folder.name)}")
            return tables
    return load(folders[:1], COMPARED)
