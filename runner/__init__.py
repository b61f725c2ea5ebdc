"""Runs on the host: plans the matrix, runs its cells, keeps what they measured."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from runner.results.on_disk.schema import Frames


def read(*runs: str | os.PathLike[str], out: str | os.PathLike[str] = "results") -> Frames:
    """The tables of some runs as pandas has them: `runner.read("results/20261130-120000-abcd").answers` has a row for each cell.

    A run is named by its id in the folder `out`, or by its folder; none names the newest. Raises the runner's errors.
    """
    # Only this call loads pandas, which takes a quarter of a second.
    import pkgutil
    from pathlib import Path

    # An import would put the commands and the reports among the inputs of every test that imports a module of the runner.
    data_frames = pkgutil.resolve_name(f"{__name__}.cli.shared:data_frames")
    frames: Frames = data_frames([str(Path(run)) for run in runs], Path(out))
    return frames
