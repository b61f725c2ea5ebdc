"""The command `runner compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from reports.answers import compare as answers
from reports.answers.contrast import METHOD
from reports.answers.export import comma_separated, terminal
from reports.data.tables import load
from runner.cli.shared import AnyFormat, Margin, Out, chosen_runs, print_json, split_words
from runner.results.store import run_folder


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A run, image, GPU or CUDA version: the baseline.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another of the same kind, compared with A.")],
    runs: Annotated[
        list[str] | None,
        typer.Option("--runs", help="Where images, GPUs and CUDA versions are looked up; default: the newest run."),
    ] = None,
    by: Annotated[
        Literal["run", "image", "gpu", "cuda"] | None, typer.Option(help="What A and B are; default: found by name.")
    ] = None,
    margin: Margin = 5.0,
    out: Out = Path("results"),
    output_format: AnyFormat = "text",
) -> None:
    """Each difference is real, noise, or undecided: the data cannot tell.

    Exit code 0: nothing is slower in B; 1: something is slower, or no longer runs; 2: some cell is undecided.
    """
    pair = [run_folder(name, out) for name in (a, b)]
    if by in (None, "run") and all((folder / "run.json").is_file() for folder in pair):
        names = [folder.resolve().name for folder in pair]
        comparison = answers.comparison(load(pair), names[0], names[1], "run", margin / 100)
    else:
        comparison = answers.comparison(load(chosen_runs(list(split_words(runs)), out)), a, b, by, margin / 100)
    if output_format == "json":
        print_json(answers.document(comparison))
    elif output_format == "csv":
        typer.echo(comma_separated(answers.records(comparison)), nl=False)
    elif output_format == "markdown":
        typer.echo(answers.markdown(comparison), nl=False)
    else:
        terminal(answers.table(comparison))
        for line in [*answers.remarks(comparison), *([METHOD] if comparison.rows else [])]:
            typer.echo(line)
    raise typer.Exit(comparison.exit_code)
