"""The report on paper."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Browser

pytestmark = pytest.mark.browser

PREFERS_DARK = {"name": "prefers-color-scheme", "value": "dark"}
# The plots that are not in a closed section.
SHOWN = "[...document.querySelectorAll('.plot')].filter((one) => !one.closest('details:not([open])'))"
# What the browser writes where a plot is missing.
NOTES = f"return {SHOWN}.map((one) => getComputedStyle(one, '::before').content)"


@contextmanager
def on_paper(browser: Browser) -> Iterator[None]:
    """The open page as it is laid out for a sheet of 718 pixels, from a dark screen."""
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.command("Emulation.setEmulatedMedia", media="print", features=[PREFERS_DARK])
    browser.command("Emulation.setDeviceMetricsOverride", width=718, height=1000, deviceScaleFactor=1, mobile=False)
    yield
    browser.command("Emulation.setEmulatedMedia", media="", features=[PREFERS_DARK])
    browser.run("dispatchEvent(new Event('afterprint'))")


def drawn(browser: Browser) -> list[Any]:
    """Of each plot that is shown where it ends to the right, in pixels; null where it is not drawn."""
    found = browser.run(f"return {SHOWN}.map((one) => one.querySelector('.main-svg')?.getBoundingClientRect().right)")
    return list(found)


def test_paper_is_light_has_every_plot_and_none_is_wider_than_it(browser: Browser, page: Path) -> None:
    browser.open_whole(page, theme="dark")
    with on_paper(browser):
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        edges = drawn(browser)
        assert len(edges) == 2 * 4
        assert all(edge is not None and 0 < edge <= 718 for edge in edges), edges
        assert set(browser.run(NOTES)) == {"none"}
    assert browser.run("return document.documentElement.dataset.theme") is None


def test_paper_says_that_plots_are_missing_where_they_were_not_ready(browser: Browser, page: Path) -> None:
    with browser.pages_begin_with("Response.prototype.text = () => new Promise(() => {})"):  # it inflates for ever
        browser.open(page, theme="dark")
        assert set(browser.run(NOTES)) == {"none"}  # nobody reads it on a screen
        with on_paper(browser):
            assert set(drawn(browser)) == {None}
            assert all("print the page again" in note for note in browser.run(NOTES))
    assert browser.complaints() == []


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open_whole(page, theme="dark")
    assert None in drawn(browser)  # nobody has come to the last of them
    pdf = base64.b64decode(browser.command("Page.printToPDF", printBackground=False)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    assert None not in drawn(browser)
    assert browser.complaints() == []
