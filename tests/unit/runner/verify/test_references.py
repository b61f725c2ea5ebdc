"""References measured with this project: samples in, the same samples out, nothing changed unseen; and which one fits which cell."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import identity
from runner.cli import verify
from runner.results.store import TABLES, RunStore, StoreError
from runner.verify.references import SUFFIX, saved
from runner.verify.references.comparability import IDENTITY, excuses, reference_for
from runner.verify.references.facts import Facts, facts_of
from runner.verify.references.measured import read_runs, reference_of
from runner.verify.references.saved import (
    MAX_ROWS,
    Reference,
    SavedCell,
    SavedError,
    Shelf,
    Telemetry,
    make,
    read,
    to_bytes,
)
from tests.fixtures import stored
from tests.fixtures.synthetic import FAILED, LEVELS, make_run

GPU: dict[str, Any] = {
    "workload": "cnn-cifar10",
    "framework": "torch",
    "mode": "default",
    "precision": "fp32",
    "preset": "quick",
    "batch": 64,
    "devices": 1,
    "device_kind": "cuda",
    "variant": "",
    "device_model": "NVIDIA H200",
    "compute_capability": "9.0",
    "device_memory_bytes": 150 * 10**9,
    "cpu_model": "Some CPU",
    "cpu_count": 16,
    "machine_cpus": 16,
    "device": {"power_limit_watts": 700.0, "ecc": True},
    "framework_version": "2.9.1",
    "python_version": "3.11.7",
    "cuda_version": "12.8",
    "cudnn_version": "9.10.2",
    "driver_version": "570.1",
    "data_source": "generated",
    "bench_sha256": "a" * 64,
    "settings": {"tf32_cudnn": False, "threads": 16},
    "image": "torch-2.9.1-cu128",
    "engine": "docker",
    "lock_sha256": "b" * 64,
}


def facts(**changes: Any) -> Facts:
    return Facts.model_validate(GPU | changes)


def saved_cell(seconds: float = 0.01, **changes: Any) -> SavedCell:
    windows = tuple(float(s) for s in seconds * np.linspace(0.99, 1.01, 12))
    return SavedCell(facts=facts(**changes), repeats=(windows, windows))


def reference(name: str = "lab", created: str = "2026-11-20T00:00:00+00:00", **changes: Any) -> Reference:
    return make(name, created, ["run-1"], "0.1.0", [saved_cell(**changes)])


def test_a_run_becomes_a_reference_of_its_cells_that_ended_well_and_comes_back_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path / "20261120-230512-abcd", repeats=3)
    made = reference_of([run], "lab-cpu", "0.1.0").reference
    assert len(made.cells) == len(LEVELS) - 1
    assert (FAILED[1], "tensorflow") not in {(cell.facts.workload, cell.facts.framework) for cell in made.cells}
    shelf = Shelf([tmp_path / "shelf"])
    path = shelf.put(made)
    assert read(path) == made
    assert shelf.find("lab-cpu") == shelf.find(str(path)) == made
    measured = next(m for m in read_runs([run]) if m.cell.framework == "jax" and m.cell.key.workload == "gru-imdb")
    kept = next(c for c in made.cells if c.facts == measured.facts)
    assert [list(repeat) for repeat in kept.repeats] == [list(repeat) for repeat in measured.repeats]
    assert len(kept.repeats) == 3


def test_a_cell_that_failed_parity_is_in_no_reference(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", changes={"parity_passed": False})
    assert len(reference_of([run], "x", "0.1.0").reference.cells) == len(LEVELS) - 2


def test_the_same_reference_has_the_same_hash_in_whatever_order_its_cells_come() -> None:
    cells = [saved_cell(), saved_cell(workload="gru-imdb"), saved_cell(framework="jax")]
    hashes = {make("a", "2026-11-20T00:00:00+00:00", ["r"], "0", order).sha256 for order in (cells, cells[::-1])}
    assert len(hashes) == 1


def changed(path: Path, edit: Any) -> None:
    """Rewrite a reference's table or metadata behind its back."""
    table = pq.read_table(path)
    pq.write_table(edit(table), path)


def manifest_edit(table: Any, **changes: Any) -> Any:
    metadata = dict(table.schema.metadata)
    manifest = json.loads(metadata[b"dlbench_reference"])
    metadata[b"dlbench_reference"] = json.dumps(manifest | changes, sort_keys=True, separators=(",", ":")).encode()
    return table.replace_schema_metadata(metadata)


def infinite(table: Any) -> Any:
    """The manifest's cells with a setting that no JSON has."""
    cells = json.loads(table.schema.metadata[b"dlbench_reference"])["cells"]
    cells[0]["facts"]["settings"] = {"x": float("inf")}
    return cells


