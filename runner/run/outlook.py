"""The output of `runner matrix --dry-run`: a grid of what would run, how long it takes, and why the rest is skipped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import cast

from typing_extensions import TypedDict

from bench import rules
from runner.catalog.workloads import load_workloads
from runner.machine.devices import Refused
from runner.paths import PROJECT
from runner.plan.plan import Cell, Skip
from runner.results.known_issues import known_issues
from runner.results.on_disk.roles import NamedCell
from runner.run import budget, progress
from runner.run.dispatch import Job, Span
from runner.run.prospect import REPEATS, Prospect, lacks_fp32, left_out, of_images
from runner.terminal import columns, folded, print_table
from runner.text import length, plural, print_document, visible

# The words before the name of an image that runs instead.
_TWIN = "; its CPU twin "

# How large an image is, in a reason.
_SIZE = re.compile(r"(\d+\.\d) GB")

# The most things to name that one reason holds for.
_NAMED = 3


# The note under lengths that are guesses.
_GUESS = (
    "a guess until a like cell has ended well here: a slow compiler or an old framework may take many times as long"
)


class PlannedCell(NamedCell):
    """A cell of a plan, with the seconds that a repeat of it is expected to take. Guessed: no like cell has ended well here."""

    cell_id: str
    device_kind: str
    device_uuid: str
    seed: int
    seeds: str
    lock_sha256: str
    expected_seconds: float
    guessed: bool


class HeldRepeat(TypedDict):
    """A repeat that the minutes hold: when it would begin and end, in seconds from the start."""

    cell_id: str
    repeat: int
    begin_seconds: float
    end_seconds: float


class PlanDocument(TypedDict):
    """A plan: its cells, the bytes to fetch, how long it takes, and each skip with its reason."""

    engine: str
    why_engine: str
    cells: list[PlannedCell]
    refused_gpus: tuple[Refused, ...]
    remarks: tuple[str, ...]
    data_sets: dict[str, str | None]
    skipped: tuple[Skip, ...]
    repeats: int
    fetch_bytes: int
    expected_seconds: float
    minutes: float | None
    held: list[HeldRepeat] | None


def print_plan(
    prospect: Prospect, as_json: bool, minutes: float | None = None, left: Sequence[Job] | None = None
) -> None:
    """Print the cells, what must be fetched, how long it will take, and what is skipped and why.

    With `minutes`, also what they hold by the estimates, and what is left for --resume. `left`: the jobs of a run that would go on.
    """
    jobs = prospect.jobs if left is None else left
    held = budget.forecast(prospect.agenda(), jobs, minutes) if minutes is not None else None
    if as_json:
        print_document(_document(prospect, jobs, minutes, held))
        return
    if held is None:
        _print_grids(prospect, jobs)
    else:
        _print_held(prospect, held)
    _print(prospect.why_engine)
    many = f"{plural(len(prospect.plan.cells), 'cell')} x {plural(prospect.repeats, 'repeat')} to run"
    if left is not None:
        many = f"{plural(len({job.cell.id for job in jobs}), 'cell')}, {plural(len(jobs), 'repeat')} left to run"
    _print(
        f"{'all of it: ' if held else ''}{many}, {len(prospect.plan.skips)} skipped; "
        f"to fetch or build: {prospect.fetches()}; about {length(prospect.expected_seconds(jobs))} of measuring"
    )
    if prospect.options.repeats is None and prospect.options.to_loss is None and prospect.repeats != REPEATS:
        usual = f"--repeats {REPEATS}"
        _print(f"{prospect.repeats} repeats, since few cells show little in {REPEATS} ({usual} takes less time)")
    if held is not None:
        # A cell of which a repeat other than the first is left has been begun.
        begun = {job.cell.id for job in jobs} - {job.cell.id for job in jobs if job.repeat == 1}
        _print(progress.limit(held, minutes or 0.0, begun, prospect.options.repeats is None))
        if left is None:
            for line in (*left_out(prospect, held), *of_images(prospect, jobs, held, minutes or 0.0)):
                _print(line)
    for name, problem in data_sets(prospect).items():
        _print(
            f"{prospect.options.data}: {name}: " + (f"cells that read it will fail: {problem}" if problem else "found")
        )
    for refused in prospect.machine.refused:
        _print(f"not used: {refused.reason}")
    for line in (
        *prospect.machine.notes,
        *issues(prospect),
        *likely_precisions(prospect.plan.skips),
        *lacks_fp32(prospect.plan.cells),
        *reasons(prospect.plan.skips),
    ):
        _print(line)


def issues(prospect: Prospect) -> list[str]:
    """A line for each published fault of the CUDA and cuDNN in images that would run on these GPUs."""
    capabilities = {gpu.model: gpu.compute_capability for gpu in prospect.machine.gpus}
    images: dict[str, dict[str, None]] = {}
    for cell in prospect.plan.cells:
        if cell.device_kind == "cuda":
            image, capability = prospect.images[cell.image], capabilities.get(cell.device_model)
            versions = {"cuda": image.cuda, "cudnn": image.cudnn}
            for sentence in known_issues(cell.framework, cell.mode, cell.precision, versions, capability):
                images.setdefault(sentence, {})[cell.image] = None
    return [f"known issue: {_listed(list(names))}: {sentence}" for sentence, names in images.items()]


def data_sets(prospect: Prospect) -> dict[str, str | None]:
    """Each data set that cells would read from the folder of --data, and why they could not; empty without such a folder."""
    if prospect.options.data is None:
        return {}
    workloads = load_workloads()
    planned = [workloads[cell.workload] for cell in prospect.plan.cells if cell.workload in workloads]
    trained = [workload for workload in planned if workload.task == "train"]
    names = sorted({workload.data for workload in trained} - {*rules.RANDOM})
    # By a process of its own: the host imports none of the bench's code that reads data.
    command = [sys.executable, "-m", "bench", "data", *names, "--data", str(prospect.options.data.resolve())]
    told = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False) if names else None
    if told is None:
        return {}
    if told.returncode:
        return dict.fromkeys(names, f"it cannot be looked at: {''.join(told.stderr.splitlines()[-1:])}")
    return dict(json.loads(told.stdout))


def _print(line: str) -> None:
    print(folded(visible(line, len(line))))


def _document(
    prospect: Prospect, jobs: Sequence[Job], minutes: float | None, held: budget.Forecast | None
) -> PlanDocument:
    return {
        "engine": prospect.engine.name,
        "why_engine": prospect.why_engine,
        "cells": [_planned(cell, prospect) for cell in prospect.plan.cells],
        "refused_gpus": tuple(prospect.machine.refused),
        "remarks": (*prospect.machine.notes, *issues(prospect), *lacks_fp32(prospect.plan.cells)),
        "data_sets": data_sets(prospect),
        "skipped": tuple(prospect.plan.skips),
        "repeats": prospect.repeats,
        "fetch_bytes": prospect.fetch_bytes(),
        "expected_seconds": prospect.expected_seconds(jobs),
        "minutes": minutes,
        "held": [_held(span) for span in held.spans] if held else None,
    }


def _planned(cell: Cell, prospect: Prospect) -> PlannedCell:
    expected = prospect.durations.seconds(cell), prospect.durations.guessed(cell)
    return cast(
        PlannedCell, asdict(cell) | {"cell_id": cell.id, "expected_seconds": expected[0], "guessed": expected[1]}
    )


def _held(span: Span) -> HeldRepeat:
    job = span.job
    return {"cell_id": job.cell.id, "repeat": job.repeat, "begin_seconds": span.begin, "end_seconds": span.end}


def _name(cell: Cell) -> str:
    """The image, as --images takes it, with the framework where the image's name does not say it, and the mode."""
    said = cell.image.startswith(f"{cell.framework.replace('_', '-')}-")
    parts = [cell.image] if said else [cell.image, cell.framework]
    return " ".join([*parts, *([cell.mode] if cell.mode != "default" else [])])


