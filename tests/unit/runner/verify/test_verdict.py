"""The verdict: what an interval beside a margin means, how often it errs, and that the same inputs always give the same."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runner.results.statistics import REPEAT_DEVIATION, Array
from runner.results.student import student_quantile
from runner.verify import verdict
from runner.verify.verdict import (
    ALPHA,
    FAIL,
    MARGINS,
    PASS,
    CellVerdict,
    Ratio,
    Scatter,
    VariancePart,
    excused,
    exit_code,
    meaning,
    narrows,
    questions_of,
    ratio_to_reference,
    ratios_to_references,
    repeats_to_tell,
    verdict_of,
)

KINDS: tuple[CellVerdict, ...] = (
    "ok",
    "slow",
    "fast",
    "not-slower",
    "open",
    "not-comparable",
    "no-reference",
    "wrong",
    "failed",
)
MARGIN = MARGINS["cpu"]


def runs(
    random: np.random.Generator, count: int, level: float = 0.1, between: float = 0.02, within: float = 0.02
) -> list[Array]:
    """The windows of some repeats: every repeat at a level of its own."""
    return [
        level * np.exp(random.normal(0, between)) * np.exp(random.normal(0, within, 30)) for _ in range(count)
    ]  # fmt: skip


NORMAL = student_quantile(1 - ALPHA, 1e9)

SESSIONS = 5  # of a reference: they show that a day is like another


def interval(value: float, low: float, high: float) -> Ratio:
    """A ratio with this interval."""
    scatter = Scatter(0.02, 6, 2)
    reach = math.log(high / low) / 2
    part = VariancePart((reach / NORMAL) ** 2, 1e9)
    return Ratio(value, low, high, 0.1 * value, 0.1, scatter, scatter, 3, 1, 3, 1, part, VariancePart(0.0, 1e9))


def one_session(measured: Sequence[Array], reference: Sequence[Array], device_kind: str) -> Ratio:
    """The ratio of one session to one session."""
    return ratio_to_reference([measured], [reference], device_kind)


def share(
    kind: CellVerdict, true_ratio: float, between: float, repeats: Sequence[int] = (3, 2), times: int = 400
) -> float:
    """How often a verdict is given when the ratio is truly this, beside a reference whose sessions do not differ."""
    random = np.random.default_rng(7)
    found = []
    for _ in range(times):
        measured = [runs(random, repeats[0], 0.1 * true_ratio, between)]
        reference = [runs(random, repeats[1], 0.1, between) for _ in range(SESSIONS)]
        found.append(verdict_of(ratio_to_reference(measured, reference, "cpu"), MARGIN))
    return found.count(kind) / times


def test_a_healthy_repeat_passes_in_19_of_20_where_runs_differ_as_the_prior_says() -> None:
    assert share("ok", 1.0, REPEAT_DEVIATION["cpu"]) >= 0.95


def test_a_cell_at_the_margin_itself_is_called_slow_or_ok_in_one_of_20_at_most() -> None:
    sampled = 3 * math.sqrt(0.05 * 0.95 / 400)  # three standard errors of 400 trials
    assert share("slow", 1 + MARGIN, REPEAT_DEVIATION["cpu"]) <= 0.05 + sampled
    assert share("ok", 1 + MARGIN, REPEAT_DEVIATION["cpu"]) <= 0.05 + sampled


@pytest.mark.slow
def test_going_on_where_more_repeats_help_errs_hardly_more_often() -> None:
    random = np.random.default_rng(5)
    once: list[CellVerdict] = []
    twice: list[CellVerdict] = []
    for _ in range(400):
        # Repeats differ more than sessions, so that more of them do tell.
        levels = 0.1 * np.exp(random.normal(0, 0.01, 6))
        reference = [runs(random, 3, level, between=0.08) for level in levels[1:]]
        measured = runs(random, 9, levels[0] * (1 + MARGIN) ** 2, between=0.08)
        first = ratio_to_reference([measured[:5]], reference, "cpu")
        once.append(verdict_of(first, MARGIN))
        more = once[-1] == "open" and narrows(first, 9)
        twice.append(verdict_of(ratio_to_reference([measured], reference, "cpu"), MARGIN) if more else once[-1])
    assert sum(kind in PASS for kind in twice) / 400 <= 0.07
    assert once.count("open") - twice.count("open") >= 20
    assert twice.count("slow") >= once.count("slow") + 20


def test_a_sixth_slower_is_found_slow_and_a_sixth_faster_fast() -> None:
    assert share("slow", 1.17, REPEAT_DEVIATION["cpu"]) >= 0.95
    assert share("fast", 1 / 1.17, REPEAT_DEVIATION["cpu"]) >= 0.95


def test_runs_that_differ_much_make_it_open_instead_of_wrong() -> None:
    assert share("slow", 1.0, 0.1) <= 0.05
    assert share("open", 1.0, 0.1) >= 0.3


def test_one_repeat_far_off_among_five_moves_nothing_and_among_four_it_does() -> None:
    quiet = [np.full(30, 0.1 * (1 + at / 1000)) for at in range(5)]
    disturbed = [*quiet[:4], np.full(30, 0.3)]
    reference = [quiet] * 3
    five, usual = (ratio_to_reference([one], reference, "cpu") for one in (disturbed, quiet))
    assert five.value == pytest.approx(usual.value, rel=0.002)
    assert (verdict_of(five, MARGIN), verdict_of(usual, MARGIN)) == ("ok", "ok")
    assert ratio_to_reference([disturbed[1:]], reference, "cpu").value > 1.2


@pytest.mark.parametrize("count", [5, 6, 7, 9, 15, 30])
def test_the_trimmed_mean_and_its_scatter_are_what_is_said_of_normal_repeats(count: int) -> None:
    random = np.random.default_rng(count)
    logs = random.standard_normal((20_000, count))
    assert np.var([verdict._middle(one) for one in logs]) == pytest.approx(verdict._share(count), rel=0.04)
    assert np.mean([verdict._squares(one) for one in logs]) == pytest.approx(verdict._observed(count), rel=0.03)


def test_windows_that_scatter_without_end_do_not_pass_on_one_repeat() -> None:
    random = np.random.default_rng(3)
    one = [0.1 * np.exp(random.normal(0, 0.5, 12))]
    other = [0.1 * np.exp(random.normal(0, 0.5, 12))]
    assert verdict_of(one_session(one, other, "cpu"), MARGIN) == "open"


def stalling(random: np.random.Generator, repeats: Sequence[Array], chance: float, factor: float) -> list[Array]:
    return [one * np.where(random.random(len(one)) < chance, factor, 1.0) for one in repeats]


def stalls_found(between: float, chance: float, factor: float, times: int = 150) -> list[CellVerdict]:
    """The verdicts on a cell of three repeats that stalls, beside a reference of three sessions that does not."""
    random = np.random.default_rng(11)
    found = []
    for _ in range(times):
        measured = stalling(random, runs(random, 3, 0.1, between), chance, factor)
        reference = [runs(random, 3, 0.1, between) for _ in range(3)]
        found.append(verdict_of(ratio_to_reference([measured], reference, "cpu"), MARGIN))
    return found


@pytest.mark.parametrize(("between", "least"), [(0.005, 0.97), (0.02, 0.95), (0.05, 0.9)])
def test_one_window_in_three_that_takes_1_6_times_as_long_is_found(between: float, least: float) -> None:
    """The median of the windows is the reference's, and the installation takes 20 % longer."""
    assert stalls_found(between, 1 / 3, 1.6).count("slow") >= least * 150


