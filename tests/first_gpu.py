"""The steps in docs/first-gpu.md, from the archives in docs/h200, with today's verdict: `python -m tests.first_gpu` writes the table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from reports.data import tables
from reports.data.model import MeasuredCell
from reports.wording import framework_name, number, percent
from runner.kit.archive import read
from runner.kit.imported import import_archive
from runner.paths import PROJECT

DOCUMENT = PROJECT / "docs" / "first-gpu.md"
ARCHIVES = ("fp32.tar.gz", "amp-bf16.tar.gz")
BEGIN, END = "<!-- steps: made by `python -m tests.first_gpu` -->\n", "<!-- end of steps -->"
HEAD = ("workload", "precision", "framework", "mode", "ms a step", "typical", "kernels ran", "today's verdict")


def cells(folder: Path) -> Iterator[MeasuredCell]:
    """The cells of both archives that were begun, imported as today's runner does it."""
    for name in ARCHIVES:
        run = import_archive(read(PROJECT / "docs" / "h200" / name), folder)
        yield from (cell for cell in tables.load([run.run.folder]).cells if cell.repeats)


def verdict(cell: MeasuredCell) -> str:
    """Today's, in words for a table."""
    if cell.unranked:
        why = cell.unranked.removeprefix("parity: ").partition(" (1 of")[0]
        return f"{'refused' if cell.status == 'failed' else 'not ranked'}: {why}"
    return "passed; one repeat"


def row(cell: MeasuredCell) -> tuple[str, ...]:
    windows = [repeat.windows for repeat in cell.repeats if repeat.windows is not None]
    steady = [
        seconds / steps
        for one in windows
        for stage, seconds, steps in zip(one.stage, one.seconds, one.steps, strict=True)
        if stage == "steady"
    ]
    share = cell.costs.get("kernel_share")
    return (
        f"`{cell.key.workload}`",
        cell.key.precision,
        framework_name(cell.framework),
        cell.mode or "default",
        number(1e3 * cell.step.value) if cell.step else "-",
        number(1e3 * float(np.median(steady))) if steady else "-",
        percent(share, 2) if share is not None else "not known",
        verdict(cell).replace("|", "\\|"),
    )


def table() -> str:
    with tempfile.TemporaryDirectory() as folder:
        rows = [HEAD, ("---",) * 4 + ("---:",) * 3 + ("---",), *map(row, cells(Path(folder)))]
    return "".join(f"| {' | '.join(each)} |\n" for each in rows)


def written(text: str) -> str:
    """The document with the table of the archives."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
