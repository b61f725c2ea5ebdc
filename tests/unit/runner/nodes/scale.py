"""The table in docs/scale.md of what the driver of a large run costs: `python -m tests.unit.runner.nodes.scale` measures it and writes it.

Each row is measured in a process of its own, which runs `python -m tests.unit.runner.nodes.driven REPEATS NODES [store]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from runner.catalog.images import PROJECT

DOCUMENT = PROJECT / "docs" / "scale.md"
BEGIN, END = "<!-- driver: made by `python -m tests.unit.runner.nodes.scale` -->\n", "<!-- end of driver -->"
HEAD = "| in the driver | CPU | measured with |\n| --- | --- | --- |\n"

Found = Mapping[str, float]


class Row(NamedTuple):
    """A row: its name, what `driven` is called with, and the figure that the row shows."""

    what: str
    repeats: int
    nodes: int
    words: tuple[str, ...]
    figure: Callable[[Found, int], str]

    @property
    def command(self) -> str:
        return " ".join(["driven", str(self.repeats), str(self.nodes), *self.words])


def _plan(found: Found, repeats: int) -> str:
    return f"{found['plan_seconds']:.2g} s"


def _each(found: Found, repeats: int) -> str:
    return f"{1e3 * found['run_seconds'] / repeats:.2g} ms"


ROWS = (
    Row("the plan of 128 nodes with 2000 equal cells each", 2000, 128, (), _plan),
    Row("the plan of 1250 nodes with 2000 equal cells each", 2000, 1250, (), _plan),
    Row("a repeat: tracker, frames out and in, on 8 nodes", 4000, 8, (), _each),
    Row("the same on 128 nodes", 4000, 128, (), _each),
    Row("the same in a larger run", 20_000, 128, (), _each),
    Row("a repeat that is also judged and stored", 100, 8, ("store",), _each),
)


def measured(row: Row) -> str:
    command = [sys.executable, "-m", "tests.unit.runner.nodes.driven", str(row.repeats), str(row.nodes), *row.words]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return row.figure(json.loads(ended.stdout), row.repeats)


def lines(figures: Mapping[str, str]) -> str:
    """The table with a figure for each row's command."""
    return HEAD + "".join(f"| {row.what} | {figures[row.command]} | `{row.command}` |\n" for row in ROWS)


def written(text: str, figures: Mapping[str, str]) -> str:
    """The document with this table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + lines(figures) + END + rest.partition(END)[2]


def figures_in(text: str) -> dict[str, str]:
    """Command -> figure, of the table in the document."""
    table = text.partition(BEGIN)[2].partition(END)[0]
    cells = (line.strip("| ").split(" | ") for line in table.splitlines()[2:])
    return {command.strip("`"): figure for _, figure, command in cells}


if __name__ == "__main__":
    found = {row.command: measured(row) for row in ROWS}
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), found), encoding="utf-8")
