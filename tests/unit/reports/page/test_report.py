"""The page as text: whole, self-contained, and safe against whatever a cell printed."""

from __future__ import annotations

import json
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects
import pyarrow
import pyarrow.parquet
import pytest

import reports.page.render
from bench import rules
from reports import specifications, text
from reports.page import charts, figure
from runner.results.store import RunStore, StoreError, arrow_schema
from tests.fixtures import synthetic
from tests.fixtures.pages import figures, unpacked

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
    return output.read_text("utf-8")


def test_the_page_answers_says_where_and_shows_what_failed_and_was_left_out(tmp_path: Path) -> None:
    words = Page(render(tmp_path / "20261120-230512-abcd")).text
    for part in (
        "JAX, PyTorch and TensorFlow 2 on Synthetic Processor 9000",
        "20 November 2026, 23:05 UTC, the docker engine",
        "5 ended well, 1 failed and 6 combinations left out",
        "PyTorch 2.13.0 is fastest",
        "No clear difference between",
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


@pytest.mark.parametrize("images", [["jax-0.10.2-cpu"], ["jax-0.10.2-cpu", "torch-2.13.0-cpu"]])
def test_a_declared_variant_is_said_with_its_reason(tmp_path: Path, images: list[str]) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    for image in images:
        cell_id = synthetic.cell(image, "gru-imdb")["id"]
        for path in folder.glob(f"*/{cell_id}.r1.parquet"):
            table = store_table(path, path.parent.name)
            for row in table:
                if path.parent.name == "parity":
                    row["variant"] = "one-bias"
                if path.parent.name == "cells":
                    told = json.loads(row["environment_json"])
                    told["settings"] |= {"variant": "one-bias", "variant_reason": "this layer has one bias"}
                    row["environment_json"] = json.dumps(told)
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table, schema=arrow_schema(path.parent.name)), path)
    output = tmp_path / "report.html"
    reports.page.render.render([folder], output)
    words = Page(output.read_text("utf-8")).text
    assert f"{'computes' if len(images) == 1 else 'compute'} the variant one-bias instead" in words
    assert "this layer has one bias" in words


def store_table(path: Path, table: str) -> list[dict[str, Any]]:
    """A table's rows as they lie."""
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(path, schema=arrow_schema(table)).to_pylist()
    return found


def test_the_page_asks_no_server_for_anything(tmp_path: Path) -> None:
    page = Page(render(tmp_path / "run"))
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, name, value)
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_plotly_is_in_the_file_once_and_the_file_stays_small(tmp_path: Path) -> None:
    html = render(tmp_path / "run", repeats=3)
    assert "plotly.js v" not in html
    assert unpacked(html, "plotly").count("plotly.js v") == 1
    assert len(html.encode()) < 3 * 2**20


def test_a_reused_repeat_is_shown_as_reused(tmp_path: Path) -> None:
    words = Page(render(tmp_path / "run", reused=True)).text
    assert "reused on --resume, not measured again" in words
    assert "1 of 1 repeat reused" in words


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
    assert figures(html)


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
    assert mark not in json.dumps(figures(html), ensure_ascii=False)


def test_a_string_of_a_million_characters_is_cut_with_a_note(tmp_path: Path) -> None:
    huge = "A" * 1_000_000
    changes = {"reason": huge, "status": "failed", "log_tail": huge, "framework_version": huge, "image": huge}
    html = render(tmp_path / "run", changes=changes)
    assert len(html.encode()) < 3 * 2**20
    assert "[cut: 1 000 000 characters in all]" in Page(html).text


def test_texts_in_plots_are_escaped_for_the_markup_that_plotly_reads() -> None:
    assert (
        figure.text("<b>x</b><a href='javascript:1'>") == "&lt;b&gt;x&lt;/b&gt;&lt;a href=&#x27;javascript:1&#x27;&gt;"
    )


def test_every_figure_is_one_that_plotly_accepts(tmp_path: Path) -> None:
    found = figures(render(tmp_path / "run", repeats=2))
    # per workload: step times, two curves and phases; and a sequence for each repeat that was measured
    assert len(found) == 2 * 4 + 5 * 2
    for one in found.values():
        plotly.graph_objects.Figure(data=one["data"], layout=one["layout"])


def test_a_framework_has_the_same_colour_everywhere_and_no_two_share_one(tmp_path: Path) -> None:
    known = charts.colours(["jax", "torch", "tensorflow"])
    more = charts.colours(["jax", "mxnet", "torch", "tensorflow", "somebody's own"])
    assert all(more[name] == colour for name, colour in known.items())
    assert len({known[name] for name in known}) == len(known)
    everything = [*specifications.titles(), "somebody's own"]
    colour = charts.colours(everything)
    cells = [SimpleNamespace(framework=name) for name in everything]
    symbol = charts.symbols(cells)
    assert len({(colour[name], symbol[name]) for name in everything}) == len(everything)


def test_a_new_framework_changes_no_other_one_s_colour_and_is_as_fixed_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    frameworks = list(specifications.titles())
    cells = [SimpleNamespace(framework=name) for name in (*frameworks, "aardvark")]
    before = charts.colours(frameworks), charts.symbols(cells[:-1]), charts.colours(["aardvark"])
    names = ("abacus", *frameworks, "aardvark")
    monkeypatch.setattr(specifications, "titles", lambda: {name: name for name in names})
    colours, symbols = charts.colours(names), charts.symbols(cells)
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
    for path in folder.glob("*/*.r*.parquet"):
        path.unlink()
    reports.page.render.render([folder], tmp_path / "report.html")
    assert "A run without cells" in Page((tmp_path / "report.html").read_text("utf-8")).text


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
    words = Page((tmp_path / "report.html").read_text("utf-8")).text
    assert "Images/s" in words
    assert "Inference · Synthetic Processor" in words
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
    assert text.duration(value) in (shown, "0\u00a0µs" if value == 0 else shown)


def test_large_and_small_numbers_stay_readable() -> None:
    assert text.number(1234567.0) == "1\u2009230\u2009000"
    assert text.number(1.04e-7, 2) == "1.0 · 10⁻⁷"
    assert text.number(float("nan")) == "–"