def _place(cell: Cell) -> str:
    """The common facts of the cells of one grid."""
    several = f"{cell.devices} x " if cell.devices > 1 else ""
    return f"{cell.precision} on {several}{cell.device_model}" + (f", {cell.scaling}" if cell.scaling else "")


def _print_grids(prospect: Prospect, jobs: Sequence[Job]) -> None:
    """For each precision and device a grid: image x workload, with the minutes that the repeats of a cell take."""
    grids: dict[str, dict[str, dict[str, float]]] = {}
    # The places in the grids that hold a guess.
    guesses: set[tuple[str, str, str]] = set()
    # With --each-gpu a cell is there once for each GPU.
    repeats = Counter(job.cell for job in jobs)
    for cell in (cell for cell in prospect.plan.cells if repeats[cell]):
        place, name = _place(cell), _name(cell)
        row = grids.setdefault(place, {}).setdefault(name, {})
        row[cell.workload] = row.get(cell.workload, 0.0) + repeats[cell] * prospect.durations.seconds(cell) / 60
        if prospect.durations.guessed(cell):
            guesses.add((place, name, cell.workload))
    # If all are guesses, one line says so.
    marked = guesses if len(guesses) < sum(len(row) for rows in grids.values() for row in rows.values()) else set()
    for place, rows in grids.items():
        print(f"minutes of each cell, {plural(prospect.repeats, 'repeat')}: {place}")
        workloads = sorted({workload for row in rows.values() for workload in row})
        words = {
            name: {
                workload: f"{'~' if (place, name, workload) in marked else ''}{minutes:.1f}"
                for workload, minutes in row.items()
            }
            for name, row in rows.items()
        }
        _print_grid(workloads, words)
        print()
    if guesses:
        _print(f"{'~ is about' if marked else 'all minutes are about'}: {_GUESS}")


