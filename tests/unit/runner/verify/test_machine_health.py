"""What a report says about the machine's health, from stored runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.answers.health import Health
from reports.answers.overview import overview
from reports.data import tables
from reports.page.assembly import page_of
from runner.cli.report import health_of
from runner.results.store import RunStore
from runner.verify.references.measured import reference_of
from runner.verify.references.saved import Shelf
from tests.fixtures import stored, synthetic
from tests.fixtures.fleets import each_gpu_run, uuids
from tests.fixtures.synthetic import LEVELS, make_run


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setenv("DLBENCH_REFERENCES", str(tmp_path / "references"))
    return Shelf([tmp_path / "references"])


def few_words(health: Health) -> bool:
    return 0 < len(health.answer.split()) <= 8


def test_a_run_without_a_reference_is_not_judged_and_the_command_that_makes_one_is_named(
    tmp_path: Path, shelf: Shelf
) -> None:
    run = make_run(tmp_path / "run")
    health = health_of([run])
    assert (health.answer, health.confidence) == ("Not judged: no reference", "not judged")
    assert f"`runner reference save {RunStore(run).manifest()['run_id']} --name NAME`" in health.next
    # The first screen has room for one sentence.
    assert health.next.partition(". ")[0].endswith("--name NAME`")
    assert health.detail == ""  # the answer has said it
    assert "gpu" not in health.next.lower()
    assert health.next.endswith(".")
    assert (health.cells, health.fleets) == ((), ())


def test_a_run_beside_its_reference_gets_the_verdict_of_its_cells(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_run(tmp_path / "lab", repeats=5)
    shelf.put(reference_of([lab], "lab", "0.1.0").reference)
    again = make_run(tmp_path / "again", repeats=3)
    health = health_of([again])
    assert health.answer.startswith(("Yes: ", "Open: "))
    assert few_words(health)
    for place in LEVELS:
        monkeypatch.setitem(synthetic.LEVELS, place, LEVELS[place] * 1.3)
    slow = health_of([make_run(tmp_path / "slow", repeats=3)])
    assert slow.answer.endswith("slower than the reference")
    assert slow.confidence == "one run"
    assert few_words(slow)
    assert {cell.verdict for cell in slow.cells} >= {"slow"}


def test_a_shift_of_all_cells_at_the_margin_is_said_with_its_size(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.put(reference_of([make_run(tmp_path / "lab", repeats=5)], "lab", "0.1.0").reference)
    for place in LEVELS:
        monkeypatch.setitem(synthetic.LEVELS, place, LEVELS[place] * 1.08)
    health = health_of([make_run(tmp_path / "again", repeats=5)])
    assert health.answer.startswith("Open: ")
    assert re.search(
        r"the 5 cells of again together takes 1\.0[78]\d times as long as in their references", health.detail
    )


def test_gpus_of_two_groups_are_open_and_none_is_named(tmp_path: Path, shelf: Shelf) -> None:
    health = health_of([each_gpu_run(tmp_path / "run", [1.0, 1.004, 0.997, 1.002, 1.10, 1.104, 1.097, 1.102])])
    assert (health.answer, health.confidence) == ("Open: the GPUs are two groups", "not judged")
    assert few_words(health)
    assert not any(gpu.named for fleet in health.fleets for gpu in fleet.gpus)


def test_a_slow_gpu_is_named_with_its_deviation_and_the_band_of_the_others(tmp_path: Path, shelf: Shelf) -> None:
    levels = [1.0, 1.004, 0.997, 1.002, 0.995, 1.10, 1.001, 1.003]
    health = health_of([each_gpu_run(tmp_path / "run", levels)])
    assert (health.answer, health.confidence) == ("1 of 8 GPUs is slow", "confirmed")
    assert len(health.fleets) == 2
    for fleet in health.fleets:
        assert fleet.model == "NVIDIA H200"
        assert fleet.judged
        assert fleet.low is not None
        assert fleet.high is not None
        assert fleet.low < 0 < fleet.high
        (weak,) = [gpu for gpu in fleet.gpus if gpu.named]
        assert weak.uuid_end == uuids("NVIDIA H200", 6)[5][-4:]
        assert weak.deviation == pytest.approx(0.10, abs=0.01)
        assert weak.low is not None
        assert weak.high is not None
        assert fleet.high < weak.low < weak.deviation < weak.high
        assert all(gpu.deviation <= fleet.high for gpu in fleet.gpus if not gpu.named)
        assert "times as long as the median" in fleet.sentence
        assert re.match(r"PyTorch 2\.\d+\.\d+( · CUDA [\d.]+)? · \S+ fp32 on ", fleet.sentence), (
            "as all of the report names a cell"
        )


@pytest.mark.parametrize(
    ("levels", "answer", "confidence"),
    [
        ([1.0, 1.004, 0.997, 1.002], "Yes: none of 4 GPUs stands out", "one run"),
        ([1.0, 1.3], "Not judged: no reference", "not judged"),
        ([0.96, 0.98, 1.0, 1.02, 1.04], "Open: the GPUs differ too much", "not judged"),
    ],
)
def test_a_fleet_says_no_more_than_it_shows(
    levels: list[float], answer: str, confidence: str, tmp_path: Path, shelf: Shelf
) -> None:
    health = health_of([each_gpu_run(tmp_path / "run", levels)])
    assert (health.answer, health.confidence) == (answer, confidence)
    assert few_words(health)
    assert health.next


def test_one_repeat_has_no_interval(tmp_path: Path, shelf: Shelf) -> None:
    health = health_of([each_gpu_run(tmp_path / "run", [1.0, 1.0, 1.0, 1.2], repeats=1)])
    assert health.confidence == "one run"
    assert {(gpu.low, gpu.high) for fleet in health.fleets for gpu in fleet.gpus} == {(None, None)}


def test_a_broken_reference_is_a_sentence_of_the_report(tmp_path: Path, shelf: Shelf) -> None:
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "lab.reference.parquet").write_bytes(b"nothing")
    health = health_of([make_run(tmp_path / "run")])
    assert health.confidence == "not judged"
    assert "lab.reference.parquet" in health.detail


def test_a_slow_node_is_the_answer_and_its_setting_the_reason(tmp_path: Path, shelf: Shelf) -> None:
    numbers = {f"n{at}": range(4 * at, 4 * at + 4) for at in range(4)}
    levels = [(1.1 if at // 4 == 2 else 1.0) * (1 + 0.001 * (at % 4)) for at in range(16)]
    limits = {at: {"power_limit_watts": 500.0} for at in range(8, 12)}
    health = health_of([each_gpu_run(tmp_path / "run", levels, nodes=numbers, settings=limits)])
    assert health.answer == "1 of 4 nodes is slow"
    assert few_words(health)
    assert "node n2 takes" in health.detail
    for fleet in health.fleets:
        assert fleet.nodes[0].name == "n2"
        assert [node.named for node in fleet.nodes] == [True, False, False, False]
        assert "power limit 500 W, and 700 W on 3 of 3 others" in fleet.nodes[0].reason
        assert [gpu.node for gpu in fleet.gpus].count("n2") == 4
        assert not fleet.nodes[0].reason.startswith("node")
        assert not any(gpu.named for gpu in fleet.gpus)
    assert health.reasons == ("32 cells: there is no reference yet",)
    few = health_of([each_gpu_run(tmp_path / "few", [1.0] * 8, nodes={"a": range(4), "b": range(4, 8)})])
    assert few.answer == "Not judged: too few nodes"


def test_a_slow_gpu_of_a_healthy_node_is_named_beside_the_slow_node(tmp_path: Path, shelf: Shelf) -> None:
    numbers = {f"n{at}": range(4 * at, 4 * at + 4) for at in range(4)}
    levels = [(1.1 if at // 4 == 1 else 1.3 if at == 14 else 1.0) * (1 + 0.001 * (at % 4)) for at in range(16)]
    health = health_of([each_gpu_run(tmp_path / "run", levels, nodes=numbers)])
    assert health.answer == "1 of 4 nodes and 1 GPU slow"
    assert few_words(health)
    # Each once, whatever the number of workloads.
    assert health.detail.count("node n1 takes longer than the median, as long as: ") == 1
    assert health.detail.count(f"GPU 6 …{uuids('NVIDIA H200', 15)[14][-4:]} of node n3 takes longer") == 1
    assert health.detail.count(" times at ") == 4


def test_a_run_that_measured_nothing_gets_no_advice_on_references(tmp_path: Path, shelf: Shelf) -> None:
    run = make_run(tmp_path / "run")
    for cell, repeat in RunStore(run).finished():
        entry = next(one for one in RunStore(run).manifest()["plan"] if one["id"] == cell)
        stored.write_repeat(run, cell, repeat, {"cells": [synthetic.failed_row(entry)]})
    page = page_of(overview(tables.load([run])), health_of([run]))
    assert page.health.answer == "Not judged: nothing was measured"
    assert "`runner doctor`" in page.health.next
    assert "reference" not in f"{page.health.next} {page.unanswered[-1].detail}"
    stored.remove(run, lambda _: True)
    assert (
        page_of(overview(tables.load([run])), health_of([run])).health.answer == "Not judged: nothing is measured yet"
    )
