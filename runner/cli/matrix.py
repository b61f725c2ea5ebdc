"""The command `runner matrix`."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from runner.admission.renew import renew
from runner.cli.report import Reporter, report_path, write_renewed, write_report, write_report_beside
from runner.cli.shared import TextOrJson, flag_of, note, takes_options
from runner.errors import ExitCode, NothingBegunError, UserError, code_of_fault, lasting_stderr, numbered, one_code
from runner.errors import code_of as code_of_error
from runner.results.store import RunStore, statuses
from runner.run import begin, budget, outlook, progress
from runner.run.options import Options
from runner.run.prospect import Prospect, lacks_fp32, left_out, of_images
from runner.text import print_document

# A year. More is a mistake.
_MOST_MINUTES = 525_600


@takes_options(Options)
def matrix(
    options: Options,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a run that was interrupted, with the options that it began with."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="M",
            help="Start nothing that would not end in these minutes: the frameworks that most people use first, then further repeats of "
            "pairs whose order is open, then the others. --resume goes on with the rest. Default: run everything.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, with --resume what is left of it; start nothing.")
    ] = False,
    output_format: TextOrJson = "text",
) -> None:
    """Exit code 0: all cells are ok, or all that --minutes held; 1: some failed or were not run; 4: nothing could be
    measured; 130: interrupted."""
    as_json = output_format == "json"
    ends_at = _ends_at(minutes)
    with contextlib.ExitStack() as stack:
        look = _looking(stack)
        try:
            if dry_run and resume is None:
                prospect = look(options, minutes)
                if as_json or prospect.plan.cells:
                    outlook.print_plan(prospect, as_json, minutes)
                return begin.refuse_nothing(prospect)
            if resume is not None:
                prospect, run = begin.resume(resume, options, look)
                refuse_others(options, prospect.options, Options())
            else:
                prospect, run = begin.start(options, sys.argv, minutes, look)
        except KeyboardInterrupt:
            raise NothingBegunError("interrupted before a cell was started") from None
        if dry_run:
            return outlook.print_plan(prospect, as_json, minutes, prospect.jobs_left(run))
        if resume is not None and not prospect.jobs_left(run):
            if prospect.options.nodes is not None:
                # Only this needs it. The runner or an agent may have been killed after the last cell.
                from runner.nodes import spool

                spool.remove(run.run_id)
            return _say_complete(run, as_json)
        raise typer.Exit(measure(prospect, run, resume is not None, minutes, ends_at, as_json))


def _looking(stack: contextlib.ExitStack) -> begin.Look:
    """The function that makes the plan: of this machine, or with --nodes of the agents of several, which end with the command."""

    def look(options: Options, minutes: float | None) -> Prospect:
        if options.nodes is None:
            return begin.look_ahead(options, minutes)
        # Only this needs them.
        from runner.nodes.fleet_plan import looking

        return looking(stack.enter_context)(options, minutes)

    return look


@lasting_stderr()
def measure(
    prospect: Prospect,
    run: RunStore,
    resumed: bool,
    minutes: float | None = None,
    ends_at: float = math.inf,
    as_json: bool = False,
    show: Callable[[Path], None] | None = None,
) -> int:
    """Run what is left of a run; the exit code. `show` prints the answer at the end instead of the matrix's."""
    # Only a run needs what measures and stores: --help and --dry-run answer without it.
    from runner.run import summary
    from runner.run.execution import Meanwhile, execute

    before = run.finished()
    try:
        progress.announce(
            prospect, prospect.jobs_left(run) if resumed else None, "--dry-run" if prospect.plan.skips else ""
        )
        for line in lacks_fp32(prospect.plan.cells):
            note(line)
        if minutes is not None:
            _announce_limit(prospect, run, minutes)
        when = "from the first cell that ends on" if prospect.options.nodes is None else "at the end"
        note(f"report   {report_path(run.folder)} ({when})")
        reporter = Reporter()
        answer = None if as_json else show or reporter.show
        if prospect.options.nodes is not None:
            code = _execute_on_nodes(prospect, run, resumed, reporter.write, answer)
        else:
            meanwhile = Meanwhile(write_renewed, write_report_beside)
            code = execute(prospect, run, reporter.write, resumed, ends_at, meanwhile, answer, minutes).code
        if as_json:
            print_document(summary.document(run))
    except (OSError, MemoryError, RuntimeError) as raised:
        fault = numbered(raised)
        note(f"runner: {summary.kept(prospect, run, fault)}")
        # Repeats of an earlier call were not begun by this one.
        return ExitCode.FOUND if run.finished() - before else code_of_fault(fault)
    except UserError as error:
        # An error before the first repeat has its own advice.
        if code_of_error(error) is not ExitCode.CANNOT_BEGIN or not run.finished() - before:
            raise
        note(f"runner: {error}; what had ended is kept. Go on with: {summary.go_on_with(run)}")
        return ExitCode.FOUND
    except KeyboardInterrupt:
        note(f"runner: interrupted; go on with: {summary.go_on_with(run)}")
        return ExitCode.INTERRUPTED
    return code


