"""References of several runs: what is kept of them, what is said, and what verify does with them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from reports.data.tables import load
from runner.cli.main import app
from runner.results.cells import step_of
from runner.verify import output
from runner.verify.references import display
from runner.verify.references.comparability import device_of
from runner.verify.references.contributed.derived_rows import names_a_processor
from runner.verify.references.measured import reference_of
from runner.verify.references.saved import Reference, SavedError, Shelf, read
from runner.verify.verification import Verification, assess
from runner.verify.verification_run import document
from tests.fixtures import synthetic
from tests.fixtures.fleets import each_gpu_run
from tests.fixtures.json_documents import valid
from tests.fixtures.synthetic import make_run
from tests.unit.runner.verify.test_references import facts

TORCH_CNN = ("torch-2.13.0-cpu", "cnn-cifar10")


def day(folder: Path, number: int, slower: float = 1.0, **more: Any) -> Path:
    """One run of the same machine; on this day every cell takes `slower` times as long."""
    levels = dict.fromkeys(synthetic.LEVELS, slower)
    created = {"created": f"2026-11-{number:02}T08:00:00+00:00"}
    return make_run(
        folder / f"day{number}", **({"repeats": 3, "draw": number, "slower": levels, "manifest": created} | more)
    )


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("days")
    return [day(folder, 1), day(folder, 2, 1.03), day(folder, 3, 0.98), day(folder, 4)]


@pytest.fixture(scope="module")
def lab(days: list[Path]) -> Reference:
    return reference_of(days[:3], "lab", "0.1.0").reference


def torch_cnn(verification: Verification) -> Any:
    place = ("torch", "cnn-cifar10")
    return next(f for f in verification.findings if (f.facts.framework, f.facts.workload) == place)


def command(*words: str, references: Path) -> Result:
    return CliRunner().invoke(app, list(words), env={"DLBENCH_REFERENCES": str(references), "COLUMNS": "220"})


def test_each_run_is_a_session_and_comes_back_as_one(tmp_path: Path, days: list[Path], lab: Reference) -> None:
    assert lab.run_ids == ("day1", "day2", "day3")
    assert {cell.session_of for cell in lab.cells} == {(0, 0, 0, 1, 1, 1, 2, 2, 2)}
    assert read(Shelf([tmp_path]).put(lab)) == lab
    turned = reference_of(days[2::-1], "lab", "0.1.0").reference
    assert turned.sha256 == lab.sha256


def test_a_reference_of_one_run_is_the_file_that_earlier_releases_wrote(tmp_path: Path, days: list[Path]) -> None:
    path = Shelf([tmp_path]).put(reference_of(days[:1], "one", "0.1.0").reference)
    manifest = json.loads(pq.read_schema(path).metadata[b"dlbench_reference"])
    assert (manifest["format"], manifest["run_id"]) == (1, "day1")
    assert "run_ids" not in manifest
    assert all("sessions" not in cell for cell in manifest["cells"])
    assert list(read(path).cells[0].sessions()) == [0]


@pytest.mark.parametrize(
    "sessions", [[0, 0, 0, 1, 1, 1, 2, 2, 3], [0] * 8, [], [-1] * 9, ["x"] * 9, None, [10**9] * 9, 7]
)
def test_sessions_that_are_none_of_the_runs_are_refused(sessions: Any, tmp_path: Path, lab: Reference) -> None:
    path = Shelf([tmp_path]).put(lab)
    table = pq.read_table(path)
    metadata = dict(table.schema.metadata)
    manifest = json.loads(metadata[b"dlbench_reference"])
    manifest["cells"][0]["sessions"] = sessions
    metadata[b"dlbench_reference"] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(SavedError, match="get the file again"):
        read(path)


def test_days_that_differ_make_the_interval_wider_and_are_no_assumption(days: list[Path], lab: Reference) -> None:
    ratio = torch_cnn(assess([days[3]], [lab])).ratio
    one = torch_cnn(assess([days[3]], [reference_of(days[:1], "one", "0.1.0").reference])).ratio
    assert (ratio.reference_sessions, ratio.reference_repeats) == (3, 9)
    assert 1 < ratio.between_sessions.observed < 2, "two, less what the repeats hide"
    assert one.between_sessions.observed == 0
    assert ", if " not in torch_cnn(assess([days[3]], [lab])).reason
    assert ratio.between_sessions.deviation > one.between_sessions.deviation == 0.02
    assert "sessions differ by 2.0 %" in output.cells_of(torch_cnn(assess([days[3]], [lab_of_one(days)])))[4]
    assert output.cells_of(torch_cnn(assess([days[3]], [lab])))[4] == "–"


def lab_of_one(days: list[Path]) -> Reference:
    return reference_of(days[:1], "one", "0.1.0").reference


def test_one_repeat_beside_one_says_in_its_row_what_is_assumed(tmp_path: Path) -> None:
    reference = reference_of([day(tmp_path, 5, repeats=1)], "one", "0.1.0")
    finding = torch_cnn(assess([day(tmp_path, 6, repeats=1)], [reference.reference], margin=0.2))
    assert finding.reason == (
        "within 20 % of the reference, if repeats differ by 2.0 % (one on each side does not show it) and sessions differ by 2.0 % "
        "(the reference has one)"
    )
    assert output.cells_of(finding)[4] == "repeats differ by 2.0 %, sessions differ by 2.0 %"
    assert any("one repeat each, so how far repeats differ is assumed: torch" in note for note in reference.notes)
    two = reference_of([day(tmp_path, number, repeats=1) for number in (7, 8)], "two", "0.1.0")
    assert any("one repeat each, so how far repeats differ is assumed: torch" in note for note in two.notes)


def test_the_columns_of_a_row_divide_to_its_ratio(days: list[Path], lab: Reference) -> None:
    for finding in assess([days[3]], [lab]).findings:
        if finding.ratio:
            _, measured, reference, ratio, *_ = output.cells_of(finding)
            quotient = float(measured.split(" ms")[0]) / float(reference.split(" ms")[0])
            assert quotient == pytest.approx(float(ratio.split(" ")[0]), abs=1.1e-3)
            assert "3 repeats" in measured
            assert "9 repeats in 3 sessions" in reference


def test_a_run_is_not_judged_by_itself(days: list[Path], lab: Reference) -> None:
    alone = torch_cnn(assess(days[:1], [lab_of_one(days)]))
    assert (alone.kind, alone.ratio) == ("open", None)
    assert "this is the run that the reference one was made from" in alone.reason
    among = torch_cnn(assess(days[:1], [lab]))
    assert among.ratio.reference_sessions == 2
    assert "this run is one that the reference was made from" in among.reason
    # Another reference is taken instead, though this one is newer.
    other = reference_of(days[2:3], "other", "0.1.0").reference.model_copy(
        update={"created": "2020-01-01T00:00:00+00:00"}
    )
    assert torch_cnn(assess(days[:1], [lab_of_one(days), other])).reference == "other"


def test_runs_of_two_installations_or_the_same_run_twice_make_no_reference(tmp_path: Path, days: list[Path]) -> None:
    newer = day(tmp_path, 7, everywhere={"framework_version": "99.0"})
    with pytest.raises(SavedError, match=r"framework_version is 99\.0 in run day7 and .* in run day1"):
        reference_of([days[0], newer], "lab", "0.1.0")
    with pytest.raises(SavedError, match="the same run"):
        reference_of([days[0], day(tmp_path, 1)], "lab", "0.1.0")


def test_what_an_imported_reference_says_cannot_act_on_the_terminal(tmp_path: Path, lab: Reference) -> None:
    hostile = lab.model_copy(update={"run_ids": ("\x1b[31mday1\u202e\n", "[bold]day2", "day3"), "name": "hostile"})
    Shelf([tmp_path]).put(hostile)
    shown = command("reference", "show", "hostile", references=tmp_path)
    assert shown.exit_code == 0
    title = shown.stdout.splitlines()[0]
    assert title.startswith("hostile of runs day1")
    assert title.endswith("over the sessions")
    assert not {"\x1b", "\u202e"} & set(shown.stdout)


def test_what_is_left_out_and_what_is_assumed_is_said(tmp_path: Path, days: list[Path]) -> None:
    made = reference_of(days[:2], "lab", "0.1.0")
    assert made.notes[0].startswith("kept 10 of 12 measured cells; not kept: tensorflow gru-imdb fp32")
    assert "(in 2 runs)" in made.notes[0]
    assert made.notes[1].startswith(
        "unsteady, and kept with both levels: jax cnn-cifar10 fp32 [jax-0.10.2-cpu] (in 2 runs); end"
    )
    assert len(made.notes) == 2
    assert "is assumed" in reference_of(days[:1], "lab", "0.1.0").notes[-1]
    with pytest.raises(SavedError, match=r"4 windows a repeat at most, and a reference needs 6"):
        reference_of([day(tmp_path, 8, windows=4)], "lab", "0.1.0")


def test_a_reference_shows_its_cells_by_workload_the_fastest_first_with_the_interval_of_its_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = day(tmp_path, 11, repeats=1)
    display.print_reference(reference_of([run], "lab", "0.1.0", noisy=True).reference, None, as_json=True)
    rows = valid("reference show", capsys.readouterr().out)["cells"]
    assert [row["facts"]["workload"] for row in rows] == ["cnn-cifar10"] * 3 + ["gru-imdb"] * 2
    assert all(before["step_seconds"] <= after["step_seconds"] for before, after in pairwise(rows[:3]))
    (unsteady,) = (row for row in rows if row["note"] == "unsteady")
    assert unsteady["facts"]["framework"] == "jax"
    # The report adds how much another repeat would differ, as the other cells of its run show it. A reference has no such cells.
    (cell,) = (one for one in load([run]).cells if (one.framework, one.key.workload) == ("jax", "cnn-cifar10"))
    step = step_of(cell.measured)
    assert step
    assert [unsteady["step_low"], unsteady["step_high"]] == pytest.approx([step.low, step.high])


def test_a_cell_that_one_run_lacks_is_named(tmp_path: Path, days: list[Path]) -> None:
    fewer = day(tmp_path, 9)
    synthetic.forget(fewer, *TORCH_CNN)
    made = reference_of([days[0], fewer], "lab", "0.1.0")
    assert made.notes[-1] == "not in all of the 2 runs: torch cnn-cifar10 fp32 [torch-2.13.0-cpu]"
    cell = next(c for c in made.reference.cells if c.facts.image == TORCH_CNN[0] and c.facts.workload == TORCH_CNN[1])
    assert cell.session_of == (0, 0, 0)


def test_the_commands_know_sessions(tmp_path: Path, days: list[Path]) -> None:
    shelf, other, out = tmp_path / "shelf", tmp_path / "other", ("--out", str(days[0].parent))
    saved = command("reference", "save", "day1", "day2", "day3", "--name", "lab", *out, references=shelf)
    assert saved.exit_code == 0, saved.stderr
    assert "kept 15 of 18 measured cells" in saved.stderr
    assert command("reference", "save", "day1", "--name", "one", *out, references=shelf).exit_code == 0
    listed = valid("reference list", command("reference", "list", "--format", "json", references=shelf).stdout)[
        "references"
    ]
    assert [(row["name"], row["sessions"]) for row in listed] == [("published", None), ("lab", 3), ("one", 1)]
    shown = command("reference", "show", "lab", references=shelf)
    assert "lab of runs day1 to day3 (3 sessions)" in shown.stdout.splitlines()[0]
    file = str(tmp_path / "lab.parquet")
    assert command("reference", "export", "lab", "-o", file, references=shelf).exit_code == 0
    assert command("reference", "import", file, references=other).exit_code == 0
    diff = valid(
        "reference diff", command("reference", "diff", "one", file, "--format", "json", references=shelf).stdout
    )["rows"]
    assert {row["verdict"] for row in diff} <= {"ok", "not-slower", "open"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("reference", "show", "lab", "--workload", "nosuch"), "lab has no 'nosuch'; it has cnn-cifar10, gru-imdb"),
        (("reference", "export", "published", "-o", "x"), "`runner reference show published` prints them"),
        (("reference", "diff", "published", "lab"), "`runner reference show published` prints them"),
    ],
)
def test_what_a_reference_does_not_have_is_a_sentence(
    words: tuple[str, ...], told: str, tmp_path: Path, lab: Reference
) -> None:
    Shelf([tmp_path]).put(lab)
    ended = command(*words, references=tmp_path)
    assert ended.exit_code == 2
    assert told in ended.stderr


def test_without_a_reference_the_machine_that_it_takes_and_the_next_step_stand_once(
    days: list[Path], lab: Reference
) -> None:
    found = assess(days[:1], [])
    lines = list(output.details(found))
    waiting = [line for line in lines if line.startswith("no-reference: ")]
    assert [line.rpartition(": ")[2] for line in waiting] == ["there is no reference yet"] * len(waiting)
    assert len(waiting) < 5, "cells of which the same holds share a line"
    step = output.next_step(found)
    facts = next(one.facts for one in found.findings if one.kind == "no-reference")
    assert step.startswith(f"A verdict needs a reference of {facts.device_model}, preset {facts.preset}: ")
    assert f"`runner verify --run {days[0]}` then judges" in step
    assert ("runner share" in step) == bool(found.findings[0].device_uuid or names_a_processor(facts.device_model))
    assert lines.count(step) == 1
    assert document(found)["remarks"] == [step]
    skipped = ElementTree.fromstring(output.junit(found)).findall(".//skipped")
    assert [one.text for one in skipped if "no-reference" in one.get("message", "")] == [step] * len(skipped) != []
    assert output.next_step(assess([days[3]], [lab])) == ""


def test_the_machine_of_a_reference_is_named_as_far_as_it_must_be_the_same() -> None:
    cpu = facts(device_kind="cpu", device_model="AMD EPYC", machine_cpus=2, device_memory_bytes=None)
    assert device_of(cpu) == "AMD EPYC in a machine of 2 CPUs"
    assert device_of(facts(device_model="NVIDIA H200", device_memory_bytes=150 * 10**9)) == "NVIDIA H200 with 150 GB"


def only(verification: Verification, *kinds: str) -> Verification:
    return Verification(tuple(finding for finding in verification.findings if finding.kind in kinds))


def test_the_last_line_claims_what_the_cells_show(days: list[Path], lab: Reference) -> None:
    told = assess([days[3]], [lab], margin=0.3)
    assert output.ending(told).startswith("FAIL")
    assert output.ending(only(told, "ok", "not-slower")) == (
        "pass: no cell is slower than its reference by more than 30 %, and every cell computes the specified network"
    )
    usual = only(assess([days[3]], [lab]), "ok", "not-slower")
    assert "slower than its reference by more than 8 %" in output.ending(usual)
    itself = only(assess(days[:1], [lab_of_one(days)]), "open")
    assert output.ending(itself) == "open: nothing failed, and 0 of 5 cells passed; 5 open"
    assert output.ending(only(assess(days[:1], []), "no-reference")).endswith("5 no-reference")


def test_the_advice_names_what_would_tell(tmp_path: Path, days: list[Path], lab: Reference) -> None:
    def advice(run: Path, reference: Reference, margin: float) -> str:
        finding = torch_cnn(assess([run], [reference], margin=margin))
        assert finding.kind == "open"
        return str(finding.reason)

    few = day(tmp_path, 10, repeats=1)
    assert "--repeats " in advice(few, lab_of_one(days), 0.03)
    sessions = advice(days[3], lab_of_one(days), 0.0275)
    assert "one session differs from another by 2.0 % (assumed), which more repeats do not show" in sessions
    assert "A reference of 2 sessions would tell" in sessions or "A reference of 3 sessions would tell" in sessions
    measured = advice(days[3], lab, 0.015)
    assert "(measured" in measured
    assert "no number of repeats or sessions would tell" in measured


def test_a_cell_that_several_gpus_measured_in_one_run_is_refused(tmp_path: Path) -> None:
    one = each_gpu_run(tmp_path / "one", [1.0])
    assert reference_of([one], "lab", "0.1.0").reference.cells
    with pytest.raises(SavedError, match="2 different GPUs measured it in run .*; measure on one GPU"):
        reference_of([each_gpu_run(tmp_path / "two", [1.0, 1.1])], "lab", "0.1.0")


def test_sessions_of_two_gpus_are_refused(tmp_path: Path) -> None:
    """How two GPUs of one model differ would count as how the sessions of one do."""
    runs = [day(tmp_path, number, everywhere={"device_uuids": [f"GPU-{number}"]}) for number in (1, 2)]
    with pytest.raises(SavedError, match="2 different GPUs measured it in run day1 and day2, .*; measure on one GPU"):
        reference_of(runs, "lab", "0.1.0")


def test_a_run_of_a_machine_with_other_cpus_is_neither_a_session_nor_held_against_the_reference(tmp_path: Path) -> None:
    """A real run records the CPUs of its machine in run.json alone."""
    large, small = (
        day(
            tmp_path,
            number,
            slower,
            manifest={"host": {**synthetic.HOST, "machine_cpus": cpus}, "created": f"2026-11-0{number}T08:00:00+00:00"},
        )
        for number, cpus, slower in ((1, 64, 1.0), (2, 2, 1.5))
    )
    reference = reference_of([large], "large", "0.1.0").reference
    assert {cell.facts.machine_cpus for cell in reference.cells} == {64}
    assert not {"slow", "ok"} & {finding.kind for finding in assess([small], [reference]).findings}
    with pytest.raises(SavedError, match="machine_cpus is 2 in run day2 and 64 in run day1; .*save these runs apart"):
        reference_of([large, small], "both", "0.1.0")
