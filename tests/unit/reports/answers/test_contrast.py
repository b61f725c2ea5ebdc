"""What is called real, the same or unknown: against simulated runs whose truth is known, at the fixtures' own noise."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from reports.answers import contrast
from reports.answers.contrast import Contrast, Side, contrasts
from reports.data import tables
from runner.results import steadiness
from runner.results.statistics import Array, Estimate, holm, p_value, ratio_estimate
from runner.results.student import student_quantile, student_tail
from tests.fixtures import synthetic

TRIALS = 2000
CELLS = 5  # of one comparison: as many as the synthetic run measures


def measured(
    random: np.random.Generator, repeats: int, level: float = 1.0, spike: float = synthetic.SPIKES[1]
) -> list[Array]:
    """The steady windows of a cell's repeats, drawn as the synthetic runs are, or with longer spikes."""
    found = []
    for _ in range(repeats):
        noise = random.normal(0, synthetic.BETWEEN) + random.normal(0, synthetic.WITHIN, 40)
        spikes = np.where(random.random(40) < synthetic.SPIKES[0], spike, 1.0)
        found.append(level * np.exp(noise) * spikes)
    return found


def real(
    random: np.random.Generator, repeats: int, levels: list[float], spike: float = synthetic.SPIKES[1]
) -> list[bool]:
    """Which cells of one comparison are called real, when those of the second run truly are at `levels`."""
    sides = [(measured(random, repeats, level, spike), measured(random, repeats, spike=spike)) for level in levels]
    ratios = [ratio_estimate(*pair, alike=True) for pair in sides]
    values = [p_value(ratio) for ratio in ratios if ratio is not None]
    assert None not in values
    return [p < contrast.ALPHA for p in holm([value for value in values if value is not None])]


@pytest.mark.slow
def test_a_run_against_itself_is_called_different_in_at_most_five_of_100_trials() -> None:
    random = np.random.default_rng(20261121)
    wrong = sum(any(real(random, 3, [1.0] * CELLS)) for _ in range(TRIALS))
    assert wrong / TRIALS <= 0.05


def test_a_true_change_of_five_percent_is_found_in_nine_of_ten_trials_beside_unchanged_cells() -> None:
    random = np.random.default_rng(5)
    found = sum(real(random, 3, [1.05] + [1.0] * (CELLS - 1))[0] for _ in range(300))
    assert found / 300 >= 0.9


def test_a_true_change_of_ten_percent_is_found_in_nine_of_ten_trials_where_single_windows_stall() -> None:
    random = np.random.default_rng(5)
    found = sum(real(random, 3, [1.1] + [1.0] * (CELLS - 1), spike=1.35)[0] for _ in range(300))
    assert found / 300 >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("repeats", "alike"), [(1, False), *((repeats, alike) for repeats in (2, 3, 5, 8) for alike in (True, False))]
)
def test_a_ratio_interval_covers_the_truth_in_93_to_97_of_100(repeats: int, alike: bool) -> None:
    # Of one repeat the windows are all there is, and they can only speak for that process.
    random = np.random.default_rng(repeats)
    trials, held = 3000 if repeats == 1 else 1200, 0
    # Welch's degrees of freedom are too few where both sides have two or three repeats: such intervals err towards the safe side.
    most = 0.97 if alike else {2: 0.99, 3: 0.98}.get(repeats, 0.97)
    for _ in range(trials):
        if repeats == 1:
            sides = [[level * np.exp(random.normal(0, synthetic.WITHIN, 40))] for level in (1.05, 1.0)]
        else:
            sides = [measured(random, repeats, level) for level in (1.05, 1.0)]
        ratio = ratio_estimate(*sides, alike=alike)
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        held += ratio.low <= 1.05 <= ratio.high
    assert 0.93 <= held / trials <= most


@pytest.mark.parametrize("freedom", [1, 2, 3, 4.5, 9, 30, 1000])
@pytest.mark.parametrize("probability", [0.6, 0.95, 0.975, 0.995, 0.9999])
def test_the_tail_of_student_undoes_its_quantile(probability: float, freedom: float) -> None:
    tail = student_tail(student_quantile(probability, freedom), freedom)
    assert tail == pytest.approx(2 * (1 - probability), rel=1e-3)


def test_student_tails_at_the_ends() -> None:
    assert student_tail(0, 3) == 1
    assert student_tail(math.inf, 3) == 0
    assert student_tail(1, 1e7) == pytest.approx(0.3173105, abs=1e-5)  # the normal distribution's
    assert student_tail(-2, 1) == pytest.approx(2 * math.atan(1 / 2) / math.pi)  # Cauchy's


def test_holm_multiplies_by_the_questions_left_and_never_turns_an_order_around() -> None:
    assert holm([]) == []
    assert holm([0.04]) == [0.04]
    # Holm's own rule by hand: 3 × 0.01, 2 × 0.02, and 0.03 raised to the one before it
    assert holm([0.02, 0.01, 0.03]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.5, 0.6]) == [1.0, 1.0]


