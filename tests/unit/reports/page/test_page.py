"""The page is built before its templates: they print its records, and every plot that they print has its figure."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from reports.data import tables
from reports.data.costs import COSTS
from reports.page.build import page_of
from reports.page.page import GroupSection
from reports.page.render import page
from tests.fixtures import synthetic
from tests.fixtures.pages import figures

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


def test_every_plot_of_the_page_has_its_figure_under_an_id_of_its_own(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    html = page(data)
    places = re.findall(r'<div class="plot" id="([^"]+)"', html)
    assert len(places) > 10
    assert len(set(places)) == len(places)
    assert list(figures(html)) == places == [chart.id for chart in page_of(data).charts]


def test_a_cost_that_some_cell_has_is_a_column_and_any_other_is_none(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", changes={"joules_per_item": 0.31})])
    first, *others = (group for section in page_of(data).sections for group in section.groups)
    assert isinstance(first, GroupSection)
    assert [cost.head for cost in first.costs] == ["Host memory", "Energy"]
    assert {values[1] for _, values in first.cost_rows} == {"0.310", "–"}
    assert all(
        [cost.head for cost in group.costs] == ["Host memory"] for group in others if isinstance(group, GroupSection)
    )
    assert len({cost.name for cost in COSTS}) == len(COSTS)
