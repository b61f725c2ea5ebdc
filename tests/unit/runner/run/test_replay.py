"""The event streams that real images printed, replayed through recorder, store and report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reports.page.render import render
from runner.admission.record import Recorder
from runner.admission.renew import renew
from runner.catalog.frameworks import load_frameworks
from runner.engines.base import Exit
from runner.plan.plan import Cell
from runner.results.store import SCHEMA_VERSION, RunStore, read
from tests.fixtures.judged import judge
from tests.fixtures.pages import whole
from tests.fixtures.plans import make_cell
from tests.stand_ins import engine as stand_in

STREAMS = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))


def cell_of(path: Path) -> Cell:
    """The cell of a stream, from its file's name: <image>.<workload>.jsonl."""
    image, workload = path.stem.rsplit(".", 1)
    framework = image.split("-")[0]
    return make_cell(image=image, framework=framework, workload=workload, device_model="AMD EPYC")


def replay(path: Path, run: RunStore) -> tuple[str, str | None, str | None]:
    cell = cell_of(path)
    recorder = Recorder()
    recorder.feed(path.read_bytes())
    recorder.close()
    ended = Exit(0, False, "")
    verdict = judge(recorder, cell, ended, None, ())
    columns = {"engine": "docker", "image_digest": "sha256:0", "log_tail": "", "exit_code": 0, "wall_seconds": 30.0}
    run.add(b"a parcel", cell.id, 1, recorder.tables(cell, verdict, **columns))
    return verdict


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_what_a_real_image_printed_is_an_ok_cell(path: Path, tmp_path: Path) -> None:
    assert replay(path, RunStore(tmp_path / "run")) == ("ok", None, None)


def test_every_image_and_workload_that_runs_here_has_a_recorded_stream() -> None:
    images = ("torch-2.13.0-cpu", "tensorflow-2.21.0-cpu", "jax-0.10.2-cpu")
    assert {path.stem for path in STREAMS} == {f"{i}.{w}" for i in images for w in ("cnn-cifar10", "gru-imdb")}


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("code", [137, 143])
def test_a_cell_that_is_killed_at_any_of_its_lines_has_crashed_and_computes_nothing_else(
    path: Path, code: int, tmp_path: Path
) -> None:
    """What a killed cell did not print, its checks above all, is missing because it was killed."""
    recorder, cell, killed = Recorder(), cell_of(path), Exit(code, False, "")
    kinds = [judge(recorder, cell, killed, None, ())[:2]]
    for line in path.read_bytes().splitlines(keepends=True):
        for part in (line[: len(line) // 2], line[len(line) // 2 :]):
            recorder.feed(part)
            kinds.append(judge(recorder, cell, killed, None, ())[:2])
    recorder.close()
    assert set(kinds) == {("failed", "crash")}
    assert judge(recorder, cell, Exit(0, False, ""), None, ()) == ("ok", None, None)


@pytest.mark.parametrize("workload", stand_in.RECORDED)
def test_the_tiny_images_cell_is_whole_whatever_framework_it_is_started_as(workload: str, tmp_path: Path) -> None:
    """One that lacks a check of its framework would fail in every run on the tests' own engine."""
    device = {"kind": "cpu", "name": "tiny", "count": 1, "uuids": [], "compute_capability": None, "memory_bytes": 1}
    stream = stand_in.without_noise(stand_in.stream(workload, 0.002).decode()).replace('"@DEVICE@"', json.dumps(device))
    stream = re.sub(r'"@ITEMS@(\d+)"', r"\1", stream).replace('"@ZERO@"', "1.0").replace("@CODE@", "0" * 64)
    frameworks = [name for name, each in load_frameworks().items() if workload.replace("-", "_") in each.modules]
    assert len(frameworks) > 15
    for framework in frameworks:
        for precision in ("fp32", "tf32"):
            cell = make_cell(framework=framework, workload=workload, precision=precision)
            recorder = Recorder()
            recorder.feed(stream.replace("@FRAMEWORK@", framework).encode())
            recorder.close()
            assert judge(recorder, cell, Exit(0, False, ""), None, ()) == ("ok", None, None), framework


def test_the_recorded_matrix_becomes_a_report_that_ranks_it(tmp_path: Path) -> None:
    run = RunStore(tmp_path / "20261121-000000-abcd")
    for path in STREAMS:
        replay(path, run)
    run.write_manifest(
        {
            "schema_version": SCHEMA_VERSION,
            "run_id": run.run_id,
            "created": "2026-11-21T00:00:00+00:00",
            "argv": ["runner", "matrix"],
            "seed": 1,
            "preset": "quick",
            "repeats": 1,
            "engine": "docker",
            "devices": [],
            "host": {"cpu_model": "AMD EPYC", "cpu_count": 2, "memory_bytes": 1, "kernel": "6"},
            "plan": [cell_of(path).as_dict() for path in STREAMS],
            "skipped": 0,
            "bench_sha256": json.loads(STREAMS[0].read_text().splitlines()[2])["bench_sha256"],
            "runner_version": "0.1.0",
            "reused": [],
        }
    )
    renew(run)
    render([run.folder], tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    cells = read([run.folder], "cells").to_pandas()
    assert len(cells) == len(STREAMS)
    assert all(name in page for name in cells.image)
    assert "fastest" in page
