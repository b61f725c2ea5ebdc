"""An image of no catalog is called so beside its figures: in a run's answer, by compare and by verify."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reports.answers.plain import sections
from reports.data.tables import load
from runner.cli.main import app
from tests.fixtures import synthetic

PINNED, FOREIGN = "torch-2.13.0-cpu", "docker:mine:1"
SAID = "pinned by digest, no lock"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(synthetic, "IMAGES", dict.fromkeys((PINNED, FOREIGN), ("torch", "2.13.0")))
    monkeypatch.setattr(synthetic, "LEVELS", {(PINNED, "gru-imdb"): 0.1, (FOREIGN, "gru-imdb"): 0.2})
    return synthetic.make_run(tmp_path / "run", repeats=5, manifest={"skips": []})


def lines(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_a_runs_answer_says_it_in_the_row_of_that_image_alone(run: Path) -> None:
    rows = [row for section in sections(load([run])) for row in section.rows]
    assert [SAID in row[-1] for row in rows] == [False, True]


def test_compare_says_it_with_the_digest(run: Path) -> None:
    said = CliRunner().invoke(app, ["compare", PINNED, FOREIGN, "--runs", str(run), "--out", str(run.parent)]).output
    assert lines(said, f"{FOREIGN}: {SAID} (")
    assert not lines(said, f"{PINNED}: {SAID}")


def test_verify_says_it(run: Path) -> None:
    words = ["verify", "--run", str(run), "--references", str(run.parent / "none"), "--out", str(run.parent)]
    said = CliRunner().invoke(app, words).output
    assert len(lines(said, f"{FOREIGN}: {SAID}")) == 1, said
