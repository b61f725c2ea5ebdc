"""The answer on a person's own network ends with one sentence: who is fastest, by how much, and that the images compute the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import rules
from reports.answers.comparison import comparison
from reports.answers.plain import sections
from reports.answers.run_history import history
from reports.data import tables
from reports.data.model import MeasuredCell
from tests.fixtures import synthetic

IMAGES = ("torch-2.13.0-cpu", "torch-2.12.1-cpu")
NAME = "net@0123456789ab"
TOLD = {rules.OWN_LOSSES: "2.5, 2.25, 2.125", rules.OWN_BATCHES: "ab", rules.OWN_NAMES: "12"}
SEEDS = {rules.OWN_SEEDS: "2.5, 2.25, 2.125, 2.4, 2.3, 2.2", rules.OWN_SCATTER: "1e-6", rules.OWN_WHY: "no float64"}


def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, str], second: dict[str, str]) -> Path:
    """A run of two images whose cells told these settings."""
    monkeypatch.setattr(synthetic, "IMAGES", {name: ("torch", name.split("-")[1]) for name in IMAGES})
    monkeypatch.setattr(synthetic, "LEVELS", {(IMAGES[0], NAME): 0.1, (IMAGES[1], NAME): 0.2})
    environments = [json.dumps({"settings": settings, "versions": {}}) for settings in (first, second)]
    more = {"everywhere": {"environment_json": environments[1]}, "changes": {"environment_json": environments[0]}}
    # `changes` go into each repeat of the first image.
    return synthetic.make_run(tmp_path / "run", repeats=5, manifest={"skips": []}, **more)  # type: ignore[arg-type]


def said(run: Path) -> list[str]:
    return [line for section in sections(tables.load([run]), short=True) for line in section.below if line]


def test_two_images_that_agree_in_float64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = TOLD | {rules.OWN_LOSSES: "2.5, 2.25, 2.12500000001"}
    run = run_of(tmp_path, monkeypatch, TOLD, other)
    last = said(run)[-1]
    assert last.startswith("so: PyTorch 2.13.0 is fastest; PyTorch 2.12.1 takes 2.0")
    assert "times as long (95\u00a0% interval " in last
    assert last.endswith("; they compute the same (worst loss off by 4.0\u2009·\u200910⁻¹² in float64)")
    (workload,) = tables.load([run]).workloads
    assert {cell.proof for group in workload.groups for cell in group.cells} == {"own float64"}


def test_images_that_agree_say_so_where_their_figures_are_too_noisy_to_be_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, monkeypatch, TOLD, TOLD)
    monkeypatch.setattr(MeasuredCell, "unfit", property(lambda self: "too noisy"))
    assert said(run)[-1] == "so: which is faster is open; they compute the same (worst loss off by 0 in float64)"


def test_images_that_compute_two_things_have_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, monkeypatch, TOLD, TOLD | {rules.OWN_LOSSES: "2.5, 2.26, 2.125"})
    assert not [line for line in said(run) if "they compute the same" in line]
    cells = [cell for workload in tables.load([run]).workloads for group in workload.groups for cell in group.cells]
    assert all("in float64 its loss of step 2 is" in cell.unsound for cell in cells)


def test_images_without_float64_are_proved_by_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {**TOLD, **SEEDS}
    del told[rules.OWN_LOSSES]
    run = run_of(tmp_path, monkeypatch, told, told)
    assert said(run)[-1].endswith("they compute the same (worst loss off by 0, by agreement)")
    rows = [row for section in sections(tables.load([run])) for row in section.rows]
    assert ["proved by agreement" in row[-1] for row in rows] == [True, True]


def test_images_one_of_which_draws_random_numbers_are_not_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout that is off in one image alone computes the same without random numbers, and is less work."""
    run = run_of(tmp_path, monkeypatch, TOLD | {rules.OWN_RANDOM: "drawn"}, TOLD | {rules.OWN_RANDOM: "none"})
    cells = [cell for workload in tables.load([run]).workloads for group in workload.groups for cell in group.cells]
    assert sorted(cell.unsound.partition(",")[0] for cell in cells) == [
        "its measured step draws no random numbers",
        "its measured step draws random numbers",
    ]


@pytest.mark.parametrize(
    "told", [{rules.OWN_EVAL: "model.1 (BatchNorm2d)"}, {rules.OWN_RANDOM: "none"}], ids=["layers", "dropout"]
)
def test_eval_mode_is_noted_and_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, str]
) -> None:
    run = run_of(tmp_path, monkeypatch, TOLD, TOLD | told)
    assert [line.partition(":")[0] for line in said(run)][-2:] == ["note", "so"]
    assert "eval()" in said(run)[-2]
    (workload,) = tables.load([run]).workloads
    noted = [caveat for group in workload.groups for caveat in group.caveats if "eval()" in caveat]
    assert len(noted) == 1


def test_two_runs_of_two_versions_of_a_file_say_that_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    other = NAME.replace("0123", "ffff")
    for at, name in enumerate((NAME, other, other)):
        monkeypatch.setattr(synthetic, "IMAGES", {IMAGES[0]: ("torch", "2.13.0")})
        monkeypatch.setattr(synthetic, "LEVELS", {(IMAGES[0], name): 0.1})
        runs.append(synthetic.make_run(tmp_path / f"run{at}", repeats=5, manifest={"skips": []}))
    both = tables.load(runs[:2])
    first, second = sorted({cell.run_id for cell in both.cells})
    assert "the file of net changed between them" in comparison(both, first, second, by="run").summary
    assert f"each version is a network of its own: net in {second}." in history(tables.load(runs)).summary
    assert "file" not in history(tables.load(runs[1:])).summary
