"""`runner verify` over stored runs: every verdict, its causes, its formats, its exit codes."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.errors import ExitCode
from runner.results.statistics import fewest_windows, ratio_estimate
from runner.text import print_document
from runner.verify import output as verify_output
from runner.verify.peer_comparison import with_fleets
from runner.verify.references.measured import ceilings_path, read_runs, reference_of
from runner.verify.references.saved import FEWEST_WINDOWS, Reference, SavedError
from runner.verify.verdict import VariancePart
from runner.verify.verification import CellFinding, Verification, assess
from runner.verify.verification_run import document
from tests.fixtures import stored, synthetic
from tests.fixtures.json_documents import valid
from tests.fixtures.synthetic import LEVELS, make_run
from tests.unit.runner.verify.test_causes import ceilings

TORCH_CNN = ("torch-2.13.0-cpu", "cnn-cifar10")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """A reference from five repeats of the synthetic run."""
    return reference_of([make_run(tmp_path_factory.mktemp("lab") / "lab", repeats=5)], "lab", "0.1.0").reference


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three more repeats of the same machine."""
    return make_run(tmp_path_factory.mktemp("again") / "again", repeats=3)


def slowed(monkeypatch: pytest.MonkeyPatch, ratio: float, place: tuple[str, str] = TORCH_CNN) -> None:
    monkeypatch.setitem(synthetic.LEVELS, place, LEVELS[place] * ratio)


def found_of(found: Verification, framework: str, workload: str) -> CellFinding:
    return next(f for f in found.findings if (f.facts.framework, f.facts.workload) == (framework, workload))


def torch_cnn(found: Verification) -> CellFinding:
    return found_of(found, "torch", "cnn-cifar10")


def test_a_second_run_of_the_same_machine_is_ok(again: Path, lab: Reference) -> None:
    found = torch_cnn(assess([again], [lab]))
    assert found.kind == "ok"
    assert found.reference == "lab"
    assert found.ratio is not None
    assert found.ratio.low < 1 < found.ratio.high
    assert found.causes == ()


