"""The report on paper."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.chromium import Browser

pytestmark = pytest.mark.browser

PREFERS_DARK = {"name": "prefers-color-scheme", "value": "dark"}
# The pictures that are not in a closed section.
SHOWN = "[...document.querySelectorAll('svg.chart')].filter((one) => one.getClientRects().length && !one.closest('details:not([open])'))"


@contextmanager
def on_paper(browser: Browser) -> Iterator[None]:
    """The open page as it is laid out for a sheet of 718 pixels, from a dark screen."""
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.command("Emulation.setEmulatedMedia", media="print", features=[PREFERS_DARK])
    browser.command("Emulation.setDeviceMetricsOverride", width=718, height=1000, deviceScaleFactor=1, mobile=False)
    yield
    browser.command("Emulation.setEmulatedMedia", media="", features=[PREFERS_DARK])
    browser.run("dispatchEvent(new Event('afterprint'))")


def test_paper_is_light_has_every_picture_and_none_is_wider_than_it(browser: Browser, page: Path) -> None:
    browser.open_drawn(page, theme="dark")
    colour = f"getComputedStyle({SHOWN}[0].querySelector('text.name')).fill"
    dark = browser.run(f"return {colour}")
    with on_paper(browser):
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert browser.run(f"return {colour}") == "rgb(0, 0, 0)" != dark
        edges = browser.run(f"return {SHOWN}.map((one) => one.getBoundingClientRect().right)")
        assert len(edges) == 2 * 3
        assert all(0 < edge <= 718 for edge in edges), edges
    assert browser.run("return document.documentElement.dataset.theme") is None


@pytest.mark.slow
def test_the_table_of_a_whole_matrix_fits_the_paper(browser: Browser, large_page: Path) -> None:
    browser.open_whole(large_page)
    with on_paper(browser):
        edges = browser.run(
            "return [...document.querySelectorAll('.sheet:not([hidden]) th')].map((one) => one.getBoundingClientRect().right)"
        )
        assert len(edges) > 20
        assert max(edges) <= 718
        assert browser.run("return document.documentElement.scrollWidth") <= 718


def test_the_heads_on_paper_are_words_which_the_browser_repeats_on_each_sheet_and_no_buttons(
    browser: Browser, page: Path
) -> None:
    browser.open_whole(page)
    with on_paper(browser):
        heads = browser.run(
            "return [...document.querySelectorAll('.sheet:not([hidden]) thead th')].map((one) => "
            "[getComputedStyle(one, '::before').content, getComputedStyle(one.querySelector('.sort')).display])"
        )
    names, displays = zip(*heads, strict=True)
    assert names[0] == '"Framework"'
    assert names[1].startswith('"CNN on CIFAR-10')
    assert "▲" in names[1]
    assert set(displays) == {"none"}


def test_paper_has_no_samples_but_their_list(browser: Browser, page: Path) -> None:
    browser.open_drawn(page)
    seen = "[...document.querySelectorAll('.samples, pre.columns')].filter((one) => one.offsetParent).map((one) => one.tagName)"
    assert set(browser.run(f"return {seen}")) == {"DIV", "PRE"}
    with on_paper(browser):
        assert set(browser.run(f"return {seen}")) == {"PRE"}


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open_drawn(page, theme="dark")
    pdf = base64.b64decode(browser.command("Page.printToPDF", printBackground=False)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    assert browser.complaints() == []