def _print_grid(workloads: Sequence[str], rows: dict[str, dict[str, str]]) -> None:
    """A grid under the workloads' names, or where they do not fit, as many grids as fit under letters that a line above explains."""
    names, heads = list(rows), list(workloads)
    fits = max(map(len, names)) + sum(len(workload) + 3 for workload in workloads) <= shutil.get_terminal_size().columns
    if not fits and _narrow():
        names, heads = list(_below_one_another(names)), [chr(ord("A") + at) for at in range(len(workloads))]
        # A letter and its workload stay in one line.
        _print(", ".join(f"{head}\u00a0{workload}" for head, workload in zip(heads, workloads, strict=True)))
    lines = [[row.get(workload, "–") for workload in workloads] for row in rows.values()]
    if fits or not _narrow():
        print_table(("image", *heads), [(name, *line) for name, line in zip(names, lines, strict=True)], right=heads)
        return
    # A column is as wide as its longest number, and three columns of spaces lie between two.
    widest = max(len(value) for line in lines for value in line)
    many = max(1, (shutil.get_terminal_size().columns - max(map(len, names))) // (widest + 3))
    for part in (slice(at, at + many) for at in range(0, len(heads), many)):
        shown = [(name, *line[part]) for name, line in zip(names, lines, strict=True) if set(line[part]) != {"–"}]
        print_table(("image", *heads[part]), shown, right=heads[part])


def _below_one_another(names: Iterable[str]) -> Iterator[str]:
    """The names of rows; a further framework of the image above stands under that image, without its name."""
    above = ""
    for name in names:
        image, _, rest = name.partition(" ")
        yield f"  {rest}" if rest and image == above else name
        above = image


def _narrow() -> bool:
    """True if lines have a width: those of a pipe have none."""
    return sys.stdout.isatty() or columns() > 0


def _print_held(prospect: Prospect, held: budget.Forecast) -> None:
    """The cells that the minutes hold, in their order, each with the time at which it begins."""
    begins: dict[Cell, float] = {}
    which = "first repeats"
    for span in held.spans:
        if span.job.cell not in begins and span.job.repeat > 1:
            which = "next repeats"
        begins.setdefault(span.job.cell, span.begin)
    places = {_place(cell) for cell in begins}
    rows = [
        (
            length(begin),
            _name(cell),
            cell.workload if len(places) < 2 else f"{cell.workload} {_place(cell)}",
            ("about " if prospect.durations.guessed(cell) else "") + length(prospect.durations.seconds(cell)),
        )
        for cell, begin in begins.items()
    ]
    if rows:
        print(f"{which}: {next(iter(places))}" if len(places) == 1 else which)
        print_table(("begins", "image", "workload", "takes"), rows, right=("begins", "takes"))
    if any(prospect.durations.guessed(cell) for cell in begins):
        _print(f"about: {_GUESS}")


def reasons(skips: Iterable[Skip]) -> list[str]:
    """A line for each reason, with how many combinations it holds for, the most first."""
    return [f"skipped {count}: {words}" for count, words in grouped(skips)]


def grouped(skips: Iterable[Skip]) -> list[tuple[int, str]]:
    """(how many combinations a reason holds for, the reason with their names), the most first. Reasons that differ in the workload, the
    image, its size or the CPU twin only are one."""
    alike: dict[str, list[Skip]] = {}
    for skip in skips:
        reason, twin, _ = skip.reason.partition(_TWIN)
        # An image that nobody could look into is skipped without a workload.
        kind = reason.replace(skip.workload or "\0", "{workload}").replace(skip.image, "{image}") + twin
        alike.setdefault(_SIZE.sub("{size}", kind), []).append(skip)
    found = []
    for same in sorted(alike.values(), key=len, reverse=True):
        words, twin, _ = same[0].reason.partition(_TWIN)
        others = dict.fromkeys(skip.workload for skip in same if skip.workload != same[0].workload)
        if others and same[0].workload and same[0].workload in words:
            words += f" (the same for {_listed(list(others))})"
        else:
            images = dict.fromkeys(skip.image for skip in same)
            words = _of_all(words.replace(same[0].image, "IMAGE"), same) if len(images) > 1 else words
            words += f" ({_listed(list(images))}{'; their CPU twins stand in' if twin else ''})"
        found.append((len(same), words))
    return found


def _of_all(words: str, same: Iterable[Skip]) -> str:
    """The words with the sizes that all of these reasons say, from the smallest to the largest."""
    sizes = sorted({float(size) for skip in same for size in _SIZE.findall(skip.reason)})
    return _SIZE.sub(f"{sizes[0]:g} to {sizes[-1]:g} GB", words) if len(sizes) > 1 else words


def _listed(names: Sequence[str]) -> str:
    """The names; of many the first few, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"


def likely_precisions(skips: Iterable[Skip]) -> list[str]:
    """The mixed precision that a user may have meant, where a precision is one that hardly any workload is specified at."""
    lines = []
    missing: dict[str, set[str]] = {}
    for skip in skips:
        if skip.reason == f"{skip.workload} is not specified at {skip.precision}":
            missing.setdefault(skip.precision, set()).add(skip.workload)
    for precision, workloads in missing.items():
        if precision in ("bf16", "fp16"):
            count = plural(len(workloads), "workload")
            lines.append(
                f"{count} not specified at {precision}: did you mean --precision amp-{precision}, mixed precision?"
            )
    return lines
