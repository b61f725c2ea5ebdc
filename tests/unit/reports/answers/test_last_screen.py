"""The end of a limited run fits 30 lines at 80 columns: the answer, a line for each kind of remark, what is left, the folders."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from reports.answers.plain import Section
from runner.cli.main import app
from runner.cli.report import ANSWER_LINES, Reporter, fitting
from runner.plan.plan import Plan
from runner.results.store import RunStore
from runner.run.dispatch import Job
from runner.run.summary import conclude
from tests.fixtures import synthetic
from tests.fixtures.plans import make_cell

RUN = "20261120-000000-aaaa"
WAITING = [f"chainer-7.{at}.0-cpu" for at in range(120)]
# As a machine of two CPUs has it on which a browser runs.
BUSY = {"other_cpus": 1.4, "environment_json": json.dumps({"host": {"cpu_count": 2}})}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """Three frameworks with three repeats at two networks, an open pair, a failed cell, other work, and 120 cells that are not yet run."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    folder = synthetic.make_run(Path("results") / RUN, repeats=3, everywhere=BUSY)
    manifest = RunStore(folder).manifest()
    entry = synthetic.cell("torch-2.13.0-cpu", "gru-imdb")
    more = [{**entry, "image": image, "framework": "chainer", "id": synthetic.digest(image)[:16]} for image in WAITING]
    RunStore(folder).write_manifest({**manifest, "plan": [*manifest["plan"], *more]})
    return RunStore(folder)


def end_of(run: RunStore, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines at the end of its ten minutes."""
    left = [Job(make_cell(image=image, framework="chainer"), repeat) for image in WAITING for repeat in (1, 2, 3)]
    prospect: Any = SimpleNamespace(
        jobs_left=lambda _: left,
        expectations=lambda _: {"left": {"repeats": 360, "seconds": 9000.0}},
        plan=Plan((), ()),
    )
    reporter = Reporter()
    capsys.readouterr()
    assert conclude(prospect, run, "", reporter.write, 10.0, 17, reporter.show).code == 1
    return capsys.readouterr().err.splitlines()


def test_the_end_of_a_limited_run_fits_a_screen(run: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    lines = end_of(run, capsys)
    assert sum(max(1, math.ceil(len(line) / 80)) for line in lines) <= 30, "\n".join(lines)
    text = " ".join(lines)
    assert text.count("360 repeats not yet run (120 cells without any repeat)") == 1
    assert text.count("runner matrix --resume") == 1
    assert "Chainer" not in text
    assert text.count("beside other work") == 1, "what holds for all cells stands once, above"
    assert text.count("unsteady") == 2, "a condition stands above with its count, and beside the cell that has it"
    assert text.count("PyTorch 2.13.0") >= 2


def network(number: int, rows: int) -> Section:
    """As two busy CPUs had it: cells of one repeat, one too noisy, few CPUs, stalls."""
    cells = [
        (f"TensorFlow 2.{at}.0", "205", "104–406", "312", f"1.{at}", "one run: may be as fast; few CPUs")
        for at in range(rows)
    ]
    heads = ("framework", "ms/step", "95 %", "images/s", "vs best", "note")
    remarks = tuple(f"remark {number}.{at} " + "on how sure this is " * 5 for at in range(3))
    answer = "Open between PyTorch 2.13.0 and JAX 0.10.2: PyTorch 2.13.0 got less than half of its CPUs."
    so = "so: PyTorch 2.13.0 is fastest; they compute the same"
    return Section((f"network {number}", answer), heads, cells, ("ms/step",), (*remarks, so, ""))


@pytest.mark.parametrize(
    ("networks", "rows", "remarks", "tables", "answers"),
    [(1, 2, 3, 1, 1), (2, 4, 0, 1, 2), (4, 3, 0, 0, 4), (16, 3, 0, 0, 4)],
    ids=["all", "no remarks", "no tables", "the first answers"],
)
def test_an_answer_longer_than_a_screen_loses_remarks_then_tables_and_names_the_command_that_has_all(
    networks: int, rows: int, remarks: int, tables: int, answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    beside = Section(("of 6 ranked cells 1 unsteady", ""))
    sections = [beside, *(network(number, rows) for number in range(networks))]
    lines = fitting(sections, "the whole answer: runner report --text RUN")
    assert len(lines) <= ANSWER_LINES
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    counts = [len(re.findall(part, text)) for part in (r"remark \d", "framework ", r"network \d")]
    assert counts == [remarks, tables, answers]
    assert text.count("so: PyTorch 2.13.0 is fastest") == answers, "this is an answer, too"
    assert ("the whole answer: runner report --text RUN" in lines) is (networks > 1)


def test_a_pipe_has_the_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert "\n".join(fitting([network(at, 3) for at in range(9)], "the whole answer")).count("remark ") == 27


def test_an_open_pair_says_in_one_line_how_long_the_repeats_take_that_would_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    slower = {("jax-0.10.2-cpu", "gru-imdb"): 1.04}
    folder = synthetic.make_run(Path("results") / RUN, repeats=3, slower=slower)
    reporter = Reporter()
    reporter.write(folder)
    reporter.show(folder)
    shown = capsys.readouterr().err
    (line,) = [line for line in shown.splitlines() if line.startswith("open: ")] or [shown]
    assert re.fullmatch(r"open: \d+ repeats would tell \(about \d+ min\)", line)


def test_the_whole_text_names_what_is_not_yet_run_where_it_is_asked_for(run: RunStore) -> None:
    words = ["report", RUN]
    usual = CliRunner().invoke(app, [*words, "--text"]).stdout
    whole = CliRunner().invoke(app, [*words, "--text", "--all"]).stdout
    assert "not yet run:" not in usual
    named = " ".join(whole.partition("\nnot yet run:\n")[2].split())
    assert named.count("Chainer") == len(WAITING)
    refused = CliRunner().invoke(app, [*words, "--all"])
    assert (refused.exit_code, "say --text as well" in refused.stderr) == (2, True)
