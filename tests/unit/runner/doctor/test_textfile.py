"""The file for node_exporter's textfile collector: held against Prometheus's own checker where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.doctor import diagnosis, preflight
from runner.doctor.scene import FAIL, OK, Check
from tests.fixtures.fleets import each_gpu_run
from tests.fixtures.synthetic import make_run

HOSTILE = Check('a "quoted" \\ name\nof two lines', FAIL, "it does not answer")
CHECKS = [Check("driver", OK, "it answers"), HOSTILE]
SAMPLE = re.compile(r'[a-z_]+\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\} \S+')


@pytest.fixture(scope="module")
def of_runs(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the command writes of a run with a failed cell, and of a fleet of GPUs, one of them slow."""
    tmp_path = tmp_path_factory.mktemp("runs")
    make_run(tmp_path / "mine", repeats=3)
    each_gpu_run(tmp_path / "fleet", (1.0, 1.0, 1.0, 1.0, 1.3))
    file = tmp_path / "textfile" / "dlbench.prom"
    words = [
        "verify",
        "--each-gpu",
        "--prometheus",
        str(file),
        "--run",
        str(tmp_path / "mine"),
        str(tmp_path / "fleet"),
    ]
    ended = CliRunner().invoke(app, words, env={"DLBENCH_REFERENCES": str(tmp_path / "none"), "COLUMNS": "200"})
    assert ended.exit_code == 1, ended.stderr
    assert [path.name for path in file.parent.iterdir()] == [file.name], "nothing half-written lies beside it"
    return file.read_bytes()


def test_the_text_is_of_the_exposition_format_and_has_no_series_twice(of_runs: bytes) -> None:
    text = of_runs.decode()
    for each in (text, diagnosis.textfile_of_checks(CHECKS, 1).decode()):
        samples = [line for line in each.splitlines() if not line.startswith("#")]
        assert [line for line in samples if not SAMPLE.fullmatch(line)] == []
        series = [line.rpartition(" ")[0] for line in samples]
        assert sorted(set(series)) == sorted(series)
    assert 'dlbench_verify_exit_code{level="3"} 1\n' in text
    assert re.search(r'dlbench_verify_slow_devices\{of="GPU",.*\} 1\n', text)
    assert re.search(r'dlbench_verify_cell\{.*verdict="failed"\} 1\n', text)


def test_promtool_takes_it(of_runs: bytes) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here: Debian's package prometheus has it")
    for text in (of_runs, diagnosis.textfile_of_checks(CHECKS, 2)):
        ended = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_a_level_without_cells_writes_its_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "preflight", lambda *_: CHECKS)
    file = tmp_path / "dlbench.prom"
    ended = CliRunner().invoke(app, ["verify", "--level", "1", "--prometheus", str(file)])
    assert ended.exit_code == 1
    text = file.read_text()
    assert 'dlbench_verify_exit_code{level="1"} 1\n' in text
    assert 'dlbench_verify_check{level="1",check="driver",status="ok"} 1\n' in text
