"""A page of many cells opens as fast as one of a few, and none of it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.browser.conftest import CELLS

pytestmark = pytest.mark.browser


def seconds_until_usable(browser: Browser, page: Path) -> float:
    """From the page's begin until it is laid out and its scripts have run."""
    browser.open(page)
    browser.wait(
        "document.querySelector('#theme').textContent && performance.getEntriesByType('navigation')[0].loadEventEnd"
    )
    return float(browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd")) / 1000


def test_a_page_of_many_cells_is_usable_within_two_seconds(browser: Browser, large_page: Path) -> None:
    # A busy machine may be slow several times; a page that is slow is slow each time.
    seen: list[float] = []
    while len(seen) < 10 and min(seen, default=9) > 2:
        seen.append(seconds_until_usable(browser, large_page))
    assert min(seen) <= 2, seen


def test_what_is_left_for_later_comes_when_it_is_opened_copied_or_printed_and_all_of_it_when_idle(
    browser: Browser, large_page: Path
) -> None:
    with browser.pages_begin_with("window.requestIdleCallback = () => 0"):
        browser.open(large_page, anchor="#cell-7")
        browser.wait("document.getElementById('cell-7').querySelector('dl')")
        left = "return document.querySelectorAll('noscript.later').length"
        assert browser.run(left) > 0.8 * CELLS
        browser.run("document.getElementById('cell-9').open = true")
        browser.wait("document.getElementById('cell-9').querySelector('dl')")
        table = "document.querySelector('[aria-label=\"Parity by cell and quantity\"] table')"
        assert not browser.run(f"return {table}")
        browser.run("dispatchEvent(new Event('beforeprint'))")
        assert browser.run(f"return {table}.rows.length") == 1 + CELLS
        browser.run("dispatchEvent(new Event('afterprint'))")
        assert browser.run(left) > 0.8 * CELLS  # what is closed is not printed
    browser.open_whole(large_page)
    assert browser.run("return document.querySelectorAll('#provenance dl').length") == 1 + CELLS
    assert browser.complaints() == []


def test_without_scripts_every_part_is_there(browser: Browser, large_page: Path) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(large_page)
        assert len(browser.driver.find_elements("css selector", "#provenance dl")) == 1 + CELLS
        assert len(browser.driver.find_elements("css selector", "#parity tbody tr")) == CELLS
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
