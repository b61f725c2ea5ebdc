"""Images that compute an own network are ranked where their float64 losses agree; what differs is named, with both numbers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bench import rules
from reports.data import tables
from runner.results.rank import own_agreement

NAME = "net@0123456789ab"


def cell(image: str, losses: str = "2.5, 2.25, 2.125", batches: str = "ab", workload: str = NAME, **more: str) -> Any:
    settings = {rules.OWN_LOSSES: losses, rules.OWN_BATCHES: batches, rules.OWN_NAMES: "12", **more}
    return held(image, settings, workload)


def not_in_float64(image: str, losses: str, scatter: str = "1e-6") -> Any:
    """A cell that has no proof in float64: losses of two seeds, as they were measured."""
    settings = {rules.OWN_SEEDS: losses, rules.OWN_SCATTER: scatter, rules.OWN_WHY: "no float64 here"}
    return held(image, settings | {rules.OWN_BATCHES: "ab", rules.OWN_NAMES: "12"})


def held(image: str, settings: dict[str, str], workload: str = NAME) -> Any:
    key = SimpleNamespace(workload=workload, precision="fp32")
    return SimpleNamespace(image=image, framework="torch", key=key, environment={"settings": settings}, unproved="")


@pytest.fixture(autouse=True)
def _of_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells here have what the rule looks at, and no more."""
    monkeypatch.setattr(own_agreement, "replace", lambda it, **to: SimpleNamespace(**{**vars(it), **to}))
    assert replace is not own_agreement.replace


def unproved(*cells: Any) -> list[str]:
    return [str(each.unproved) for each in own_agreement.agreed(cells)]


def test_images_that_agree_are_ranked() -> None:
    assert unproved(cell("a"), cell("b"), cell("c", "2.500000001, 2.25, 2.125")) == ["", "", ""]


def test_of_two_that_differ_both_say_how() -> None:
    first, second = unproved(cell("a"), cell("b", "2.5, 2.2501, 2.125"))
    assert first == "in float64 its loss of step 2 is 2.25, not the 2.2501 of b torch"
    assert second == "in float64 its loss of step 2 is 2.2501, not the 2.25 of a torch"


def test_of_three_the_odd_one_out_is_named() -> None:
    assert unproved(cell("a"), cell("b", "2.5, 2.4, 2.3"), cell("c")) == [
        "",
        "in float64 its loss of step 2 is 2.4, not the 2.25 of a torch, nor of 1 more",
        "",
    ]


def test_other_batches_are_named() -> None:
    assert unproved(cell("a"), cell("b", batches="cd")) == [
        "its batches are not those of b torch: draw all that batch() draws from its argument",
        "its batches are not those of a torch: draw all that batch() draws from its argument",
    ]


def test_other_networks_and_cells_without_losses_are_left_alone() -> None:
    others = cell("a"), cell("b", "1, 2, 3", workload="other@0123456789ab"), cell("c", "1", workload="cnn-cifar10")
    assert unproved(*others, cell("d", "nan, 1, 2"), cell("e", "")) == [""] * 5


def test_fewer_steps_are_another_proof() -> None:
    assert unproved(cell("a"), cell("b", "2.5, 2.25"))[1] == "its steps in float64 are not those of a torch"


def test_parameters_of_other_names_say_how_two_files_are_held_together() -> None:
    said = unproved(cell("a"), cell("b", "2.6, 2.25, 2.125", **{rules.OWN_NAMES: "34"}))
    assert (
        said[0] == "its parameters have other names or shapes than those of b torch: give both files read() and load()"
    )


SEEDS = "2.5, 2.25, 2.125, 2.4, 2.3, 2.2"


def test_an_image_without_float64_alone_is_not_proved() -> None:
    assert unproved(not_in_float64("a", SEEDS)) == [
        "computation not proved: no float64 here; measure it in a second image"
    ]


def test_images_without_float64_are_held_by_the_losses_of_several_seeds() -> None:
    near, far = SEEDS.replace("2.4", "2.400005"), SEEDS.replace("2.4", "2.4001")
    assert unproved(not_in_float64("a", SEEDS), not_in_float64("b", near)) == ["", ""]
    said = unproved(not_in_float64("a", SEEDS), not_in_float64("b", far))
    assert said[0] == "computation not proved: no float64 here; its loss of step 4 is 2.4, not the 2.4001 of b torch"


def test_one_without_float64_is_held_against_the_float64_of_others() -> None:
    assert unproved(cell("a"), not_in_float64("b", SEEDS.replace("2.25", "2.250004"))) == ["", ""]
    # Dropout that is left on scatters by more than a proof allows.
    loose = unproved(cell("a"), not_in_float64("b", SEEDS.replace("2.25", "2.26"), "0.1"))
    assert loose[0] == "its loss of step 2 is 2.25, not the 2.26 of b torch"
    assert loose[1].startswith("computation not proved")


def test_the_command_that_measures_it_again_names_the_copy_of_its_run() -> None:
    manifest = {
        "run_id": "20261130-120000-abcd",
        "options": {"out": "/data/results"},
        "engine": "venv",
        "seed": 1,
        "repeats": 3,
    }
    command = tables._command({"workload": NAME, "image": "a", "engine": "venv"}, manifest)
    assert f"--workloads /data/results/20261130-120000-abcd/networks/{NAME} " in command
    assert "--workloads cnn-cifar10 " in tables._command({"workload": "cnn-cifar10"}, manifest)
