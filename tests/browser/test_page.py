"""The report from disk, at the widths and in the themes that people have, for eyes, keyboards and screen readers."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.fixtures.weekly import only_with

pytestmark = pytest.mark.browser

# What stands in a page, so that it is known to have been shown.
WORDS = {
    "nodes_page": ("1 of 4 nodes and 1 GPU slow", "Coloured: "),
    "page": ("By how much?", "Is mine healthy?", "Failed, skipped and not yet run"),
    "rich_page": (
        "Across versions on this device",
        "Across precisions",
        "What changed between the runs",
        "Host memory",
    ),
}


def assert_quiet_and_fitting(browser: Browser, page: Path, width: int) -> None:
    """The page logs nothing, asks for nothing, and is no wider than the window."""
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert [url for url in browser.requests() if url not in (page.as_uri(), "about:blank", "data:,")] == []


# Each page at each width in each theme. The larger pages take axe its time: the quick tests have one form of each.
QUICK = {"rich_page": (1600, "light"), "nodes_page": (390, "dark")}
IN_FULL = only_with("DLBENCH_CURVES", "of the large pages the other width in the other theme is tested")


def marks_of(name: str, width: int, theme: str) -> list[pytest.MarkDecorator]:
    """A form that differs from the quick one in width and theme is slow; in one of them, it is for the run in full."""
    quick_width, quick_theme = QUICK.get(name, (width, theme))
    differs = (width != quick_width) + (theme != quick_theme)
    return [[], [pytest.mark.slow, IN_FULL], [pytest.mark.slow]][differs]


FORMS = [pytest.param(*form, marks=marks_of(*form)) for form in product(WORDS, (390, 1600), ("light", "dark"))]


@pytest.mark.parametrize(("name", "width", "theme"), FORMS)
def test_a_page_is_quiet_asks_for_nothing_fits_the_window_and_has_no_violation(
    browser: Browser, request: pytest.FixtureRequest, name: str, width: int, theme: str
) -> None:
    page = request.getfixturevalue(name)
    browser.open_drawn(page, width, theme)
    text = browser.run("return document.body.innerText")
    for words in WORDS[name]:
        assert words in text, words
    assert_quiet_and_fitting(browser, page, width)
    assert browser.violations() == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_small_laptops_window_too(browser: Browser, page: Path, theme: str) -> None:
    browser.open_drawn(page, 1280, theme)
    assert_quiet_and_fitting(browser, page, 1280)


def test_light_and_dark_differ_in_page_and_plots_and_the_button_is_remembered(browser: Browser, page: Path) -> None:
    style = "getComputedStyle({}).{}".format
    page_colour, plot_colour = (
        style("document.body", "backgroundColor"),
        style("document.querySelector('svg.chart text')", "fill"),
    )
    colour = f"return [{page_colour}, {plot_colour}]"
    seen = []
    for theme in ("light", "dark"):
        browser.open_drawn(page, theme=theme)
        seen.append(browser.run(colour))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
    try:
        press = "document.getElementById('theme').click()"
        browser.run(press)
        browser.wait(f"{plot_colour} === '{seen[0][1]}'")
        assert browser.run(colour) == seen[0]
        browser.reload_until("document.documentElement.dataset.theme === 'light'", again=press)
    finally:
        browser.run("localStorage.clear()")


def test_it_is_usable_by_keyboard_alone(browser: Browser, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open_whole(page)
    active = browser.driver.switch_to
    browser.driver.find_element("tag name", "body").send_keys(Keys.TAB)
    assert active.active_element.text == "Skip to the results"
    active.active_element.send_keys(Keys.ENTER)
    browser.wait("location.hash === '#results'")
    browser.driver.find_element("css selector", "#workload-cnn-cifar10 > summary").send_keys(Keys.ENTER)
    browser.wait("document.querySelector('#workload-cnn-cifar10').open && document.querySelector('.box')")
    boxes = browser.driver.find_elements("css selector", ".box")
    assert boxes
    for box in boxes:
        browser.run("arguments[0].focus()", box)
        assert active.active_element == box
