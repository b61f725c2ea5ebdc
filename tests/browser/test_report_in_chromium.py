"""The report in a real headless Chromium: from disk, at the widths and in the themes that people have."""

from __future__ import annotations

import base64
import csv
import json
import os
import shutil
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import reports
from reports import summary, tables
from runner.store import RunStore
from tests.fixtures import large, synthetic

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver on this machine"),
]

SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
RUN = "20261120-230512-abcd"
PREFERS_DARK = {"name": "prefers-color-scheme", "value": "dark"}
SCRIPT = "<script>window.hacked=1</script><img src=http://127.0.0.1:9/x onerror=window.hacked=1>"


# Every part that was left for later has been built.
WHOLE = "document.readyState === 'complete' && !document.querySelector('noscript.later')"


class Browser:
    """One Chromium with an empty profile that keeps what its pages log and ask for."""

    def __init__(self, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        for switch in (*SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        options.binary_location = str(CHROMIUM)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=str(DRIVER))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(120)  # axe looks at every element, and a machine may be busy

    def open(self, page: Path, width: int = 1280, theme: str = "light", anchor: str = "") -> None:
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.driver.get("about:blank")
        self.driver.get(page.as_uri() + anchor)

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, seconds: float = 20) -> None:
        """Until a JavaScript expression holds."""
        end = time.monotonic() + seconds
        while not self.run(f"return !!({condition})"):
            assert time.monotonic() < end, f"it never came to: {condition}"
            time.sleep(0.05)

    def draw_everything(self) -> None:
        """Open every section and come by every table and plot, as a reader would who looks at it all."""
        self.wait(WHOLE)
        self.run("document.querySelectorAll('.box').forEach((one) => { one.style.contentVisibility = 'visible'; })")
        self.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        count = self.run("return document.querySelectorAll('.plot').length")
        for index in range(count):
            self.run("document.querySelectorAll('.plot')[arguments[0]].scrollIntoView()", index)
            self.wait(f"document.querySelectorAll('.plot')[{index}].querySelector('.main-svg')")

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that a page asked for since it was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run = synthetic.make_run(folder / RUN, repeats=2, reused=True)
    reports.render([run], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    columns = ("image", "framework", "framework_version", "device_model", "mode", "data_source")
    changes = {column: f"{column} {SCRIPT} \u202eesrever\x1b[31m {'W' * 500}" for column in columns}
    changes |= {"log_tail": "L" * 1_000_000, "reason": f"{SCRIPT} {'R' * 1_000_000}"}
    # What a section or a plot shows only of cells that differ: versions, drivers, other runs.
    told = {name: f"{name} {SCRIPT} \u202e\x1b[31m {'V' * 1_000_000}" for name in ("driver_version", "cudnn_version")}
    runs = [
        synthetic.make_run(folder / name, repeats=2, draw=draw, changes=changes, everywhere=told if draw else None)
        for draw, name in enumerate(("run", "other"))
    ]
    reports.render(runs, folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1600])
def test_the_page_is_quiet_asks_for_nothing_and_fits_the_window(
    browser: Browser, page: Path, width: int, theme: str
) -> None:
    browser.open(page, width, theme)
    browser.draw_everything()
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert [url for url in browser.requests() if url not in (page.as_uri(), "about:blank", "data:,")] == []


@pytest.mark.parametrize("width", [390, 1280])
def test_every_plot_is_drawn_with_points_inside_its_box(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    browser.draw_everything()
    drawn = browser.run(
        """return [...document.querySelectorAll('.plot')].map((plot) => ({
             marks: plot.querySelectorAll('.point, .point path, .js-line').length,
             errors: plot.querySelectorAll('.errorbar').length,
             inside: plot.querySelector('.main-svg').getBoundingClientRect().right <= innerWidth,
             height: plot.getBoundingClientRect().height }))"""
    )
    assert len(drawn) == 2 * 4 + 2 * 5
    # Windows, how often which came, busy CPUs and memory: each in a part of the plot, and none beside it.
    parts = (
        "return document.querySelectorAll('#provenance .plot')[0].querySelectorAll('.plot-container .subplot').length"
    )
    assert browser.run(parts) == 4
    assert all(plot["marks"] > 0 and plot["inside"] and plot["height"] > 80 for plot in drawn)
    assert sum(plot["errors"] for plot in drawn) == 5  # one interval for each measured cell


def test_light_and_dark_differ_in_page_and_plots_and_the_button_is_remembered(browser: Browser, page: Path) -> None:
    style = "getComputedStyle({}).{}".format
    page_colour, plot_colour = (
        style("document.body", "backgroundColor"),
        style("document.querySelector('.xtick text')", "fill"),
    )
    colour = f"return [{page_colour}, {plot_colour}]"
    seen = []
    for theme in ("light", "dark"):
        browser.open(page, theme=theme)
        browser.draw_everything()
        seen.append(browser.run(colour))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
    browser.run("document.getElementById('theme').click()")
    browser.wait(f"{plot_colour} === '{seen[0][1]}'")
    assert browser.run(colour) == seen[0]
    browser.driver.refresh()
    assert browser.run("return document.documentElement.dataset.theme") == "light"
    browser.run("localStorage.clear()")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_no_serious_violation(browser: Browser, page: Path, width: int, theme: str) -> None:
    browser.open(page, width, theme)
    browser.draw_everything()
    assert serious(browser) == []


def serious(browser: Browser) -> list[tuple[str, str, str]]:
    """What axe-core finds in the open page that is serious or worse: impact, rule and the element."""
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text("utf-8")
    # Through the debugger, not as a script element: the page's policy rightly refuses scripts that are not its own.
    browser.command("Runtime.evaluate", expression=axe)
    result = browser.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
    )
    return [
        (found["impact"], found["id"], found["nodes"][0]["html"][:200])
        for found in result["violations"]
        if found["impact"] in ("serious", "critical")
    ]


