"""What no run writes: a stored run with it is refused in a sentence that names file and field, and one cell's nonsense spoils no report."""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import weights
from bench.data.files import MARKER, vouch
from bench.errors import DataError
from bench.protocol import ProtocolError, check
from reports.data.tables import load
from reports.page.render import render, unix_moment
from runner.cli.main import app
from runner.results import validate
from runner.results.store import RunStore, StoreError
from tests.fixtures import stored, synthetic

ENTRY = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
SKIP = synthetic.skipped("torch-2.13.0-cpu", "cnn-cifar10")


def test_a_loss_that_diverged_is_a_result_and_no_fault(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    stored.change(folder, "metrics", lambda row: row | {"value": 1e30})
    assert max(load([folder]).cells[0].repeats[0].curves[0].values) == 1e30


def test_a_window_without_steps_is_read_where_it_is_why_the_cell_failed(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, changes={"status": "failed", "error_kind": "implausible"})
    stored.change(folder, "samples", lambda row: row | ({"steps": 0} if row["cell_id"] == ENTRY["id"] else {}))
    assert next(cell for cell in load([folder]).cells if cell.cell_id == ENTRY["id"]).status == "failed"


def test_windows_shorter_than_a_clock_can_tell_rank_no_cell(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    synthetic.with_windows(folder, ENTRY["id"], lambda row: row | {"seconds": 5e-324})
    cell = next(cell for cell in load([folder]).cells if cell.cell_id == ENTRY["id"])
    assert cell.step is None
    assert cell.unranked == "no steady window"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plan": None}, "plan: input should be a valid list"),
        ({"plan": ["a"]}, r"plan\[0\]: input should be a valid dictionary.*"),
        ({"plan": [{**ENTRY, "id": 5}]}, r"plan\[0\]\.id: input should be a valid string, not 5"),
        ({"plan": [{**ENTRY, "devices": "x"}]}, r"plan\[0\]\.devices: input should be a valid integer, not 'x'"),
        ({"host": {}}, r"host\.cpu_model: it is missing"),
        ({"host": 5}, "host: input should be a valid dictionary.*"),
        (
            {"host": {**synthetic.HOST, "memory_bytes": "much"}},
            r"host\.memory_bytes: input should be a valid integer, not 'much'",
        ),
        ({"argv": [5]}, r"argv\[0\]: input should be a valid string, not 5"),
        ({"repeats": "three"}, "repeats: input should be a valid integer, not 'three'"),
        ({"created": 5}, "created: input should be a valid string, not 5"),
        ({"created": "2026-99-25T00:00:00Z"}, "created: month must be in 1..12, not .*"),
        ({"created": "2026-02-31T00:00:00Z"}, "created: day is out of range for month, not .*"),
        ({"created": "٢٠٢٦-11-25T00:00:00Z"}, "created: string should match pattern .*"),
        ({"options": [1]}, "options: input should be a valid dictionary.*"),
        ({"options": {"data": 5}}, r"options\.data: input should be a valid string, not 5"),
        ({"plan": [{**ENTRY, "code_sha256": 5}]}, r"plan\[0\]\.code_sha256: input should be a valid string, not 5"),
        ({"plan": [{**ENTRY, "code_sha256": "a"}]}, r"plan\[0\]\.code_sha256: string should match pattern .*"),
        ({"plan": [{**ENTRY, "seed": "a"}]}, r"plan\[0\]\.seed: input should be a valid integer, not 'a'"),
        *(
            ({"skips": [{**SKIP, name: value}]}, rf"skips\[0\]\.{name}: there is no such field.*")
            for name, value in (("seed", "a"), ("started_unix", "a"), ("given_uuids", {}), ("batch", 2**40))
        ),
        ({"skips": [{**SKIP, "reason": "\ud800"}]}, "skips: it holds one half of a surrogate pair, which is no text"),
        ({"run_id": "\ud800"}, "run_id: it holds one half of a surrogate pair, which is no text"),
        ({"took": [{"why": ["\ud800"]}]}, "took: it holds one half of a surrogate pair, which is no text"),
        ({"note \ud800": 5}, r"note \\ud800: it holds one half of a surrogate pair, which is no text"),
        ({"reused": [{"cell_id": []}]}, r"reused\[0\]\.cell_id: input should be a valid string"),
        ({"prepared": None}, "prepared: input should be a valid list"),
        (
            {"left": {"repeats": 5, "seconds": -1.0}},
            "left.seconds: input should be greater than or equal to 0, not -1.0",
        ),
        ({"left": {"repeats": 5, "seconds": math.nan}}, "left.seconds: input should be .*, not nan"),
        (
            {"expected": {"a": {"seconds": 0.0, "guessed": True}}},
            "expected.a.seconds: input should be greater than 0, not 0.0",
        ),
        ({"reused": 5}, "reused: input should be a valid list, not 5"),
        ({"resumed": 5}, "resumed: input should be a valid list, not 5"),
        # Numbers that no machine has.
        ({"seed": 10**400}, "seed: .*"),
        ({"repeats": 10**400}, "repeats: .*"),
        ({"host": {**synthetic.HOST, "memory_bytes": 10**400}}, r"host\.memory_bytes: .*"),
    ],
)
def test_a_manifest_that_no_reader_could_use_is_refused_by_field_in_few_words(
    tmp_path: Path, change: Any, said: str
) -> None:
    store = RunStore(synthetic.make_run(tmp_path / "run", windows=1))
    store.write_manifest({**store.manifest(), **change})
    with pytest.raises(StoreError, match=f"run.json: {said}; restore it") as caught:
        load([tmp_path / "run"])
    assert len(str(caught.value)) < 1000


