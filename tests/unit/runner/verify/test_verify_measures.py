"""`runner verify` where it measures: real processes of toy cells, whose recorded stream is the same each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from runner.catalog.images import PROJECT


def toys(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The real command over toy cells that replay a recorded stream, in real processes."""
    environment = os.environ | {
        "DLBENCH_TOY_SECONDS": "0.05",
        "DLBENCH_TOY_STARTED": str(tmp_path / "started"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "DLBENCH_REFERENCES": str(tmp_path / "references"),
    }
    command = [sys.executable, "-m", "tests.unit.toy_runner", *words]
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_cells_are_measured_judged_saved_and_pass_the_second_time(tmp_path: Path) -> None:
    (tmp_path / "started").touch()
    here = ("--gpus", "none", "--workloads", "gru-imdb", "--out", str(tmp_path / "results"), "--format", "json")
    first = toys(tmp_path, "verify", *here)
    assert first.returncode == 2, first.stderr
    assert "ceilings are not known" in first.stderr  # this interpreter has no torch: the probe says so, and cells go on
    told = json.loads(first.stdout)
    assert {finding["kind"] for finding in told["findings"]} == {"no-reference"}
    assert {finding["measured"]["repeats"] for finding in told["findings"]} == {3}
    run = told["findings"][0]["run_id"]
    saved = toys(tmp_path, "reference", "save", run, "--name", "toys", "--out", str(tmp_path / "results"))
    assert saved.returncode == 0, saved.stderr
    second = toys(tmp_path, "verify", *here)
    assert second.returncode == 0, second.stderr
    assert {finding["kind"] for finding in json.loads(second.stdout)["findings"]} == {"ok"}


def test_a_cell_that_is_unsure_is_repeated_until_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "started").touch()
    here = ("--gpus", "none", "--frameworks", "torch", "--workloads", "gru-imdb", "--out", str(tmp_path / "results"))
    first = json.loads(toys(tmp_path, "verify", *here, "--format", "json").stdout)["findings"][0]
    saved = toys(tmp_path, "reference", "save", first["run_id"], "--name", "toys", "--out", str(tmp_path / "results"))
    assert saved.returncode == 0, saved.stderr

    # nearer than what the windows of three repeats can tell, though the repeats are the same
    few = toys(tmp_path, "verify", *here, "--margin", "3.6", "--most-repeats", "5", "--format", "json")
    unsure = json.loads(few.stdout)["findings"][0]
    assert (few.returncode, unsure["kind"], unsure["measured"]["repeats"]) == (2, "unsure", 3)
    assert "--repeats 6 would tell" in unsure["reason"]

    enough = toys(tmp_path, "verify", *here, "--margin", "3.6", "--format", "json")
    sure = json.loads(enough.stdout)["findings"][0]
    assert (enough.returncode, sure["kind"], sure["measured"]["repeats"]) == (0, "ok", 6), enough.stderr
    assert "going on to 6 repeats" in enough.stderr
    manifest = json.loads((tmp_path / "results" / sure["run_id"] / "run.json").read_text())
    assert manifest["extended"][sure["cell_id"]] == 6
