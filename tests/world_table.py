"""The table of docs/statistics.md of what simulated machines do to the claims of a report: `python -m tests.world_table` writes it.

`--runs 60 --world quiet` prints the rows of one world instead. Each world is drawn from a seed of its own, so a row does not depend on the
others.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reports.data.model import Group
from tests.fixtures import measured, worlds
from tests.fixtures.worlds import WORLDS

DOCUMENT = Path(__file__).parent.parent / "docs" / "statistics.md"
BEGIN = "<!-- worlds: made by `python -m tests.world_table` -->\n"
END = "<!-- end of worlds -->\n"
RUNS = 400
# Seed of the runs of a world, with its name.
SEED = 51
APART = 1.1
HEAD = (
    "| the machine | one is falsely called fastest | some cell is falsely called slower | a true 10 % is found | the wrong way round |\n"
    "| --- | ---: | ---: | ---: | ---: |\n"
)


class Shape(NamedTuple):
    """So many frameworks at so many workloads, with so many repeats."""

    cells: int = 5
    workloads: int = 2
    repeats: int = 3


_ALL_SHAPES = Shape(2, 1, 7), Shape(20, 1, 3), Shape(5, 2, 2), Shape(5, 1, 12), Shape(3, 2, 5)

# Worlds that are looked at with other numbers of cells and repeats, too.
EDGES = {
    "quiet": _ALL_SHAPES,
    "a third of the repeats is 10 % slower": _ALL_SHAPES,
    "repeats and windows differ by 15 %": _ALL_SHAPES,
    "40 s of every 150 s are 25 % slower": (Shape(3, 2, 5),),
    "a job of 20 s every 2 minutes takes 30 %": (Shape(3, 2, 5),),
    "repeats differ by 0.3, 1, 3, 8 and 0.3 %": (Shape(3, 2, 5), Shape(20, 1, 3)),
    "every fifth window of one framework takes twice as long": (Shape(2, 1, 7), Shape(5, 2, 2)),
}


@dataclass(frozen=True)
class Claims:
    """Shares of simulated runs, and of pairs that are truly 10 % apart."""

    fastest: float
    slower: float
    found: float
    wrong: float

    def __str__(self) -> str:
        return " | ".join(f"{100 * share:.3g} %" for share in (self.fastest, self.slower, self.found, self.wrong))


def groups(random: np.random.Generator, name: str, levels: Sequence[float], shape: Shape) -> Sequence[Group]:
    """The groups of one run in a world, one a workload, each with a cell at each true level."""
    drawn, began = worlds.run(random, WORLDS[name], list(levels) * shape.workloads, shape.repeats)
    names = [(f"f{at}", f"w{number}") for number in range(shape.workloads) for at in range(len(levels))]
    measured_of = {place: windows for place, windows in zip(names, drawn, strict=True) if any(map(len, windows))}
    times = dict(zip(names, began, strict=True))
    return measured.tables({"run": measured_of}, {"run": times}).groups


def claims(name: str, shape: Shape, runs: int) -> Claims:
    """What is said of equal cells, and of one that is 10 % faster than the others, in so many runs each."""
    random = np.random.default_rng([SEED, *shape, *name.encode()])
    fastest = slower = found = wrong = 0
    for _ in range(runs):
        told = [
            sum(entry.apart for entry in group.ranked) for group in groups(random, name, [1.0] * shape.cells, shape)
        ]
        slower += any(told)
        fastest += any(count == shape.cells - 1 for count in told)
        of_run = groups(random, name, [1.0] + [APART] * (shape.cells - 1), shape)
        apart = [
            (entry.cell.framework, group.first.cell.framework)
            for group in of_run
            for entry in group.ranked
            if entry.apart
        ]
        found += sum(first == "f0" for _, first in apart)
        wrong += any(one == "f0" for one, _ in apart)
    pairs = runs * shape.workloads * (shape.cells - 1)
    return Claims(fastest / runs, slower / runs, found / pairs, wrong / runs)


def rows(chosen: Sequence[str], runs: int) -> Iterator[str]:
    """The lines of the table."""
    for name in chosen:
        for shape in (Shape(), *EDGES.get(name, ())):
            other = "" if shape == Shape() else f", {shape.cells} cells × {shape.workloads}, {shape.repeats} repeats"
            yield f"| {name}{other} | {claims(name, shape, runs)} |\n"


def table() -> list[tuple[str, list[float]]]:
    """The rows of the document: what stands first in each, and its percentages."""
    text = DOCUMENT.read_text()
    lines = text[text.index(BEGIN) + len(BEGIN + HEAD) : text.index(END)].splitlines()
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [(first, [float(one.removesuffix(" %")) for one in shares]) for first, *shares in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", action="append", default=[], help="print the rows of this world")
    parser.add_argument("--runs", type=int, default=RUNS)
    chosen = parser.parse_args()
    if chosen.world:
        for line in rows(chosen.world, chosen.runs):
            print(line, end="", flush=True)
        return
    text = DOCUMENT.read_text()
    made = "".join((BEGIN, HEAD, *rows(list(WORLDS), chosen.runs), END))
    DOCUMENT.write_text(re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
