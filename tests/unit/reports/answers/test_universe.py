"""A claim names its universe: nothing that was measured is outside an answer, in any format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from reports.answers import answers_table, findings, plain
from reports.answers.overview import overview
from reports.data.model import Tables
from reports.data.tables import load
from reports.page import markdown_report
from reports.page.assembly import page_of
from runner.results.statistics import Array
from tests.fixtures import drawn

WORKLOAD = "cnn-cifar10"
TORCH = ("torch", WORKLOAD)
KINDS = ("ok", "failed in part", "too few windows", "unproved", "refused", "noisy", "once", "never run")
SPEEDS = {"faster": 0.5, "same": 1.0, "slower": 3.0}


def run_of(folder: Path, kind: str, speed: float) -> Tables:
    """PyTorch is of a kind, beside TensorFlow at 100 ms and JAX at 200 ms, which are well."""
    random = np.random.default_rng(7)
    windows: Sequence[Array] = drawn.steady(random, 0.1 * speed)
    failed, changes = {}, {}
    if kind == "failed in part":
        failed[TORCH] = [3]
    elif kind == "too few windows":
        windows = [one[:1] for one in windows]
    elif kind == "unproved":
        changes[TORCH] = {"parity_passed": None}
    elif kind == "refused":
        changes[TORCH] = {"parity_passed": False}
    elif kind == "noisy":
        changes[TORCH] = {"noise": 0.4}
    elif kind == "once":
        windows = windows[:1]
    elif kind == "never run":
        windows = ()
    cells = {
        TORCH: windows,
        ("tensorflow", WORKLOAD): drawn.steady(random, 0.1),
        ("jax", WORKLOAD): drawn.steady(random, 0.2),
    }
    return load([drawn.write(folder / "run", cells, failed, changes)])


def said(tables: Tables) -> Mapping[str, str]:
    """Each format, in its own words."""
    (finding,) = findings.findings(tables)
    sections = list(plain.sections(tables))
    lines = [
        *(line for one in sections for line in (*one.above, *one.below)),
        *(" ".join(row) for one in sections for row in one.rows),
    ]
    card = page_of(overview(tables)).headline
    (answer,) = answers_table.answer_document(tables)["answers"]
    return {
        "terminal": "\n".join(lines),
        "Markdown": markdown_report.markdown(overview(tables)),
        "page": f"{finding.headline}. {finding.detail}",
        "first screen": f"{card.words} | {card.detail}",
        "JSON": json.dumps(answer),
        "CSV": json.dumps(answers_table.answer_records(tables)),
    }


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_format_is_false_or_silent_about_a_cell_of_any_kind_and_speed(kind: str, speed: str, tmp_path: Path) -> None:
    tables = run_of(tmp_path, kind, SPEEDS[speed])
    (finding,) = findings.findings(tables)
    card = page_of(overview(tables)).headline
    ranked = kind in ("ok", "failed in part")
    won = "TensorFlow 2.21.0 is fastest" in finding.headline
    if ranked:
        assert finding.headline.startswith("PyTorch 2.13.0 is fastest") == (speed == "faster")
        assert won == (speed == "slower")
    elif speed != "slower" and kind != "never run":
        # Another one is fastest only of those that are ranked, and the sentence names who may be faster.
        assert won
        assert " of the 2 " in finding.headline
        assert "PyTorch 2.13.0" in finding.headline or kind == "once"
        assert card.confidence == ("confirmed" if kind == "once" else "open")
    for name, words in said(tables).items():
        # The first screen names the leaders, who may contradict them, and the nearest that is slower.
        assert "torch" in words.lower() or (name == "first screen" and (speed == "slower" or kind == "never run"))
        if speed == "faster":
            assert "TensorFlow 2.21.0 is fastest." not in words, name
            assert "TensorFlow 2.21.0 is fastest**" not in words, name
        if kind == "failed in part":
            assert "1 of 3 failed" in words
    if kind == "never run":
        assert finding.headline == "TensorFlow 2.21.0 is fastest of the 2 that were measured"
    if speed == "faster" and not ranked and kind not in ("once", "never run"):
        assert "PyTorch 2.13.0 looks 2.0" in finding.headline
        assert card.words == "PyTorch looks fastest, but not ranked"
        assert "looks 2.0" in said(tables)["CSV"]


def test_one_failed_repeat_of_the_fastest_makes_no_other_one_the_fastest(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    levels = {"torch": 0.05, "tensorflow": 0.1, "jax": 0.2}
    cells = {
        (name, work): drawn.steady(random, level) for work in (WORKLOAD, "gru-imdb") for name, level in levels.items()
    }
    lost = {("torch", WORKLOAD): [3], ("torch", "gru-imdb"): [1]}
    tables = load([drawn.write(tmp_path / "run", cells, lost)])
    assert [one.headline for one in findings.findings(tables)] == ["PyTorch 2.13.0 is fastest"] * 2
    card = page_of(overview(tables)).headline
    assert (card.words, card.confidence) == ("PyTorch is fastest, 2 of 2", "confirmed")
    assert "PyTorch 2.13.0: 1 of 3 failed" in card.detail


def test_a_framework_that_stalls_is_ranked_by_all_of_its_time_and_says_that_it_stalls(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    stalling = [one * np.where(np.arange(40) % 5 == 2, 2.0, 1.0) for one in drawn.steady(random, 0.095)]
    cells = {
        TORCH: stalling,
        ("tensorflow", WORKLOAD): drawn.steady(random, 0.1),
        ("jax", WORKLOAD): drawn.steady(random, 0.2),
    }
    tables = load([drawn.write(tmp_path / "run", cells)])
    (finding,) = findings.findings(tables)
    assert finding.headline == "TensorFlow 2.21.0 is fastest"
    assert finding.standing is not None
    torch = next(entry.cell for entry in finding.group.ranked if entry.cell.framework == "torch")
    assert torch.items_per_second is not None
    assert torch.items_per_second.value == pytest.approx(64 * 120 / sum(map(np.sum, stalling)), rel=0.005)
    words = said(tables)
    for name in ("terminal", "Markdown", "page", "JSON", "CSV"):
        assert "stalls: one window in 5 takes 2 times as long" in words[name], name
    assert "though its typical step is shorter than that of TensorFlow 2.21.0" in finding.detail


def test_stalls_of_one_repeat_that_do_not_count_are_said_with_the_order_that_they_turn(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    cells = {
        (name, WORKLOAD): drawn.steady(random, level)
        for name, level in (("torch", 0.1), ("tensorflow", 0.11), ("jax", 0.2))
    }
    cells[TORCH][1] = cells[TORCH][1] * np.where(np.arange(len(cells[TORCH][1])) % 3 == 1, 3.0, 1.0)
    tables = load([drawn.write(tmp_path / "run", cells)])
    (finding,) = findings.findings(tables)
    assert finding.headline == "PyTorch 2.13.0 is fastest"
    words, row = said(tables), "1 of 3 repeats stalled: by all of its time the cell takes 1.18 times as long"
    for name in ("terminal", "Markdown", "page", "JSON", "CSV"):
        assert row in words[name], name
    assert f"PyTorch 2.13.0: {row}, longer than TensorFlow 2.21.0." in finding.detail


def test_one_bad_repeat_of_the_fastest_hides_no_difference_between_the_others(tmp_path: Path) -> None:
    random = np.random.default_rng(12)
    cells = {
        (name, WORKLOAD): drawn.steady(random, level)
        for name, level in (("torch", 0.1), ("tensorflow", 0.11), ("jax", 0.2))
    }
    cells[TORCH][1] = cells[TORCH][1] * 1.3
    tables = load([drawn.write(tmp_path / "run", cells)])
    (finding,) = findings.findings(tables)
    assert finding.headline in (
        "TensorFlow 2.21.0 or PyTorch 2.13.0 leads; JAX 0.10.2 is slower",
        "PyTorch 2.13.0 or TensorFlow 2.21.0 leads; JAX 0.10.2 is slower",
    )


def test_how_far_repeats_differ_in_other_stored_runs_of_the_machine_counts_for_cells_that_were_measured_once(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(8)
    once = {(name, WORKLOAD): drawn.steady(random, level)[:1] for name, level in (("torch", 0.1), ("jax", 0.13))}
    run = drawn.write(tmp_path / "alone" / "run", once)
    (alone,) = findings.findings(load([run]))
    assert alone.headline == "PyTorch 2.13.0 looks fastest (one run)"
    # Another workload and another framework: only the machine is the same. Its repeats differ by 15 %.
    other = {
        ("tensorflow", "gru-imdb"): [0.05 * np.exp(shift + random.normal(0, 0.01, 40)) for shift in (-0.15, 0, 0.15)]
    }
    drawn.write(tmp_path / "alone" / "earlier", other)
    (beside,) = findings.findings(load([run]))
    assert beside.headline == "PyTorch 2.13.0 or JAX 0.10.2 looks fastest (one run each)"
    # A run that cannot be read shows nothing.
    (tmp_path / "alone" / "earlier" / "run.json").write_text("[]")
    assert findings.findings(load([run]))[0].headline == alone.headline


@pytest.mark.parametrize("seed", range(6))
def test_equal_cells_that_were_measured_once_on_a_busy_machine_are_not_told_apart(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    cells = {
        (name, WORKLOAD): [0.1 * np.exp(random.normal(0, 0.1) + random.normal(0, 0.12, 55))] for name in drawn.IMAGES
    }
    tables = load([drawn.write(tmp_path / "run", cells)])
    for words in said(tables).values():
        assert "takes more than" not in words
        assert "More than" not in words
    (finding,) = findings.findings(tables)
    assert " or " in finding.headline


def test_a_cell_that_changed_between_two_joined_runs_counts_as_the_newest_and_is_named(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    levels = {"torch": 0.1, "tensorflow": 0.11, "jax": 0.2}
    runs = []
    for day, slower in (("20", 1.0), ("21", 1.3)):
        cells = {
            (name, work): drawn.steady(random, level * (slower if (name, work) == TORCH else 1.0))
            for work in (WORKLOAD, "gru-imdb")
            for name, level in levels.items()
        }
        runs.append(drawn.write(tmp_path / f"d{day}", cells, created=f"2026-11-{day}T10:00:00+00:00"))
    cnn, gru = findings.findings(load(runs))
    torch = next(entry.cell for entry in cnn.group.ranked if entry.cell.framework == "torch")
    assert torch.step is not None
    assert torch.step.value == pytest.approx(0.13, rel=0.02)
    assert [
        words
        for words in cnn.caveats
        if "PyTorch 2.13.0 counts as run d21 measured it: " in words
        and " than in run d20; nothing recorded changed." in words
    ]
    assert cnn.headline.startswith("TensorFlow 2.21.0")
    assert gru.headline.startswith("PyTorch 2.13.0")
    below = [line for section in plain.sections(load(runs)) for line in section.below]
    assert [line for line in below if " counts as run " in line] == list(cnn.changed)
    assert cnn.changed
    assert any(
        "confirmed in these 2 runs: " in line for section in plain.sections(load(runs)) for line in section.below
    )
