"""The site to look at before installing, and the picture in README: each page opens whole, and the picture is today's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import picture, site
from tests.browser.chromium import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FILES = ("index", "ten-minutes", "h200", "compare", "history", "rosetta", "references/index")
# The mean difference of two pictures' blocks, of 255: what another release of Chromium may draw otherwise.
MOST = 2.0


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("site")
    made = site.write(folder)
    assert {page.file for page in made} == {f"{name}.html" for name in FILES[1:]}
    return {name: folder / f"{name}.html" for name in FILES}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_a_page_of_the_site_has_no_violation_and_fits_its_screen(
    browser: Browser, pages: dict[str, Path], name: str, width: int, theme: str
) -> None:
    browser.open(pages[name], width, theme)
    browser.wait("document.readyState === 'complete'")
    assert browser.violations() == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


def test_the_start_page_says_of_each_page_what_it_answers_and_links_to_it(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["index"], 390)
    links = browser.run("return [...document.querySelectorAll('main a')].map((one) => one.getAttribute('href'))")
    assert links == [f"{name}.html" for name in FILES[1:]]
    assert all((pages["index"].parent / link).is_file() for link in links)
    said = browser.run("return [...document.querySelectorAll('figure p')].map((one) => one.innerText)")
    browser.open_whole(pages["ten-minutes"])
    assert said[0] == browser.run("return document.querySelector('h1').innerText")
    assert "1 changed" in said[FILES.index("history") - 1]


@pytest.mark.parametrize("name", ["index", "ten-minutes", "h200", "compare", "history"])
def test_the_first_screen_of_a_phone_has_an_answer_or_a_figure(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name], 390)
    browser.wait("document.readyState === 'complete'")
    first = {"index": "figure p", "ten-minutes": ".best .n", "h200": ".best .n"}.get(name, "figure svg .dot")
    top = browser.run(
        "return Math.min(...[...document.querySelectorAll(arguments[0])]"
        ".map((one) => one.getBoundingClientRect()).filter((box) => box.width).map((box) => box.top))",
        first,
    )
    assert top < 844


def test_paper_has_the_warning_that_the_screen_folds(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open_whole(pages["ten-minutes"])
    browser.command("Emulation.setEmulatedMedia", media="print")
    try:
        warning = "document.querySelector('.said summary')"
        assert browser.run(f"return {warning}.innerText") == "Other programs may have slowed some cells"
        assert browser.run(f"return {warning}.getBoundingClientRect().height") > 0
    finally:
        browser.command("Emulation.setEmulatedMedia", media="")


def test_the_picture_in_the_readme_is_of_todays_page(browser: Browser, pages: dict[str, Path]) -> None:
    stored, drawn = picture.FILE.read_bytes(), picture.drawn(browser, pages["ten-minutes"])
    again = "`make picture` makes it again; look at it before you commit it"
    assert picture.words(stored) == picture.words(drawn), again
    assert picture.difference(stored, drawn) <= MOST, again
    # Another page, and the same one in the dark, are told from it.
    assert picture.difference(stored, picture.drawn(browser, pages["h200"])) > 2 * MOST
    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert picture.words(picture.drawn(browser, pages["h200"])) != picture.words(stored)
