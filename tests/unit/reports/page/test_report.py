"""The page as text: whole, self-contained, and safe against whatever a cell printed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import reports.page.render
from bench import rules
from reports import specifications, wording
from reports.answers.overview import overview
from reports.data import tables
from reports.page import page as signs
from reports.page import plots, results
from reports.page.assembly import page_of
from reports.page.drawing import Axis, Picture
from runner.results.store import TABLES, RunStore, StoreError
from runner.text import visible
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import Mark, charts, picture, pictures, samples, unpacked, whole

SCRIPT = "<script>window.hacked=1</script>"
HOSTILE = {
    "script": SCRIPT,
    "image tag": "\"><img src=x onerror='window.hacked=1'>",
    "json end": "</script><script>window.hacked=1</script><!--",
    "template": "{{ 7*7 }}{% raw %}",
    "link": '<a href="javascript:window.hacked=1">x</a>',
}


class Page(HTMLParser):
    """What a browser would see: elements, attributes, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif not self._inside:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def render(folder: Path, **how: Any) -> str:
    output = folder.parent / "report.html"
    reports.page.render.render([synthetic.make_run(folder, **how)], output)
    return whole(output)


def test_the_page_answers_says_where_and_shows_what_failed_and_was_left_out(tmp_path: Path) -> None:
    words = Page(render(tmp_path / "20261120-230512-abcd")).text
    for part in (
        "JAX, PyTorch and TensorFlow 2 on Synthetic Processor 9000",
        "20 November 2026, 23:05 UTC, the docker engine",
        "5 ended well, 1 failed and 6 combinations skipped",
        "PyTorch 2.13.0 looks fastest (one run)",
        "out-of-memory: the cell needed more than its 4 GiB",
        "no GPU on this machine: the image needs CUDA 12.8",
        "allocation of 1474560000 exceeds",
        "runner matrix --gpus none --images torch-2.13.0-cpu",
        "shorter than the specification's run",
        "generated stand-in data",
        "exit code 137,",
        synthetic.digest("torch-2.13.0-cpu"),
        synthetic.digest("bench"),
    ):
        assert part in words, part


def test_the_page_of_several_repeats_names_the_fastest_and_those_that_are_level(tmp_path: Path) -> None:
    words = Page(render(tmp_path / "run", repeats=3)).text
    assert "PyTorch 2.13.0 is fastest" in words
    assert "JAX 0.10.2 and PyTorch 2.13.0 are equally fast within 5 %" in words


def test_the_parity_table_says_what_was_checked_on_the_adapter_that_was_measured(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    assert "count of its steps" not in Page(render(tmp_path / "older")).text
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    updates = {"tensor": "optimiser", "error": 0.0, "bound": 0.01}
    due = [row | (updates if row["quantity"] == "updates" else {}) for row in synthetic.due_rows("cnn-cifar10")]
    stored.write_repeat(folder, entry["id"], 1, {**rows, "parity": due})
    output = tmp_path / "report.html"
    reports.page.render.render([folder], output)
    words = Page(whole(output)).text
    assert "the optimiser's count of its steps its distance from the steps that were measured" in words
    assert re.search(r"0 % 0 0.01\S* optimiser · as measured", words)


@pytest.mark.parametrize("images", [["jax-0.10.2-cpu"], ["jax-0.10.2-cpu", "torch-2.13.0-cpu"]])
def test_a_declared_variant_is_said_with_its_reason(tmp_path: Path, images: list[str]) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    for image in images:
        cell_id = synthetic.cell(image, "gru-imdb")["id"]
        rows = {table: stored.rows_of(folder, table, cell_id) for table in TABLES}
        for row in rows["parity"]:
            row["variant"] = "one-bias"
        for row in rows["cells"]:
            told = json.loads(row["environment_json"])
            told["settings"] |= {"variant": "one-bias", "variant_reason": "this layer has one bias"}
            row["environment_json"] = json.dumps(told)
        stored.write_repeat(folder, cell_id, 1, rows)
    output = tmp_path / "report.html"
    reports.page.render.render([folder], output)
    words = Page(whole(output)).text
    assert f"{'computes' if len(images) == 1 else 'compute'} the variant one-bias instead" in words
    assert "this layer has one bias" in words


def test_the_page_asks_no_server_for_anything(tmp_path: Path) -> None:
    html = render(tmp_path / "run", repeats=3)
    page = Page(html)
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, name, value)
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    # The digest is that of the styles as they lie in the page, and no element has styles of its own.
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert not [tag for tag, attributes in page.elements if "style" in attributes]


