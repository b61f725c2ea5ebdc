"""How a run ended: the exit code, the last lines for a person, and the document for a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np
from typing_extensions import TypedDict

from runner.admission.renew import renew
from runner.engines.host_fault import rooms
from runner.errors import ExitCode, UserError, one_code, system_fault
from runner.results import cells, store
from runner.results.rows import floats, parts, rows_of
from runner.run.dispatch import Job
from runner.run.progress import not_yet_run, plain, say
from runner.run.prospect import Prospect
from runner.text import in_a_line, plural

INTERRUPTED = "interrupted"

Made = TypeVar("Made")


class Conclusion(NamedTuple):
    """The exit code of a run, and what cut it short: INTERRUPTED, CANNOT_BEGIN where the machine failed under it, else OK."""

    code: ExitCode
    cut_by: ExitCode


class ResultRecord(TypedDict):
    """A stored repeat of a cell. The median is of its steady windows; null where nothing was measured."""

    cell_id: str
    repeat: int
    image: str
    framework: str
    mode: str
    workload: str
    precision: str
    device_model: str | None
    status: str
    error_kind: str | None
    reason: str | None
    parity_passed: bool | None
    image_digest: str | None
    median_step_seconds: float | None


class RunDocument(TypedDict):
    """A run: where it is, how many repeats it plans, and every repeat that it stores."""

    run_id: str
    folder: str
    report: str
    planned_repeats: int
    results: list[ResultRecord]


_COLUMNS = [name for name in ResultRecord.__annotations__ if name != "median_step_seconds"]


def conclude(
    prospect: Prospect,
    run: store.RunStore,
    why_ended: str,
    write_report: Callable[[Path], Path],
    minutes: float | None = None,
    measured: int = 0,
    show_answer: Callable[[Path], None] | None = None,
) -> Conclusion:
    """Write the report, print the answer, what ended and how to go on.

    `why_ended`: why not every repeat had its turn. `minutes`: the limit of the run's time. What it did not reach is no failure, if
    `measured`, the repeats that ended in this call, is not 0. `show_answer` prints the answer of the run in a folder.
    """
    renew(run)
    ended = store.statuses(run.folder)
    missing = prospect.jobs_left(run)
    store_expectations(prospect, run, missing)
    again = store.due_again(run.folder)
    failed = sum(status != "ok" for repeat, status in ended.items() if repeat not in again)
    report = _made(write_report, run.folder) if ended else None
    if ended and show_answer:
        _made(show_answer, run.folder)
    counts = [f"{ended_well(ended)} ok", f"{failed} failed"]
    counts += [f"{len(again)} failed by a fault of this machine"] if again else []
    counts += [not_yet_run(missing, {cell for cell, _ in ended})] if missing else []
    counts += [f"{len(prospect.plan.skips)} skipped"] if prospect.plan.skips else []
    say(", ".join(counts))
    say(f"results  {run.folder}")
    if report:
        say(f"report   {report}")
    elif not ended:
        say("report   none: no cell ended")
    if missing:
        how = why_ended or (_over(minutes, measured) if minutes is not None else "not all was run")
        more = " (--minutes 10 for ten minutes of it)" if minutes is not None else ""
        say(f"{how}; what had ended is kept. Go on with: {go_on_with(run)}{more}")
    interrupted = why_ended == INTERRUPTED
    fault = bool(again or why_ended) and not interrupted
    # A repeat that is due again was not measured.
    code = code_of(len(missing), interrupted, minutes, max(0, measured - len(again)), failed + fault)
    stop = ExitCode.INTERRUPTED if interrupted else ExitCode.CANNOT_BEGIN if fault else ExitCode.OK
    return Conclusion(code, stop if missing else ExitCode.OK)


def code_of(missing: int, interrupted: bool, minutes: float | None, measured: int, failed: int) -> ExitCode:
    """The exit code of a run with so many repeats missing and failed, of which this call measured so many."""
    if missing and interrupted:
        return ExitCode.INTERRUPTED
    if missing and not measured:
        return ExitCode.CANNOT_BEGIN
    return one_code(bool(failed or (missing and minutes is None)), is_open=False)


def store_expectations(prospect: Prospect, run: store.RunStore, left: Sequence[Job]) -> None:
    """Keep how long the rest of the run takes, by what has been learned: its report says it, and --resume goes on from there."""
    run.write_manifest(run.manifest() | prospect.expectations(left))


def ended_well(ended: Mapping[tuple[str, int], str]) -> str:
    """The repeats that ended well, and of how many cells they are."""
    good = [cell for (cell, _), status in ended.items() if status == "ok"]
    return f"{plural(len(good), 'repeat')} of {plural(len(set(good)), 'cell')}" if good else "0 repeats"


def go_on_with(run: store.RunStore) -> str:
    """The command that goes on with a run."""
    usual = run.folder.parent.resolve() == Path(cells.USUAL_OUT).resolve()
    # A person may have given its folder another name.
    return cells.resume_command(run.folder.name, cells.USUAL_OUT if usual else str(run.folder.parent))


def kept(prospect: Prospect, run: store.RunStore, error: OSError) -> str:
    """The sentence on an error of the system that ended a run, with the room of its disks and the command that goes on."""
    disks = rooms(run.folder, prospect.engine.images_folder)
    return f"{system_fault(error)} ({disks}); what had ended is kept. Go on with: {go_on_with(run)}"


def _over(minutes: float, measured: int) -> str:
    if not measured:
        return f"none of the remaining cells fitted into {plain(minutes)} min, in which images are made too; these stay"
    return "the minute is over" if minutes == 1 else f"the {plain(minutes)} minutes are over"


def _made(make: Callable[[Path], Made], folder: Path) -> Made | None:
    """The product of the stored results at the end. A fault in it must not look like a failed run: the results are stored."""
    try:
        return make(folder)
    except (UserError, OSError):
        raise
    except Exception as error:
        why = in_a_line(f"{type(error).__name__}: {error}", 300)
        say(
            f"a fault of the runner kept the answer from being shown ({why}); all is stored; `runner report {folder}` tries again"
        )
        return None


def document(run: store.RunStore) -> RunDocument:
    """Every stored repeat with its median step time in seconds."""
    manifest = run.manifest()
    tables = store.tables_of([run.folder], ("cells", "samples"))
    stored = rows_of(tables["cells"].select(_COLUMNS))
    samples = parts(tables["samples"], ("stage", "cell_id", "repeat"))
    medians = {
        (cell, repeat): float(np.median(floats(part, "seconds") / floats(part, "steps")))
        for (stage, cell, repeat), part in samples
        if stage == "steady"
    }
    rows = [{**row, "median_step_seconds": medians.get((row["cell_id"], row["repeat"]))} for row in stored]
    return {
        "run_id": run.run_id,
        "folder": str(run.folder),
        "report": str(run.folder / "report.html"),
        "planned_repeats": len(manifest["plan"]) * manifest["repeats"],
        "results": [cast(ResultRecord, row) for row in rows],
    }
