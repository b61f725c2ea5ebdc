"""How work grows with its input: calls are counted at two sizes. A count is the same on a busy machine, a time is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reports.data import tables
from runner.admission import renew
from runner.cli.main import app
from runner.nodes import fleet as fleets
from runner.nodes import wire as messages
from runner.nodes.fleet_plan import prospect_of
from runner.results.on_disk import derived
from runner.run.options import Options
from tests.fixtures import stored, synthetic
from tests.fixtures.plans import make_cell
from tests.unit.runner.nodes import driven


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, Callable[[], object]], int]:
    """How often a function of a module or class is called while something runs."""

    def count(owner: Any, name: str, runs: Callable[[], object]) -> int:
        calls = []
        function = getattr(owner, name)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *args, **named: [calls.append(name), function(*args, **named)][1])
            runs()
        return len(calls)

    return count


def test_a_run_is_written_with_as_many_reads_of_its_plan_for_many_repeats_as_for_one(
    tmp_path: Path, calls_of: Callable[..., int]
) -> None:
    def write(repeats: int) -> int:
        folder = synthetic.make_run(tmp_path / f"of-{repeats}", windows=4)
        entry = synthetic.cell("jax-0.10.2-cpu", "gru-imdb")
        tables = [(entry["id"], at, synthetic.ended(entry, at, 4)) for at in range(1, repeats + 1)]
        return calls_of(json, "loads", lambda: stored.write_repeats(folder, tables))

    assert write(1) == write(9)


@pytest.mark.parametrize("work", [(hashlib, "sha256"), (fleets, "not_planned"), (messages, "document")])
def test_the_cells_of_equal_nodes_are_read_checked_and_hashed_once(
    work: tuple[Any, str], calls_of: Callable[..., int]
) -> None:
    def plan(nodes: int) -> int:
        messages._plan.cache_clear()
        options = Options(seed=1)
        usual = make_cell(image="torch-2.13.0-cpu", device_model=driven.CPU, preset=options.preset, batch=64)
        cells = [driven.cell_of(usual, at) for at in range(40)]
        return calls_of(
            *work, lambda: prospect_of(driven.fleet_of(nodes, cells, lambda _: b"", options), options).plan.cells
        )

    plan(1)  # what the catalog says is read once
    assert plan(3) == plan(24) > 0


# The cells are read once more for the origins of the parcels, which history says.
@pytest.mark.parametrize(
    ("work", "each"),
    [((derived, "_table"), len(tables.STEPS) + 1), ((renew, "renew"), 1), ((tables.store, "tables_of_run"), 2)],
)
@pytest.mark.parametrize("broken", [0, 2])
def test_a_history_reads_each_run_once_and_of_it_what_it_needs_also_beside_runs_that_cannot_be_read(
    tmp_path: Path, calls_of: Callable[..., int], work: tuple[Any, str], each: int, broken: int
) -> None:
    def read(runs: int) -> int:
        out = tmp_path / f"of-{runs}"
        for at in range(runs + broken):
            folder = synthetic.make_run(out / f"2026112{at}-120000-aaaa", windows=6, draw=at + 1)
            if at < broken:
                (folder / "run.json").write_text("{")
        printed = []
        calls = calls_of(
            *work, lambda: printed.append(CliRunner().invoke(app, ["history", "--out", str(out), "--format", "json"]))
        )
        assert len(json.loads(printed[0].stdout)["runs"]) == runs
        return calls

    more = each * (0 if work[1] != "renew" else broken)
    # Two runs have the rows of `runner compare`, which reads more.
    assert (read(3), read(6)) == (3 * each + more, 6 * each + more)
