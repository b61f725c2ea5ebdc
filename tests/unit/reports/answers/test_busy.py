"""What the top of a report asks of a machine that perhaps did other work meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reports.answers import overview as conditions
from reports.answers import plain
from reports.answers.overview import overview
from reports.data import tables, telemetry_signals
from reports.data.model import Tables
from runner.results.cells import MOST_NOISE
from tests.fixtures import synthetic


def with_(folder: Path, noise: float, threads: int) -> Tables:
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    environment = {**synthetic.environment(entry), "settings": {"mode": "default", "threads": threads}}
    changes = {
        "noise": noise,
        "environment_json": json.dumps({"event": "environment", "t": 1.9, "v": 1, **environment}),
    }
    return tables.load([synthetic.make_run(folder, changes=changes)])


def test_a_cell_that_is_too_noisy_and_got_few_of_its_cpus_raises_the_question(tmp_path: Path) -> None:
    said = overview(with_(tmp_path / "run", 0.9, 8)).lead
    expected = (
        "Other programs may have slowed some cells: 1 cell is too noisy to be ranked (PyTorch 2.13.0, cnn-cifar10); "
        "1 of them got less than half of their CPUs, "
        "one 1.9 of 8."
    )
    assert said.endswith(expected)


def test_noise_alone_raises_it_without_a_claim_about_the_cpus(tmp_path: Path) -> None:
    said = overview(with_(tmp_path / "run", 0.9, 2)).lead
    assert said.endswith(
        "Other programs may have slowed some cells: 1 cell is too noisy to be ranked (PyTorch 2.13.0, cnn-cifar10)."
    )


def test_a_quiet_cell_that_leaves_most_cpus_idle_is_ranked_and_raises_no_question(tmp_path: Path) -> None:
    data = with_(tmp_path / "run", 0.02, 64)
    assert conditions.doubt_by_other_work(data.cells) == ""
    assert all(cell.status == "failed" for cell in data.cells if cell.unranked)


def test_a_ranked_cell_that_got_few_of_its_cpus_asks_where_another_at_the_same_work_got_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = with_(tmp_path / "run", 0.02, 2)
    cells = [cell for cell in data.cells if not cell.unranked]
    key = cells[0].key
    got = {cell.anchor: 0.9 + at for at, cell in enumerate(cell for cell in cells if cell.key == key)}
    for module in (conditions, telemetry_signals):
        monkeypatch.setattr(module, "given", lambda cell: 2)
        monkeypatch.setattr(module, "cpus_busy", lambda cell: got.get(cell.anchor))
    assert len(got) > 1
    low = next(cell for cell in cells if cell.anchor in got)
    who = f"{low.label}, {low.key.workload}"
    cells = telemetry_signals.starved(cells)
    assert f"1 cell got less than half of its CPUs ({who}), one 0.90 of 2" in conditions.doubt_by_other_work(cells)
    assert conditions.other_work_in_short(cells) == "a cell got 0.90 of 2 CPUs"
    monkeypatch.setattr(telemetry_signals, "cpus_busy", lambda cell: 0.9)
    cells = telemetry_signals.starved([replace(cell, cpu_share=None) for cell in cells])
    assert conditions.doubt_by_other_work(cells) == "", "work that no framework spreads over the CPUs"


def test_cells_that_got_less_than_one_cpu_ask_though_none_got_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = with_(tmp_path / "run", 0.02, 2)
    for module in (conditions, telemetry_signals):
        monkeypatch.setattr(module, "given", lambda cell: 2)
        monkeypatch.setattr(module, "cpus_busy", lambda cell: 0.3)
    cells = telemetry_signals.starved(data.cells)
    ended = [cell for cell in cells if cell.status == "ok"]
    assert len(ended) > 1
    assert f"{len(ended)} cells got less than half of their CPUs (" in conditions.doubt_by_other_work(cells)
    assert conditions.other_work_in_short(cells) == "a cell got 0.30 of 2 CPUs"


RECORDED = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_no_recorded_cell_is_too_noisy_to_be_ranked(path: Path) -> None:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert next(event["noise"] for event in events if event["event"] == "end") <= MOST_NOISE


@pytest.mark.parametrize(("others", "said"), [(0.8, "other work took 0.80 CPUs"), (0.1, "")])
def test_what_other_work_took_is_told_in_numbers_and_beside_each_cell(others: float, said: str, tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", changes={"other_cpus": others})])
    assert conditions.other_work_in_short(data.cells) == said
    sentence = "other work kept CPUs busy beside 1 cell, at most 0.8 beside one that had 2"
    assert (sentence in conditions.doubt_by_other_work(data.cells)) == bool(said)
    below = [line for section in plain.sections(data) for line in section.below]
    assert any(sentence in line for line in below) == bool(said)
