"""What framework.json says beside a figure: the page and the Markdown mark the cells, and hold the sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports import specifications
from reports.answers.overview import overview
from reports.data import tables
from reports.page import markdown_report, render
from tests.fixtures import synthetic
from tests.fixtures.pages import whole

EVERYWHERE = "All of its cells are so."
GRU = "The GRU is written by hand."
ELSEWHERE = "Only GPUs are so."
DECLARED = {
    "torch": {"title": "PyTorch", "caveats": [{"sentence": EVERYWHERE}, {"sentence": GRU, "workloads": ["gru-imdb"]}]},
    "jax": {"title": "JAX", "caveats": [{"sentence": EVERYWHERE}, {"sentence": ELSEWHERE, "devices": ["cuda"]}]},
    "tensorflow": {"title": "TensorFlow 2", "caveats": [{"sentence": ELSEWHERE, "modes": ["xla"]}]},
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tables.Tables:
    monkeypatch.setattr(specifications, "_declared", lambda: DECLARED)
    return tables.load([synthetic.make_run(tmp_path / "run")])


def test_a_cell_has_the_caveats_of_its_workload_device_and_mode(data: tables.Tables) -> None:
    for cell in data.cells:
        due = [EVERYWHERE] if cell.framework in ("torch", "jax") else []
        due += [GRU] if (cell.framework, cell.key.workload) == ("torch", "gru-imdb") else []
        due += [ELSEWHERE] if (cell.framework, cell.key.device_kind) == ("jax", "cuda") else []
        assert list(cell.caveats) == due, cell.label


def test_the_markdown_numbers_them_in_the_table_and_says_them_under_it(data: tables.Tables) -> None:
    for group in data.groups:
        assert group.caveats == tuple(sorted(set(group.caveats)))
    text = markdown_report.markdown(overview(data))
    _, gru = text.split("IMDB", 1)
    assert f"- \\[1\\] {EVERYWHERE}\n- \\[2\\] {GRU}" in gru
    assert "PyTorch 2.13.0 \\[1, 2\\] |" in gru
    assert "JAX 0.10.2 \\[1\\] |" in gru
    assert ELSEWHERE not in text or any(cell.key.device_kind == "cuda" for cell in data.cells)


def test_the_markdown_says_no_caveat_that_no_row_of_the_table_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specifications, "_declared", lambda: DECLARED)
    # PyTorch, whose caveats are both of the group's, is too noisy in its first cell, and JAX is ranked.
    data = tables.load([synthetic.make_run(tmp_path / "run", everywhere={"noise": 0.4}, changes={"noise": 0.01})])
    for part in markdown_report.markdown(overview(data)).split("###")[1:]:
        table, _, below = part.partition("\n\n- ")
        for at in range(1, 4):
            assert (f"- \\[{at}\\]" in f"- {below}") == bool(re.search(rf"\\\[(\d, )*{at}(, \d)*\\\]", table))


def test_the_page_marks_the_cell_in_its_tables_and_says_it_with_its_details(data: tables.Tables) -> None:
    page = whole(render.page(data))
    ranked = [entry.cell for group in data.groups for entry in group.ranked]
    assert page.count("<sup>[") == sum(1 for cell in data.cells if cell.caveats)
    # On the first screen a star says that there is more, and a pointer reads it.
    assert page.count('<span class="more">*</span>') == sum(1 for cell in ranked if cell.caveats)
    assert page.count(f"; {EVERYWHERE}") == sum(EVERYWHERE in cell.caveats for cell in ranked)
    assert page.count("<dt>Beside the figure</dt>") == sum(1 for cell in data.cells if cell.caveats)
    assert f"<li>{GRU}</li>" in page
