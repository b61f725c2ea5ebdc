"""A claim names its universe: nothing that was measured is outside an answer, in any format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from reports.answers import answers_table, comparison, findings, plain
from reports.answers.overview import overview
from reports.data.model import Tables
from reports.data.tables import load
from reports.page import markdown_report
from reports.page.assembly import page_of
from runner.results.statistics import Array
from tests.fixtures import drawn

WORKLOAD = "cnn-cifar10"
TORCH = ("torch", WORKLOAD)
KINDS = ("ok", "failed in part", "failed", "too few windows", "unproved", "refused", "noisy", "once", "never run")
SPEEDS = {"faster": 0.5, "same": 1.0, "slower": 3.0}


def run_of(folder: Path, kind: str, speed: float) -> Tables:
    """PyTorch is of a kind, beside TensorFlow at 100 ms and JAX at 200 ms, which are well."""
    random = np.random.default_rng(7)
    windows: Sequence[Array] = drawn.steady(random, 0.1 * speed)
    failed, changes = {}, {}
    if kind.startswith("failed"):
        failed[TORCH] = [3] if kind == "failed in part" else [1, 2, 3]
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
    """Each format, in its own words. `compare` is of the cell and the one at 100 ms."""
    (finding,) = findings.findings(tables)
    sections = list(plain.sections(tables))
    lines = [
        *(line for one in sections for line in (*one.above, *one.below)),
        *(" ".join(row) for one in sections for row in one.rows),
    ]
    card = page_of(overview(tables)).headline
    (answer,) = answers_table.answer_document(tables)["answers"]
    compared = comparison.comparison(tables, "tensorflow-2.21.0-cpu", "torch-2.13.0-cpu")
    table = comparison.table(compared)
    return {
        "terminal": "\n".join(lines),
        "Markdown": markdown_report.markdown(overview(tables)),
        "page": f"{finding.headline}. {finding.detail}",
        "first screen": f"{card.words} | {card.detail}",
        "JSON": json.dumps(answer),
        "CSV": json.dumps(answers_table.answer_records(tables)),
        "compare": "\n".join(
            (
                *(f"{row.cell.label}: {row.words} {row.reason}" for row in compared.rows),
                *(f"{one.cell.label}: {one.reason}" for one in compared.unpaired),
                *(" ".join(row) for row in (*table.rows, (table.caption, *table.notes))),
            )
        ),
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
    elif kind == "failed":
        # Nobody knows how fast it is.
        assert finding.headline == "TensorFlow 2.21.0 is fastest of the 2 that are ranked; PyTorch 2.13.0 failed"
        assert card.words == "TensorFlow 2 is fastest of the ranked"
    elif speed != "slower" and kind != "never run":
        # Another one is fastest only of those that are ranked, and the sentence names who may be faster.
        assert won
        assert " of the 2 " in finding.headline
        assert "PyTorch 2.13.0" in finding.headline or kind == "once"
        assert card.confidence == ("confirmed" if kind == "once" else "open")
    for name, words in said(tables).items():
        # The first screen names the leaders, who may contradict them, and the nearest that is slower.
        behind = speed == "slower" and kind not in ("failed", "never run")
        assert "torch" in words.lower() or (name == "first screen" and behind), name
        if speed == "faster":
            assert "TensorFlow 2.21.0 is fastest." not in words, name
            assert "TensorFlow 2.21.0 is fastest**" not in words, name
        if kind == "failed in part":
            assert "1 of 3 failed" in words
    verdict = said(tables)["compare"].partition(": ")[2].split(":")[0].split()[0]
    assert verdict == speed if ranked else verdict not in {*SPEEDS} - {speed}
    if kind == "never run":
        assert finding.headline == "TensorFlow 2.21.0 is fastest of the 2 that were measured"
    if speed == "faster" and not ranked and kind not in ("once", "never run", "failed"):
        assert "PyTorch 2.13.0 looks 2.0" in finding.headline
        assert card.words == "PyTorch looks fastest, but not ranked"
        assert "looks 2.0" in said(tables)["CSV"]


GRU = "gru-imdb"


def two_workloads(folder: Path, gru: Sequence[Array], **changes: object) -> Tables:
    """TensorFlow wins at the CNN beyond doubt. At the GRU PyTorch has these windows beside 100 and 200 ms."""
    random = np.random.default_rng(9)
    cells: dict[drawn.Place, Sequence[Array]] = {
        (name, work): drawn.steady(random, level)
        for work in (WORKLOAD, GRU)
        for name, level in (("torch", 0.15), ("tensorflow", 0.1), ("jax", 0.2))
    }
    cells["torch", GRU] = gru
    return load([drawn.write(folder / "run", cells, changes={("torch", GRU): changes})])


def test_a_cell_that_is_not_ranked_and_faster_at_one_workload_does_not_look_fastest_at_both(tmp_path: Path) -> None:
    gru = drawn.steady(np.random.default_rng(10), 0.05)
    card = page_of(overview(two_workloads(tmp_path, gru, parity_passed=False))).headline
    assert (card.words, card.confidence) == ("cnn-cifar10: TensorFlow 2; gru-imdb: open", "open")
    assert "gru-imdb: PyTorch 2.13.0 looks 2.00 times as fast (not ranked: parity failed)" in card.detail


def test_one_framework_with_repeats_is_neither_fastest_nor_as_fast_as_others(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    words = {}
    for name, level in (("faster", 0.05), ("near", 0.1), ("slower", 0.3)):
        cells = {TORCH: drawn.steady(random, level)[:1], ("tensorflow", WORKLOAD): drawn.steady(random, 0.1)}
        card = page_of(overview(load([drawn.write(tmp_path / name, cells)]))).headline
        words[name] = card.words
        assert card.confidence == "one run"
    assert words == {
        "faster": "PyTorch looks fastest, after one repeat",
        "near": "Only TensorFlow 2 has repeats",
        "slower": "Only TensorFlow 2 has repeats",
    }


def test_where_all_were_measured_once_a_refused_one_that_is_faster_is_named_first(tmp_path: Path) -> None:
    random = np.random.default_rng(12)
    cells = {
        (name, WORKLOAD): drawn.steady(random, level)[:1]
        for name, level in (("torch", 0.05), ("tensorflow", 0.1), ("jax", 0.2))
    }
    tables = load([drawn.write(tmp_path / "run", cells, changes={TORCH: {"parity_passed": False}})])
    assert page_of(overview(tables)).headline.words == "PyTorch looks fastest, but not ranked"


def test_one_ranked_cell_is_said_beside_what_is_not_ranked_and_what_failed(tmp_path: Path) -> None:
    random = np.random.default_rng(13)
    cells = {
        (name, WORKLOAD): drawn.steady(random, level)
        for name, level in (("torch", 0.05), ("tensorflow", 0.1), ("jax", 0.2))
    }
    failed = {("jax", WORKLOAD): [1, 2, 3]}
    tables = load([drawn.write(tmp_path / "run", cells, failed, {TORCH: {"parity_passed": False}})])
    (finding,) = findings.findings(tables)
    outside = "PyTorch 2.13.0 looks 2.00 times as fast (not ranked: parity failed); JAX 0.10.2 failed"
    assert finding.headline.endswith(f"ms a step; {outside}")
    card = page_of(overview(tables)).headline
    assert card.words == "Only TensorFlow 2 could be ranked"
    assert "JAX 0.10.2 failed" in card.detail
    assert "PyTorch 2.13.0 looks 2.00 times as fast" in card.detail


def test_a_framework_that_failed_in_the_newest_of_joined_runs_is_named_with_that_run(tmp_path: Path) -> None:
    random, runs = np.random.default_rng(14), []
    for day, failed in (("20", {}), ("21", {TORCH: [1, 2, 3]})):
        cells = {
            (name, WORKLOAD): drawn.steady(random, level) for name, level in (("torch", 0.05), ("tensorflow", 0.1))
        }
        runs.append(drawn.write(tmp_path / f"d{day}", cells, failed, created=f"2026-11-{day}T10:00:00+00:00"))
    tables = load(runs)
    (finding,) = findings.findings(tables)
    assert finding.headline == "PyTorch 2.13.0 is fastest of the 2 that are ranked; PyTorch 2.13.0 · d21 failed"
    assert "PyTorch 2.13.0 · d21 failed" in page_of(overview(tables)).headline.detail


def test_times_that_are_equal_to_the_digit_are_a_coarse_clock_and_no_bound(tmp_path: Path) -> None:
    cells = {
        (name, WORKLOAD): [np.full(40, level)] * 3
        for name, level in (("torch", 0.1), ("tensorflow", 0.1), ("jax", 0.2))
    }
    tables = load([drawn.write(tmp_path / "run", cells)])
    (finding,) = findings.findings(tables)
    assert finding.headline.endswith(": the clock is too coarse")
    words = said(tables)
    assert "only a finer clock tells, or longer windows" in words["terminal"]
    for name in ("terminal", "Markdown", "page", "first screen"):
        assert "at most" not in words[name], name
        assert "quieter machine" not in words[name], name


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
    for name in ("terminal", "Markdown", "page", "JSON", "CSV", "compare"):
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
    for name in ("terminal", "Markdown", "page", "first screen", "JSON", "CSV", "compare"):
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


def test_cells_on_other_data_have_a_section_that_says_so(tmp_path: Path) -> None:
    """Two sections of one heading looked like one answer, of which the second said no word of the first's framework."""
    random = np.random.default_rng(15)
    cells = {
        (name, WORKLOAD): drawn.steady(random, level)
        for name, level in (("torch", 0.05), ("tensorflow", 0.1), ("jax", 0.2))
    }
    tables = load([drawn.write(tmp_path / "run", cells, changes={TORCH: {"data_source": "files"}})])
    heads = [section.above[0] for section in plain.sections(tables) if section.rows]
    assert sorted(head.rpartition(" · ")[2] for head in heads) == ["batch 64, files data", "batch 64, generated data"]
    text = markdown_report.markdown(overview(tables))
    assert "batch 64, files data" in text
    assert "batch 64, generated data" in text