def counted(table: Any, windows: Any) -> Any:
    """The manifest's cells with other counts of windows."""
    cells = json.loads(table.schema.metadata[b"dlbench_reference"])["cells"]
    return [{**cells[0], "windows": windows}, *cells[1:]]


def factual(table: Any, **facts: Any) -> Any:
    """The manifest's cells with other facts."""
    cells = json.loads(table.schema.metadata[b"dlbench_reference"])["cells"]
    return [{**cells[0], "facts": cells[0]["facts"] | facts}, *cells[1:]]


def faster(table: Any) -> Any:
    at = table.schema.get_field_index("step_seconds")
    values = table.column(at).to_numpy() * 0.5
    return table.set_column(at, "step_seconds", [values])


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (faster, "not those it was saved with"),
        (lambda t: manifest_edit(t, name="other"), "not those it was saved with"),
        (lambda t: manifest_edit(t, cells=[]), "counts of windows are not those"),
        (lambda t: manifest_edit(t, cells=counted(t, [10**12])), "counts of windows are not those"),
        (lambda t: manifest_edit(t, cells=counted(t, [10**12, 16 - 10**12])), "counts of windows are not those"),
        (lambda t: manifest_edit(t, cells=counted(t, [0] * 1000)), "counts of windows are not those"),
        (lambda t: manifest_edit(t, cells=counted(t, "many")), "manifest is broken"),
        (lambda t: manifest_edit(t, format=99), "format 99"),
        (lambda t: manifest_edit(t, cells=infinite(t)), "settings"),
        (lambda t: manifest_edit(t, name="../x"), "name"),
        (lambda t: t.slice(1), "counts of windows are not those"),
        (lambda t: t.take([1, 0, *range(2, len(t))]), "not in their place"),
        (lambda t: t.replace_schema_metadata({}), "no manifest"),
        (lambda t: t.drop_columns(["window"]), "columns"),
        (lambda t: t.replace_schema_metadata({b"dlbench_reference": b"[1"}), "manifest is broken"),
        (lambda t: t.replace_schema_metadata({b"dlbench_reference": b"[" * 100_000}), "manifest is broken"),
        (lambda t: t.replace_schema_metadata({b"dlbench_reference": b'{"format": "\xff"}'}), "manifest is broken"),
        (lambda t: manifest_edit(t, cells=factual(t, batch=10**400)), "batch"),
        (lambda t: manifest_edit(t, cells=factual(t, settings={"x": 10**400})), "settings"),
    ],
)
def test_a_file_that_was_changed_is_refused_and_named(edit: Any, told: str, tmp_path: Path) -> None:
    path = Shelf([tmp_path]).put(reference())
    changed(path, edit)
    with pytest.raises(SavedError, match=told) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_what_is_no_parquet_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.reference.parquet"
    path.write_bytes(bytes(20))
    with pytest.raises(SavedError, match="cannot be read as Parquet"):
        read(path)
    path.write_bytes(to_bytes(reference()))
    monkeypatch.setattr(saved, "MAX_BYTES", 100)
    with pytest.raises(SavedError, match="more than 100 bytes"):
        read(path)


def test_samples_that_no_clock_gives_make_no_reference() -> None:
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="repeats"):
            SavedCell(facts=facts(), repeats=((wrong,) * 8,))
    with pytest.raises(ValueError, match="too few windows, fewer than 6"):
        SavedCell(facts=facts(), repeats=((0.1,) * 5,))