def test_a_manifest_that_can_be_read_and_not_be_written_again_is_refused(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        nested = [nested]
    manifest = RunStore(synthetic.make_run(tmp_path / "run", windows=1)).manifest()
    assert validate.of_manifest({**manifest, "note": nested}) == "note: it is nested too deeply"


def test_a_weight_file_and_a_list_of_sums_of_a_thousand_brackets_are_damaged_data(tmp_path: Path) -> None:
    nested = b"[" * 100_000
    weight_file, marker = tmp_path / "net.safetensors", tmp_path / MARKER
    weight_file.write_bytes(struct.pack("<Q", len(nested)) + nested)
    marker.write_bytes(nested)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(DataError, match="is no readable safetensors file"):
        weights.read(str(weight_file), [])
    with pytest.raises(DataError, match="is damaged"):
        vouch(str(tmp_path), {"a": ""}, "md5", "the archive")


@pytest.mark.parametrize(("field", "value"), [("seconds", 1e308), ("begin", 2e10)])
def test_a_cell_that_tells_centuries_breaks_the_protocol(field: str, value: float) -> None:
    sample = {"event": "sample", "t": 1.0, "v": 1, "index": 0, "stage": "steady"}
    sample |= {"begin": 0.5, "seconds": 0.1, "steps": 1, "items": 64}
    check(sample)
    with pytest.raises(ProtocolError, match=f"sample.{field}"):
        check({**sample, field: value})


def test_a_clock_that_tells_no_year_spoils_no_report(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, changes={"started_unix": 1e17})
    render([folder], tmp_path / "report.html")
    assert unix_moment(1e17) == unix_moment(None) == "–"
    assert unix_moment(0.0) == "1970-01-01 00:00:00"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"settings": [], "versions": 5}'])
def test_an_environment_that_is_none_is_shown_as_text_or_left_out(tmp_path: Path, text: str) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, changes={"environment_json": text})
    render([folder], tmp_path / "report.html")


@pytest.mark.parametrize("output", ["", "file/report.html"])
def test_a_report_that_cannot_be_written_is_said_so(tmp_path: Path, output: str) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    (tmp_path / "file").write_text("")
    ended = CliRunner().invoke(app, ["report", str(folder), "--output", str(tmp_path / output)])
    assert ended.exit_code == 2
    assert "cannot be written" in ended.output
    assert isinstance(ended.exception, SystemExit)