def _execute_on_nodes(
    prospect: Prospect,
    run: RunStore,
    resumed: bool,
    write: Callable[[Path], Path],
    answer: Callable[[Path], None] | None,
) -> int:
    """Run what is left of a run on its nodes; the exit code."""
    from runner.nodes import driver
    from runner.nodes.fleet_plan import FleetProspect

    assert isinstance(prospect, FleetProspect)
    return driver.execute(prospect, run, write, resumed, answer).code


def refuse_others(given: Options, original: Options, without: Options) -> None:
    """Raises UserError for options beside --resume that are not those of the run: it goes on with its own.

    without: the options of the command where none is given.
    """
    place = {"out": given.out, "base_image": os.environ.get("DLBENCH_BASE_IMAGE")}
    usual = without.model_copy(update=place).model_dump(mode="json")
    own = original.model_dump(mode="json")
    options = given.model_dump(mode="json").items()
    other = [flag_of(name) for name, value in options if value not in (usual[name], own[name])]
    if other:
        raise UserError(
            f"--resume goes on with the options that the run began with: leave {', '.join(other)} out, or start a new run"
        )


def _say_complete(run: RunStore, as_json: bool) -> None:
    """A run of which nothing is left stays as it is. The exit code is that of its end.

    Only a runner that was killed after its last cell left no report on all of them: then it is written.
    """
    from runner.run import summary

    renew(run)
    if _is_report_old(run):
        run.remove_parts()
        write_report(run.folder)
    if as_json:
        print_document(summary.document(run))
    note(f"{run.run_id} is complete: nothing is left to run, and nothing was changed")
    note(f"report   {report_path(run.folder)}")
    raise typer.Exit(code_of(run))


def code_of(run: RunStore) -> int:
    """The exit code of a run of which nothing is left."""
    return one_code(set(statuses(run.folder).values()) != {"ok"}, is_open=False)


def _is_report_old(run: RunStore) -> bool:
    """True if a run has no report, or one that was written before its last cell was stored."""
    report = report_path(run.folder)
    stored = (parcel.path.stat().st_mtime_ns for parcel in run.parcels().values())
    return not report.exists() or report.stat().st_mtime_ns < max(stored, default=0)


def _ends_at(minutes: float | None) -> float:
    """When no cell may run any more, by time.monotonic(). Raises UserError for what is no number of minutes."""
    if minutes is None:
        return math.inf
    if not 0 < minutes <= _MOST_MINUTES:
        raise UserError(
            f"--minutes: {minutes:f} is not a number above 0 and at most {_MOST_MINUTES}; give one, or leave the option out"
        )
    return time.monotonic() + budget.measuring_seconds(minutes)


def _announce_limit(prospect: Prospect, run: RunStore, minutes: float) -> None:
    jobs = prospect.jobs_left(run)
    held = budget.forecast(prospect.agenda(), jobs, minutes)
    begun = {cell for cell, _ in run.finished()}
    note(progress.limit(held, minutes, begun, prospect.options.repeats is None))
    for line in () if begun else (*left_out(prospect, held), *of_images(prospect, jobs, held, minutes)):
        note(line)
