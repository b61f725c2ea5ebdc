"""By how much one framework leads, and where two of them change places: only what is beyond doubt is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reports.answers.findings import findings
from reports.answers.left import alone
from reports.answers.standing import Standing, is_won_among, questions_of, standing
from reports.answers.standing_words import Turn, by_how_much, detail, headline, in_words, turns
from reports.data.groups import workloads
from reports.data.model import Group, MeasuredCell, Ranked
from reports.data.tables import load
from reports.wording import number
from runner.results.statistics import Estimate
from tests.fixtures import measured, regimes
from tests.fixtures.fleets import each_gpu_run
from tests.fixtures.regimes import Regime

QUIET = Regime(process=0.002, windows=0.003, count=20)


def cells(workload: str, levels: Mapping[str, float], repeats: int = 3, seed: int = 1) -> list[MeasuredCell]:
    """A cell of each framework at its true level."""
    drawn = regimes.run(np.random.default_rng(seed), QUIET, list(levels.values()), repeats)
    return [
        measured.cell("run", name, workload, windows, f"{name}-{workload}")
        for name, windows in zip(levels, drawn, strict=True)
    ]


def compared(*measured_: list[MeasuredCell]) -> list[tuple[Group, Standing]]:
    found = [
        group for workload in workloads([cell for some in measured_ for cell in some]) for group in workload.groups
    ]
    return [(group, standing(group)) for group in found]


def groups(*measured_: list[MeasuredCell]) -> list[Group]:
    return [group for group, _ in compared(*measured_)]


def test_of_the_modes_of_a_framework_the_faster_one_stands_for_it_and_a_single_repeat_takes_no_place() -> None:
    def found(graph_repeats: int) -> tuple[Group, Standing]:
        usual = cells("w", {"torch": 1.5, "jax": 1.3})
        graph = replace(cells("w", {"torch": 1.0}, graph_repeats)[0], mode="graph", anchor="graph", cell_id="graph")
        [(group, of)] = compared([*usual, graph])
        return group, of

    group, of = found(graph_repeats=3)
    assert [(entry.cell.framework, entry.cell.mode) for entry in (of.first, *of.slower)] == [
        ("torch", "graph"),
        ("jax", "default"),
    ]
    assert len(group.ranked) == 3, "the table shows both"
    group, of = found(graph_repeats=1)
    assert (of.first.cell.framework, {entry.cell.framework for entry in of.slower}) == ("jax", {"torch"})
    assert [(entry.cell.mode, entry.looks_faster) for entry in of.once] == [("graph", True)]


def test_the_farthest_framework_says_what_a_choice_may_cost() -> None:
    lead = by_how_much(compared(cells("w", {"torch": 1.0, "jax": 1.3})))
    assert (lead.words, lead.told) == ("JAX takes 1.30 times as long", True)
    assert lead.detail.startswith("JAX 1.30 × (1.2")
    assert lead.detail.endswith(" at w")
    both = by_how_much(compared(cells("w", {"torch": 1.0, "jax": 1.3, "chainer": 2.0})))
    assert both.words == "Chainer: 2.00×, JAX: 1.30×"
    assert "JAX 1.30 × (" in both.detail
    assert "; Chainer 2.00 × (" in both.detail


def test_a_framework_that_is_slower_at_two_workloads_is_named_with_both() -> None:
    lead = by_how_much(compared(cells("v", {"torch": 1.0, "jax": 1.3}), cells("w", {"torch": 1.0, "jax": 1.6})))
    assert lead.words == "JAX: 1.30 to 1.60 times as long"
    assert lead.detail.count("JAX") == 1
    assert " at v and 1.60 × (" in lead.detail


def test_of_many_frameworks_the_detail_names_the_nearest_and_the_farthest() -> None:
    levels = {"torch": 1.0, "jax": 1.3, "mxnet": 2.0, "chainer": 2.5, "tensorflow": 3.0}
    lead = by_how_much(compared(cells("w", levels)))
    assert lead.words == "TensorFlow 2: 2.99×, Chainer: 2.50×, 2 more"
    assert lead.detail.startswith("JAX 1.30 ×")
    assert "TensorFlow 2 2.99 ×" in lead.detail
    assert lead.detail.endswith("; 2 more in the table")


def test_where_none_is_slower_beyond_doubt_the_answer_is_how_far_they_may_be_apart() -> None:
    lead = by_how_much(compared(cells("w", {"torch": 1.0, "jax": 1.01})))
    assert lead.words.startswith("Open: at most 1.0")
    assert lead.words.endswith(" times apart")
    assert not lead.told


def test_a_bound_that_two_scattered_repeats_give_is_no_figure_in_a_headline() -> None:
    """Two repeats of three frameworks said "at most 21 900 000 000 times apart"."""
    loud = Regime(process=0.6, windows=0.003, count=20)
    drawn = regimes.run(np.random.default_rng(5), loud, [1.0, 1.3, 1.5], 2)
    names = ("torch", "jax", "tensorflow")
    found = [measured.cell("run", *one, f"{one[0]}-w") for one in zip(names, ["w"] * 3, drawn, strict=True)]
    [(_, of)] = compared(found)
    assert headline(of).startswith("Open between ")
    assert headline(of).endswith(": the repeats scatter too far")
    [(_, near)] = compared(cells("w", {"torch": 1.0, "jax": 1.025}))
    assert re.search(r"at most 1\.\d+ times apart", headline(near))


def test_one_repeat_says_how_much_it_looks_and_claims_no_bound() -> None:
    """The farthest is named, and nothing of it is confirmed."""
    groups = compared(cells("w", {"torch": 1.0, "mxnet": 1.5, "jax": 2.0}, 1))
    lead = by_how_much(groups)
    looks = {entry.cell.framework: number(entry.ratio.value) for _, of in groups for entry in of.once}
    assert lead.words == f"JAX looks {looks['jax']} times as long"
    assert lead.detail.startswith(f"JAX looks {looks['jax']} times as long at w and mxnet")
    assert not lead.told
    alike = by_how_much(compared(cells("w", {"torch": 1.0, "jax": 1.001}, 1)))
    assert (alike.words, alike.told) == ("Too close to tell, after one repeat", False)


def test_a_framework_is_told_only_if_it_stays_slower_where_all_workloads_are_asked_about() -> None:
    """Its difference is told at its own workload, and not among as many as are asked about here."""
    (group, of), *_ = compared(cells("w", {"torch": 1.0, "jax": 1.04}))
    assert of.out
    (entry,) = of.slower
    assert entry.p is not None
    many = int(0.05 / entry.p) + 1
    others = [compared(cells(f"v{at}", {"torch": 1.0, "jax": 1.0}))[0] for at in range(many)]
    assert by_how_much([(group, of)]).told
    assert not by_how_much([(group, of), *others]).told


def of_chance(p: float, rivals: tuple[Any, ...] = ()) -> Any:
    """A group whose first is wrongly called the fastest with this chance."""
    return SimpleNamespace(p=p, rivals=rivals)


@pytest.mark.parametrize(
    ("standings", "questions"),
    [
        ([of_chance(0.04)], [1]),
        # Nothing is decided where half of the error is asked for.
        ([of_chance(0.03), of_chance(1.0)], [2, 2]),
        # The first group is, and then the other has all of it.
        ([of_chance(0.024), of_chance(0.04)], [2, 1]),
        ([of_chance(0.03), of_chance(0.02), of_chance(0.016)], [1, 2, 3]),
        # What is not ranked and may be faster leaves its group open.
        ([of_chance(0.001, ("jax",)), of_chance(0.04)], [2, 2]),
    ],
)
def test_a_group_that_is_decided_hands_its_part_of_the_error_on(standings: list[Any], questions: list[int]) -> None:
    assert questions_of(standings) == questions


def test_two_frameworks_change_places_where_each_is_faster_beyond_doubt() -> None:
    found = turns(
        groups(
            cells("u", {"torch": 1.0, "jax": 1.3, "mxnet": 2.0}),
            cells("v", {"torch": 1.3, "jax": 1.0, "mxnet": 2.0}),
            cells("w", {"torch": 1.0, "jax": 1.5, "mxnet": 2.0}),
        )
    )
    assert found == (Turn("jax", "torch", ("v",), ("u", "w")),)
    assert in_words(found[0]) == "JAX is faster at v, PyTorch at u and w"


def test_frameworks_behind_the_first_may_change_places_too() -> None:
    found = turns(
        groups(
            cells("v", {"torch": 1.0, "jax": 1.5, "mxnet": 2.0}), cells("w", {"torch": 1.0, "jax": 2.0, "mxnet": 1.5})
        )
    )
    assert [(turn.first, turn.second) for turn in found] == [("jax", "mxnet")]


@pytest.mark.parametrize(
    "levels", [{"torch": 1.01, "jax": 1.0}, {"torch": 1.0, "jax": 1.0}, {"torch": 1.0, "jax": 1.4}]
)
def test_no_turn_is_seen_where_the_order_is_open_or_stays(levels: Mapping[str, float]) -> None:
    assert turns(groups(cells("v", {"torch": 1.0, "jax": 1.3}), cells("w", levels))) == ()


def test_a_cell_of_one_repeat_or_of_few_cpus_turns_no_order() -> None:
    first, turned = cells("v", {"torch": 1.0, "jax": 1.3, "mxnet": 2.0}), {"torch": 1.3, "jax": 1.0, "mxnet": 2.0}
    assert turns(groups(first, cells("w", turned)))
    assert turns(groups(first, cells("w", turned, 1))) == ()
    few = [replace(cell, cpu_share=0.4) if cell.framework == "jax" else cell for cell in cells("w", turned)]
    assert turns(groups(first, few)) == ()


def test_each_framework_is_judged_by_its_fastest_version() -> None:
    """The slow version of PyTorch is behind JAX at v and ahead of it at w. The fast one is ahead at both."""
    both = []
    for workload, of_slow in (("v", 1.8), ("w", 1.1)):
        made = cells(workload, {"torch": 1.0, "jax": 1.3, "slow": of_slow})
        both += [replace(cell, framework="torch") if cell.framework == "slow" else cell for cell in made]
    assert turns(groups(both)) == ()
    slow = [cell for cell in both if not cell.anchor.startswith("torch")]
    assert [(turn.first, turn.second) for turn in turns(groups(slow))] == [("jax", "torch")]


def test_the_command_that_measures_some_cells_again_names_their_modes_precisions_and_devices() -> None:
    torch, tensorflow = cells("gru-imdb", {"torch": 1.0, "tensorflow": 1.1})
    assert "--modes default" in alone([torch, tensorflow]), "or the other modes were measured, too"
    assert "--devices" not in alone([torch])
    mixed = replace(tensorflow, key=replace(tensorflow.key, precision="amp-bf16", devices=2, scaling="strong"))
    command = alone([replace(torch, mode="graph"), mixed])
    assert "--modes default,graph" in command
    assert "--precision amp-bf16,fp32" in command
    assert "--devices 1,2 --scaling strong" in command
    assert "--precision amp-bf16,fp32" in alone([replace(mixed, at_fp32="another cell")]), "its rank rests on both"


def test_an_order_that_two_repeats_leave_open_is_said_in_words_where_the_interval_is_no_figure() -> None:
    torch, jax = cells("gru-imdb", {"torch": 1.0, "jax": 1.1})
    first = Ranked(torch, Estimate(1.0, 1.0, 1.0, 0, 2, "itself"))
    wide = Ranked(jax, Estimate(1.1, 0.3, 4.0, 10, 2, ""), 0.9, "open")
    said = f"Whether {jax.label} is slower than {torch.label} is open"
    assert detail(Standing(first, (), (wide,), (), (), (), ())) == f"{said} (two repeats: too few to tell)."
    narrow = replace(wide, ratio=Estimate(1.1, 0.9, 1.3, 10, 2, ""))
    assert detail(Standing(first, (), (narrow,), (), (), (), ())) == f"{said}: it takes 0.900 to 1.30 times as long."


def test_each_gpu_of_a_run_stands_in_the_order(tmp_path: Path) -> None:
    """A GPU's cell is no mode of another GPU's: the headline said that one GPU alone was measured more than once."""
    for finding in findings(load([each_gpu_run(tmp_path / "run", [1.0, 1.2, 1.0])])):
        assert "GPU 0 (ac-0) and PyTorch 2.13.0 · GPU 2 (ac-2) are equally fast" in finding.headline
        assert "GPU 1 (ac-1) takes 1.20 times as long" in finding.detail


@pytest.mark.parametrize(
    ("firsts", "chances", "won"),
    [
        (("tensorflow", "tensorflow"), (0.03, 0.04), [True, True]),
        (("tensorflow", "tensorflow"), (0.03, 0.06), [False, False]),
        (("tensorflow", "jax"), (0.03, 0.04), [False, False]),
        (("tensorflow", "jax"), (0.01, 0.04), [True, True]),
        (("tensorflow", "jax"), (0.01, 0.06), [True, False]),
    ],
)
def test_that_one_framework_is_fastest_everywhere_is_as_sure_as_its_weakest_part(
    firsts: tuple[str, ...], chances: tuple[float, ...], won: list[bool]
) -> None:
    """A statement on all groups is false where any part is; one on some of them may choose its parts, so it asks of all together."""
    standings: list[Any] = [
        SimpleNamespace(p=p, first=SimpleNamespace(cell=SimpleNamespace(framework=name)))
        for name, p in zip(firsts, chances, strict=True)
    ]
    assert is_won_among(standings) == won
