"""Plots are drawn as they should be, and tables, plots and answers go out of the page."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from reports.data import tables
from reports.page import summary
from tests.browser.chromium import PATIENCE_SECONDS, Browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [390, 1280])
def test_every_plot_is_drawn_with_points_inside_its_box(browser: Browser, page: Path, width: int) -> None:
    browser.open_drawn(page, width)
    drawn = browser.run(
        """return [...document.querySelectorAll('.plot')].map((plot) => ({
             marks: plot.querySelectorAll('.point, .point path, .js-line').length,
             errors: plot.querySelectorAll('.errorbar').length,
             inside: plot.querySelector('.main-svg').getBoundingClientRect().right <= innerWidth,
             height: plot.getBoundingClientRect().height }))"""
    )
    assert len(drawn) == 2 * 4 + 2 * 5
    # Windows, how often which came, busy CPUs and memory: each in a part of the plot, and none beside it.
    parts = (
        "return document.querySelectorAll('#provenance .plot')[0].querySelectorAll('.plot-container .subplot').length"
    )
    assert browser.run(parts) == 4
    assert all(plot["marks"] > 0 and plot["inside"] and plot["height"] > 80 for plot in drawn)
    assert sum(plot["errors"] for plot in drawn) == 5  # one interval for each measured cell


def test_learning_curves_switch_between_seconds_and_steps(browser: Browser, page: Path) -> None:
    browser.open_drawn(page)
    titles = "[...document.querySelectorAll('.pair .xtitle')].map((one) => one.textContent)"
    assert set(browser.run(f"return {titles}")) == {"training seconds"}
    choice = browser.driver.find_element("css selector", ".axis input[value=steps]")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", choice)
    choice.click()
    browser.wait(f"{titles}.every((title) => title === 'training steps')")
    assert browser.complaints() == []


def test_a_table_goes_out_as_csv_and_a_plot_as_picture(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open_whole(page)
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.run("document.querySelector('[aria-label^=\"CSV: Results of cnn-cifar10\"]').click()")
    (saved,) = downloaded(tmp_path, "*.csv")
    rows = list(csv.reader(saved.read_text("utf-8").splitlines()))
    assert len(rows) == 1 + 3
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows[1][0].startswith("torch-2.13.0-cpu")
    assert rows[1][1].startswith("131 ms ")
    plot = "#workload-1 figure"
    browser.run(f"document.querySelector('{plot}').scrollIntoView()")
    browser.wait(f"document.querySelector('{plot} .tools')")
    for kind, head in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        browser.run(
            f"[...document.querySelectorAll('{plot} .tools button')].find((one) => one.textContent === '{kind}').click()"
        )
        (saved,) = downloaded(tmp_path, f"*.{kind.lower()}")
        assert saved.read_bytes().startswith(head)
    assert browser.complaints() == []


def downloaded(folder: Path, pattern: str) -> list[Path]:
    """The files of a download that ended."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := [path for path in folder.glob(pattern) if path.stat().st_size]):
        assert time.monotonic() < end, f"nothing came that is {pattern}"
        time.sleep(0.1)
    return found


def test_a_table_is_copied_as_csv_and_the_answers_as_markdown(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    rows = list(csv.reader(copied(browser, '[aria-label^="Copy: Results of cnn-cifar10"]').splitlines()))
    assert len(rows) == 1 + 3
    assert rows[0][0] == "Cell"
    assert rows[1][0].startswith("torch-2.13.0-cpu")
    (run,) = page.parent.glob("*/")
    assert copied(browser, "#share") == summary.markdown(tables.load([run]))


def copied(browser: Browser, selector: str) -> str:
    """What lies in the clipboard when that button has been pressed and has said that it is done."""
    # Its words are back after two seconds, of which a busy machine may see none: they are noted down.
    browser.run(
        """const button = document.querySelector(arguments[0]); window.said = [];
           new MutationObserver(() => said.push(button.textContent)).observe(button, { childList: true }); button.click()""",
        selector,
    )
    browser.wait("said.length")
    assert browser.run("return said[0]") == "Copied"
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, (refused) => done(String(refused)))"
    return str(browser.driver.execute_async_script(read))
