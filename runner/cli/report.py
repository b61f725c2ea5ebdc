"""The commands `runner report` and `runner rosetta`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reports.page import rosetta_stone as stone
from runner.catalog.names import full_name
from runner.cli.shared import Out, chosen_runs
from runner.errors import UserError, fix_of
from runner.paths import PROJECT, data_folder, own_command
from runner.results.store import RunStore, write_bytes
from runner.terminal import columns, folded, table_lines
from runner.text import print_document, visible

if TYPE_CHECKING:
    from reports.answers.health import Health
    from reports.answers.plain import Section
    from reports.data.model import Tables


# The command `runner rosetta`.


def rosetta(
    workload: Annotated[str, typer.Argument(help="Such as cnn-cifar10.")],
    frameworks: Annotated[list[str], typer.Argument(help="Two or more frameworks, such as torch chainer.")],
    html: Annotated[
        Path | None,
        typer.Option("-o", "--output", "--html", help="Write one self-contained HTML page into this file instead."),
    ] = None,
) -> None:
    """Each framework's file is printed with its explanation."""
    workload, frameworks = full_name(workload), list(map(full_name, frameworks))
    if html is None and sys.stdout.isatty():
        return stone.terminal(workload, frameworks)
    if html is None:
        return typer.echo(stone.plain(workload, frameworks))
    write_bytes(html, stone.page(workload, frameworks).encode())
    return typer.echo(str(html))


MOST_NAMED = 6  # runs, above an answer in text

# The end of a limited run fits a screen of 30 lines. The count of what is not run, the folders and the command that goes on take the rest.
ANSWER_LINES = 24


def health_of(folders: Sequence[Path]) -> Health:
    """The health of what some stored runs measured, beside the user's references. A broken reference is a sentence, and no error."""
    from reports.answers.health import NOT_JUDGED, Health, advice
    from runner.verify.references import files

    try:
        manifests = [RunStore(folder).manifest() for folder in folders]
        runs = " ".join(str(manifest["run_id"]) for manifest in manifests)
        devices = [entry for manifest in manifests for entry in manifest.get("devices") or ()]
        folder = Path(os.environ.get("DLBENCH_REFERENCES") or data_folder() / "references")
        gpus = sum("uuid" in device for device in devices)
        if not files(folder) and not _is_fleet(gpus):
            # Nothing can be judged, and reading a large run takes seconds.
            next_ = advice("not judged", runs, fleets=False, gpus=gpus)
            return replace(NOT_JUDGED, next=next_)
        # Most runs are judged by nothing, and this loads all that `runner verify` needs.
        from runner.verify.judged import judged
        from runner.verify.references.saved import Shelf

        broken: list[str] = []
        health = judged(folders, Shelf([folder]).all(broken.append), devices, runs)
        return replace(health, detail="; ".join(filter(None, [health.detail, *broken])))
    except UserError as error:
        return Health("Not judged: see why", "not judged", str(error))


def _is_fleet(gpus: int) -> bool:
    """True if these are enough GPUs to judge each beside the others."""
    if not gpus:
        return False
    # It loads as much.
    from runner.verify.outliers import FEWEST

    return gpus >= FEWEST


def report_path(folder: Path) -> Path:
    """The path of the report that a run writes of itself."""
    return folder / "report.html"


class Reporter:
    """Writes the report on a run and prints its answer. What was read for the report serves the answer: a large run takes seconds."""

    def __init__(self) -> None:
        self._read: Tables | None = None

    def write(self, folder: Path) -> Path:
        """Write the report on a run into its folder."""
        # The page's libraries take longer to load than most commands take.
        from reports.answers.answers_table import load_and_keep
        from reports.data.tables import FRAMES
        from reports.page.render import page
        from runner.results.store import RunStore, replace_bytes

        self._read = None
        self._read = load_and_keep(folder, FRAMES)
        content = page(self._read, health_of([folder])).encode("utf-8")
        # The run may have been moved away, which raises; and a cell may have put a pipe or a link in the place of its report.
        RunStore(folder).manifest()
        replace_bytes(report_path(folder), content)
        return report_path(folder)

    def show(self, folder: Path) -> None:
        """Print the answer of a run on standard error, right after its report was written."""
        tables, self._read = self._read, None
        from reports.answers import plain

        shown = list(plain.sections(tables or _loaded([folder]), short=True))
        for line in fitting(shown, f"the whole answer: {own_command()} report --text {shlex.quote(str(folder))}"):
            print(line, file=sys.stderr)

    def so_far(self) -> list[str]:
        """The answers of the report that was just written, a line for each network of which two cells are ranked."""
        from reports.answers import plain

        return plain.so_far(self._read) if self._read is not None else []


