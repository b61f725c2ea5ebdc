"""How the report grows: its time beside what pandas takes for the same files, its memory, its size.

The suite holds it at 100 cells of 1 000 samples.
`python -m tests.unit.reports.page.test_report_scale CELLS WINDOWS FOLDER` measures it at any
other scale and leaves the page in the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import reports.page.render
from bench import environment
from tests.fixtures import large

PROJECT = Path(__file__).resolve().parents[4]
MEBIBYTE = 2**20


def pandas_seconds(folder: Path) -> float:
    """Seconds that pandas takes to read every table of a run and to group the long ones as the report must."""
    begin = time.process_time()
    for table in ("cells", "samples", "metrics", "parity", "telemetry"):
        frame = pd.read_parquet(folder / "tables" / f"{table}.parquet")
        if table in ("samples", "metrics"):
            frame.groupby(["run_id", "cell_id", "repeat"])[frame.columns[-1]].median()
    return time.process_time() - begin


def measure(folder: Path) -> dict[str, float]:
    """Both times in seconds and the page's size, and this process's peak memory, in MiB; meant for a process of its own."""
    reports.page.render.render([folder], folder / "warm.html")  # what is loaded once does not grow with the run
    begin = time.process_time()
    reports.page.render.render([folder], folder / "report.html")
    mine = time.process_time() - begin
    peak = environment.host_peak_bytes() / MEBIBYTE
    theirs = pandas_seconds(folder)
    size = (folder / "report.html").stat().st_size / MEBIBYTE
    return {"report": mine, "pandas": theirs, "ratio": mine / theirs, "peak_mib": peak, "page_mib": size}


@pytest.mark.slow
@pytest.mark.alone  # its two times are of two moments
def test_the_report_on_100_cells_and_100_000_samples_takes_twelve_times_what_pandas_takes_to_read_them_at_most(
    tmp_path: Path,
) -> None:
    folder = large.make_run(tmp_path / "run", 100, 1000)
    command = [sys.executable, "-m", "tests.unit.reports.page.test_report_scale", str(folder)]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    told = json.loads(found.stdout)
    # The page itself is a fixed time that a hundred cells do not carry.
    assert told["report"] <= 12 * told["pandas"] + 1.5, told
    assert told["peak_mib"] <= 600, told
    assert told["page_mib"] <= 5, told


if __name__ == "__main__":
    where = Path(sys.argv[-1])
    if len(sys.argv) == 4:
        large.make_run(where, int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(measure(where)))
