"""Whatever a cell says is text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import Browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [390, 1280])
def test_markup_from_a_cell_runs_nothing_and_breaks_no_layout(browser: Browser, hostile_page: Path, width: int) -> None:
    browser.open_drawn(hostile_page, width)
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.images.length") == 0
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert "<script>window.hacked" in browser.run("return document.body.innerText")
    assert browser.complaints() == []
    assert not [url for url in browser.requests() if url.startswith("http")]
