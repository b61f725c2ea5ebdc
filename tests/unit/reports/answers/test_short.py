"""The four answers of the first screen: short, and never surer than their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reports import specifications
from reports.answers import across, findings, short
from reports.answers.health import NOT_JUDGED, CellHealth, Health
from reports.answers.short import Answer
from reports.data import telemetry_signals
from reports.data.groups import workloads
from reports.data.model import MeasuredCell, StoredRun, Tables
from reports.page import results
from reports.page.page import Entry
from tests.fixtures import measured, regimes
from tests.fixtures.regimes import Regime

QUIET = Regime(process=0.002, windows=0.003, count=20)
H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"


def cells(
    levels: Sequence[float],
    frameworks: Sequence[str],
    repeats: int = 3,
    *,
    cuda: Sequence[str] = (),
    model: str = "",
    seed: int = 1,
) -> list[MeasuredCell]:
    """A cell of one workload at each true level; with `model` on that GPU, and with the CUDA versions `cuda`."""
    drawn = regimes.run(np.random.default_rng(seed), QUIET, levels, repeats)
    made = []
    for at, (framework, windows) in enumerate(zip(frameworks, drawn, strict=True)):
        kind = "cuda" if model else "cpu"
        cell = measured.cell("run", framework, "w", windows, f"{model}-{at}", device=kind)
        version = cuda[at] if cuda else "12.8" if model else ""
        row = {**cell.row, "cuda_version": version, "cudnn_version": "9"}
        image = f"{framework}-1-cu{version.replace('.', '')}" if model else cell.image
        key = replace(cell.key, device_model=model or cell.key.device_model)
        made.append(replace(cell, image=image, row=row, key=key, label=f"{framework} {version}"))
    return made


def answered(found: Sequence[MeasuredCell], health: Health = NOT_JUDGED) -> tuple[Answer, ...]:
    tables = Tables((StoredRun("run", {"run_id": "run"}),), workloads(found), (), {}, {})
    tables = replace(tables, runs=(StoredRun("run", {"run_id": "run", "created": "2026-11-01T08:00:00+00:00"}),))
    devices = [table for workload in tables.ranked for table in across.devices(workload, tables.cells)]
    return short.answers(
        findings.findings(tables), "fp32 here", across.ladders(tables).values(), devices, health, tables.cells
    )


@pytest.mark.parametrize(
    ("levels", "frameworks", "repeats", "words", "confidence"),
    [
        ([1.0, 1.3, 1.5], ["torch", "jax", "tensorflow"], 3, "PyTorch is fastest", "confirmed"),
        ([1.0, 1.3, 1.5], ["torch", "jax", "tensorflow"], 1, "PyTorch looks fastest", "one run"),
        ([1.0, 1.0], ["torch", "jax"], 3, "PyTorch and JAX are equally fast", "same"),
        ([1.0, 1.0, 1.0], ["torch", "jax", "tensorflow"], 3, "JAX, PyTorch and TensorFlow 2 are equally fast", "same"),
        # That two lead does not hide that the third is slower.
        ([1.0, 1.0, 1.5], ["torch", "jax", "tensorflow"], 3, "JAX and PyTorch are equally fast", "confirmed"),
        ([1.0, 1.03, 1.5], ["torch", "jax", "tensorflow"], 3, "PyTorch or JAX leads", "confirmed"),
        ([1.0, 1.025], ["torch", "jax"], 3, "Open between PyTorch and JAX", "open"),
        ([1.0, 1.04, 1.5], ["torch", "jax", "tensorflow"], 1, "PyTorch or JAX looks fastest", "one run"),
        # Two versions of one framework may be as fast: the framework is fastest all the same.
        ([1.0, 1.0, 1.5], ["torch", "torch", "jax"], 3, "PyTorch is fastest", "confirmed"),
        ([1.0], ["torch"], 3, "Only PyTorch was measured", "not compared"),
    ],
)
def test_which_framework(levels: list[float], frameworks: list[str], repeats: int, words: str, confidence: str) -> None:
    answer = answered(cells(levels, frameworks, repeats))[0]
    assert words in answer.words
    assert answer.confidence == confidence


@pytest.mark.parametrize(
    ("levels", "repeats", "words", "confidence"),
    [
        ([1.3, 1.0], 3, "torch-1 is fastest of 2 images of PyTorch", "confirmed"),
        ([1.0, 1.0], 3, "2 images of PyTorch are equally fast", "same"),
        ([1.0, 1.025], 3, "Open among 2 images of PyTorch", "open"),
        ([1.0, 1.3], 1, "Open among 2 images of PyTorch", "one run"),
    ],
)
def test_the_images_of_one_framework_have_an_answer(
    levels: list[float], repeats: int, words: str, confidence: str
) -> None:
    found = [
        replace(cell, image=f"torch-{at}") for at, cell in enumerate(cells(levels, ["torch"] * len(levels), repeats))
    ]
    answer = answered(found)[0]
    assert (answer.words, answer.confidence) == (words, confidence)


@pytest.mark.parametrize(("repeats", "confidence"), [(3, "confirmed"), (1, "one run")])
def test_two_frameworks_that_win_a_workload_each_are_both_named_and_neither_is_the_fastest(
    repeats: int, confidence: str
) -> None:
    first = cells([1.0, 1.4], ["torch", "jax"], repeats)
    second = at_another_workload(cells([1.4, 1.0], ["torch", "jax"], repeats))
    answer = answered([*first, *second])[0]
    words = "v: JAX; w: PyTorch" if repeats > 1 else "No framework leads everywhere"
    assert (answer.words, answer.confidence) == (words, confidence)
    assert "w: PyTorch" in answer.detail
    assert "v: JAX" in answer.detail


def at_another_workload(found: Sequence[MeasuredCell], name: str = "v") -> list[MeasuredCell]:
    return [
        replace(
            cell, key=replace(cell.key, workload=name), anchor=f"{name}-{cell.anchor}", cell_id=f"{name}-{cell.cell_id}"
        )
        for cell in found
    ]


def test_of_more_workloads_than_a_line_holds_the_first_ones_are_named_with_their_leaders() -> None:
    frameworks = ["torch", "jax", "tensorflow", "mxnet"]
    found = cells([1.0, 1.03, 1.04, 1.9], frameworks)
    for at, levels in enumerate(([1.04, 1.0, 1.03, 1.9], [1.03, 1.04, 1.0, 1.9], [1.0, 1.03, 1.05, 1.9])):
        found += at_another_workload(cells(levels, frameworks, seed=at), f"w{at}")
    answer = answered(found)[0]
    assert answer.confidence == "confirmed"
    first, *others = answer.words.split("; ")
    assert first.startswith("w: "), "which framework leads, at which workload"
    assert "PyTorch" in first
    assert others[-1].endswith("more workloads")
    named = len(others[:-1]) + 1
    assert others[-1] == f"{4 - named} more workloads"
    assert len(answer.words.split()) <= short.MOST_OF_HEADLINE


def figures(found: Sequence[MeasuredCell]) -> list[Entry]:
    """The ranked figures of the table, row for row."""
    data = Tables(
        (StoredRun("run", {"run_id": "run", "created": "2026-11-01T08:00:00+00:00"}),), workloads(found), (), {}, {}
    )
    (table,) = results.slices(findings.findings(data), data)
    return [entry for row in table.rows for entry in row.entries if entry.kind == "ranked"]


@pytest.mark.parametrize(("repeats", "words"), [(3, "PyTorch is fastest"), (1, "PyTorch looks fastest")])
def test_a_workload_of_one_framework_alone_says_nothing_about_the_others(repeats: int, words: str) -> None:
    found = cells([1.0, 1.4], ["torch", "jax"], repeats)
    assert answered([*found, *at_another_workload(found[:1])])[0].words == words


def test_one_ranked_cell_beside_others_that_are_too_noisy_is_no_winner() -> None:
    best, other = cells([1.0, 1.4], ["torch", "jax"], 1)
    noisy = replace(other, repeats=tuple(replace(one, row={**one.row, "noise": 0.9}) for one in other.repeats))
    answer = answered([best, noisy])[0]
    assert (answer.words, answer.confidence) == ("Only PyTorch could be ranked", "not compared")
    shown = [entry.best for data in ([best, noisy], [best, other]) for entry in figures(data)]
    assert shown == [False, True, False], "the fastest of one is not marked"


@pytest.mark.parametrize(
    ("levels", "got", "starved"),
    [
        ((1.0, 3.0), (0.6, 1.4), True),
        ((1.0, 2.0), (1.4, 0.6), True),
        ((1.0, 3.0), (1.4, 1.4), False),
        # A framework that uses one of two CPUs would still be slower if it had used both.
        ((1.0, 3.0), (1.4, 0.8), False),
    ],
)
def test_a_cell_that_got_few_of_its_cpus_leaves_the_order_open(
    levels: tuple[float, float], got: tuple[float, float], starved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cells(levels, ["torch", "jax"])
    of = {cell.anchor: busy_cpus for cell, busy_cpus in zip(found, got, strict=True)}
    monkeypatch.setattr(telemetry_signals, "given", lambda cell: 2)
    monkeypatch.setattr(telemetry_signals, "cpus_busy", lambda cell: of[cell.anchor])
    found = telemetry_signals.starved(found)
    answer = answered(found)[0]
    words = ("Open between PyTorch and JAX", "open") if starved else ("PyTorch is fastest", "confirmed")
    assert (answer.words, answer.confidence) == words
    assert ("got less than half of the CPUs" in answer.detail) == (min(got) < 1)
    # Another workload, where both got their CPUs, is answered all the same.
    other = at_another_workload(cells([1.0, 3.0], ["torch", "jax"]))
    beside = answered([*found, *other])[0]
    assert beside.words == ("v: PyTorch; w: open" if starved else "PyTorch is fastest, 2 of 2")
    assert ("w: PyTorch or JAX;" in beside.detail) == starved
    assert "v: PyTorch, then JAX 3.00 ×" in beside.detail


def test_a_gpu_that_measured_single_operations_only_is_no_cpu() -> None:
    found = cells([1.0], ["torch"], 3, cuda=["12.6"], model="NVIDIA H200")
    framework, cuda, gpu, _ = short.answers([], "", (), (), NOT_JUDGED, found)
    assert framework.words == "Only single operations were measured"
    assert (cuda.words, gpu.words) == ("Only CUDA 12.6 was measured", "Only H200 was measured")


def test_what_is_measured_later_and_once_makes_no_answer_less_sure() -> None:
    repeated = cells([1.0, 1.3], ["torch", "jax"])
    later = [
        replace(cell, anchor=f"once-{at}") for at, cell in enumerate(cells([0.97, 2.0], ["tensorflow", "mxnet"], 1))
    ]
    before, after = answered(repeated)[0], answered([*repeated, *later])[0]
    assert (before.words, before.confidence) == ("PyTorch is fastest", "confirmed")
    assert (after.words, after.confidence) == ("PyTorch is fastest of those repeated", "confirmed")
    assert "perhaps as fast, measured once: TensorFlow 2" in after.detail
    assert "MXNet" not in after.detail, "one repeat shows that it takes longer"


def test_a_machine_without_a_gpu_is_asked_by_how_much_and_where_the_order_turns() -> None:
    first = cells([1.0, 1.3], ["torch", "jax"])
    framework, much, turn, healthy = answered(first)
    assert [one.question for one in (framework, much, turn, healthy)] == [
        "Which framework?",
        "By how much?",
        "Where does the order turn?",
        "Is mine healthy?",
    ]
    assert (much.words, much.confidence) == ("JAX takes 1.30 times as long", "confirmed")
    assert much.detail.startswith("JAX 1.30 × (1.2")
    assert (turn.words, turn.confidence) == ("One workload was compared", "not compared")
    assert (healthy.words, healthy.confidence) == ("All 2 compute the right thing; speed unjudged", "not judged")
    assert "no reference" in healthy.detail
    turned = answered([*first, *at_another_workload(cells([1.3, 1.0], ["torch", "jax"]))])[2]
    assert (turned.words, turned.confidence) == ("JAX and PyTorch change places", "confirmed")
    assert turned.detail == "JAX is faster at v, PyTorch at w"
    kept = answered([*first, *at_another_workload(first)])[2]
    assert (kept.words, kept.confidence) == ("Nowhere seen, at 2 workloads", "open")


@pytest.mark.parametrize(
    "changes", [{"parity_passed": False}, {"parity_passed": None}, {"unproved": "none"}, {"status": "failed"}]
)
def test_where_one_cell_is_not_proved_the_card_does_not_say_that_all_compute_the_right_thing(changes: Any) -> None:
    first, second = cells([1.0, 1.3], ["torch", "jax"])
    assert answered([first, replace(second, **changes)])[-1].words == "Not judged: no reference"


def test_cells_that_were_measured_once_confirm_neither_how_much_nor_a_turn() -> None:
    found = cells([1.0, 1.6], ["torch", "jax"], 1)
    _, much, turn, _ = answered([*found, *at_another_workload(cells([1.6, 1.0], ["torch", "jax"], 1))])
    assert much.words in ("JAX looks 1.60 times as long", "PyTorch looks 1.60 times as long")
    assert much.confidence == "one run"
    assert (turn.words, turn.confidence) == ("Open: too few repeats", "one run")


def test_gpus_that_ran_no_ranked_workload_do_not_take_the_cards_of_a_ranked_cpu() -> None:
    gpu = cells([1.0], ["torch"], 3, cuda=["12.6"], model="NVIDIA H200")
    found = cells([1.0, 1.3], ["torch", "jax"])
    run = StoredRun("run", {"run_id": "run", "created": "2026-11-01T08:00:00+00:00"})
    tables = Tables((run,), workloads(found), (), {}, {})
    _, much, turn, _ = short.answers(findings.findings(tables), "", (), (), NOT_JUDGED, [*found, *gpu])
    assert (much.words, turn.words) == ("JAX takes 1.30 times as long", "One workload was compared")


@pytest.mark.parametrize(
    ("levels", "cuda", "repeats", "words", "confidence"),
    [
        ([1.2, 1.0], ["12.6", "12.8"], 3, "Older CUDA: 1.20× as long, 1 of 1", "confirmed"),
        ([1.0, 1.2], ["12.6", "12.8"], 3, "Newer CUDA: 1.20× as long, 1 of 1", "confirmed"),
        ([1.0, 1.2, 1.0], ["12.4", "12.6", "12.8"], 3, "No version leads", "open"),
        ([1.0, 1.0], ["12.6", "12.8"], 3, "No difference beyond 5 %", "same"),
        ([1.0, 1.2], ["12.6", "12.8"], 1, "No verdict: measured once", "one run"),
        ([1.0], ["12.6"], 3, "Only CUDA 12.6 was measured", "not compared"),
        ([1.0], [""], 3, "No CUDA version was recorded", "not compared"),
    ],
)
def test_which_cuda_version(levels: list[float], cuda: list[str], repeats: int, words: str, confidence: str) -> None:
    answer = answered(cells(levels, ["torch"] * len(levels), repeats, cuda=cuda, model=H200))[1]
    assert (answer.words, answer.confidence) == (words, confidence)


@pytest.mark.parametrize(
    ("slower", "repeats", "words", "confidence"),
    [
        (1.5, 3, "H200: 1.5", "confirmed"),
        (1.5, 1, "H200: 1.5", "one run"),
        (1.0, 3, "A100-SXM4 and H200 are equally fast", "same"),
    ],
)
def test_which_gpu(slower: float, repeats: int, words: str, confidence: str) -> None:
    levels, frameworks = [1.0, 1.3, 1.5], ["torch", "jax", "tensorflow"]
    fast = cells(levels, frameworks, repeats, model=H200)
    slow = cells([slower * level for level in levels], frameworks, repeats, model=A100, seed=2)
    answer = answered([*fast, *slow])[2]
    assert words in answer.words
    assert answer.confidence == confidence
    assert answered(fast)[2].words == "Only H200 was measured"


def test_two_gpus_are_one_pair_whichever_of_them_a_workload_begins_with() -> None:
    # A workload's effects begin with the GPU that most of its cells ran on. In v and w a cell ran on one of the two alone.
    ran = [("v", H200, 1.0), ("v", A100, 1.5), ("w", H200, 1.5), ("w", A100, 1.0), ("x", H200, 1.0), ("x", A100, 1.5)]
    alone = [("v", H200), ("w", A100)]
    drawn = [
        (workload, cells([level], ["torch"], model=model, seed=at)) for at, (workload, model, level) in enumerate(ran)
    ]
    drawn += [(workload, cells([1.0], ["jax"], model=model, seed=7)) for workload, model in alone]
    found = [
        replace(cell, key=replace(cell.key, workload=workload), anchor=f"{workload}-{cell.anchor}-{cell.framework}")
        for workload, made in drawn
        for cell in made
    ]
    answer = answered(found)[2]
    assert answer.words.startswith("H200: 1.5")
    assert "median of 3 pairs" in answer.detail
    assert "more pair" not in answer.detail
    assert "2 of 3 confirmed" in answer.detail


def test_a_slow_cell_is_marked_as_bad() -> None:
    cell = CellHealth("run", "cell", "", "slow", "it is slow")
    health = Health("1 of 1 slow", "confirmed", "", (cell,))
    assert answered(cells([1.0], ["torch"]), health)[3].bad
    assert not answered(cells([1.0], ["torch"]))[3].bad


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("framework", specifications.titles())
def test_no_answer_has_more_than_eight_words_or_is_cut_within_a_sentence(framework: str, repeats: int) -> None:
    slower = cells([1.0, 1.5, 2.0], ["torch", framework, framework], repeats)
    slowest = at_another_workload(cells([1.0, 2.0, 2.5], ["torch", framework, framework], repeats))
    turned = at_another_workload(cells([1.5, 1.0, 2.0], ["keras2_cntk", framework, framework], repeats))
    first = cells([1.0, 1.5, 2.0], ["keras2_cntk", framework, framework], repeats)
    level = cells([1.0, 1.0], [framework, "torch"], repeats)
    for found in (slower, level, [*slower, *slowest], [*first, *turned]):
        headline, *cards = answered(found)
        assert 0 < len(headline.words.split()) <= short.MOST_OF_HEADLINE, headline.words
        for answer in (headline, *cards):
            assert answer is headline or 0 < len(answer.words.split()) <= short.standing_words.MOST_WORDS, answer.words
            assert answer.words.split()[-1] not in ("as", "and", "on", "or", "to", "change"), answer.words


def several(*groups: Sequence[tuple[str, float, int]]) -> Answer:
    """The first answer where each group is a workload of (framework, true level, repeats)."""
    found = []
    for at, group in enumerate(groups):
        for place, (framework, level, repeats) in enumerate(group):
            (cell,) = cells([level], [framework], repeats, seed=10 * at + place)
            key = replace(cell.key, workload=f"w{at}")
            found.append(replace(cell, key=key, anchor=f"w{at}-{framework}", label=f"{framework} 1"))
    return answered(found)[0]


def test_a_rival_that_was_measured_once_at_one_workload_is_not_hidden_by_its_repeats_at_another() -> None:
    answer = several(
        [("torch", 1.0, 3), ("jax", 1.3, 3), ("paddle", 3.0, 3)],
        [("torch", 1.0, 3), ("jax", 0.5, 1), ("paddle", 3.0, 3)],
    )
    assert (answer.words, answer.confidence) == ("PyTorch is fastest of those repeated", "confirmed")
    assert "perhaps as fast, measured once: JAX" in answer.detail


def test_a_workload_at_which_every_cell_was_measured_once_turns_no_order() -> None:
    answer = several([("torch", 1.0, 3), ("jax", 2.0, 3)], [("torch", 1.01, 1), ("jax", 1.0, 1)])
    assert (answer.words, answer.confidence) == ("w0: PyTorch; w1: open", "open")


def test_a_framework_that_wins_nowhere_is_not_said_to_lead() -> None:
    near = [("torch", 1.0, 3), ("jax", 1.02, 3), ("paddle", 2.0, 3)]
    answer = several(
        near, [(name, level, repeats) for (name, _, repeats), level in zip(near, (1.0, 2.0, 1.02), strict=True)]
    )
    assert answer.words == "w0: PyTorch or JAX; w1: PyTorch or PaddlePaddle"
