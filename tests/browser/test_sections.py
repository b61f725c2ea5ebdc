"""What a reader does with the report's sections: choose a workload, follow a link, set two files side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import Browser

pytestmark = pytest.mark.browser


def test_a_link_to_a_cell_opens_its_provenance(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    assert not browser.run("return document.getElementById('cell-3').open")
    browser.driver.find_element("css selector", ".matrix a[href='#cell-3']").click()
    browser.wait("document.getElementById('cell-3').open")
    browser.open(page, anchor="#cell-2")
    browser.wait("document.getElementById('cell-2').open")


def test_the_overview_shows_a_workload_at_a_time_and_says_more_to_a_pointer(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    shown = "[...document.querySelectorAll('.matrix thead th')].filter((one) => one.offsetParent).length"
    assert browser.run(f"return {shown}") == 1 + 2
    browser.driver.find_element("css selector", ".only input[value=workload-2]").click()
    browser.wait(f"{shown} === 1 + 1")
    browser.driver.find_element("css selector", ".only input[value='']").click()
    browser.wait(f"{shown} === 1 + 2")
    assert browser.complaints() == []
    assert "ms" in browser.run("return document.querySelector('.matrix td[data-of=workload-1]').title")


def test_two_files_of_a_workload_stand_side_by_side_as_chosen(browser: Browser, rich_page: Path) -> None:
    browser.open_drawn(rich_page)
    shown = """return [...document.querySelectorAll('#workload-1 .stone')].filter((one) => one.open && one.offsetParent)
      .map((one) => [one.querySelector('summary').firstChild.textContent.trim(), one.getBoundingClientRect().top,
                     one.querySelectorAll('.code .k, .code .kn').length, one.querySelector('.lesson').textContent])"""
    browser.run("document.querySelector('#workload-1 .stones').scrollIntoView()")
    browser.wait("document.querySelectorAll('#workload-1 .stone[open]').length === 2")
    left, right = browser.run(shown)
    assert (left[0], right[0]) == ("JAX", "TensorFlow 2")
    assert left[1] == right[1]  # at one height
    assert min(left[2], right[2]) > 3  # keywords stand out
    assert "Idiomatic here" in left[3]
    assert left[3] != right[3]
    choice = "document.querySelector('#workload-1 h3 ~ .axis select[aria-label=\"Right file\"]')"
    browser.run(f"{choice}.value = 'PyTorch'; {choice}.dispatchEvent(new Event('change'))")
    browser.wait("document.querySelectorAll('#workload-1 .stone[open]').length === 2")
    assert {one[0] for one in browser.run(shown)} == {"JAX", "PyTorch"}
    assert browser.complaints() == []