def test_a_cell_that_the_report_ranks_nowhere_is_open_and_in_no_reference_unless_wanted(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed(monkeypatch, 1.3)
    run = make_run(tmp_path / "again", repeats=3, changes={"noise": 0.4})
    found = torch_cnn(assess([run], [lab]))
    assert (found.kind, found.reason.partition(":")[0]) == ("open", "too noisy to be ranked")
    made = reference_of([run], "quiet", "0.1.0")
    assert {(one.facts.image, one.facts.workload) for one in made.reference.cells}.isdisjoint({TORCH_CNN})
    assert "torch cnn-cifar10 fp32 [torch-2.13.0-cpu]: too noisy: ± 40" in made.notes[0].replace("\xa0", " ")
    assert made.notes[1].endswith("--noisy keeps what is too noisy")
    made = reference_of([run], "noisy", "0.1.0", noisy=True)
    assert TORCH_CNN in {(one.facts.image, one.facts.workload) for one in made.reference.cells}
    (note,) = [note for note in made.notes if note.startswith("too noisy")]
    assert note.startswith("too noisy to be ranked, and kept: torch cnn-cifar10 fp32 ")
    assert "torch-2.13.0-cpu" in note
    assert "gru-imdb" not in note


def test_a_slow_run_on_a_cpu_that_others_kept_busy_is_open(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed(monkeypatch, 1.3)
    run = make_run(tmp_path / "again", repeats=3)
    path = ceilings_path(run, "torch-2.13.0-cpu", "torch", "cpu")
    path.parent.mkdir()
    for busy, kind in ((5.2, "open"), (1.0, "slow")):
        path.write_text(ceilings(load=busy, cpus=2).model_dump_json())
        assert torch_cnn(assess([run], [lab])).kind == kind


OTHER_VERSION = {"framework_version": "2.9.1"}


@pytest.mark.parametrize(
    ("ratio", "changes", "margin", "kind", "said"),
    [
        (1.15, {}, None, "slow", ""),
        (0.85, {}, None, "fast", ""),
        (1.08, {}, None, "open", ""),
        (1.15, {}, 0.3, "ok", ""),
        # It is not judged together with the others either.
        (1.3, OTHER_VERSION, None, "not-comparable", "framework_version 2.9.1 (reference 2.13.0)"),
        (1.0, OTHER_VERSION, None, "ok", "framework_version 2.9.1"),
    ],
)
def test_a_run_gets_the_verdict_of_its_level_and_another_version_is_named(
    ratio: float, changes: dict[str, str], margin: float | None, kind: str, said: str,
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    slowed(monkeypatch, ratio)
    found = torch_cnn(assess([make_run(tmp_path / "again", repeats=3, changes=changes)], [lab], margin))
    assert (found.kind, found.sound) == (kind, not changes)
    assert said in found.reason
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(ratio, rel=0.02)


def all_slowed(
    folder: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch, ratio: float, margin: float | None = None
) -> Verification:
    """A run of which all cells take `ratio` times as long, judged; the cell that failed is left out."""
    with monkeypatch.context() as patch:
        for place in LEVELS:
            patch.setitem(synthetic.LEVELS, place, LEVELS[place] * ratio)
        found = assess([make_run(folder, repeats=5)], [lab], margin)
    return replace(found, findings=tuple(one for one in found.findings if one.kind != "failed"))


def test_all_cells_together_are_a_test_of_their_own_and_count_in_the_exit_code(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = all_slowed(tmp_path / "all", lab, monkeypatch, 1.15)
    (whole,) = found.wholes
    assert (whole.verdict, whole.cells, found.exit_code) == ("slow", 5, 1)
    assert whole.low < 1.15 < whole.high
    # Even where no cell alone says so.
    alone = tuple(replace(one, kind="open") for one in found.findings)
    assert replace(found, findings=alone).exit_code == 1
    assert verify_output.ending(found).endswith("; all 5 cells together: slow")
    told = document(found)["together"]
    assert isinstance(told, list)
    assert [(one["cell_count"], one["verdict"], one["ratio"]) for one in told] == [(5, "slow", whole.ratio)]
    tree = ET.fromstring(verify_output.junit(found))
    (case,) = [case for case in tree if case.attrib["classname"] == "together"]
    assert [child.tag for child in case] == ["failure"]
    assert any(row[0] == "all 5 cells together" and row[5] == "slow" for row in verify_output.rows_of(found))
    assert "| all 5 cells together |" in verify_output.markdown(found)


def test_a_shift_inside_the_margin_is_told_in_numbers_and_passes(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = all_slowed(tmp_path / "all", lab, monkeypatch, 1.07, margin=0.16)
    (whole,) = found.wholes
    assert whole.verdict == "ok"
    (line,) = [
        line
        for line in verify_output.details(found)
        if line.startswith("ok: a step of the 5 cells of all together takes ")
    ]
    assert re.search(
        r"together takes 1\.0[67]\d times as long as in their references \(ratio, 90 % interval: 1\.00\d to 1\.1\d+\)",
        line,
    )
    assert line.endswith("; equal is ruled out: they did become slower")


def test_a_whole_is_open_at_the_margin_and_says_the_shift(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = all_slowed(tmp_path / "all", lab, monkeypatch, 1.08)
    (whole,) = found.wholes
    assert (whole.verdict, found.exit_code) == ("open", 3)
    assert "times as long as in their references" in whole.reason
    assert "slower for certain; the margin of 8 % lies inside the interval" in whole.reason
    assert "all 5 cells together: open" in verify_output.ending(found)


def test_an_open_cell_passes_with_the_others_where_its_ratio_is_inside_the_margin(again: Path, lab: Reference) -> None:
    found = assess([again], [lab])
    fine = replace(found, findings=tuple(one for one in found.findings if one.kind != "failed"))
    assert (fine.exit_code, fine.wholes[0].verdict) == (0, "ok")

    def with_open(ratio: float) -> Verification:
        first, *others = fine.findings
        assert first.ratio
        wide = replace(first.ratio, value=ratio, of_repeats=VariancePart(0.01, 5.0))
        return replace(fine, findings=(replace(first, kind="open", ratio=wide), *others))

    assert with_open(1.05).exit_code == 0
    assert "1 cell open alone, with a ratio inside the margin" in verify_output.ending(with_open(1.05))
    assert with_open(1.10).exit_code == 3
    one = with_open(1.05).findings[0]
    assert replace(fine, findings=(one,)).exit_code == 3, "nothing else vouches for it"
    excused = replace(one, sound=False)
    assert replace(fine, findings=(excused, *fine.findings[1:])).exit_code == 3


@pytest.mark.parametrize(("others", "kind"), [(1.1, "open"), (0.1, "slow"), (None, "slow")])
def test_a_slow_cell_beside_which_other_work_ran_is_open_and_says_how_much(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch, others: float | None, kind: str
) -> None:
    slowed(monkeypatch, 1.3)
    run = make_run(tmp_path / "again", repeats=3, changes={"other_cpus": others})
    found = torch_cnn(assess([run], [lab]))
    assert found.kind == kind
    said = "other work kept 1.1 CPUs busy beside it, and it had 2"
    assert (said in [cause.evidence for cause in found.causes]) == (kind == "open")


def test_a_cell_that_other_work_disturbed_is_not_judged_with_the_others(tmp_path: Path, lab: Reference) -> None:
    run = make_run(tmp_path / "again", repeats=3)
    path = ceilings_path(run, "torch-2.13.0-cpu", "torch", "cpu")
    path.parent.mkdir()
    path.write_text(ceilings(load=5.2, cpus=2).model_dump_json())
    assert torch_cnn(assess([run], [lab])).sound is False


def test_a_slow_run_on_fewer_threads_names_them(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed(monkeypatch, 1.8)
    usual = synthetic.environment

    def one_thread(entry: dict[str, Any]) -> dict[str, Any]:
        told = usual(entry)
        return told | {"settings": told["settings"] | {"threads": 1}}

    monkeypatch.setattr(synthetic, "environment", one_thread)
    found = torch_cnn(assess([make_run(tmp_path / "again", repeats=3)], [lab]))
    assert found.kind == "slow"
    assert [cause.name for cause in found.causes] == ["fewer threads"]
    assert "1 thread, where 2" in found.causes[0].evidence


def test_a_cell_that_computes_something_else_is_wrong_whatever_its_speed(tmp_path: Path, lab: Reference) -> None:
    changes = {
        "status": "failed",
        "error_kind": "parity",
        "parity_passed": False,
        "reason": "it computes something else: gradient",
    }
    found = assess([make_run(tmp_path / "again", repeats=3, changes=changes)], [lab])
    assert torch_cnn(found).kind == "wrong"
    assert torch_cnn(found).ratio is None
    assert "gradient" in torch_cnn(found).reason
    assert found.exit_code == 1


def test_a_cell_that_ended_before_it_told_anything_is_failed_and_judged_beside_the_others(
    again: Path, lab: Reference
) -> None:
    found = assess([again], [lab])
    failed = found_of(found, "tensorflow", "gru-imdb")
    assert failed.kind == "failed"
    assert "memory" in failed.reason
    assert found.exit_code == 1


def test_without_a_reference_there_is_no_verdict_but_an_expectation_that_is_called_a_model(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", repeats=3)
    path = ceilings_path(run, "torch-2.13.0-cpu", "torch", "cpu")
    path.parent.mkdir()
    path.write_text(ceilings().model_dump_json())
    found = torch_cnn(assess([run], []))
    assert found.kind == "no-reference"
    assert found.parity_passed is True
    assert found.expectation is not None
    assert "a model" in found.expectation.model
    without = found_of(assess([run], []), "jax", "gru-imdb")
    assert without.expectation is None


def test_too_few_windows_are_no_verdict_and_no_reference(tmp_path: Path, lab: Reference) -> None:
    run = make_run(tmp_path / "few", windows=4)
    found = torch_cnn(assess([run], [lab]))
    assert found.kind == "open"
    assert "too few windows: no repeat has 6; " in found.reason
    assert "--preset standard" in found.reason
    # The row has both figures, and no ratio.
    assert (found.reference, found.ratio) == ("lab", None)
    assert found.reference_seconds == pytest.approx(LEVELS[TORCH_CNN], rel=0.05)
    assert verify_output.cells_of(found)[2].endswith(" ms, lab")
    with pytest.raises(SavedError, match="no cell"):
        reference_of([run], "few", "0.1.0")


def test_cells_that_are_not_yet_run_are_not_judged_but_counted_in_a_line(tmp_path: Path) -> None:
    run = synthetic.unrun(make_run(tmp_path / "begun", repeats=3), TORCH_CNN)
    found = assess([run], [])
    assert [(one.facts.framework, one.facts.workload) for one in found.findings] == [("torch", "cnn-cifar10")]
    (line,) = found.waiting
    count, _, names = line.partition("): ")
    assert count == f"{len(LEVELS) - 1} cells are not yet run (runner matrix --resume begun"
    # The first of them have their names: the image, behind what it measures. Here all have.
    named = sorted(
        (place.partition(",")[0], image)
        for place, _, images in (one.partition(": ") for one in names.split("; "))
        for image in images.split(", ")
    )
    assert named == sorted((workload, image) for image, workload in LEVELS if (image, workload) != TORCH_CNN)
    assert list(verify_output.details(found)).count(line) == 1
    assert verify_output.ending(found).startswith("open: nothing failed, and 0 of 1 cell passed")
    assert document(found)["not_yet_run"] == [line]
    fine = replace(found, findings=(replace(found.findings[0], kind="ok"),))
    assert fine.exit_code == 3, "a run that is not whole is no pass"


def test_gpus_of_a_run_without_a_gpu_are_not_compared_and_it_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "cpu")
    ended = CliRunner().invoke(app, ["verify", "--run", str(run), "--each-gpu"])
    assert "--each-gpu: these runs hold no cell of a GPU" in ended.stderr


def test_a_reference_of_an_unfinished_run_counts_what_was_measured(tmp_path: Path) -> None:
    run = synthetic.unrun(make_run(tmp_path / "begun", repeats=3), TORCH_CNN)
    notes = reference_of([run], "lab", "0.1.0").notes
    assert not any("not kept" in note for note in notes)
    awaited = f"{len(LEVELS) - 1} cells are not yet run (runner matrix --resume begun): "
    assert any(note.startswith(awaited) for note in notes)
    with pytest.raises(SavedError, match=r"no cell can be kept: 6 cells are not yet run \(runner matrix --resume none"):
        reference_of([synthetic.unrun(make_run(tmp_path / "none"))], "lab", "0.1.0")


@pytest.mark.parametrize("columns", ["80", None])
def test_a_table_names_every_cell_whole_on_a_terminal_of_80_columns_and_in_a_pipe(
    again: Path, columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    verified = assess([again], [])
    verify_output.terminal(verified)
    shown = capsys.readouterr().out
    assert "…" not in shown
    rows = [line for line in shown.splitlines() if line.endswith("]") or "]  " in line]
    names = [f"{finding.facts.name} [{finding.facts.image}]" for finding in verified.findings]
    assert [row[: len(name)] for row, name in zip(rows, names, strict=True)] == names
    if columns:
        assert max(map(len, rows)) <= 80


def test_what_holds_of_every_cell_is_said_once(again: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify_output.terminal(assess([again], []))
    lines = capsys.readouterr().out.splitlines()
    (line,) = (
        line for line in lines if "there is no reference yet" in line and "slowed" not in line and " and " in line
    )
    assert line.startswith("no-reference: ")
    assert sum("reference save RUN RUN" in line for line in lines) == 1


def test_a_repeat_of_a_reference_has_the_windows_that_an_interval_needs() -> None:
    assert FEWEST_WINDOWS == fewest_windows() == 6
    assert "six steady windows, the fewest that a 95 % interval needs" in Path("docs/verify.md").read_text()


def test_parity_that_was_not_checked_is_no_verdict(tmp_path: Path, lab: Reference) -> None:
    found = torch_cnn(assess([make_run(tmp_path / "unchecked", changes={"parity_passed": None})], [lab]))
    assert found.kind == "open"
    assert "parity was not checked" in found.reason


def test_another_device_is_named_and_not_compared_with(
    tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", repeats=3, changes={"device_model": "Another Processor"})
    found = torch_cnn(assess([run], [lab]))
    assert found.kind == "no-reference"
    assert found.nearest == f"{synthetic.CPU} (reference lab)"


def test_the_same_runs_and_references_give_the_same_text_twice(again: Path, lab: Reference) -> None:
    twice = [document(assess([again], [lab])) for _ in range(2)]
    assert twice[0] == twice[1]


def gpu_run(folder: Path, number: int, monkeypatch: pytest.MonkeyPatch, ratio: float = 1.0) -> Path:
    with monkeypatch.context() as patch:
        patch.setitem(synthetic.LEVELS, TORCH_CNN, LEVELS[TORCH_CNN] * ratio)
        changes = {"device_uuids": [f"GPU-{number:04}"], "device_kind": "cuda", "device_model": "NVIDIA H200"}
        return make_run(folder / f"gpu-{number}", changes=changes)


def test_the_weak_gpu_among_eight_is_found_without_any_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = [1.0, 1.004, 0.997, 1.2, 1.002, 0.995, 1.001, 1.003]
    runs = [gpu_run(tmp_path, at, monkeypatch, ratio) for at, ratio in enumerate(levels)]
    found = with_fleets(assess(runs, []))
    assert [one.device_model for one in found.fleets] == ["NVIDIA H200"]
    assert [slow.device for slow in found.fleets[0].fleet.slow] == ["GPU-0003"]
    assert found.exit_code == 1
    assert any("GPU-0003 takes" in line for line in verify_output.details(found))


def test_alike_gpus_without_a_reference_pass_but_for_the_cells_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [gpu_run(tmp_path, at, monkeypatch, 1 + at / 1000) for at in range(6)]
    found = with_fleets(assess(runs, []))
    assert found.fleets[0].fleet.slow == ()
    ended = tuple(finding for finding in found.findings if finding.device_uuid)
    assert Verification(ended, found.fleets).exit_code == 0
    assert Verification(ended).exit_code == 3


def test_what_was_checked_on_the_measured_adapter_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    stored.write_repeat(run, entry["id"], 1, {**rows, "parity": synthetic.due_rows("cnn-cifar10")})
    found = assess([run], [])
    checked = ("moved", "updates", "learning", "prediction", "landing", "dropout", "items", "evaluated")
    assert torch_cnn(found).proved == checked
    line = "that of torch cnn-cifar10 fp32 passed: training moved every tensor, the optimiser's count of its steps, learning curve, "
    assert sum(line in told for told in verify_output.details(found)) == 1
    # What all cells of a group passed is said once, and what some passed beside it.
    (finding,) = (finding for finding in found.findings if finding.proved)
    others = [replace(finding, proved=proved) for proved in (("moved", "prediction"), ("moved", "learning"))]
    lines = list(verify_output.details(Verification((finding, *others))))
    assert len([line for line in lines if line.startswith("no-reference: ")]) == 1
    assert lines[1] == "  parity passed: it computes what the float64 reference computes"
    assert lines[2] == "  the adapter that was measured passed: training moved every tensor"
    assert len([line for line in lines if " also passed: " in line]) == 3


HOSTILE = "x</testcase><script>\x1b[31m|`*[click](evil)*\x00\u202e"


def test_what_a_cell_says_cannot_break_any_format(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "run", changes={"status": "failed", "error_kind": "crash", "reason": HOSTILE, "image": HOSTILE}
    )
    found = assess([run], [])
    tree = ET.fromstring(verify_output.junit(found))
    assert len(tree) == len(found.findings) == int(tree.attrib["tests"])
    text = verify_output.markdown(found)
    assert "<script" not in text
    assert "\x1b" not in text + "".join(verify_output.details(found))
    assert "\\[click\\]" in text
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {len(verify_output.HEADINGS) + 1}
    print_document(document(found))


def test_an_environment_event_of_somebody_else_s_making_is_read_as_far_as_it_fits(tmp_path: Path) -> None:
    strange = {
        "host": {"cpu_count": "two", "cpu_model": 7},
        "device": [],
        "settings": {"threads": [1], "x": 1e999, "y": "z" * 999},
    }
    run = make_run(tmp_path / "run", changes={"environment_json": json.dumps(strange)})
    facts = torch_cnn(assess([run], [])).facts
    assert (facts.cpu_count, facts.cpu_model, facts.device_memory_bytes) == (None, "7", None)
    assert set(facts.settings) == {"y"}
    assert len(str(facts.settings["y"])) == 300


def test_a_row_has_one_interval_and_the_output_says_where_the_rule_stands(again: Path, lab: Reference) -> None:
    rows = [verify_output.cells_of(finding) for finding in assess([again], [lab]).findings]
    assert any("90 %: " in row[3] for row in rows)
    assert all("%" not in row[1] for row in rows if "90 %" in row[3])
    alone = [verify_output.cells_of(finding) for finding in assess([again], []).findings]
    assert any("95 %: " in row[1] for row in alone)
    assert "docs/verify.md says when a cell is slow" in list(verify_output.details(assess([again], [lab])))[-1]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.9, 1.1, "0.900 to 1.100"),
        (0.002, 800.0, "repeats lie too far apart to tell"),
        (1.3, 3.68e6, "more than 1.30; repeats lie too far apart to tell how much"),
    ],
)
def test_an_interval_of_repeats_that_lie_far_apart_is_said_in_words(
    again: Path, lab: Reference, low: float, high: float, words: str
) -> None:
    found = torch_cnn(assess([again], [lab]))
    assert found.ratio is not None
    shown = verify_output.cells_of(replace(found, ratio=replace(found.ratio, value=1.0, low=low, high=high)))
    assert shown[3] == f"1.000 (90 %: {words})"


def test_compare_and_verify_find_the_same_ratio_of_a_cell_of_which_no_repeat_is_trimmed(
    again: Path, tmp_path: Path
) -> None:
    lab = reference_of([make_run(tmp_path / "lab", repeats=4)], "lab", "0.1.0").reference
    cells = {(one.cell.framework, one.cell.key.workload): one.repeats for one in read_runs([again])}
    for finding in assess([again], [lab]).findings:
        if finding.ratio and finding.reference:
            place = (finding.facts.framework, finding.facts.workload)
            reference = next(c for c in lab.cells if (c.facts.framework, c.facts.workload) == place)
            ratio = ratio_estimate(cells[place], reference.repeats, alike=True)
            assert ratio is not None
            assert ratio.value == pytest.approx(finding.ratio.value)


def test_junit_tells_failures_and_doubts_apart(tmp_path: Path, lab: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed(monkeypatch, 1.3)
    tree = ET.fromstring(verify_output.junit(assess([make_run(tmp_path / "again", repeats=3)], [lab])))
    assert (tree.attrib["failures"], tree.attrib["skipped"]) == ("2", "1")  # slow and failed; the unsteady one
    slow = next(case for case in tree if "torch cnn" in case.attrib["name"])
    assert [child.tag for child in slow] == ["failure"]


# --- the command --------------------------------------------------------------------------------------------------------------


def run_command(*words: str, references: Path) -> Any:
    return CliRunner().invoke(app, list(words), env={"DLBENCH_REFERENCES": str(references), "COLUMNS": "200"})


def test_save_list_show_diff_export_import_and_verify_work_together(tmp_path: Path) -> None:
    make_run(tmp_path / "results" / "first", repeats=5)
    make_run(tmp_path / "results" / "second", repeats=3)
    shelf, other, out = tmp_path / "shelf", tmp_path / "other", ("--out", str(tmp_path / "results"))
    saved = run_command("reference", "save", "first", "--name", "lab", *out, references=shelf)
    assert saved.exit_code == 0
    assert " 5 cells sha256:" in saved.stdout
    listed = valid("reference list", run_command("reference", "list", "--format", "json", references=shelf).stdout)[
        "references"
    ]
    assert [row["name"] for row in listed] == ["published", "lab"]
    assert listed[0]["cell_count"] == 526
    file = str(tmp_path / "lab.parquet")
    assert run_command("reference", "export", "lab", "-o", file, references=shelf).exit_code == 0
    assert run_command("reference", "import", file, references=other).exit_code == 0
    shown = valid(
        "reference show", run_command("reference", "show", "lab", "--format", "json", references=other).stdout
    )["cells"]
    assert len(shown) == len(LEVELS) - 1
    assert all(row["step_low"] < row["step_seconds"] < row["step_high"] for row in shown)
    diff = valid(
        "reference diff", run_command("reference", "diff", "lab", file, "--format", "json", references=shelf).stdout
    )["rows"]
    assert {row["ratio"] for row in diff} == {1.0}
    judged = run_command("verify", "--run", "second", "--format", "json", *out, references=other)
    assert judged.exit_code == 1  # the synthetic run has a failed cell
    assert {one["verdict"] for one in valid("verify", judged.stdout)["findings"]} == {"ok", "failed"}


def test_this_machine_stands_beside_k80_p100_and_v100(tmp_path: Path) -> None:
    make_run(tmp_path / "mine", repeats=2)
    shown = run_command("reference", "show", "published", "--run", str(tmp_path / "mine"), references=tmp_path / "none")
    assert shown.exit_code == 0
    assert all(
        word in shown.stdout for word in ("K80", "P100", "V100", synthetic.CPU, "torch cnn-cifar10", "cntk native")
    )


def test_the_command_writes_junit_and_markdown(tmp_path: Path) -> None:
    make_run(tmp_path / "mine")
    paths = tmp_path / "junit.xml", tmp_path / "summary.md"
    ended = run_command(
        "verify", "--run", str(tmp_path / "mine"), "--junit", str(paths[0]), "--markdown", str(paths[1]), references=tmp_path / "no"
    )  # fmt: skip
    assert ended.exit_code == 1
    assert ET.parse(paths[0]).getroot().tag == "testsuite"
    assert paths[1].read_text().startswith("### Verification: FAIL")


@pytest.mark.parametrize(
    "words",
    [("verify", "--run", "nowhere"), ("verify", "--preset", "long"), ("verify", "--reference", "none", "--run", "x"),
     ("verify", "--python", "/nowhere/python"), ("reference", "show", "none"), ("reference", "save", "nowhere", "--name", "x"),
     ("reference", "import", "nowhere.parquet"), ("verify", "--image", "no-such-image"),
     ("reference", "list", "--references", __file__), ("reference", "show", "published", "--workload", "gru-imbd"),
     ("reference", "show", "published", "--gpu", "K81")],
)  # fmt: skip
def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(words: tuple[str, ...], tmp_path: Path) -> None:
    ended = run_command(*words, references=tmp_path)
    assert ended.exit_code == 2
    # The machine of the tests may have variables of which the first line tells.
    said = [line for line in ended.stderr.splitlines() if not line.startswith("cells do not get ")]
    assert said[0].startswith(("runner: ", "Usage: ")), "a choice that does not exist is refused by Typer"
    assert "Traceback" not in ended.output


def test_a_folder_of_references_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A mistyped folder would else read as `no-reference`, which CI may let pass."""
    make_run(tmp_path / "mine")
    ended = run_command("verify", "--run", str(tmp_path / "mine"), references=tmp_path / "typo")
    assert f"--references: {tmp_path / 'typo'} is not there" in ended.stderr


def test_a_broken_reference_is_named_and_stops_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "bad.reference.parquet").write_bytes(b"PAR1 no")
    make_run(tmp_path / "mine")
    ended = run_command("verify", "--run", str(tmp_path / "mine"), references=tmp_path)
    assert ended.exit_code == 2
    assert "bad.reference.parquet" in ended.stderr


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_verify_prints_the_two_numbers_whose_quotient_is_its_ratio(tmp_path: Path, noise: float) -> None:
    """Of five repeats the fastest and the slowest do not count, and the machine becomes slower from repeat to repeat."""
    run = make_run(tmp_path / "new", repeats=5, drift=1 + noise)
    old = make_run(tmp_path / "old", repeats=5, draw=1)
    findings = [one for one in assess([run], [reference_of([old], "lab", "0.1.0").reference]).findings if one.ratio]
    assert findings
    for one in findings:
        _, measured, reference, ratio, *_ = verify_output.cells_of(one)
        quotient = float(measured.split(" ms")[0]) / float(reference.split(" ms")[0])
        assert float(ratio.split(" ")[0]) == pytest.approx(quotient, abs=2e-3)


def test_an_installation_that_stalls_is_slow_and_the_stalls_are_said(tmp_path: Path, lab: Reference) -> None:
    """Every third window takes 1.6 times as long. The median of the windows is that of the reference."""
    run = make_run(tmp_path / "stalls", repeats=3)

    def stalled(row: dict[str, Any]) -> dict[str, Any]:
        longer = 1.6 if row["stage"] == "steady" and row["index"] % 3 == 0 else 1.0
        return {**row, "seconds": row["seconds"] * longer}

    stored.change(run, "samples", stalled)
    found = assess([run], [lab])
    compared = [one for one in found.findings if one.ratio]
    assert {one.kind for one in compared} == {"slow"}
    said = "stalls: one window in 3 takes 1.6 times as long, and the reference's do not: that alone makes it "
    assert said in torch_cnn(found).reason
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("cut_by", "begin"),
    [(ExitCode.CANNOT_BEGIN, "the machine failed before it was decided"), (ExitCode.INTERRUPTED, "interrupted")],
)
def test_what_cut_a_verification_short_is_its_code_where_it_is_open_and_only_there(
    cut_by: ExitCode, begin: str, again: Path, lab: Reference
) -> None:
    passed, alone = torch_cnn(assess([again], [lab])), torch_cnn(assess([again], []))
    cut = Verification((alone,), cut_by=cut_by)
    assert cut.exit_code == document(cut)["exit_code"] == cut_by
    assert verify_output.ending(cut).startswith(f"{begin}: nothing failed, and 0 of 1 cell passed")
    assert Verification((passed,), cut_by=cut_by).exit_code == ExitCode.OK, "it was decided before"
    assert Verification((replace(passed, kind="slow"), alone), cut_by=cut_by).exit_code == ExitCode.FOUND
