"""How far two times are apart has one size, whichever of the two is named first."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reports.answers import across
from reports.answers.contrast import Contrast, Side
from reports.answers.overview import Drift
from reports.answers.run_history import Moved
from reports.answers.sessions import CommonShift
from reports.data.groups import workloads
from reports.data.model import MeasuredCell, StoredRun, Tables
from reports.wording import apart_in, times
from runner.results.statistics import Estimate
from runner.verify.outliers import fleet_of
from runner.verify.references.comparability import AmongMachines
from runner.verify.verdict import CellVerdict, meaning
from runner.verify.verification import Together
from tests.unit.reports.answers.test_short import A100, H200, answered, cells

ROOT = Path(__file__).resolve().parents[3]
# A size as a share of one of the two times: another number in the other direction.
SHARE = re.compile(r"\A ?(more |less time|longer|slower|faster|shorter)")


def estimate(ratio: float) -> Estimate:
    return Estimate(ratio, ratio / 1.01, ratio * 1.01, 60, 3, "test", error=0.001)


def row(ratio: float) -> Contrast:
    return Contrast(Side(()), Side(()), estimate(ratio), 0.001, "slower" if ratio > 1 else "faster", "", ())


def together(ratio: float) -> str:
    verdict: CellVerdict = "slow" if ratio > 1 else "fast"
    return Together("run", "cuda", 5, ratio, ratio / 1.3, ratio * 1.3, 0.08, verdict).reason.partition(" (")[0]


def reached(ratio: float) -> str:
    return meaning("slow" if ratio > 1 else "fast", ratio, (ratio / 9, ratio * 9), 0.08)


SENTENCES: dict[str, Callable[[float], str]] = {
    "a row of compare": lambda ratio: row(ratio).words,
    "all cells of compare": lambda ratio: CommonShift(estimate(ratio), 6, 6).said.partition(" (")[0],
    "a step of history": lambda ratio: row(ratio).change,
    "a drift of history": lambda ratio: Moved(*vars(row(ratio)).values(), kind="drift").change,
    "a drift within a run": lambda ratio: str(Drift("run", 4, 4, (1, 3), ratio)),
    "all cells of verify": together,
    "a cell of verify": reached,
    "among the machines of others": lambda ratio: str(AmongMachines("A100", 31, ratio, 4, None)),
    "two devices": lambda ratio: fleet_of({"a": 1.0, "b": ratio}).why_not,
    "a range": lambda ratio: apart_in([ratio, ratio**2]),
}


def sizes(said: str) -> list[str]:
    return sorted(re.findall(r"\d+\.\d+(?=(?: to \d+\.\d+)?[ \u00a0]?(?:×|times))", said))


@pytest.mark.parametrize("name", SENTENCES)
@pytest.mark.parametrize("ratio", [1.0043, 1.2, 4.0])
def test_a_sentence_has_the_same_size_in_both_directions(name: str, ratio: float) -> None:
    said = SENTENCES[name]
    assert sizes(said(ratio)) == sizes(said(1 / ratio)), (said(ratio), said(1 / ratio))
    assert times(ratio) in sizes(said(ratio)), said(ratio)
    assert said(ratio) != said(1 / ratio) or name == "two devices"


def swapped(found: Sequence[MeasuredCell]) -> list[MeasuredCell]:
    """Two by two, each with what the other one measured."""
    pairs = zip(found[::2], found[1::2], strict=True)
    return [replace(at, repeats=other.repeats) for one, two in pairs for at, other in ((one, two), (two, one))]


def on_a_page(found: Sequence[MeasuredCell]) -> Iterator[str]:
    """All sentences of the page that may have a size: those of the cards and of what changed."""
    tables = Tables((StoredRun("run", {"run_id": "run", "created": "2026-11-01"}),), workloads(found), (), {}, {})
    yield from (f"{answer.words}; {answer.detail}" for answer in answered(found))
    yield from across.changes(tables, across.ladders(tables), across.effects(tables))


PAIRS: dict[str, list[MeasuredCell]] = {
    "two versions of CUDA": cells([1.0, 1.2], ["torch", "torch"], cuda=["12.6", "12.8"], model=H200),
    "two GPUs": [*cells([1.0], ["torch"], model=H200), *cells([1.7], ["torch"], model=A100, seed=2)],
    "two frameworks on a GPU": cells([1.0, 1.3], ["torch", "jax"], model=H200),
    "two frameworks": cells([1.0, 1.3], ["torch", "jax"]),
    "two precisions": [
        replace(cell, key=replace(cell.key, precision=precision), image="torch-1")
        for cell, precision in zip(cells([1.0, 1.4], ["torch", "torch"]), ("fp32", "bf16"), strict=True)
    ],
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_page_has_the_same_sizes_when_two_sides_change_places(name: str) -> None:
    found = PAIRS[name]
    here, there = ["\n".join(on_a_page(cells)) for cells in (found, swapped(found))]
    assert sizes(here) == sizes(there), f"{here}\n\n{there}"
    assert sizes(here), here


def test_the_size_of_a_card_is_that_of_the_pairs_that_it_counts() -> None:
    """Two of three pairs are told: 1.2 and 1.3; what is open, or goes the other way, has no part in the size."""
    levels = {"u": (1.2, 1.0), "v": (1.3, 1.0), "w": (1.0, 1.0)}
    found = [
        replace(cell, key=replace(cell.key, workload=workload), anchor=f"{workload}-{cell.anchor}")
        for workload, pair in levels.items()
        for cell in cells(pair, ["torch", "torch"], cuda=["12.6", "12.8"], model=H200)
    ]
    assert answered(found)[1].words == "Older CUDA: 1.25× as long, 2 of 3"


def shares_of_a_time(path: Path) -> Iterator[str]:
    """The f-strings in a file that call how far two times are apart a share of one of them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            for part, after in zip(node.values, node.values[1:], strict=False):
                says = ast.unparse(part)
                if ("percent(" in says or "per_cent(" in says) and SHARE.match(ast.unparse(after).strip("'\"f")):
                    yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"


def test_no_sentence_says_how_far_two_times_are_apart_in_per_cent() -> None:
    files = [path for wing in ("reports", "runner") for path in (ROOT / wing).rglob("*.py")]
    assert len(files) > 200
    assert [line for path in files for line in shares_of_a_time(path)] == []