def test_p_is_below_five_percent_exactly_when_the_interval_excludes_one() -> None:
    random = np.random.default_rng(7)
    seen = set()
    for _ in range(100):
        ratio = ratio_estimate(measured(random, 4, 1.012), measured(random, 4))
        assert ratio is not None
        p = p_value(ratio)
        assert p is not None
        assert ratio.low is not None
        assert ratio.high is not None
        assert (p < 0.05) == (not ratio.low <= 1 <= ratio.high)
        seen.add(p < 0.05)
    assert seen == {True, False}


def test_an_interval_over_two_levels_answers_for_the_one_nearest_to_no_change() -> None:
    random = np.random.default_rng(8)
    ratio = ratio_estimate(measured(random, 1, 1.3), measured(random, 4), alike=True)
    assert ratio is not None
    over = steadiness.spanning(ratio, [0.9, 1.3], [1.0])
    far, near, across = p_value(ratio), p_value(steadiness.spanning(ratio, [1.1, 1.3], [1.0])), p_value(over)
    assert far is not None
    assert near is not None
    assert far < near < 0.05
    assert across == 1
    assert over.low is not None
    assert over.low == 0.9


def test_one_repeat_has_no_p_but_against_many_of_the_same_cell() -> None:
    random = np.random.default_rng(9)
    for sides in ((1, 1), (1, 4), (4, 1)):
        groups = measured(random, sides[0]), measured(random, sides[1])
        ratio, alike = ratio_estimate(*groups), ratio_estimate(*groups, alike=True)
        assert ratio is not None
        assert alike is not None
        assert p_value(ratio) is None
        assert (p_value(alike) is None) == (sides == (1, 1))
    assert p_value(Estimate(1.1, None, None, 3, 2, "none")) is None


@pytest.mark.slow
def test_one_repeat_against_many_of_the_same_cell_errs_in_at_most_five_of_100_trials_and_finds_five_percent() -> None:
    random = np.random.default_rng(10)
    wrong = found = 0
    for _ in range(2000):
        many = measured(random, 6)
        for level in (1.0, 1.05):
            ratio = ratio_estimate(measured(random, 1, level), many, alike=True)
            assert ratio is not None
            p = p_value(ratio)
            assert p is not None
            wrong, found = (wrong + (p < 0.05), found) if level == 1 else (wrong, found + (p < 0.05))
    assert wrong / 2000 <= 0.06  # 5 % and what 2000 trials leave open
    assert found / 2000 >= 0.9


def rows(before: Path, after: Path) -> dict[tuple[str, str], Contrast]:
    """(framework, workload) -> the contrast of that cell between two stored runs."""
    data = tables.load([before, after])
    place = {(cell.run_id, cell.framework, cell.key.workload): cell for cell in data.cells}
    names = sorted({(cell.framework, cell.key.workload) for cell in data.cells if not cell.unranked})
    pairs = [(Side((place[before.name, *name],)), Side((place[after.name, *name],))) for name in names]
    return dict(zip(names, contrasts(pairs), strict=True))


def test_a_slower_cell_is_real_and_an_unchanged_one_the_same(tmp_path: Path) -> None:
    slow = {("torch-2.13.0-cpu", "cnn-cifar10"): 1.08}
    found = rows(
        synthetic.make_run(tmp_path / "a", repeats=4),
        synthetic.make_run(tmp_path / "b", repeats=4, slower=slow, draw=1, everywhere={"driver_version": "570.1"}),
    )
    torch = found["torch", "cnn-cifar10"]
    assert torch.real
    assert torch.slower
    assert torch.words.startswith("slower: takes ")
    assert torch.words.endswith(" times as long")
    assert found["tensorflow", "cnn-cifar10"].verdict == "same"
    assert found["torch", "gru-imdb"].verdict == "same"


def test_an_unsteady_cell_of_one_repeat_cannot_be_told_and_it_is_said_why(tmp_path: Path) -> None:
    found = rows(synthetic.make_run(tmp_path / "a"), synthetic.make_run(tmp_path / "b", repeats=4, draw=1))
    jax = found["jax", "cnn-cifar10"]
    assert jax.verdict == "open"
    assert "unsteady" in jax.reason


def test_one_repeat_each_cannot_tell_whatever_the_ratio_and_says_what_would(tmp_path: Path) -> None:
    slow = {("torch-2.13.0-cpu", "cnn-cifar10"): 3.0}
    found = rows(synthetic.make_run(tmp_path / "a"), synthetic.make_run(tmp_path / "b", slower=slow, draw=1))
    assert {row.verdict for row in found.values()} == {"open"}
    assert "--repeats 3" in found["torch", "cnn-cifar10"].reason


