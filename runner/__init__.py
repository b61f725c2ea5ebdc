"""Runs on the host: plans the matrix, runs its cells, keeps what they measured."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class Frames(NamedTuple):
    """The tables of some runs. docs/columns.md describes their columns."""

    answers: pd.DataFrame
    cells: pd.DataFrame
    samples: pd.DataFrame
    telemetry: pd.DataFrame


def read(*runs: str | os.PathLike[str], out: str | os.PathLike[str] = "results") -> Frames:
    """The tables of some runs as pandas has them: `runner.read("results/20261130-120000-abcd").answers` has a row for each cell.

    A run is named by its id in the folder `out`, or by its folder; none names the newest. Raises the runner's errors.
    """
    # Only this call loads them: no command needs pandas, which takes a quarter of a second. The keys of tests follow imports, and every
    # test of the runner imports this file: so the module is named below this package.
    import importlib
    from pathlib import Path

    shared = importlib.import_module(".cli.shared", __name__)
    found = shared.stored_tables([os.fspath(run) for run in runs], Path(out), ("cells", "samples", "telemetry"))
    frames = {name: table.to_pandas() for name, table in found.items()}
    return Frames(frames["answers"], frames["cells"], frames["samples"], frames["telemetry"])