def test_stalls_that_both_sides_have_are_no_fault() -> None:
    random = np.random.default_rng(12)
    found = [
        verdict_of(
            ratio_to_reference(
                [stalling(random, runs(random, 3), 0.2, 2.0)], [stalling(random, runs(random, 3), 0.2, 2.0)] * 3, "cpu"
            ),
            MARGIN,
        )
        for _ in range(100)
    ]
    assert found.count("slow") <= 5


def test_one_repeat_counts_the_variation_that_it_cannot_show() -> None:
    quiet = [np.full(30, 0.1)]
    alone = one_session(quiet, quiet, "cpu")
    many = ratio_to_reference([quiet * 9], [quiet] * 9, "cpu")
    assert alone.value == 1.0
    assert many.value == pytest.approx(1.0)
    assert alone.between.deviation == pytest.approx(REPEAT_DEVIATION["cpu"])
    assert alone.high > 1.03 > many.high > 1.0


def scattered(count: int, level: float, scatter: float) -> list[Array]:
    """An even number of repeats, half of them above a level and half below it."""
    return [np.full(30, 0.1 * level * math.exp(sign * scatter)) for sign in (-1, 1) * (count // 2)]


@pytest.mark.parametrize(("level", "kind"), [(1.03, "ok"), (1.14, "slow")])
def test_as_many_repeats_as_it_asks_for_do_tell_and_fewer_do_not(level: float, kind: CellVerdict) -> None:
    def ratio(count: int) -> Ratio:
        return ratio_to_reference([scattered(count, level, 0.12)], reference, "cpu")

    reference = [scattered(10, 1.0, 0.12)] * 8
    assert verdict_of(ratio(2), MARGIN) == "open"
    needed = repeats_to_tell(ratio(2), MARGIN)
    assert needed is not None
    even = needed + needed % 2
    assert verdict_of(ratio(even + 2), MARGIN) == kind
    assert verdict_of(ratio(even - 2), MARGIN) == "open"


def test_more_repeats_are_measured_where_they_make_the_interval_narrower() -> None:
    wild = ratio_to_reference([scattered(6, 1.08, 0.12)], [scattered(10, 1.0, 0.12)] * 3, "cpu")
    quiet = ratio_to_reference([scattered(6, 1.08, 0.005)], [scattered(10, 1.0, 0.005)], "cpu")
    assert narrows(wild, 9)
    assert not narrows(wild, 6)
    assert not narrows(quiet, 9), "one session of the reference keeps it as wide"


def test_cells_show_together_how_far_repeats_differ_and_a_loud_one_hardly_widens_a_quiet_one() -> None:
    def side(scatter: float, count: int = 6) -> tuple[list[list[Array]], list[list[Array]]]:
        return [scattered(count, 1.0, scatter)], [scattered(4, 1.0, scatter)]

    alone = ratio_to_reference(*side(0.05, 2), "cpu")
    among = ratios_to_references([side(0.05, 2), *[side(0.05)] * 3], "cpu")[0]
    assert among.between.freedom > 2 * alone.between.freedom
    quiet, loud = ratios_to_references([side(0.005), side(0.2)], "cpu")
    assert quiet.between.deviation < 0.05 < 0.15 < loud.between.deviation


def test_the_questions_of_a_verification_are_its_cells_and_the_whole_of_each_run() -> None:
    assert [questions_of(["run"] * cells) for cells in (1, 2, 4)] == [1, 3, 5]
    assert questions_of(["one", "one", "other", "other", "third"]) == 7


def test_no_number_of_repeats_tells_beside_a_reference_that_scatters_or_at_the_margin_itself() -> None:
    wild = REPEAT_DEVIATION["cpu"] * 5
    assert repeats_to_tell(one_session(scattered(2, 1.0, wild), scattered(2, 1.0, wild), "cpu"), MARGIN) is None
    quiet = scattered(20, 1.0, 0.02)
    assert repeats_to_tell(one_session(scattered(2, 1 + MARGIN, 0.02), quiet, "cpu"), MARGIN) is None


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(1, 5), st.floats(0.5, 2.0), st.floats(1e-6, 10.0), st.integers(0, 99))
def test_it_is_the_same_every_time_in_every_unit_and_turned_round(
    above: int, below: int, level: float, unit: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    measured, reference = runs(random, above, level), runs(random, below, 1.0)
    found = one_session(measured, reference, "cpu")
    assert one_session(measured, reference, "cpu") == found
    scaled = one_session([unit * m for m in measured], [unit * r for r in reference], "cpu")
    assert scaled.value == pytest.approx(found.value)
    assert scaled.low == pytest.approx(found.low, rel=1e-6)
    turned = one_session(reference, measured, "cpu")
    assert turned.value == pytest.approx(1 / found.value)
    assert (turned.low, turned.high) == (
        pytest.approx(1 / found.high, rel=0.02),
        pytest.approx(1 / found.low, rel=0.02),
    )
    assert found.low < found.value < found.high


@given(st.floats(-1, 1), st.floats(0.001, 1), st.floats(0.01, 0.5))
def test_every_interval_has_one_verdict_and_the_margin_is_the_same_both_ways(
    middle: float, reach: float, margin: float
) -> None:
    limit = math.log1p(margin)
    edges = [(reach, abs(abs(middle) + sign * limit) + more) for sign in (-1, 1) for more in (0, limit)]
    edges += [(abs(abs(middle) + sign * limit), limit / 2) for sign in (-1, 1)]
    assume(all(abs(one - other) > 1e-6 for one, other in edges))

    def of(centre: float) -> CellVerdict:
        ends = (math.exp(centre), math.exp(centre - reach), math.exp(centre + reach))
        return verdict_of(interval(*ends), margin)

    # The second way to slow shares its error rate with the other cells, so a ratio may be open where its mirror is fast already.
    opposite: dict[CellVerdict, set[CellVerdict]] = {
        "slow": {"fast"},
        "fast": {"slow", "open"},
        "ok": {"ok"},
        "not-slower": {"open"},
        "open": {"not-slower", "open", "fast"},
    }
    assert of(-middle) in opposite[of(middle)]
    if of(middle) == "ok":
        assert abs(middle) < math.log1p(margin)
    if of(middle) in PASS:
        assert middle + reach < 2 * math.log1p(margin) + 1e-9  # slower by twice the margin is ruled out
    if of(middle) == "slow":
        assert middle > math.log1p(margin)
        assert middle - reach > -1e-9  # equal is ruled out


def test_what_may_be_faster_by_more_than_the_margin_passes_and_what_may_be_slower_does_not() -> None:
    assert verdict_of(interval(0.93, 0.90, 0.96), MARGIN) == "not-slower"
    assert verdict_of(interval(1 / 0.93, 1 / 0.96, 1 / 0.90), MARGIN) == "open"
    assert verdict_of(interval(1.0, 0.80, 1 / 0.80), MARGIN) == "open"


def test_a_wide_interval_decides_where_the_ratio_is_well_on_one_side_and_the_other_side_is_excluded() -> None:
    """The margin is 8 %, and twice the margin 16.6 %."""
    inside, near = interval(1.0, 0.87, 1.15), interval(1.06, 0.97, 1.158)
    assert (verdict_of(inside, MARGIN), verdict_of(near, MARGIN)) == ("ok", "open")
    beyond = interval(1.16, 1.02, 1.32)
    assert verdict_of(beyond, MARGIN) == "slow"
    assert verdict_of(interval(1.16, 0.98, 1.37), MARGIN) == "open", "equal is not excluded"
    assert verdict_of(beyond, MARGIN, questions=30) == "open", "thirty cells share the 5 %"
    assert verdict_of(interval(1.2, 1.1, 1.31), MARGIN, questions=30) == "slow", "wholly beyond the margin"
    said = {kind: meaning(kind, 1.16, (1.02, 1.32), MARGIN) for kind in ("slow", "open", "ok")}  # type: ignore[arg-type]
    assert said["slow"] == "slower than the reference: equal is ruled out, and 1.16 times as long is well beyond 8 %"
    assert said["ok"].endswith("slower by 16.6 % or more is ruled out")
    assert meaning("slow", 1.2, (1.1, 1.3), MARGIN) == "slower than the reference by more than 8 %"


def test_a_difference_of_choice_takes_a_gap_away_and_leaves_ok() -> None:
    assert excused("ok", True) == "ok"
    assert {excused(kind, True) for kind in ("slow", "fast", "not-slower", "open")} == {"not-comparable"}  # type: ignore[arg-type]
    assert all(excused(kind, True) == kind for kind in ("wrong", "failed", "no-reference"))
    assert all(excused(kind, False) == kind for kind in KINDS)


def test_the_exit_code_is_1_for_any_failure_3_for_any_doubt_and_0_for_all_passed() -> None:
    for kinds in product(KINDS, repeat=2):
        expected = 1 if FAIL & set(kinds) else 0 if set(kinds) <= PASS else 3
        assert exit_code(kinds) == expected
    assert exit_code([]) == 3


RECORDED = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))


