"""A page of many measurements opens as fast as one of a few, and none of it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import READY, Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.alone]

MEGABYTE = 1_000_000


def seconds_until_usable(browser: Browser, page: Path) -> float:
    """From the page's begin until it is laid out and its table sorts and filters."""
    browser.open(page)
    browser.wait(READY + " && performance.getEntriesByType('navigation')[0].loadEventEnd")
    return float(browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd")) / 1000


def test_a_page_of_many_measurements_is_usable_within_a_second(browser: Browser, large_page: Path) -> None:
    # A busy machine may be slow several times; a page that is slow is slow each time.
    seen: list[float] = []
    while len(seen) < 10 and min(seen, default=9) > 1:
        seen.append(seconds_until_usable(browser, large_page))
    assert min(seen) <= 1, seen


def test_a_page_of_many_measurements_has_at_most_six_megabytes(large_page: Path) -> None:
    assert large_page.stat().st_size <= 6 * MEGABYTE


def test_what_is_closed_is_built_when_it_is_opened_and_printed_only_where_it_is_open(
    browser: Browser, large_page: Path
) -> None:
    browser.open_whole(large_page)
    cells = "document.querySelectorAll('#measurements > .in > details')"
    count = browser.run(f"return {cells}.length")
    built = "return document.querySelectorAll('#measurements dl').length"
    assert count >= 126
    assert browser.run(built) == 0
    browser.run("document.getElementById('measurements').open = true")
    browser.run(f"{cells}[7].open = true")
    browser.wait(f"{cells}[7].querySelector('dl')")
    assert browser.run(built) == 1
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(built) == 1  # what is closed is not printed
    assert browser.complaints() == []