def test_the_library_is_in_the_file_once_as_it_was_released_and_the_file_stays_small(tmp_path: Path) -> None:
    html = render(tmp_path / "run", repeats=3)
    vendor = resources.files("reports.page.vendor")
    library = (vendor / "uPlot.iife.min.js").read_text("utf-8")
    assert unpacked(html, "uplot") == library
    assert "leeoniya/uPlot (v" not in html
    assert "Leon Sorokin" in (vendor / "uPlot.LICENSE").read_text("utf-8")
    # The files of uplot-1.6.32.tgz on npm's registry.
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in vendor.iterdir() if path.is_file()
    }
    assert digests == {
        "uPlot.LICENSE": "8f989229699b4fe2",
        "uPlot.iife.min.js": "19c8d4c6ad88929a",
        "uPlot.min.css": "df630c6a8d6f8eea",
    }
    assert len(html.encode()) < 400_000


def test_a_repeat_of_before_a_resumption_is_shown_as_such(tmp_path: Path) -> None:
    words = Page(render(tmp_path / "run", reused=True)).text
    assert "Repeat 1 from before the run was resumed" in words
    assert "1 of 1 repeat from before the run was resumed" in words
    assert "reused" not in words


@pytest.mark.parametrize("name", HOSTILE)
def test_markup_from_a_cell_appears_as_text(tmp_path: Path, name: str) -> None:
    hostile = HOSTILE[name]
    columns = ("image", "framework", "framework_version", "device_model", "data_source", "mode", "stop", "image_digest")
    html = render(tmp_path / "run", changes={column: f"{column} {hostile}" for column in columns})
    page = Page(html)
    for column in columns:
        assert f"{column} {hostile}"[:60] in page.text, column
    assert len(page.scripts) == 6
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert not any(tag == "img" for tag, _ in page.elements)
    assert pictures(html)


def test_markup_in_the_environment_and_the_log_appears_as_text(tmp_path: Path) -> None:
    environment = {"versions": {SCRIPT: SCRIPT, "lone": "\ud800"}, "settings": {"threads": SCRIPT}}
    changes = {
        "environment_json": json.dumps(environment),
        "status": "failed",
        "error_kind": SCRIPT,
        "reason": None,
        "log_tail": f"\x1b[31mred\x1b[0m {SCRIPT} \u202egnp.exe\u2069\x07",
    }
    page = Page(render(tmp_path / "run", changes=changes))
    assert page.text.count(SCRIPT) >= 5
    assert "⟨U+D800⟩" in page.text
    assert "red <script>" in page.text
    assert "⟨U+202E⟩gnp.exe⟨U+2069⟩␇" in page.text


@pytest.mark.parametrize("mark", ["\u202e", "\u202a", "\u2066", "\u200f", "\u200b", "\ufeff", "\x1b", "\x00", "\x9b"])
def test_no_control_or_direction_mark_reaches_the_page(tmp_path: Path, mark: str) -> None:
    hostile = f"torch{mark}[31m2.13"
    changes = {
        "image": hostile,
        "framework_version": hostile,
        "status": "failed",
        "reason": hostile,
        "log_tail": hostile,
    }
    html = render(tmp_path / "run", changes=changes)
    page = Page(html)
    assert mark not in page.text
    assert not any(mark in (value or "") for _, attributes in page.elements for value in attributes.values())
    assert all(mark not in json.dumps(samples(place)) for place in re.findall('data-samples="[^"]*"', html))


def test_a_string_of_a_million_characters_is_cut_with_a_note(tmp_path: Path) -> None:
    huge = "A" * 1_000_000
    changes = {"reason": huge, "status": "failed", "log_tail": huge, "framework_version": huge, "image": huge}
    html = render(tmp_path / "run", changes=changes)
    assert len(html.encode()) < 3 * 2**20
    assert "[cut: 1 000 000 characters in all]" in Page(html).text


def test_texts_in_pictures_are_escaped_and_made_visible() -> None:
    hostile = "<b>x</b><a href='javascript:1'>\"\u202e\x1b[31m"
    drawing = Picture(20, Axis(0, 1))
    drawing.words(0, 10, hostile, longest=100)
    drawing.mark(0, 10, "circle", "", hostile)
    drawing.path("M0 0", "line", hostile)
    found = drawing.chart("place", hostile).svg
    assert not {mark for mark in ("<b>", "<a", "\u202e", "\x1b") if mark in found}
    shown = picture(found)
    assert shown.words == shown.texts[0] == shown.marks[0].words == shown.lines[0].words == visible(hostile)


