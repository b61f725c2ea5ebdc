"""Runs a mutant as a real cell of preset quick, with one thread, and asks the runner's judges: some cheats show only by another clock
than the cell's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import rules
from runner.admission.judges import JUDGES, Evidence, HostFacts
from runner.admission.record import Recorder
from runner.catalog.images import PROJECT
from runner.results.parcel import Parcel
from tests.contract.mutants.run import bounds
from tests.fixtures.cpus import take_own_cpus
from tests.fixtures.plans import make_cell

SHIM = Path(__file__).parent / "shim"
# The phase of a refusal that is no check's: the runner judges what the cell printed.
RUNNER = "runner"


def parcel_of(python: str, framework: str, workload: str, name: str) -> Parcel:
    """The repeat that this mutant printed, each piece with the time at which it came."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(SHIM), str(PROJECT))),
        "DLBENCH_MUTANT": f"{framework} {workload} {name}",
    }
    words = [python, "-m", "bench", "run", workload, "--framework", framework, "--threads", "1"]
    began = time.perf_counter()
    # No other thread of this process holds a lock that the function needs.
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=variables, preexec_fn=take_own_cpus) as process:  # noqa: PLW1509
        assert process.stdout
        tape = tuple((time.perf_counter(), line) for line in process.stdout)
    wall = time.perf_counter() - began
    return Parcel("", 1, "venv", code=process.returncode, cpus=1, began=began, wall_seconds=wall, tape=tape)


def refused(python: str, framework: str, workload: str, name: str) -> list[list[Any]]:
    """As `refused` of tests.contract.mutants.run. A refusal that is no check's has the phase "runner", and the judge's name."""
    parcel, recorder = parcel_of(python, framework, workload, name), Recorder()
    for at, piece in parcel.tape:
        recorder.feed(piece, at)
    recorder.close()
    cell = make_cell(framework=framework, workload=workload, batch=rules.workload_declaration(workload)["batch"])
    evidence = Evidence(parcel, cell, HostFacts(), recorder, ())
    for judge in JUDGES:
        if failure := judge.find(evidence):
            assert judge.name not in ("error", "end"), f"{name} did not run: {failure[1]}"
            print(f"{name}: {judge.name}: {failure[1]}", file=sys.stderr, flush=True)
            failed = [row for row in recorder.checks(cell) if not row["passed"]]
            rows = [[row["phase"], row["quantity"], row["tensor"], bounds(row)] for row in failed]
            rows.sort(key=lambda row: -(row[3] or 0.0))
            return rows if judge.name == "parity" and rows else [[RUNNER, judge.name, "", None]]
    return []