def recorded(path: Path) -> tuple[Array, float]:
    """Seconds a step of the steady windows that a real image printed, and the noise that it told of itself at its end."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    steady = [e["seconds"] / e["steps"] for e in events if e["event"] == "sample" and e["stage"] == "steady"]
    return np.array(steady), next(e["noise"] for e in events if e["event"] == "end")


# Recorded on a machine that did nothing else. The others were recorded beside other work, and their noise says so.
QUIET = {"jax-0.10.2-cpu.cnn-cifar10", "jax-0.10.2-cpu.gru-imdb", "tensorflow-2.21.0-cpu.gru-imdb"}


def simulated(path: Path, level: float) -> list[CellVerdict]:
    """Forty verdicts about a machine that takes `level` times as long.

    Simulated, not repeated: real windows resampled, each repeat at a level of its own of the prior's spread.
    """
    windows, _ = recorded(path)
    random = np.random.default_rng(4)

    def repeats(count: int, level: float = 1.0) -> list[Array]:
        levels = level * np.exp(random.normal(0, REPEAT_DEVIATION["cpu"], count))
        return [one * random.choice(windows, len(windows)) for one in levels]

    return [
        verdict_of(ratio_to_reference([repeats(3, level)], [repeats(2) for _ in range(SESSIONS)], "cpu"), MARGIN)
        for _ in range(40)
    ]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_simulated_from_recorded_windows_a_sound_machine_is_not_slow_and_a_slow_one_is_not_ok(path: Path) -> None:
    assert simulated(path, 1.0).count("slow") <= 2
    assert simulated(path, 1.15).count("ok") <= 2
    # Half as long again is seen in spite of the noise.
    assert simulated(path, 1.5).count("slow") >= 38


@pytest.mark.parametrize("name", sorted(QUIET))
def test_simulated_from_recorded_windows_a_quiet_machine_is_told_apart_in_36_of_40(name: str) -> None:
    path = next(path for path in RECORDED if path.stem == name)
    assert simulated(path, 1.0).count("ok") >= 38
    assert simulated(path, 1.15).count("slow") >= 36


def test_the_quiet_recordings_are_those_whose_noise_says_so() -> None:
    assert {path.stem for path in RECORDED if recorded(path)[1] <= 0.025} == QUIET
