"""The time to a stated loss in every format, of a run whose evaluations were written by hand."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from reports.answers.findings import findings
from reports.answers.to_loss import LossAnswer, _field
from reports.data.tables import ANSWER, load
from runner.cli.main import app
from runner.results.rank.time_to_loss import SeedTime
from runner.results.store import SCHEMA_VERSION, RunStore
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import whole

WORKLOAD = "gpt-bytes-to-loss"
TORCH, TENSORFLOW, JAX = synthetic.IMAGES
# Losses after 0, 8, 16, 24 and 32 steps. At a level of 5 they stay below it from the 16th, the 24th and the 32nd step on.
EARLY, LATER, LAST = (8.0, 5.5, 4.9, 4.8, 4.7), (8.0, 4.9, 5.1, 4.9, 4.8), (8.0, 5.5, 5.4, 5.1, 4.9)
NEVER, AT_ONCE, ROSE = (8.0, 7.0, 6.0, 5.5, 5.2), (4.9, 4.8, 4.7, 4.6, 4.5), (8.0, 4.9, 4.9, 5.1, 5.2)
# (seconds a step, the losses) of each seed
Seeds = Sequence[tuple[float, Sequence[float]]]


def made_run(
    folder: Path, images: Mapping[str, Seeds], level: float | None = 5.0, seeds: bool = True, every: int = 8
) -> Path:
    """A run of images whose repeats have these evaluations. `seeds`: each repeat has a seed of its own."""
    plan = {image: synthetic.cell(image, WORKLOAD) for image in images}
    for entry in plan.values():
        entry |= {"batch": 4, "seeds": "each" if seeds else ""}
    RunStore(folder).write_manifest(
        {
            "schema_version": SCHEMA_VERSION,
            "run_id": folder.name,
            "created": "2026-11-20T23:05:12+00:00",
            "argv": ["runner", "matrix"],
            "seed": 1,
            "preset": "quick",
            "repeats": max(map(len, images.values())),
            "engine": "docker",
            "host": synthetic.HOST,
            "plan": list(plan.values()),
            "skipped": 0,
            "skips": [],
            "bench_sha256": synthetic.digest("bench"),
            "runner_version": "0.1.0",
            "options": {"to_loss": level},
        }
    )
    stored.write_repeats(
        folder,
        [
            (plan[image]["id"], repeat, _tables(plan[image], repeat, repeat if seeds else 1, *of_seed, every))
            for image, of_seeds in images.items()
            for repeat, of_seed in enumerate(of_seeds, start=1)
        ],
    )
    return folder


def _tables(
    entry: dict[str, Any], repeat: int, seed: int, step: float, losses: Sequence[float], every: int
) -> dict[str, list[dict[str, Any]]]:
    samples = synthetic.window_rows(np.random.default_rng(repeat), step, 10, False)
    row = {name: value for name, value in synthetic.cell_row(entry, step, samples).items() if name != "seeds"}
    metrics = [
        {
            "name": "bits a byte",
            "split": "test",
            "step": every * at,
            "train_seconds": step * every * at,
            "value": loss,
        }
        for at, loss in enumerate(losses)
    ]
    parity = synthetic.parity_rows(np.random.default_rng(repeat))
    return {"cells": [row | {"seed": seed}], "samples": samples, "metrics": metrics, "parity": parity}


def answer_of(folder: Path, level: float | None = None) -> LossAnswer:
    (finding,) = findings(load([folder], ANSWER, level))
    (answer,) = finding.losses
    return answer


def six(step: float, losses: Sequence[float] = EARLY) -> Seeds:
    """Six seeds that take 1, 1.002 and 1.004 times as long, each twice. They are not alike in all cells: that would be a coarse clock."""
    order = (0, 1, 2, 0, 1, 2) if step == 1.0 else (2, 0, 0, 1, 1, 2)
    return [(step * (1 + 0.002 * slower), losses) for slower in order]


def test_each_cell_has_the_median_of_its_seeds_and_the_faster_one_is_named(tmp_path: Path) -> None:
    answer = answer_of(made_run(tmp_path / "run", {JAX: six(1.5), TORCH: six(1.0)}))
    assert answer.headline == "PyTorch 2.13.0 is fastest"
    assert answer.title == "To a held-out loss below 5 bits a byte"
    torch, jax = answer.rows
    # 16 steps of 1, 1.002 and 1.004 s, each twice; evaluations are 8 steps apart.
    assert (torch.median.value, torch.median.low, torch.median.high) == pytest.approx((16.032, 16.0, 16.064))
    assert torch.resolution == pytest.approx(8.016)
    assert jax.median.value == pytest.approx(24.048)
    assert jax.entry
    assert jax.entry.ratio.value == pytest.approx(1.5)
    assert jax.entry.verdict == "slower"
    assert "JAX 0.10.2 takes 1.50 times as long (95 % interval 1.46 to 1.54)" in answer.detail.replace("\u00a0", " ")
    assert "Evaluations lie 8.02 s to 12.0 s of training apart" in answer.detail.replace("\u00a0", " ")


def test_a_loss_that_touches_the_level_and_rises_counts_from_when_it_stays(tmp_path: Path) -> None:
    answer = answer_of(made_run(tmp_path / "run", {TORCH: six(1.0, LATER)}))
    assert answer.rows[0].median.value == pytest.approx(24.048)


def test_equal_cells_are_equally_fast(tmp_path: Path) -> None:
    answer = answer_of(made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(1.001)}))
    assert answer.headline == "PyTorch 2.13.0 and JAX 0.10.2 are equally fast within 5\u00a0%"


def card(folder: Path, page: Path) -> str:
    printed(str(folder), "-o", str(page))
    _, _, after = page.read_text().partition("Which is faster to the loss?")
    return after[:400]


def test_who_was_faster_and_how_many_got_there_are_two_facts_in_one_sentence(tmp_path: Path) -> None:
    some = [*six(0.5)[:3], (0.5, NEVER), (0.5, ROSE)]
    folder = made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(1.5), TENSORFLOW: some})
    answer = answer_of(folder)
    said = "TensorFlow 2.21.0 is fastest in the seeds that got there: TensorFlow 2.21.0 3 of 5 seeds, "
    assert answer.headline.startswith(said)
    assert "PyTorch 2.13.0 6 of 6 seeds" in answer.headline
    shown = card(folder, tmp_path / "page.html")
    assert "TensorFlow 2, but 3 of 5 seeds" in shown
    assert "confirmed" not in shown
    first = answer.rows[0]
    # The others' training ended after 16 s, which is later than the third of five.
    assert (first.reached, first.tried, first.median.value) == (3, 5, pytest.approx(8.032))
    assert (
        first.note == "fastest; 1 never below; 1 rose again; an interval needs 6 seeds" or "1 never below" in first.note
    )
    assert "TensorFlow 2.21.0 with 3 of 5 seeds" in answer.detail


def test_where_only_one_gets_there_that_is_the_answer(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(0.5, NEVER)})
    assert answer_of(folder).headline == (
        "PyTorch 2.13.0 is the only one that got there in 16.0\u00a0s: PyTorch 2.13.0 6 of 6 seeds and JAX 0.10.2 0 of 6 seeds"
    )
    shown = card(folder, tmp_path / "page.html")
    assert "Only PyTorch got there, 6 of 6" in shown
    assert "confirmed" in shown
    few = made_run(tmp_path / "few", {TORCH: six(1.0)[:2], JAX: six(0.5, NEVER)[:2]})
    assert "confirmed" not in card(few, tmp_path / "few.html"), "two seeds of each may do that by chance"


def test_a_hair_between_two_losses_is_no_order(tmp_path: Path) -> None:
    """Both compute the same steps in the same time, and the level lies between two losses that hardly differ."""
    early, late = (8.0, 5.5, 4.9999, 4.8, 4.7), (8.0, 5.5, 5.0001, 4.8, 4.7)
    answer = answer_of(made_run(tmp_path / "run", {TORCH: six(1.0, early), JAX: six(1.001, late)}))
    row = answer.rows[1]
    assert row.entry
    assert row.entry.verdict == "open"
    assert row.entry.ratio.low is not None
    assert row.entry.ratio.low < 1.0
    assert "is fastest" not in answer.headline


def test_too_few_seeds_that_get_there_have_no_median(tmp_path: Path) -> None:
    answer = answer_of(made_run(tmp_path / "run", {TORCH: [(1.0, EARLY), (1.0, NEVER), (1.0, NEVER)]}))
    assert answer.rows[0].median.value is None
    assert answer.headline == "The order is unknown"


def test_a_failed_repeat_is_no_seed(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(0.5)})
    failed = {"status": "failed", "error_kind": "crash", "reason": "it crashed"}
    stored.change(folder, "cells", lambda row: row | (failed if row["image"] == JAX and row["seed"] == 2 else {}))
    answer = answer_of(folder)
    row = answer.rows[0]
    assert (row.cell.framework, row.reached, row.tried) == ("jax", 5, 5)
    assert answer.headline == "JAX 0.10.2 is fastest"
    assert "1 failed" in row.note


def test_a_level_below_which_training_begins_is_not_timed(tmp_path: Path) -> None:
    answer = answer_of(made_run(tmp_path / "run", {TORCH: six(1.0, AT_ONCE), JAX: six(1.0, AT_ONCE)}))
    assert answer.headline == "The order is unknown"
    assert answer.rows[0].interval == ""
    assert answer.rows[0].note == "the first evaluation was below the level: state a lower one; 6 below at once"


def test_a_level_that_only_the_last_evaluation_is_below_says_so(tmp_path: Path) -> None:
    answer = answer_of(made_run(tmp_path / "run", {TORCH: six(1.0, LAST)}))
    assert answer.rows[0].note == "6 at the last evaluation only"


def test_repeats_of_one_seed_say_nothing_of_seeds(tmp_path: Path) -> None:
    answer = answer_of(made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(2.0)}, seeds=False))
    assert answer.headline == "The order is unknown"
    assert {row.note for row in answer.rows} == {"one seed; an interval needs 6 seeds"}


def test_cells_that_were_evaluated_at_other_steps_are_not_compared(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(2.0)})
    stored.change(folder, "metrics", lambda row: row | {"step": row["step"] + (row["repeat"] == 2 and row["step"] > 8)})
    answer = answer_of(folder)
    assert answer.headline == "The order is unknown"
    assert {row.why for row in answer.rows} == {"not all repeats were evaluated at the same steps"}


def simulated(rng: np.random.Generator, cells: int, own: float, slower: float) -> bool:
    """True if some cell is called slower than the first. Evaluations are 16 steps apart, and a level is reached after about 40 steps.

    Seeds differ by 15 %, alike in all cells, and by `own` in each cell; repeats by 1 %, and a session moves each cell by 1 %. The last
    cell's steps take `slower` times as long.
    """
    steps = 40 * np.exp(rng.normal(0, 0.15, 6) + rng.normal(0, own, (cells, 6)))
    a_step = np.exp(rng.normal(0, 0.01, (cells, 6)) + rng.normal(0, 0.01, (cells, 1)))
    a_step[-1] *= slower
    rows: list[Any] = []
    for name, times in enumerate(np.ceil(steps / 16) * 16 * a_step):
        repeats = [SimpleNamespace(row={"seed": seed}, reused=False, began=math.nan) for seed in range(6)]
        cell = SimpleNamespace(anchor=name, key=SimpleNamespace(device_model="CPU"), repeats=repeats)
        at_steps = np.ceil(steps[name] / 16).astype(int)
        seeds = [
            SeedTime(at, "reached", time, time / count, evaluation=int(count))
            for at, (time, count) in enumerate(zip(times, at_steps, strict=True))
        ]
        rows.append(SimpleNamespace(cell=cell, seeds=seeds))
    return any(pair.verdict == "slower" for pair in _field(rows, "cpu").places.values())


@pytest.mark.parametrize(
    ("cells", "own", "slower", "least", "most"),
    [
        pytest.param(2, 0.0, 1.0, 0.0, 0.07, id="equal, and they compute the same"),
        pytest.param(2, 0.2, 1.0, 0.0, 0.01, id="equal, and each learns in its own way"),
        pytest.param(6, 0.02, 1.0, 0.0, 0.07, id="six that are equal"),
        pytest.param(2, 0.0, 1.1, 0.98, 1.0, id="10 % slower, and they compute the same"),
        pytest.param(2, 0.1, 1.1, 0.13, 0.23, id="10 % slower, and each learns in its own way"),
    ],
)
def test_evaluations_that_lie_far_apart_make_no_false_order(
    cells: int, own: float, slower: float, least: float, most: float
) -> None:
    """docs/time-to-loss.md has the shares of more runs."""
    rng, runs = np.random.default_rng(77), 400
    assert least <= sum(simulated(rng, cells, own, slower) for _ in range(runs)) / runs <= most


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["report", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_without_a_stated_level_no_format_says_a_word_of_it(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(1.5)}, level=None)
    page = tmp_path / "page.html"
    printed(str(folder), "-o", str(page))
    said = [printed(str(folder), "--format", form) for form in ("text", "markdown", "csv")] + [whole(page)]
    assert not [text for text in said if "held-out loss below" in text or "to the loss" in text or "loss_" in text]
    document = json.loads(printed(str(folder), "--format", "json"))
    assert document["answers"][0]["to_loss"] == []


def test_a_level_that_no_stored_loss_can_answer_is_an_error(tmp_path: Path) -> None:
    synthetic.make_run(tmp_path / "run")
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--text", "--to-loss", "5"])
    assert result.exit_code == 2
    assert "--to-loss 5: these runs have no workload with a held-out loss" in result.output


@pytest.mark.parametrize("own", [True, False])
def test_every_format_has_the_answer(tmp_path: Path, own: bool) -> None:
    """The level is that of the run, or that of the report."""
    folder = made_run(tmp_path / "run", {TORCH: six(1.0), JAX: six(1.5)}, level=5.0 if own else None)
    more = () if own else ("--to-loss", "5")
    sentence = "To a held-out loss below 5 bits a byte: PyTorch 2.13.0 is fastest"
    assert f"{sentence}." in printed(str(folder), "--text", *more)
    assert f"**{sentence}.**" in printed(str(folder), "--format", "markdown", *more)
    page = tmp_path / "page.html"
    printed(str(folder), "-o", str(page), *more)
    assert "Which is faster to the loss?" in page.read_text()
    assert "1: 16" in whole(page)
    (group,) = json.loads(printed(str(folder), "--format", "json", *more))["answers"]
    (loss,) = group["to_loss"]
    assert (loss["level"], loss["metric"], loss["headline"]) == (5.0, "bits a byte", "PyTorch 2.13.0 is fastest")
    assert [cell["reached"] for cell in loss["cells"]] == [6, 6]
    assert [time["seed"] for time in loss["cells"][0]["times"]] == [1, 2, 3, 4, 5, 6]
    rows = list(csv.DictReader(io.StringIO(printed(str(folder), "--format", "csv", *more))))
    timed = [row for row in rows if row["loss_level"]]
    assert [(row["framework"], row["loss_reached"], row["loss_verdict"]) for row in timed] == [
        ("torch", "6", ""),
        ("jax", "6", "slower"),
    ]


@pytest.mark.parametrize("losses", [(4.9,), (5.1,)])
def test_a_row_that_was_evaluated_only_after_its_training_has_no_time_and_says_why(
    tmp_path: Path, losses: Sequence[float]
) -> None:
    answer = answer_of(made_run(tmp_path / "run", {TORCH: six(1.0, losses), JAX: six(1.5)}))
    why = {row.cell.image: row.why for row in answer.rows}
    assert why == {TORCH: "evaluated only after its training: a time needs two evaluations", JAX: ""}
