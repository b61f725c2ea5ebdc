"""The command `runner matrix`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from runner.cli.plan_table import print_plan
from runner.cli.report import write_report
from runner.cli.shared import TextOrJson, note, print_json, takes_options
from runner.errors import UserError
from runner.run import begin, progress, summary
from runner.run.matrix import execute
from runner.run.options import Options


@takes_options(Options)
def matrix(
    options: Options,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a run that was interrupted, with the options that it began with."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; start nothing.")] = False,
    output_format: TextOrJson = "text",
) -> None:
    """Exit code 0: all cells are ok; 1: some failed or were not run; 2: the run could not start."""
    as_json = output_format == "json"
    if resume is not None and dry_run:
        raise UserError("--resume and --dry-run: give one of them; a run goes on with the plan that it began with")
    try:
        if dry_run:
            return print_plan(begin.look_ahead(options), as_json)
        if resume is not None:
            prospect, run = begin.resume(resume, options.out)
        else:
            prospect, run = begin.start(options, sys.argv)
    except KeyboardInterrupt:
        note("runner: interrupted before a cell was started")
        raise typer.Exit(1) from None
    try:
        progress.announce(prospect)
        code = execute(prospect, run, write_report, resumed=resume is not None)
        if as_json:
            print_json(summary.document(run))
    except OSError as error:
        note(f"runner: {error}; what had ended before is kept, and --resume goes on from there")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        note(f"runner: interrupted; go on with: runner matrix --resume {run.run_id}")
        raise typer.Exit(1) from None
    raise typer.Exit(code)
