"""Runs for Bencher and for Apache Otava: by Bencher's own schema, and read by Otava itself where it is installed."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from tests.fixtures import synthetic

TORCH = ("torch-2.13.0-cpu", "gru-imdb")
RUNS = 12
SLOWER_FROM = 7
# As https://bencher.dev/docs/reference/bencher-metric-format has it, but that it allows no other key.
METRIC = {
    "type": "object",
    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
    "required": ["value"],
    "additionalProperties": False,
}
BMF = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "object",
    "patternProperties": {".+": {"type": "object", "patternProperties": {".+": METRIC}}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of several days; from one on PyTorch is 20 % slower at one workload."""
    out = tmp_path_factory.mktemp("results")
    for day in range(RUNS):
        slower = {TORCH: 1.2} if day >= SLOWER_FROM else {}
        created = {"created": f"2026-11-{day + 1:02}T10:00:00+00:00"}
        synthetic.make_run(out / f"r{day:02}", repeats=2, windows=12, draw=day, slower=slower, manifest=created)
    return out


@pytest.fixture(scope="module")
def otava(place: Path) -> Path:
    ended = CliRunner().invoke(app, ["history", "--out", str(place), "--otava", str(place / "otava")])
    assert ended.exit_code == 1, ended.output
    return place / "otava"


def test_bencher_gets_nanoseconds_of_the_newest_run_of_each_cell_that_may_be_compared(place: Path) -> None:
    ended = CliRunner().invoke(app, ["report", "--bmf", "r00", "r11", "--out", str(place)])
    assert ended.exit_code == 0, ended.output
    document = json.loads(ended.stdout)
    jsonschema.Draft7Validator(BMF).validate(document)
    assert max(map(len, document)) <= 1024
    (name,) = (name for name in document if name.startswith("gru-imdb torch fp32 quick batch 64 on "))
    latency = document[name]["latency"]
    assert latency["value"] == pytest.approx(1.2e9 * synthetic.LEVELS[TORCH], rel=0.05)
    assert latency["lower_value"] < latency["value"] < latency["upper_value"]
    # The cell that failed has no figure.
    assert not any(name.startswith("gru-imdb tensorflow") for name in document)


def test_two_formats_at_once_are_refused(place: Path) -> None:
    for words in (["--text"], ["--format", "json"]):
        ended = CliRunner().invoke(app, ["report", "--bmf", *words, "--out", str(place)])
        assert (ended.exit_code, "--bmf is a format of its own" in ended.stderr) == (2, True)


def test_otava_gets_a_row_of_each_run_and_each_name_once(otava: Path) -> None:
    """As its readers of CSV and of the configuration ask for it: apache-otava 0.8.0."""
    tests = json.loads((otava / "otava.yaml").read_text())["tests"]
    assert sorted(f"{name}.csv" for name in tests) == sorted(path.name for path in otava.glob("*.csv"))
    metrics = [name for test in tests.values() for name in test["metrics"]]
    assert len(set(metrics)) == len(metrics) == len(tests)
    for test in tests.values():
        with Path(test["file"]).open(newline="") as file:
            rows = list(csv.DictReader(file))
        (metric,) = test["metrics"].values()
        assert len(rows) == RUNS
        times = [datetime.fromisoformat(row[test["time_column"]]) for row in rows]
        assert times == sorted(times)
        assert all(time.tzinfo for time in times)
        assert all(float(row[metric["column"]]) > 0 and row[test["attributes"][0]] for row in rows)


def test_otava_reads_it_and_finds_the_change(otava: Path) -> None:
    program = shutil.which("otava")
    if program is None:
        pytest.skip(
            "Apache Otava is not here: `pip install apache-otava` takes a minute, so no environment of the tests has it"
        )

    def ask(*words: str) -> str:
        variables = os.environ | {"OTAVA_CONFIG": str(otava / "otava.yaml")}
        ended = subprocess.run([program, *words], env=variables, capture_output=True, text=True, check=True)
        return ended.stdout if words[0] == "analyze" else ended.stderr

    assert "Validation finished: VALID" in ask("validate")
    found = {}
    for path in sorted(otava.glob("*.csv")):
        changes = json.loads(ask("analyze", path.stem, "--since", "2026-01-01", "--output", "json"))[path.stem]
        found[path.stem] = [change["time"] for change in changes]
    (torch,) = (name for name in found if name.startswith("gru-imdb-torch"))
    day = datetime.fromisoformat(f"2026-11-{SLOWER_FROM + 1:02}T10:00:00+00:00").timestamp()
    assert {name for name, times in found.items() if times} == {torch}
    assert found[torch] == [day]
