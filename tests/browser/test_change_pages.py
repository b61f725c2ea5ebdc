"""The pages of `runner compare` and `runner history`: the sentence first, the picture with the change marked, and nothing for axe."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from tests.browser.chromium import Browser
from tests.fixtures import synthetic

pytestmark = pytest.mark.browser

RUNS = 8


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of runs of several days, from one of which on PyTorch takes 20 % longer at one workload."""
    folder = tmp_path_factory.mktemp("changes")
    synthetic.make_days(folder / "runs", RUNS)
    made = {}
    for name, words in (("history", ["history"]), ("compare", ["compare", "r0", f"r{RUNS - 1}"])):
        made[name] = folder / f"{name}.html"
        ended = CliRunner().invoke(app, [*words, "--out", str(folder / "runs"), "-o", str(made[name])])
        assert (ended.exit_code, ended.stdout) == (1, f"{made[name]}\n"), ended.output
    return made


@pytest.mark.parametrize("name", ["history", "compare"])
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_a_page_of_changes_has_its_picture_on_the_first_screen_and_no_violation(
    browser: Browser, pages: dict[str, Path], name: str, width: int, theme: str
) -> None:
    browser.open(pages[name], width, theme)
    browser.wait("document.readyState === 'complete'")
    assert browser.violations() == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert browser.run("return document.querySelector('figure svg .dot').getBoundingClientRect().top") < 844
    assert "changed" in browser.run("return document.querySelector('h1').innerText") or name == "compare"
    alarm = browser.run("return [...document.querySelectorAll('text.alarm')].map((one) => one.textContent)")
    assert len(alarm) == 1, "the one change is marked, and no other cell"
    assert "slower" in alarm[0]


def test_the_change_is_marked_between_the_runs_that_it_lies_between(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["history"])
    places = browser.run(
        "const of = (found) => found.map((one) => one.getBoundingClientRect().left);"
        "const figure = document.querySelector('text.alarm').closest('figure');"
        "const dots = of([...figure.querySelectorAll('.dot')]).sort((one, other) => one - other);"
        "return [of([...figure.querySelectorAll('path.alarm')])[0], dots]"
    )
    mark, dots = places
    columns = sorted({round(place) for place in dots})
    before = [place for place in columns if place < mark]
    assert len({round(place / 5) for place in before}) == synthetic.SLOWER_FROM


def test_a_page_and_another_format_are_not_asked_for_at_once(pages: dict[str, Path], tmp_path: Path) -> None:
    runs = str(pages["history"].parent / "runs")
    for words in (["history"], ["compare", "r0", "r1"]):
        ended = CliRunner().invoke(app, [*words, "--out", runs, "--format", "csv", "-o", str(tmp_path / "x.html")])
        assert (ended.exit_code, "leave one of them out" in ended.stderr) == (2, True)
        ended = CliRunner().invoke(app, [*words, "--out", runs, "-o", "/proc/x.html"])
        assert "/proc/x.html cannot be written" in ended.stderr