def test_it_is_usable_by_keyboard_alone(browser: Browser, page: Path) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    browser.open(page)
    active = browser.driver.switch_to
    browser.driver.find_element("tag name", "body").send_keys(keys.TAB)
    assert active.active_element.text == "Skip to the answers"
    active.active_element.send_keys(keys.ENTER)
    assert browser.run("return location.hash") == "#main"
    summary = browser.driver.find_element("css selector", "#provenance summary")
    summary.send_keys(keys.ENTER)
    assert browser.run("return document.querySelector('#provenance details').open")
    for box in browser.driver.find_elements("css selector", ".box"):
        browser.run("arguments[0].focus()", box)
        assert active.active_element == box


def test_a_link_to_a_cell_opens_its_provenance(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert not browser.run("return document.getElementById('cell-3').open")
    browser.driver.find_element("css selector", ".matrix a[href='#cell-3']").click()
    browser.wait("document.getElementById('cell-3').open")
    browser.open(page, anchor="#cell-2")
    browser.wait("document.getElementById('cell-2').open")


def test_learning_curves_switch_between_seconds_and_steps(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.draw_everything()
    titles = "[...document.querySelectorAll('.pair .xtitle')].map((one) => one.textContent)"
    assert set(browser.run(f"return {titles}")) == {"training seconds"}
    choice = browser.driver.find_element("css selector", ".axis input[value=steps]")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", choice)
    choice.click()
    browser.wait(f"{titles}.every((title) => title === 'training steps')")
    assert browser.complaints() == []


def test_markup_from_a_cell_runs_nothing_and_breaks_no_layout(browser: Browser, hostile_page: Path) -> None:
    for width in (390, 1280):
        browser.open(hostile_page, width)
        browser.draw_everything()
        assert browser.run("return window.hacked") is None
        assert browser.run("return document.images.length") == 0
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert "<script>window.hacked" in browser.run("return document.body.innerText")
        assert browser.complaints() == []
        assert not [url for url in browser.requests() if url.startswith("http")]


@pytest.fixture(scope="module")
def rich_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with versions, precisions and devices to set against one another, and what moved."""
    folder = tmp_path_factory.mktemp("rich")
    runs = []
    for draw, name in enumerate(("monday", "tuesday"), start=1):
        run = synthetic.make_run(folder / name, repeats=2, draw=draw, everywhere={"driver_version": f"{draw}.0"})
        for image, changes in (("torch-a", {"precision": "bf16"}), ("torch-b", {"cuda_version": "12.8"})):
            entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
            for repeat in (1, 2):
                rows = synthetic.ended(entry, repeat, 40, 0.7, draw)
                rows["cells"][0].update(changes, image="torch-2.13.0-cpu" if "precision" in changes else image)
                RunStore(run).write_repeat(synthetic.digest(image)[:16], repeat, rows)
        runs.append(run)
    # As if this checkout had measured them, so that its code is shown.
    reports.render(runs, folder / "report.html", synthetic.digest("bench"))
    return folder / "report.html"


def test_two_files_of_a_workload_stand_side_by_side_as_chosen(browser: Browser, rich_page: Path) -> None:
    browser.open(rich_page)
    browser.draw_everything()
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
    browser.run("document.querySelector('#workload-1 h3 ~ .axis select[aria-label=\"Right file\"]').value = 'PyTorch'")
    browser.run(
        "document.querySelector('#workload-1 h3 ~ .axis select[aria-label=\"Right file\"]').dispatchEvent(new Event('change'))"
    )
    browser.wait("document.querySelectorAll('#workload-1 .stone[open]').length === 2")
    assert {one[0] for one in browser.run(shown)} == {"JAX", "PyTorch"}
    assert browser.complaints() == []


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1600, "light")])
def test_comparisons_and_history_fit_and_have_no_serious_violation(
    browser: Browser, rich_page: Path, width: int, theme: str
) -> None:
    browser.open(rich_page, width, theme)
    browser.draw_everything()
    text = browser.run("return document.body.innerText")
    for words in ("Across versions on this device", "Across precisions", "What moved between the runs", "Host memory"):
        assert words in text, words
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert serious(browser) == []


def test_a_table_goes_out_as_csv_and_a_plot_as_picture(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.run("document.querySelector('[aria-label^=\"CSV: Results of cnn-cifar10\"]').click()")
    (saved,) = downloaded(tmp_path, "*.csv")
    rows = list(csv.reader(saved.read_text("utf-8").splitlines()))
    assert len(rows) == 1 + 3
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows[1][0].startswith("torch-2.13.0-cpu")
    assert rows[1][1].startswith("131 ms ")
    plot = "#workload-1 figure"
    browser.run(f"document.querySelector('{plot}').scrollIntoView()")
    browser.wait(f"document.querySelector('{plot} .tools')")
    for kind, head in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        browser.run(
            f"[...document.querySelectorAll('{plot} .tools button')].find((one) => one.textContent === '{kind}').click()"
        )
        (saved,) = downloaded(tmp_path, f"*.{kind.lower()}")
        assert saved.read_bytes().startswith(head)
    assert browser.complaints() == []


def test_a_table_is_copied_as_csv_and_the_answers_as_markdown(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.run("document.querySelector('[aria-label^=\"Copy: Results of cnn-cifar10\"]').click()")
    browser.wait("document.querySelector('[aria-label^=\"Copy: Results of cnn-cifar10\"]').textContent === 'Copied'")
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, (refused) => done(String(refused)))"
    rows = list(csv.reader(browser.driver.execute_async_script(read).splitlines()))
    assert len(rows) == 1 + 3
    assert rows[0][0] == "Cell"
    assert rows[1][0].startswith("torch-2.13.0-cpu")
    browser.run("document.getElementById('share').click()")
    browser.wait("document.getElementById('share').textContent === 'Copied'")
    assert browser.driver.execute_async_script(read) == summary.markdown(tables.load([page.parent / RUN]))


def downloaded(folder: Path, pattern: str, seconds: float = 20) -> list[Path]:
    """The files of a download that ended."""
    end = time.monotonic() + seconds
    while not (found := [path for path in folder.glob(pattern) if path.stat().st_size]):
        assert time.monotonic() < end, f"nothing came that is {pattern}"
        time.sleep(0.1)
    return found


def test_the_overview_shows_a_workload_at_a_time_and_says_more_to_a_pointer(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = "return [...document.querySelectorAll('.matrix thead th')].filter((one) => one.offsetParent).length"
    assert browser.run(shown) == 1 + 2
    browser.driver.find_element("css selector", ".only input[value=workload-2]").click()
    assert browser.run(shown) == 1 + 1
    browser.driver.find_element("css selector", ".only input[value='']").click()
    assert browser.run(shown) == 1 + 2
    assert browser.complaints() == []
    assert "ms" in browser.run("return document.querySelector('.matrix td[data-of=workload-1]').title")


def seconds_until_usable(browser: Browser, page: Path) -> float:
    """From the page's begin until it is laid out and its scripts have run."""
    browser.open(page)
    browser.wait(
        "document.querySelector('#theme').textContent && performance.getEntriesByType('navigation')[0].loadEventEnd"
    )
    return float(browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd")) / 1000


# The bar is set for 1000, which take a minute to render: DLBENCH_REPORT_CELLS=1000.
CELLS = int(os.environ.get("DLBENCH_REPORT_CELLS", "100"))


@pytest.fixture(scope="module")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    reports.render([large.make_run(folder / "run", CELLS, 60)], folder / "report.html")
    return folder / "report.html"


def test_a_page_of_many_cells_is_usable_within_two_seconds(browser: Browser, large_page: Path) -> None:
    # A busy machine may be slow once; a page that is slow is slow each time.
    assert min(seconds_until_usable(browser, large_page) for _ in range(4)) <= 2


def test_what_is_left_for_later_comes_when_it_is_opened_copied_or_printed_and_all_of_it_when_idle(
    browser: Browser, large_page: Path
) -> None:
    never = "window.requestIdleCallback = (work) => { window.resume = work; return 0; }"
    added = browser.command("Page.addScriptToEvaluateOnNewDocument", source=never)
    try:
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
    finally:
        browser.command("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    browser.open(large_page)
    browser.wait(WHOLE, 60)
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


def test_paper_is_light_and_no_plot_is_wider_than_it(browser: Browser, page: Path) -> None:
    browser.open(page, theme="dark")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.command("Emulation.setEmulatedMedia", media="print", features=[PREFERS_DARK])
    browser.command("Emulation.setDeviceMetricsOverride", width=718, height=1000, deviceScaleFactor=1, mobile=False)
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    drawn = "[...document.querySelectorAll('.plot .main-svg')].map((one) => one.getBoundingClientRect().right)"
    assert 0 < max(browser.run(f"return {drawn}")) <= 718
    browser.command("Emulation.setEmulatedMedia", media="", features=[PREFERS_DARK])
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("return document.documentElement.dataset.theme") is None


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open(page, theme="dark")
    pdf = base64.b64decode(browser.command("Page.printToPDF", printBackground=False)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    assert browser.complaints() == []
