"""Files and lines from strangers: each is read, or refused in a sentence; and one bad file below --out hides no other run.

The long form (DLBENCH_STRANGERS=all) reads a million lines, and a hundred thousand of each other kind: six hours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from reports.answers.export import escaped
from reports.answers.overview import overview
from reports.data.tables import load
from reports.page import markdown_report
from reports.page.render import render
from runner.catalog.images import PROJECT
from runner.cli.main import app
from runner.plan.durations import earlier_preparations, earlier_seconds
from tests.fixtures.synthetic import make_run

LONG = os.environ.get("DLBENCH_STRANGERS") == "all"
# How many are read in every run of the tests, and with the variable.
COUNTS = {"lines": 2000, "references": 100, "runs": 15, "data": 300, "frames": 300, "archives": 300}
IN_FULL = dict.fromkeys(COUNTS, 100_000) | {"lines": 1_000_000}
MOST_BYTES = 512 << 20


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", COUNTS)
def test_what_a_stranger_changed_is_read_or_refused_and_nothing_else_happens(kind: str) -> None:
    count = (IN_FULL if LONG else COUNTS)[kind]
    command = [sys.executable, "-m", "tests.unit.strangers", kind, str(count), "22"]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["read"] + told["refused"] == count
    assert told["refused"] > count // 10, "the changes reach what checks them"
    assert told["bytes"] <= MOST_BYTES
    print(kind, told)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three runs, of which `b` is to be damaged."""
    for at, name in enumerate(("a", "b", "c")):
        make_run(tmp_path / name, windows=8, draw=at, manifest={"created": f"2026-11-2{at}T00:00:00+00:00"})
    return tmp_path


def damaged_manifest(folder: Path) -> None:
    (folder / "run.json").write_text("[" * 100_000)


def damaged_table(folder: Path) -> None:
    path = folder / "tables" / "cells.parquet"
    pq.write_table(pa.table({"framework": [["a list"]], "wall_seconds": ["text"]}), path)


def pipe(folder: Path) -> None:
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")


def dangling(folder: Path) -> None:
    (folder / "run.json").unlink()
    (folder / "run.json").symlink_to("nowhere")


def a_copy(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("a"), folder)


@pytest.mark.parametrize("damage", [damaged_manifest, damaged_table, pipe, dangling, a_copy])
def test_one_bad_run_hides_no_other_and_is_named(results: Path, damage: object) -> None:
    damage(results / "b")  # type: ignore[operator]
    earlier_seconds(results)
    earlier_preparations(results, "docker")
    ended = CliRunner().invoke(app, ["history", "--out", str(results), "--format", "json"])
    assert isinstance(ended.exception, SystemExit | None)
    assert ended.exit_code in (0, 1, 3)
    assert json.loads(ended.stdout)
    if damage is not dangling:
        # A copy is no run of this installation: that is said, too.
        assert any(line.startswith("skipped: ") for line in ended.stderr.splitlines())
        assert str(results / "b") in ended.stderr
    named = CliRunner().invoke(app, ["history", str(results / "a"), str(results / "b")])
    assert named.exit_code == 2, "a run that the user names is not skipped"


def test_where_no_run_can_be_read_the_first_one_is_named(results: Path) -> None:
    for name in ("a", "b", "c"):
        damaged_manifest(results / name)
    ended = CliRunner().invoke(app, ["history", "--out", str(results)])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert f"{results / 'a' / 'run.json'} is not JSON" in ended.stderr


@pytest.mark.parametrize(
    "change", [{"reused": None}, {"devices": None}, {"prepared": []}, {"resumed": []}, {"preset": "x" * 10**6}]
)
def test_what_may_be_empty_or_long_in_a_manifest_spoils_no_report(tmp_path: Path, change: dict[str, object]) -> None:
    folder = make_run(tmp_path / "run", windows=8, manifest=change)
    render([folder], tmp_path / "report.html")
    assert 0 < len(markdown_report.markdown(overview(load([folder])))) < 100_000


def test_markdown_for_a_pull_request_calls_nobody_and_links_nowhere(tmp_path: Path) -> None:
    said = "@octocat see https://example.org or www.example.org, as in #12 and GH-13; mail a@b.org"
    assert escaped(said) == (
        "@<!-- -->octocat see https:<!-- -->//example.org or www<!-- -->.example.org, as in \\#<!-- -->12 and GH<!-- -->-13; "
        "mail a@<!-- -->b.org"
    )
    assert escaped("Processor 9000 @ 2.10GHz") == "Processor 9000 @ 2.10GHz"
    folder = make_run(tmp_path / "run", windows=8, changes={"framework_version": "@octocat", "reason": "@octocat"})
    assert "@octocat" not in markdown_report.markdown(overview(load([folder])))


def test_an_error_that_quotes_a_file_has_no_escapes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", windows=8, manifest={"created": "\x1b]0;PWNED\x07\x1b[2J\u202e" + "x" * 10**6})
    ended = CliRunner().invoke(app, ["report", str(folder)])
    assert ended.exit_code == 2
    assert not {"\x1b", "\x07", "\u202e"} & set(ended.stderr)
    assert len(ended.stderr) < 2000


def test_the_name_of_a_folder_looks_like_no_line_of_ours(results: Path) -> None:
    damaged_manifest(results / "b")
    folder = (results / "b").rename(results / "b\n\x1b[31mrunner: all is well")
    for arguments in (["--out", str(results)], [str(folder)]):
        ended = CliRunner().invoke(app, ["history", *arguments])
        assert "all is well" in ended.stderr
        assert "\x1b" not in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