def test_other_data_is_not_compared(tmp_path: Path) -> None:
    found = rows(
        synthetic.make_run(tmp_path / "a", repeats=3),
        synthetic.make_run(tmp_path / "b", repeats=3, everywhere={"data_source": "files"}),
    )
    assert {(row.verdict, row.reason) for row in found.values()} == {("open", "not measured on the same kind of data")}


def test_what_else_was_recorded_to_differ_is_told_and_what_one_side_lacks_is_not(tmp_path: Path) -> None:
    old = {"driver_version": "550.54", "cuda_version": "12.4", "cudnn_version": None}
    new = {"driver_version": "570.10", "cuda_version": "12.4", "cudnn_version": "9.10"}
    kernel = {"host": {**synthetic.HOST, "kernel": "6.8"}}
    found = rows(
        synthetic.make_run(tmp_path / "a", repeats=2, everywhere=old),
        synthetic.make_run(tmp_path / "b", repeats=2, everywhere=new, manifest=kernel),
    )
    said = [str(one) for one in found["torch", "cnn-cifar10"].differences]
    assert said == ["driver 550.54 → 570.10", "kernel 6.1.0-synthetic → 6.8"]


def judged_alone(low: float, high: float) -> Contrast:
    """The verdict on one ratio of the given interval, where ten degrees of freedom are left."""
    value = math.sqrt(low * high)
    reach = math.log(high / low) / 2
    ratio = Estimate(value, low, high, 40, 6, "any", error=reach / student_quantile(0.975, 10), freedom=10, inside=0.0)
    side = Side(())
    (row,) = contrast.judged([Contrast(side, side, ratio, None, "open", "", ())])
    return row


@pytest.fixture
def same_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sides without cells were measured on no data at all."""
    monkeypatch.setattr(contrast, "_alike", lambda before, after: True)


@pytest.mark.usefixtures("same_data")
@pytest.mark.parametrize(
    ("low", "high", "words", "slower", "told_slower"),
    [
        (1.06, 1.10, "slower: takes 1.080 times as long", True, True),
        (1.01, 1.02, "slower by less than 5 %: takes 1.015 times as long", False, False),
        (1.02, 1.08, "slower, perhaps by less than 5 %: takes 1.050 times as long", False, True),
        (0.98, 1.02, "same within 5 %", False, False),
        (0.98, 1.06, "open", False, False),
        # The margin is the same factor in both directions: 1 / 1.05 is 0.952.
        (0.951, 1.02, "open", False, False),
        (0.953, 1.02, "same within 5 %", False, False),
        (0.90, 0.945, "faster: is 1.084 times as fast", False, False),
        (0.92, 0.97, "faster, perhaps by less than 5 %: is 1.059 times as fast", False, False),
    ],
)
def test_a_real_change_is_found_unless_it_is_inside_the_margin_for_certain(
    low: float, high: float, words: str, slower: bool, told_slower: bool
) -> None:
    row = judged_alone(low, high)
    assert row.words.replace("\u00a0", " ") == words
    assert (row.slower, row.told_slower) == (slower, told_slower)


@pytest.mark.usefixtures("same_data")
def test_an_interval_that_excludes_one_is_told_the_questions_that_hold_its_verdict() -> None:
    (clear,), alone = [judged_alone(1.002, 1.03)], judged_alone(0.99, 1.03)
    assert clear.real
    asked = contrast.judged([clear, *[alone] * 5])
    assert (asked[0].verdict, asked[0].p) == ("same", pytest.approx(6 * (clear.p or 0)))
    assert asked[0].reason.startswith("not real after 6 questions: p = 0.")
    assert asked[1].reason == ""


@pytest.mark.parametrize("level", [1.0, 1.02, 1.06])
def test_the_repeats_that_are_advised_would_tell_and_one_fewer_would_not(level: float) -> None:
    ratio = Estimate(level, None, None, 40, 3, "", error=0.03, freedom=4.0, inside=0.001)
    count = contrast.repeats_to_tell(ratio, contrast.MARGIN)
    assert count is not None
    verdicts = []
    for repeats in (count - 1, count):
        more = repeats / ratio.repeats
        reach = student_quantile(0.975, 4.0 * more) * 0.03 / math.sqrt(more)
        low, high = level * math.exp(-reach), level * math.exp(reach)
        verdicts.append(low > 1 or (low > 1 / (1 + contrast.MARGIN) and high < 1 + contrast.MARGIN))
    assert verdicts == [False, True]


def test_no_number_of_repeats_is_advised_where_the_ratio_lies_between_no_change_and_the_margin() -> None:
    wild = Estimate(1.025, None, None, 40, 3, "", error=0.3, freedom=4.0, inside=0.001)
    assert contrast.repeats_to_tell(wild, contrast.MARGIN) is None
