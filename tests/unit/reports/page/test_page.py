"""The page is built before its templates: they print its records, and every plot that they print has its figure."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import Environment, nodes

from reports import wording
from reports.answers.health import Health
from reports.answers.overview import overview
from reports.data import tables
from reports.data.costs import COSTS
from reports.page import results
from reports.page.assembly import page_of
from reports.page.page import GroupSection
from reports.page.render import page
from tests.fixtures import synthetic
from tests.fixtures.pages import charts, whole

TEMPLATES = sorted(
    path.name for path in resources.files("reports.page.templates").iterdir() if path.name.endswith(".j2")
)
# Macros, and methods of dicts and texts that only look something up.
PRINTING = re.compile(r"(m|across_tables)\.\w+|caller|drawn|later|\w.*\.(get|items|startswith)")


def called(node: nodes.Expr) -> str:
    """What a call calls, as the template has it."""
    if isinstance(node, nodes.Getattr):
        return f"{called(node.node)}.{node.attr}"
    return node.name if isinstance(node, nodes.Name) else "something"


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_prints_and_calls_no_function_of_the_report(name: str) -> None:
    source = (resources.files("reports.page.templates") / name).read_text("utf-8")
    calls = [called(node.node) for node in Environment().parse(source).find_all(nodes.Call)]
    assert [call for call in calls if not PRINTING.fullmatch(call)] == []


def test_every_picture_of_the_page_is_printed_once_under_an_id_of_its_own(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    html = whole(page(data))
    places = re.findall(r'<figure id="(plot-[^"]+)"', html)
    assert len(places) > 10
    assert len(set(places)) == len(places)
    drawn = list(charts(page_of(overview(data))))
    assert sorted(places) == sorted(chart.id for chart in drawn)
    assert all(html.count(chart.svg) == 1 for chart in drawn)


def test_a_cost_that_some_cell_has_is_a_column_and_any_other_is_none(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", changes={"joules_per_item": 0.31})])
    first, *others = (group for section in page_of(overview(data)).sections for group in section.groups)
    assert isinstance(first, GroupSection)
    assert [cost.head for cost in first.costs] == ["Host memory", "Energy"]
    assert {values[1] for _, values in first.cost_rows} == {"0.310", "–"}
    assert all(
        [cost.head for cost in group.costs] == ["Host memory"] for group in others if isinstance(group, GroupSection)
    )
    assert len({cost.name for cost in COSTS}) == len(COSTS)


def test_no_link_of_the_page_is_dead_where_nothing_was_measured_on_a_gpu(tmp_path: Path) -> None:
    html = whole(page(tables.load([synthetic.make_run(tmp_path / "run")])))
    ids = set(re.findall(r' id="([^"]+)"', html))
    assert [link for link in re.findall(r'href="#([^"]+)"', html) if link not in ids] == []


def test_a_measurement_begins_with_its_figures_and_ends_with_its_digests(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    section = page_of(overview(data)).cells[1]
    cell = section.cell
    assert cell.step is not None
    start = html_of(data).split(f'<details id="{cell.anchor}">')[1]
    fields = re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", start.split("</dl>")[0])
    heads = [head for head, _ in fields]
    assert heads[:3] == ["Step time", "Images/s", "Rank"]
    assert heads[-5:] == ["Image digest", "Lock sha256", "Code sha256", "bench sha256", "Data"]
    environment = html_of(tables.load([synthetic.make_run(tmp_path / "venv", everywhere={"engine": "venv"})]))
    assert "<dt>Environment digest</dt>" in environment, "the engine venv has no image"
    assert wording.duration(cell.step.value) in fields[0][1]
    assert f"({wording.step_interval(cell.step)})" in fields[0][1]
    assert fields[2][1].startswith("2 of ")
    assert "× the fastest (" in fields[2][1]


def test_the_interval_in_milliseconds_stands_beside_every_figure_that_has_one(tmp_path: Path) -> None:
    levels = {("jax-0.10.2-cpu", "cnn-cifar10"): 20.0}
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=3, slower=levels)])
    entries = [entry for part in page_of(overview(data)).slices for row in part.rows for entry in row.entries]
    ranked = [entry for entry in entries if entry.kind == "ranked"]
    assert max(float(entry.measures.split(";")[2].split(",")[0]) for entry in ranked) > 1000  # milliseconds
    for entry in ranked:
        low, high = (float(end) for end in entry.interval.split(","))
        assert low <= float(entry.measures.split(";")[2].split(",")[0]) <= high


def html_of(data: tables.Tables) -> str:
    return whole(page(data))


def test_a_health_text_with_a_command_has_whole_sentences_and_the_command_as_code(tmp_path: Path) -> None:
    command = "`runner reference save <RUN> --name NAME`"
    health = Health("Not judged: no reference", "not judged", "", next=f"Save it: {command}.")
    html = whole(page(tables.load([synthetic.make_run(tmp_path / "run")]), health))
    words = "Not judged: no reference. Save it: <code>runner reference save &lt;RUN&gt; --name NAME</code>.</p>"
    assert words in html
    assert "not judged. Save it: runner reference save &lt;RUN&gt; --name NAME.</dd>" in html


def test_the_best_versions_show_the_fastest_of_each_column_and_hide_no_good_one_behind_a_failed_one() -> None:
    def found(level: float | None, kind: str = "ranked") -> Any:
        return SimpleNamespace(group="jax", level=level, entry=SimpleNamespace(kind=kind, best=level == 0.0))

    # Two columns: the old version is the only one that ran the second, and its result in the first is wrong.
    old, good, better = [found(None, "wrong"), found(0.0)], [found(0.4), None], [found(0.3), None]
    assert results._best_versions([old, good, better]) == {0, 2}
    # Where none is ranked, a failure is seen rather than nothing.
    assert results._best_versions([[found(None, "failed"), None], [found(0.2), None]]) == {1}
    assert results._best_versions([[None, found(None, "failed")], [found(0.2), None]]) == {0, 1}