def test_another_reference_of_the_same_name_is_not_overwritten_unasked(tmp_path: Path) -> None:
    shelf = Shelf([tmp_path])
    shelf.put(reference())
    shelf.put(reference())
    with pytest.raises(SavedError, match="--replace"):
        shelf.put(reference(seconds=0.02))
    shelf.put(reference(seconds=0.02), replace=True)
    assert read(tmp_path / "lab.reference.parquet").cells[0].repeats[0][0] == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("name", ["", "../x", "Lab", "a/b", "-x", "a" * 101, "x\n"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(SavedError, match="--name"):
        make(name, "2026-11-20T00:00:00+00:00", ["r"], "0", [saved_cell()])


OTHER = {
    "workload": "gru-imdb",
    "framework": "jax",
    "variant": "one-bias",
    "mode": "compile",
    "precision": "tf32",
    "preset": "standard",
    "batch": 128,
    "devices": 2,
    "scaling": "strong",
    "device_kind": "cpu",
}


@pytest.mark.parametrize("name", IDENTITY)
def test_nothing_is_compared_across_computations_presets_or_parity_states(name: str) -> None:
    choice = reference_for(facts(), [reference(**{name: OTHER[name]})])
    assert choice.cell is None
    assert choice.why


def test_a_reference_of_before_there_was_scaling_keeps_its_digest() -> None:
    assert "scaling" not in facts().model_dump()
    assert facts(scaling="weak").model_dump()["scaling"] == "weak"
    assert Facts(**facts().model_dump()) == facts()


def test_a_text_of_a_run_that_no_runner_wrote_is_cut(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", repeats=1)
    cell = read_runs([run])[0].cell
    long = replace(cell, key=replace(cell.key, scaling="x" * 400, workload="y" * 400))
    kept = facts_of(long, RunStore(run).manifest(), None)
    assert (kept.scaling, kept.workload) == ("x" * 300, "y" * 300)


def test_a_reference_of_another_preset_is_named_as_that() -> None:
    assert "another preset: standard (not quick)" in reference_for(facts(), [reference(preset="standard")]).why


def test_the_same_gpu_fits_and_another_is_only_named() -> None:
    h200 = reference()
    h100 = reference("h100", device_model="NVIDIA H100", device_memory_bytes=80 * 10**9)
    k80 = reference("k80", device_model="Tesla K80", compute_capability="3.7", device_memory_bytes=12 * 10**9)
    found = reference_for(facts(), [k80, h100, h200])
    assert found.reference == h200
    assert found.nearest is None
    without = reference_for(facts(), [k80, h100])
    assert without.cell is None
    assert without.nearest == "NVIDIA H100 (reference h100)"


def test_a_part_of_a_gpu_is_another_device() -> None:
    part = reference_for(facts(device_memory_bytes=18 * 10**9), [reference()])
    assert part.cell is None
    assert part.why.endswith("is of 18 GB, as this NVIDIA H200")
    assert part.nearest == "NVIDIA H200 with 150 GB (reference lab)"


def test_the_reference_that_differs_least_is_taken_and_of_equals_the_newest() -> None:
    old = reference("old", "2026-01-01T00:00:00+00:00")
    new = reference("new", "2026-06-01T00:00:00+00:00")
    other = reference("other", "2026-11-01T00:00:00+00:00", cuda_version="13.2")
    assert reference_for(facts(), [old, new, other]).reference == new
    assert reference_for(facts(), [other]).excuses[0].name == "cuda_version"


def test_a_smaller_machine_with_the_same_cpu_is_another_device() -> None:
    large = reference(device_kind="cpu", device_model="Some CPU", machine_cpus=64)
    small = reference_for(facts(device_kind="cpu", device_model="Some CPU", machine_cpus=2), [large])
    assert small.cell is None
    assert small.why.endswith("is of a machine of 2 CPUs, as this Some CPU")
    assert small.nearest.startswith("Some CPU in a machine of 64 CPUs ")
    untold = reference_for(facts(device_kind="cpu", device_model="Some CPU", machine_cpus=None), [large])
    assert untold.reference == large


def test_a_reference_with_the_same_fault_is_not_preferred() -> None:
    sound = reference("sound", "2026-06-01T00:00:00+00:00")
    spoilt = reference("spoilt", "2026-01-01T00:00:00+00:00", settings={"tf32_cudnn": False, "threads": 1}, cpu_count=1)
    assert (
        reference_for(facts(settings={"tf32_cudnn": False, "threads": 1}, cpu_count=1), [spoilt, sound]).reference
        == sound
    )


def test_choices_excuse_a_gap_and_states_do_not() -> None:
    found = reference_for(
        facts(driver_version="580.2", settings={"tf32_cudnn": True, "threads": 1}, cpu_count=1, device={"ecc": False}),
        [reference()],
    )
    assert {each.name for each in found.excuses} == {"driver_version", "ecc"}
    assert {each.name for each in found.conditions} == {"tf32_cudnn", "threads", "cpu_count"}


def test_what_one_side_does_not_tell_is_no_difference() -> None:
    found = reference_for(facts(cuda_version=None, cpu_count=None, settings={}, device={}), [reference()])
    assert found.excuses == found.conditions == ()


@given(st.permutations(range(6)), st.integers(0, 5))
def test_the_order_of_the_references_does_not_matter(order: list[int], cuda: int) -> None:
    shelf = [reference(f"r{at}", f"2026-01-0{1 + at // 2}T00:00:00+00:00", cuda_version=f"12.{at}") for at in range(6)]
    asked = facts(cuda_version=f"12.{cuda}")
    assert reference_for(asked, [shelf[at] for at in order]) == reference_for(asked, shelf)
    assert reference_for(asked, shelf).excuses == ()


def test_the_telemetry_of_a_run_is_kept_with_its_reference(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    cell = next(one.cell for one in read_runs([run]) if one.repeats)
    device = {"device": "GPU-1", "sm_megahertz": 1980.0, "throttle_reasons": 4}
    rows = {table: stored.rows_of(run, table, cell.cell_id) for table in TABLES}
    rows["telemetry"] = [{**device, "seconds": 6.0 + at / 10} for at in range(400)]
    stored.write_repeat(run, cell.cell_id, 1, rows)
    shelf = Shelf([tmp_path / "shelf"])
    kept = read(shelf.put(reference_of([run], "lab", "0.1.0").reference)).cells
    told = [one.telemetry for one in kept if one.telemetry]
    assert told == [Telemetry(sm_megahertz=1980.0, throttled={"power cap": 1.0})]
    (run / "tables" / "telemetry.parquet").write_bytes(b"torn")
    with pytest.raises(StoreError, match="telemetry"):
        read_runs([run])


def test_a_reference_of_one_run_has_the_digest_that_earlier_releases_gave_it() -> None:
    """The digest is that of the release before references had sessions. Files of that release stay readable."""
    assert reference().sha256 == "0c474c5de3a142eb832d13b87b8fcfc287f9fc943753cc1e52b1483a1cb5babe"


def test_an_edit_that_the_cell_does_not_run_makes_no_reference_old() -> None:
    """The digest of all the bench is a fact; only the digest of the code that the cell ran takes a verdict away."""
    saved = facts(bench_sha256="a" * 64, code_sha256="c" * 64)
    assert excuses(facts(bench_sha256="b" * 64, code_sha256="c" * 64), saved) == ()
    assert [fact.name for fact in excuses(facts(code_sha256="d" * 64), saved)] == ["code_sha256"]
    # Of a reference that recorded no such digest nobody knows which code it measured.
    older = facts(bench_sha256="b" * 64)
    assert [fact.name for fact in excuses(facts(code_sha256="d" * 64), older)] == ["bench_sha256"]


def test_the_facts_of_an_older_reference_keep_their_digest() -> None:
    assert "code_sha256" not in facts().model_dump()
    assert facts(code_sha256="c" * 64).model_dump()["code_sha256"] == "c" * 64


def test_no_reference_is_called_as_the_published_numbers_are() -> None:
    with pytest.raises(SavedError, match="choose another"):
        reference(name="published")


def test_a_reference_with_a_flipped_byte_is_whole_or_refused(tmp_path: Path) -> None:
    """Of some flips pyarrow raises an error of Python's and none of its own."""
    whole = to_bytes(reference())
    path = tmp_path / "lab.reference.parquet"
    chance = random.Random(22)
    for _ in range(300):
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        with contextlib.suppress(SavedError):
            assert read(path).sha256 == reference().sha256


def test_more_rows_than_a_reference_has_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """Rows that are alike take no room in a file: five million and one fit into some kilobytes."""
    rows = MAX_ROWS + 1
    zeros = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, "int8")), pa.array([0.5]))
    path = tmp_path / "many.reference.parquet"
    table = pa.table({"step_seconds": zeros}).replace_schema_metadata({b"dlbench_reference": b"{}"})
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 50_000
    with pytest.raises(SavedError, match="more rows or a longer manifest"):
        read(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "a pointer of Git LFS: `git lfs pull`"),
        (b"device,ms\nA100,12\n", "it is text (a reference keeps samples, not single numbers"),
        (b"PK\x03\x04" + b"\0" * 9, "a zip file, or a spreadsheet"),
        (b"\n<!DOCTYPE html><html>", "it is a web page"),
    ],
)
def test_a_file_that_is_something_else_is_named_for_what_it_is_and_the_others_serve(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / f"other{SUFFIX}").write_bytes(content)
    (tmp_path / f"._lab{SUFFIX}").write_bytes(b"\0\5\26\7")
    shelf = Shelf([tmp_path])
    shelf.put(reference("lab"))
    heard: list[str] = []
    assert [one.name for one in shelf.all(heard.append)] == ["lab"]
    assert [said in line for line in heard] == [True], heard


def test_a_reference_of_another_release_is_said_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cells can end as not-comparable only; who measures ten minutes learns it first."""
    today = identity.code_digests({("torch", "gru-imdb")})["torch", "gru-imdb"]
    for name, code in (("new", today), ("old", "0" * 64)):
        made = reference(name, workload="gru-imdb", framework="torch", code_sha256=code)
        (tmp_path / f"{name}.reference.parquet").write_bytes(to_bytes(made))
    for names, announce, said in ((["new"], True, False), (["old"], True, True), (["old"], False, False)):
        verify._references(str(tmp_path), names, announce=announce)
        told = capsys.readouterr().err
        assert ("torch gru-imdb ran other code than this release has" in told) is said, (names, told)