def test_every_picture_stands_alone_as_xml_and_lies_inside_its_box(tmp_path: Path) -> None:
    html = render(tmp_path / "run", repeats=2)
    found = pictures(html)
    # Of each workload: step times, a curve over seconds and over steps, phases. And windows of each repeat that was measured.
    assert len(found) == 2 * 4
    assert html.count("data-samples=") == 5 * 2
    for shown in found.values():
        places = [
            *shown.marks,
            *(Mark(x, y, frozenset(), "") for line in shown.of("line") + shown.of("bar") for x, y in line.places),
        ]
        assert places
        assert all(0 <= mark.x <= 100 and mark.y >= 0 for mark in places)
        assert shown.words


def test_the_same_tables_give_the_same_pictures(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    first, second = ([chart.svg for chart in charts(page_of(overview(data)))] for _ in range(2))
    assert first == second


def test_each_cell_has_a_row_with_its_median_its_interval_and_its_windows(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    group = data.workloads[0].groups[0]
    chart = plots.step_times(group, 400)
    assert chart is not None
    shown = picture(chart.svg)
    steps = [cell.step for cell in group.cells if cell.step is not None]
    ratios = [mark.x / step.value for mark, step in zip(shown.marks, steps, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-3)  # one linear axis that begins at 0
    ends = [line.places[0][0] / ratios[0] for line in shown.of("line")]
    assert ends == pytest.approx([step.low for step in steps], rel=1e-2)
    for line, cell in zip(shown.of("ticks"), group.cells, strict=True):
        windows = ratios[0] * np.concatenate([repeat.steady_step_seconds for repeat in cell.repeats])
        windows = windows[windows <= 100]
        drawn = [x for x, _ in line.places]
        assert (min(drawn), max(drawn)) == pytest.approx((min(windows), max(windows)), abs=0.2)
        assert len(drawn) > 10


def test_the_picture_and_the_table_of_results_have_the_same_start_up_without_data_parity_and_warm_up(
    tmp_path: Path,
) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run")])
    group = data.workloads[0].groups[0]
    chart = plots.phases(group)
    assert chart is not None
    bars = picture(chart.svg).of("bar")
    assert {bar.words.split(": ")[1].split()[0] for bar in bars} == {"import", "build", "first"}
    cell = group.cells[0]
    total = results.start_up(cell)
    assert total == pytest.approx(cell.phases["import"] + cell.phases["build"] + (cell.first_step_seconds or 0))
    assert f"{cell.label}: {wording.duration(total)}" in chart.words
    assert cell.phases["parity"] > 0


def test_a_cell_that_failed_before_its_first_step_has_no_time_to_it(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run")])
    group = data.workloads[1].groups[0]
    (failed,) = [cell for cell in group.cells if cell.status != "ok"]
    assert failed.phases
    chart = plots.phases(group)
    assert chart is not None
    assert failed.label not in chart.words


def test_a_metric_is_drawn_where_all_were_evaluated_at_five_same_steps(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    workload = data.workloads[0]
    (group,) = workload.groups
    charts = plots.learning(group, workload, 400)
    # The test accuracy has a beginning and an end: two points are no course.
    assert [chart.caption for chart in charts] == ["training loss", "training loss"]
    assert [chart.id.rpartition("-")[2] for chart in charts] == ["seconds", "steps"]
    lines = picture(charts[1].svg).of("line")
    assert len(lines) == 3 * 2
    assert {tuple(x for x, _ in line.places) for line in lines} == {tuple(x for x, _ in lines[0].places)}
    cell = group.cells[0]
    curve = next(curve for curve in cell.repeats[0].curves if (curve.split, curve.name) == ("train", "loss"))
    later = replace(curve, steps=curve.steps + 1)
    alone = replace(cell.repeats[0], curves=tuple(later if each is curve else each for each in cell.repeats[0].curves))
    moved = replace(cell, repeats=(alone, *cell.repeats[1:]))
    other = replace(group, ranked=(replace(group.ranked[0], cell=moved), *group.ranked[1:]))
    assert plots.learning(other, workload, 400) == ()


def test_a_framework_has_the_same_colour_everywhere_and_no_two_share_one(tmp_path: Path) -> None:
    known = signs.sign_colours(["jax", "torch", "tensorflow"])
    more = signs.sign_colours(["jax", "mxnet", "torch", "tensorflow", "somebody's own"])
    assert all(more[name] == colour for name, colour in known.items())
    assert len({known[name] for name in known}) == len(known)
    everything = [*specifications.titles(), "somebody's own"]
    colour = signs.sign_colours(everything)
    cells = [SimpleNamespace(framework=name) for name in everything]
    symbol = signs.sign_symbols(cells)
    assert len({(colour[name], symbol[name]) for name in everything}) == len(everything)


def test_a_new_framework_changes_no_other_one_s_colour_and_is_as_fixed_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    frameworks = list(specifications.titles())
    cells = [SimpleNamespace(framework=name) for name in (*frameworks, "aardvark")]
    before = signs.sign_colours(frameworks), signs.sign_symbols(cells[:-1]), signs.sign_colours(["aardvark"])
    names = ("abacus", *frameworks, "aardvark")
    monkeypatch.setattr(specifications, "titles", lambda: {name: name for name in names})
    colours, symbols = signs.sign_colours(names), signs.sign_symbols(cells)
    assert (dict(list(colours.items())[1:-1]), {"aardvark": colours["aardvark"]}) == (before[0], before[2])
    assert {name: symbols[name] for name in frameworks} == before[1]


def test_a_folder_that_is_no_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"run\.json"):
        reports.page.render.render([tmp_path], tmp_path / "report.html")
    with pytest.raises(StoreError, match="no run was given"):
        reports.page.render.render([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_run_in_which_no_cell_was_planned_still_makes_a_page(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    manifest = RunStore(folder).manifest()
    RunStore(folder).write_manifest({**manifest, "plan": []})
    synthetic.unrun(folder)
    reports.page.render.render([folder], tmp_path / "report.html")
    assert "A run without cells" in Page(whole(tmp_path / "report.html")).text


def test_a_workload_that_learns_nothing_has_no_curve_and_no_test_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {
        "name": "cnn-infer",
        "title": "Inference",
        "task": "infer",
        "items": "images",
        "metric": None,
        "chance": None,
    }
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "cnn-infer.json").write_text(json.dumps(spec))
    names, declaration = rules.workload_names, rules.workload_declaration
    monkeypatch.setattr(rules, "workload_names", lambda: names(str(tmp_path / "workloads")))
    monkeypatch.setattr(rules, "workload_declaration", lambda name: declaration(name, str(tmp_path / "workloads")))
    folder = synthetic.make_run(tmp_path / "run", everywhere={"workload": "cnn-infer"})
    synthetic.forget(folder, *synthetic.FAILED)
    reports.page.render.render([folder], tmp_path / "report.html")
    words = Page(whole(tmp_path / "report.html")).text
    assert "Images/s" in words
    assert "Inference · inference" in words
    assert "Run on generated stand-in data" in words
    for absent in ("Learning curves", "Test metric", "Test accuracy", "final accuracies do not", "expected band"):
        assert absent not in words, absent


def test_the_same_run_gives_the_same_page_twice(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    for name in ("a.html", "b.html"):
        reports.page.render.render([folder], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_six_cells_are_rendered_in_a_moment(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    began = time.perf_counter()
    reports.page.render.render([folder], tmp_path / "report.html")
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.1312, "131\u00a0ms"),
        (12.34, "12.3\u00a0s"),
        (3e-6, "3.00\u00a0µs"),
        (600, "10.0\u00a0min"),
    ],
)
def test_durations_are_said_in_the_unit_that_fits(value: float | None, shown: str) -> None:
    assert wording.duration(value) in (shown, "0\u00a0µs" if value == 0 else shown)


def test_large_and_small_numbers_stay_readable() -> None:
    assert wording.number(1234567.0) == "1\u2009230\u2009000"
    assert wording.number(1.04e-7, 2) == "1.0 · 10⁻⁷"
    assert wording.number(float("nan")) == "–"


def test_the_page_says_once_what_runner_is_in_its_commands(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run", manifest={"repeats": 3})
    said = "In commands <code>runner</code> is <code>.venv/bin/runner</code>, in the project's folder."
    page = whole(reports.page.render.page(tables.load([run])))
    assert page.count(said) == 1
    assert page.index(said) > page.index("<footer")
    synthetic.unrun(run, ("torch-2.13.0-cpu", "cnn-cifar10"), ("jax-0.10.2-cpu", "cnn-cifar10"))
    page = whole(reports.page.render.page(tables.load([run])))
    assert page.count(said) == 1
    assert f"<code>runner matrix --resume run</code>. {said}" in page
