"""The first screen: one table that sorts, filters and changes its unit, and whose link holds what it shows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.browser.test_plots_and_tables import downloaded

pytestmark = pytest.mark.browser

SHEET = ".sheet:not([hidden])"
ROWS = f"[...document.querySelectorAll('{SHEET} tbody tr')].filter((row) => row.offsetParent)"
NAMES = f"return {ROWS}.map((row) => row.cells[0].querySelector('b').textContent)"


def choose(browser: Browser, name: str, value: str) -> None:
    browser.run(f"document.querySelector('#controls [name={name}][value=\"{value}\"]').click()")


def test_a_head_sorts_its_column_and_sorts_it_down_when_pressed_again(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    assert browser.run(NAMES) == ["PyTorch 2.13.0", "JAX 0.10.2", "TensorFlow 2.21.0"]
    sort = f"document.querySelectorAll('{SHEET} .sort')"
    browser.run(f"{sort}[2].click()")
    # What failed has no figure: it stays at the end in both directions.
    up = browser.run(NAMES)
    browser.run(f"{sort}[2].click()")
    assert browser.run(NAMES) == [up[1], up[0], up[2]]
    assert up[2] == "TensorFlow 2.21.0"
    assert browser.run(f"return document.querySelectorAll('{SHEET} th')[2].ariaSort") == "descending"
    browser.run(f"{sort}[0].click()")
    assert browser.run(NAMES) == ["JAX 0.10.2", "PyTorch 2.13.0", "TensorFlow 2.21.0"]


def test_a_filter_keeps_the_rows_that_have_every_word(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    browser.driver.find_element("css selector", "[name=filter]").send_keys("flow 2.21")
    assert browser.run(NAMES) == ["TensorFlow 2.21.0"]
    assert "filter=flow+2.21" in browser.run("return location.hash")


def test_the_link_holds_what_the_table_shows(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    assert browser.run("return location.hash") == ""
    choose(browser, "show", "rate")
    browser.run(f"document.querySelectorAll('{SHEET} .sort')[2].click()")
    link = browser.run("return location.hash")
    assert link == "#show=rate&sort=2"
    seen = browser.run(NAMES), browser.run(f"return document.querySelector('{SHEET}').innerText")
    browser.open(page, anchor=link)
    browser.wait("!document.getElementById('controls').hidden")
    assert (browser.run(NAMES), browser.run(f"return document.querySelector('{SHEET}').innerText")) == seen
    assert browser.complaints() == []


def test_the_units_follow_from_the_step_time(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    figures = f"return {ROWS}.map((row) => row.cells[1].querySelector('.n').textContent)"
    assert browser.run(figures)[0] == "1.00"
    choose(browser, "show", "ms")
    step = [float(words) for words in browser.run(figures)]
    choose(browser, "show", "rate")
    rates = [float(words) for words in browser.run(figures)]
    # 64 pictures are in a step.
    assert [pytest.approx(64e3 / seconds, rel=0.01) for seconds in step] == rates
    choose(browser, "show", "price")
    assert set(browser.run(figures)) == {"?"}
    assert "type a price per hour" in browser.run(f"return document.querySelector('{SHEET} caption').innerText")
    browser.driver.find_element("css selector", "[name=hour]").send_keys("3.6")
    assert float(browser.run(figures)[0]) == pytest.approx(3.6 / 3600 / rates[0] * 1e6, rel=0.01)
    choose(browser, "show", "start")
    assert float(browser.run(figures)[0]) == pytest.approx(1.9 + 0.08 * 1.9 + 14 * 0.1312 / 3, rel=0.5)


@pytest.mark.parametrize("hour", ["1e400", "-3", "nan", "0", "1e7", "two"])
def test_a_price_in_a_link_that_is_none_is_said_and_computes_nothing(browser: Browser, page: Path, hour: str) -> None:
    browser.open(page, anchor=f"#show=price&hour={hour}")
    browser.wait("!document.getElementById('controls').hidden")
    assert set(browser.run(f"return {ROWS}.map((row) => row.cells[1].querySelector('.n').textContent)")) == {"?"}
    caption = browser.run(f"return document.querySelector('{SHEET} caption').innerText")
    assert "the price per hour must be a number above 0 and at most a million" in caption


def test_another_device_and_precision_are_another_table_and_every_image_is_a_row(
    browser: Browser, large_page: Path
) -> None:
    browser.open_whole(large_page)
    best = len(browser.run(NAMES))
    choose(browser, "rows", "all")
    assert len(browser.run(NAMES)) > best
    choose(browser, "gpu", "NVIDIA H200")
    choose(browser, "precision", "tf32")
    assert browser.run(f"return document.querySelector('{SHEET}').dataset.precision") == "tf32"
    assert browser.run("return document.querySelectorAll('.sheet:not([hidden])').length") == 1
    link = browser.run("return location.hash")
    browser.open(large_page, anchor=link)
    browser.wait("!document.getElementById('controls').hidden")
    assert browser.run(f"return document.querySelector('{SHEET}').dataset.precision") == "tf32"


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1024, "dark"), (1440, "light")])
def test_what_is_not_yet_run_is_folded_behind_one_line_which_unfolds_it(
    browser: Browser, short_page: Path, width: int, theme: str
) -> None:
    browser.open_whole(short_page, width, theme)
    heads = (
        f"return [...document.querySelectorAll('{SHEET} tbody tr')[0].cells].filter((one) => one.offsetParent).length"
    )
    assert set(browser.run(NAMES)) == {"PyTorch 2.13.0", "JAX 0.10.2", "TensorFlow 2.21.0"}
    assert browser.run(heads) == 2
    line = browser.run(f"return document.querySelector('{SHEET} .further').innerText").replace("\n", " ")
    assert line.startswith("33 cells that are not yet run are folded away (6 rows, 4 columns)")
    assert "runner matrix --resume 20261120-230512-short" in line
    assert browser.violations() == []
    browser.run(f"document.querySelector('{SHEET} .further summary').click()")
    choose(browser, "rows", "all")
    browser.wait(f"{ROWS}.length === 9")
    assert browser.run(heads) == 6
    browser.run(f"document.querySelector('{SHEET} .further summary').click()")
    # On a phone the choices are folded.
    browser.run("document.querySelector('#controls details').open = true")
    browser.driver.find_element("css selector", "[name=filter]").send_keys("chainer")
    browser.wait(f"!document.querySelector('{SHEET} .empty').hidden")
    assert browser.run(f"return document.querySelector('{SHEET} .empty').innerText").endswith(
        "Of those not yet run 6 have."
    )
    assert browser.complaints() == []


def test_a_title_is_not_broken_at_its_hyphen(browser: Browser, large_page: Path) -> None:
    for width in (800, 1024):
        browser.open_whole(large_page, width)
        words = f"[...document.querySelectorAll('{SHEET} thead .whole')].filter((one) => one.offsetParent)"
        assert browser.run(f"return {words}.map((one) => one.textContent)") == ["CIFAR-10", "ResNet-50"]
        assert browser.run(f"return {words}.map((one) => one.getClientRects().length)") == [1, 1]


def test_the_first_screen_of_a_whole_matrix_fits_a_laptops_window_and_answers(
    browser: Browser, large_page: Path
) -> None:
    browser.open(large_page, 1440)
    browser.wait("!document.getElementById('controls').hidden")
    assert browser.run("return document.getElementById('results').getBoundingClientRect().bottom") <= 900
    words = browser.run("return [...document.querySelectorAll('h1, .answer .say')].map((one) => one.innerText)")
    assert len(words) == 3, "what these runs do not answer is folded into a line"
    assert "Is mine healthy? Not judged" in browser.run(
        "return document.querySelector('.unanswered summary').innerText"
    )
    assert all(0 < len(answer.split()) <= 8 for answer in words), words
    assert browser.run("return document.documentElement.scrollWidth") <= 1440


def test_a_small_laptops_window_holds_every_column_of_a_whole_matrix_and_all_of_its_caption(
    browser: Browser, large_page: Path
) -> None:
    browser.open_whole(large_page, 1024)
    places = browser.run(
        f"const box = document.querySelector('{SHEET} .scroll').getBoundingClientRect();"
        f"const edges = [...document.querySelectorAll('{SHEET} thead th, {SHEET} caption span')];"
        "return [box.right, ...edges.map((one) => one.getBoundingClientRect().right)]"
    )
    assert len(places) == 1 + 5 + 1
    assert max(places) <= places[0]


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        *[(390, "dark"), (1024, "light"), (1440, "dark")],
        *[pytest.param(*each, marks=pytest.mark.slow) for each in ((390, "light"), (1024, "dark"), (1440, "light"))],
    ],
)
def test_the_first_screen_has_no_violation(browser: Browser, large_page: Path, width: int, theme: str) -> None:
    browser.open(large_page, width, theme)
    browser.wait("!document.getElementById('controls').hidden")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.violations() == []
    assert browser.complaints() == []


def test_on_a_telephone_a_row_is_a_card_that_names_its_columns(browser: Browser, page: Path) -> None:
    browser.open_whole(page, 390)
    assert (
        browser.run(f"return getComputedStyle(document.querySelector('{SHEET} td'), '::before').content")
        == '"CNN on CIFAR-10"'
    )
    assert not browser.run(f"return document.querySelector('{SHEET} thead').offsetParent")


def test_a_figure_opens_its_measurement_and_so_does_a_link_to_it(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    anchor = browser.run("return document.querySelector('.results .n').getAttribute('href')")
    cell = f"document.querySelector('{anchor}')"
    assert not browser.run(f"return {cell}.open")
    browser.run("document.querySelector('.results .n').click()")
    browser.wait(f"{cell}.open && {cell}.querySelector('dl')")
    browser.open(page, anchor=anchor)
    browser.wait(f"{cell}.open && {cell}.querySelector('dl') && {cell}.offsetParent")
    assert "Measure it again" in browser.run(f"return {cell}.innerText")


def test_a_figure_keeps_what_the_table_shows_in_the_link_and_the_link_opens_the_figure(
    browser: Browser, page: Path
) -> None:
    browser.open(page, anchor="#show=ms&filter=torch")
    browser.wait("!document.getElementById('controls').hidden")
    anchor = browser.run("return document.querySelector('.results .n').getAttribute('href')")
    browser.run("document.querySelector('.results .n').click()")
    browser.wait(f"document.querySelector('{anchor}').open")
    link = browser.run("return location.hash")
    assert link == f"#show=ms&filter=torch&cell={anchor.removeprefix('#cell-')}"
    browser.open(page, anchor=link)
    browser.wait(f"document.querySelector('{anchor}').open && document.querySelector('{anchor} dl')")
    assert browser.run(NAMES) == ["PyTorch 2.13.0"]
    browser.run(f"document.querySelector('{anchor}').open = false")
    browser.wait("location.hash === '#show=ms&filter=torch'")
    assert browser.complaints() == []


def test_the_caption_says_what_the_unit_is_and_marks_of_step_times_stand_beside_step_times_only(
    browser: Browser, large_page: Path
) -> None:
    browser.open_whole(large_page)
    caption = f"return document.querySelector('{SHEET} caption').innerText"
    signs = f"return [...document.querySelectorAll('{SHEET} td .of-steps')].some((one) => one.offsetParent)"
    assert "multiple of the fastest" in browser.run(caption)
    assert browser.run(signs)
    choose(browser, "show", "start")
    assert "seconds of import, build and first step" in browser.run(caption)
    assert "multiple" not in browser.run(caption)
    assert "unsteady" not in browser.run(caption)
    assert not browser.run(signs)


@pytest.mark.parametrize("width", [390, 1280])
def test_milliseconds_have_their_interval_beside_them(browser: Browser, page: Path, width: int) -> None:
    browser.open_whole(page, width)
    choose(browser, "show", "ms")
    ends = browser.run(f"return document.querySelector('{SHEET} td .ends').innerText")
    low, high = (float(end) for end in ends.strip("()").split(" to "))
    assert low <= float(browser.run(f"return document.querySelector('{SHEET} td .n').textContent")) <= high
    assert browser.run("return document.documentElement.scrollWidth") <= width
    choose(browser, "show", "x")
    assert browser.run("return document.querySelectorAll('.ends').length") == 0


def test_a_telephone_sorts_by_a_choice_and_breaks_no_word_of_the_parity_table(browser: Browser, page: Path) -> None:
    browser.open_whole(page, 390)
    assert browser.run("return !!document.querySelector('[name=sort]').offsetParent")
    options = browser.run("return [...document.querySelector('[name=sort]').options].map((one) => one.text)")
    assert options[0] == "Framework"
    browser.run(
        "const by = document.querySelector('[name=sort]'); by.value = '0-down'; by.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert browser.run(NAMES) == ["TensorFlow 2.21.0", "PyTorch 2.13.0", "JAX 0.10.2"]
    browser.run("document.querySelector('.results .n').click()")
    browser.wait("document.querySelector('.across tbody th')")
    heights = browser.run("return [...document.querySelectorAll('.across tbody tr')].map((row) => row.offsetHeight)")
    assert max(heights) < 120, heights


def test_a_filter_without_a_hit_says_so(browser: Browser, page: Path) -> None:
    browser.open_whole(page)
    note = f"document.querySelector('{SHEET} .empty')"
    assert browser.run(f"return {note}.hidden")
    browser.driver.find_element("css selector", "[name=filter]").send_keys("zzz")
    assert browser.run(f"return {note}.innerText") == "No row has “zzz”."


def test_the_csv_has_plain_numbers_and_a_column_for_what_stands_beside_them(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    browser.open_whole(page)
    choose(browser, "show", "ms")
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.run("document.getElementById('table-csv').click()")
    (saved,) = downloaded(tmp_path, "*.csv")
    assert saved.name == "20261120-230512-abcd-results-ms.csv"
    rows = list(csv.DictReader(saved.read_text("utf-8").splitlines()))
    assert len(rows) == 3 * 2
    measured = [row for row in rows if row["value"]]
    assert measured
    for row in measured:
        assert 0 < float(row["low"]) <= float(row["value"]) <= float(row["high"])
        assert row["unit"] == "ms a step"
        assert row["image"].endswith("-cpu")
    anchor = browser.run("return document.querySelector('.results .n').getAttribute('href')")
    assert f"#cell-{rows[0]['cell']}" == anchor
    # What failed has no number, and says why.
    assert all(row["remark"] for row in rows if not row["value"])


def test_without_scripts_the_first_screen_is_complete(browser: Browser, large_page: Path) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(large_page, 1440)
        find = browser.driver.find_elements
        assert len(find("css selector", "h1, .answer")) == 3
        assert "Is mine healthy?" in find("css selector", ".unanswered summary")[0].text
        assert next(one.text for one in find("css selector", ".results .best .n") if one.is_displayed()) == "1.00"
        assert not find("css selector", "#controls")[0].is_displayed()
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize(
    "link", ["show=constructor", "show=__proto__", "sort=0.5", "sort=-3", "%E0%A4%A", "gpu=<script>"]
)
def test_a_link_that_nobody_made_leaves_the_page_usable(browser: Browser, page: Path, link: str) -> None:
    browser.open(page, anchor=f"#{link}")
    browser.wait("!document.getElementById('controls').hidden")
    browser.driver.find_element("css selector", "[name=filter]").send_keys("flow 2.21")
    assert browser.run(NAMES) == ["TensorFlow 2.21.0"]
    assert browser.complaints() == []


@pytest.mark.parametrize("name", ["page", "short_page", "large_page"])
def test_on_a_phone_the_answer_is_the_first_line_and_a_figure_is_on_the_first_screen(
    browser: Browser, name: str, request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(name), 390)
    browser.wait("!document.getElementById('controls').hidden")
    top = "return document.querySelector('{}').getBoundingClientRect().top"
    figure = browser.run(
        "return Math.min(...[...document.querySelectorAll('.results .n')].filter((one) => one.offsetParent)"
        ".map((one) => one.getBoundingClientRect().bottom))"
    )
    assert figure <= 844
    places = [browser.run(top.format(kind)) for kind in ("h1", ".kicker", ".pills", "#controls", ".results")]
    assert places == sorted(places), "the answer, the inventory, the facts in short, the choices, the table"
    assert not browser.run("return document.querySelector('#controls details').open")
    browser.run("document.querySelector('#controls summary').click()")
    assert browser.run("return document.querySelector('#controls form').offsetHeight") > 0
    assert browser.run("return document.documentElement.scrollWidth") <= 390


def test_the_bars_of_all_columns_share_one_scale_and_a_column_of_dashes_is_narrow(
    browser: Browser, large_page: Path
) -> None:
    browser.open_whole(large_page, 1440)
    bars = browser.run(
        "const shown = [...document.querySelectorAll('.results td .bar')].filter((one) => one.offsetParent);"
        "return shown.map((one) => [one.closest('td').querySelector('.n').textContent,"
        " Math.round(parseFloat(getComputedStyle(one).backgroundSize) * one.offsetWidth / 100)])"
    )
    lengths: dict[str, set[int]] = {}
    for figure, length in bars:
        lengths.setdefault(figure, set()).add(length)
    assert len(lengths) > 3
    # A figure is rounded, and so is the length of its bar.
    assert all(max(found) - min(found) <= 1 for found in lengths.values()), lengths
    widths = browser.run(
        "const of = (kind) => [...document.querySelectorAll(`.results tbody tr:first-child td${kind}`)]"
        ".filter((one) => one.offsetParent).map((one) => one.offsetWidth);"
        "return [of('.sparse'), of(':not(.sparse)')]"
    )
    assert widths[0], "the large run has a column of which most rows have nothing"
    assert max(widths[0]) < min(widths[1])


def test_the_words_under_the_table_are_true_in_both_themes(browser: Browser, page: Path) -> None:
    """The ground of the fastest is bluer than that of a slower one, whether it is darker or lighter."""
    for theme in ("light", "dark"):
        browser.open_whole(page, 1280, theme)
        assert "bluer is nearer to it" in browser.run("return document.querySelector('.results caption').innerText")
        strength = browser.run(
            "return [...document.querySelectorAll('.results td[class*=h]')].filter((one) => one.offsetParent)"
            ".map((one) => [one.querySelector('.n').textContent, getComputedStyle(one).backgroundColor])"
        )
        alpha = {
            float(figure): float((colour.split("/")[-1] if "/" in colour else colour.split(",")[-1]).strip(" )"))
            for figure, colour in strength
        }
        order = sorted(alpha)
        assert [alpha[figure] for figure in order] == sorted(alpha.values(), reverse=True)