def write_report(folder: Path) -> Path:
    """Write the report on a run into its folder."""
    return Reporter().write(folder)


def write_renewed(folder: Path) -> list[str]:
    """Write the report of a run that goes on, and return the lines of what it has shown by now."""
    reporter = Reporter()
    reporter.write(folder)
    return reporter.so_far()


# The program of a process beside the run: it writes the report, and prints what the cells have shown by now.
_BESIDE = """
import sys
from pathlib import Path
from runner.cli.report import write_renewed
print("\\n".join(write_renewed(Path(sys.argv[1]))))
"""


def write_report_beside(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that does the same, and prints the lines. It runs only on CPUs on which nothing else wants to run (SCHED_IDLE)."""
    command = [sys.executable, "-c", _BESIDE, str(folder.absolute())]
    nowhere = subprocess.DEVNULL
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(command, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, env=environment)
    # It may have ended before.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    return process


def print_answer(folders: Sequence[Path], to_loss: float | None = None, names: bool = False) -> None:
    """Print which runs these are, and their answer. `to_loss`: the held-out loss to which the training is timed. `names`: with the cells
    that are not yet run."""
    tables = _loaded(folders, to_loss)
    from reports.answers import plain

    for line in _which(tables, folders):
        print(folded(line))
    print()
    for section in plain.sections(tables, names=names):
        for line in _lines(section, to_stderr=False):
            print(line)


def _which(tables: Tables, folders: Sequence[Path]) -> Iterator[str]:
    """A line for each run with its name, its time and its folder, of many the first and the last; and what these have not yet run."""
    from reports.answers.left import left
    from reports.answers.overview import moment

    lines = [
        visible(f"run {run.run_id} · {moment(str(run.manifest['created']))} · {folder}", 300)
        for run, folder in zip(tables.runs, folders, strict=True)
    ]
    between = len(lines) - MOST_NAMED
    yield from lines if between <= 0 else [*lines[: MOST_NAMED - 1], f"and {between} more runs, to", lines[-1]]
    for entry in left(tables.cells, tables.runs)[:MOST_NAMED]:
        yield visible(f"{entry.count}{entry.time}: `{entry.command}`", 300)


def _loaded(folders: Sequence[Path], to_loss: float | None = None, needed: Collection[str] | None = None) -> Tables:
    """The rows of these runs: of all that a table in words shows, or of the `needed` tables."""
    # A table needs none of the page's libraries.
    from reports.answers.answers_table import NEEDED, load_and_keep
    from reports.data.tables import load

    needed = needed or NEEDED
    # The stored answers of one run are those that are printed.
    one = len(folders) == 1 and to_loss is None
    return load_and_keep(folders[0], needed) if one else load(folders, needed, to_loss)


def _lines(section: Section, to_stderr: bool) -> list[str]:
    """The printed lines of a section. On standard error it is of the end of a run, whose notes are brief."""

    def of(sentences: Sequence[str]) -> list[str]:
        return [line for sentence in sentences for line in folded(sentence, to_stderr=to_stderr).split("\n")]

    table: list[str] = []
    if section.rows:
        table = table_lines(section.heads, section.rows, right=section.numbers, to_stderr=to_stderr, brief=to_stderr)
    return [*of(section.above), *table, *of(section.below)]


def fitting(sections: Sequence[Section], more: str) -> list[str]:
    """The lines of the answers that fit a screen, and `more` where not all do.

    Remarks make room first, the longest before others, then tables from the last answer on, then the last answers themselves. A pipe
    has no screen.
    """
    shown = [_lines(section, to_stderr=True) for section in sections]
    last = folded(more, to_stderr=True).split("\n")
    room = ANSWER_LINES
    if sum(map(len, shown)) <= room or not (sys.stderr.isatty() or columns()):
        return list(chain(*shown))
    room -= len(last)
    left = list(sections)
    while sum(map(len, shown)) > room and any(section.remark() or section.rows for section in left):
        places = [at for at, section in enumerate(left) if section.rows]
        at = max(range(len(left)), key=lambda at: len(left[at].remark()))
        at = at if left[at].remark() else places[-1]
        left[at] = left[at].shorter()
        shown[at] = _lines(left[at], to_stderr=True)
    while sum(map(len, shown)) > room and len(shown) > 1:
        shown.pop()
    return [*chain(*shown), *last]


def print_for_tracker(folders: Sequence[Path], form: str) -> None:
    """Print the runs' step times as a tracker of performance reads them."""
    from reports.answers.other_formats import bencher, github_action_benchmark

    made = bencher if form == "bencher" else github_action_benchmark
    typer.echo(json.dumps(made(_loaded(folders)), indent=1, ensure_ascii=False, allow_nan=False))


def _print_stored(folders: Sequence[Path], form: str, to_loss: float | None) -> None:
    """Print what the runs hold as markdown, json or csv, which need none of the page's libraries."""
    from reports.answers import answers_table
    from reports.answers.export import comma_separated
    from reports.answers.overview import overview
    from reports.data.tables import FRAMES
    from reports.page.markdown_report import markdown

    if form == "markdown":
        return typer.echo(markdown(overview(_loaded(folders, to_loss, FRAMES))), nl=False)
    tables = _loaded(folders, to_loss)
    if form == "json":
        return print_document(answers_table.answer_document(tables))
    return typer.echo(comma_separated(answers_table.answer_records(tables)), nl=False)


def report(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, by id or folder; default: the newest.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    out: Out = Path("results"),
    output_format: Annotated[
        Literal["html", "markdown", "text", "json", "csv", "github-action-benchmark"],
        typer.Option(
            "--format",
            help="html writes the report; markdown prints a summary for a README instead, text the answer as a table, json and csv "
            "every cell with its standing, github-action-benchmark what its tool customSmallerIsBetter reads.",
        ),
    ] = "html",
    text: Annotated[bool, typer.Option("--text", help="The same as --format text.")] = False,
    to_loss: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1000,
            help="Time the training until the held-out loss stays below this level (bits a byte). "
            "Default: that of the run's own --to-loss.",
        ),
    ] = None,
    bmf: Annotated[
        bool,
        typer.Option("--bmf", help="Print the step times in the Bencher Metric Format instead, as JSON of its own."),
    ] = False,
    names: Annotated[bool, typer.Option("--all", help="With --text: name each cell that is not yet run.")] = False,
) -> None:
    """Prints the path of the report."""
    if bmf and (text or output_format != "html"):
        raise UserError("--bmf is a format of its own: leave --format and --text out")
    if text and output_format not in ("html", "text"):
        raise UserError(f"--text and --format {output_format}: give one of them")
    folders = chosen_runs(runs, out)
    if text or output_format == "text":
        return print_answer(folders, to_loss, names)
    if names:
        raise UserError("--all names what is not yet run below the text: say --text as well")
    if bmf or output_format == "github-action-benchmark":
        return print_for_tracker(folders, "bencher" if bmf else output_format)
    if output_format != "html":
        return _print_stored(folders, output_format, to_loss)
    # The page's libraries take longer to load than most commands take.
    from reports.page.render import render

    try:
        render(folders, output, health_of(folders), to_loss)
    except OSError as error:
        fix = fix_of(error, "name a file in a folder of yours")
        raise UserError(f"--output {output} cannot be written ({error.strerror}); {fix}") from None
    return typer.echo(str(output))
