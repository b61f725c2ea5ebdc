"""What a real GPU left (docs/h200) goes through the import of today, and says what docs/first-gpu.md says."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reports.data import tables
from reports.data.costs import OF_DATASHEET
from runner.cli.main import app
from runner.kit.archive import read
from runner.kit.imported import Imported, import_archive
from runner.paths import PROJECT
from runner.results import store
from tests import first_gpu


def imported(name: str, tmp_path: Path) -> Imported:
    return import_archive(read(PROJECT / "docs" / "h200" / name), tmp_path)


@pytest.mark.parametrize(
    ("name", "ok", "failed", "joules"),
    [("fp32.tar.gz", 3, 0, (15271, 15263)), ("amp-bf16.tar.gz", 3, 6, (38695, 38697))],
)
def test_each_cell_of_a_real_gpu_is_judged_and_its_energy_agrees_with_its_power(
    tmp_path: Path, name: str, ok: int, failed: int, joules: tuple[int, int]
) -> None:
    run = imported(name, tmp_path)
    assert [each.status for each in run.outcomes].count("ok") == ok
    assert [each.status for each in run.outcomes].count("failed") == failed
    ((device, both),) = run.energies.items()
    assert device.startswith("GPU-")
    assert tuple(round(each) for each in both) == joules
    cells = store.read([run.run.folder], "cells").to_pandas()
    assert set(cells.device_model) == {"NVIDIA H200"}
    telemetry = store.read([run.run.folder], "telemetry").to_pandas()
    watts = telemetry[telemetry.device == device].power_watts
    assert 60 < watts.min() < 200 < watts.max() < 750


def test_the_page_has_the_steps_of_the_samples(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "first-gpu.md").read_text()
    for name in ("fp32.tar.gz", "amp-bf16.tar.gz"):
        run = imported(name, tmp_path)
        samples = store.read([run.run.folder], "samples").to_pandas()
        steady = samples[samples.stage == "steady"]
        for _, rows in steady.groupby("cell_id"):
            milliseconds = 1e3 * statistics.median(rows.seconds / rows.steps)
            assert f"{milliseconds:.3g}".rstrip("0") in page, rows.cell_id.iloc[0]


def test_the_share_of_the_datasheet_is_what_the_page_says(tmp_path: Path) -> None:
    run = imported("amp-bf16.tar.gz", tmp_path).run.folder
    cells = {(cell.framework, cell.key.workload, cell.mode): cell.costs for cell in tables.load([run]).cells}
    shares = {framework: cells[framework, "gpt2-124m", "default"][OF_DATASHEET] for framework in ("jax", "torch")}
    assert {name: f"{100 * share:.0f}" for name, share in shares.items()} == {"jax": "39", "torch": "33"}
    page = " ".join((PROJECT / "docs" / "first-gpu.md").read_text().split())
    assert "JAX reaches 39 % (388 TFLOP/s), PyTorch eagerly 33 % (322)" in page


def test_one_repeat_of_older_code_is_no_reference_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run, collection = imported("fp32.tar.gz", tmp_path).run.folder, tmp_path / "collection"
    collection.mkdir()
    shared = CliRunner().invoke(app, ["share", str(run), "--yes", "-o", str(collection)])
    assert shared.exit_code == 0, shared.output
    judged = CliRunner().invoke(app, ["reference", "judge", str(collection)])
    bundles = list(collection.rglob("*.tar.gz"))
    assert (judged.exit_code, judged.stdout.count("refused")) == (1, len(bundles))
    assert judged.stdout.count("1 repeat with enough windows; a reference needs 3") == len(bundles) == 3
    assert "docs/h200" in (PROJECT / "docs" / "references.md").read_text()


def test_the_table_of_steps_is_made_from_the_archives_with_todays_verdict() -> None:
    page = first_gpu.DOCUMENT.read_text()
    assert page == first_gpu.written(page), "`python -m tests.first_gpu` makes it again"
    rows = page.partition(first_gpu.BEGIN)[2].partition(first_gpu.END)[0].splitlines()[2:]
    assert len(rows) == 12
    assert [sum(word in line for line in rows) for word in ("passed", "not ranked", "refused")] == [3, 3, 6]
    assert sum("not known" in line for line in rows if "`gru-imdb`" in line and "JAX" in line) == 2
