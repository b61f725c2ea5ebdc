"""Plots are drawn as they should be, and tables, plots and answers go out of the page."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from reports.answers.overview import overview
from reports.data import tables
from reports.page import markdown_report
from tests.browser.chromium import PATIENCE_SECONDS, Browser

pytestmark = pytest.mark.browser


# Of each text of a picture: what it says, how large it is, and its place in the window.
TEXTS = """return [...document.querySelectorAll('svg.chart')].filter((svg) => svg.getClientRects().length).map((svg) => ({
  id: svg.closest('figure').id, marks: svg.querySelectorAll('path').length, width: svg.getBoundingClientRect().width,
  texts: [...svg.querySelectorAll('text')].map((text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    return [text.textContent, parseFloat(getComputedStyle(text).fontSize), left, right, top, bottom]; }) }))"""


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *[("page", 390), ("rich_page", 1440), ("nodes_page", 390)],
        *[
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("page", 1440), ("rich_page", 390), ("nodes_page", 1440))
        ],
    ],
)
def test_texts_of_pictures_are_large_enough_whole_and_do_not_overlap(
    browser: Browser, request: pytest.FixtureRequest, name: str, width: int
) -> None:
    browser.open_drawn(request.getfixturevalue(name), width)
    pictures = browser.run(TEXTS)
    assert len(pictures) >= 2 * 3
    for picture in pictures:
        assert picture["marks"] > 1
        texts = picture["texts"]
        assert texts
        for words, size, left, right, _, _ in texts:
            assert size >= 11, (picture["id"], words, size)
            assert 0 <= left < right <= width, (picture["id"], words, left, right)
        for at, (words, _, left, right, top, bottom) in enumerate(texts):
            for other, _, start, end, above, below in texts[at + 1 :]:
                apart = right <= start + 1 or end <= left + 1 or bottom <= above + 3 or below <= top + 3
                assert apart, (picture["id"], words, other)


@pytest.mark.parametrize("width", [390, 1280])
def test_samples_are_drawn_when_they_are_seen_and_fit_their_box(browser: Browser, page: Path, width: int) -> None:
    browser.open_whole(page, width)
    assert browser.run("return document.querySelectorAll('canvas').length") == 0
    browser.open_drawn(page, width)
    drawn = browser.run(
        """return [...document.querySelectorAll('.samples')].map((place) => ({
             plots: place.querySelectorAll('canvas').length, right: place.getBoundingClientRect().right,
             inside: [...place.querySelectorAll('canvas')].every((one) => one.getBoundingClientRect().right <= innerWidth) }))"""
    )
    assert len(drawn) == 2 * 5
    # Windows, busy CPUs and memory: each a plot of its own.
    assert {place["plots"] for place in drawn} == {3}
    assert all(place["inside"] and 0 < place["right"] <= width for place in drawn)
    assert browser.complaints() == []


def test_learning_curves_switch_between_seconds_and_steps(browser: Browser, page: Path) -> None:
    browser.open_drawn(page)
    shown = "[...document.querySelectorAll('.curves figure')].filter((one) => one.offsetParent).map((one) => one.id.split('-').at(-1))"
    assert browser.run(f"return {shown}") == ["seconds", "seconds"]
    choice = browser.driver.find_element("css selector", ".axis input[value=steps]")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", choice)
    choice.click()
    assert browser.run(f"return {shown}") == ["steps", "seconds"]
    assert browser.complaints() == []


def test_a_table_goes_out_as_csv_and_a_plot_as_picture(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open_drawn(page)
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.run("document.querySelector('[aria-label^=\"CSV: Results of cnn-cifar10\"]').click()")
    (saved,) = downloaded(tmp_path, "*.csv")
    rows = list(csv.reader(saved.read_text("utf-8").splitlines()))
    assert len(rows) == 1 + 3
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows[1][0].startswith("PyTorch 2.13.0")
    assert rows[1][1].startswith("130 ms ")
    plot = "figure[id^=plot-steps]"
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
    browser.open_drawn(page)
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    rows = list(csv.reader(copied(browser, '[aria-label^="Copy: Results of cnn-cifar10"]').splitlines()))
    assert len(rows) == 1 + 3
    assert rows[0][0] == "Cell"
    assert rows[1][0].startswith("PyTorch 2.13.0")
    (run,) = page.parent.glob("*/")
    assert copied(browser, "#share") == markdown_report.markdown(overview(tables.load([run])))


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
