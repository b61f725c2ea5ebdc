"""The command `runner gpu-kit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.errors import naming
from runner.kit import bundle


def gpu_kit(
    folder: Annotated[Path, typer.Argument(help="The folder to write: a new one, or that of an older kit.")],
) -> None:
    """It holds the bench, the runner's part and three small libraries: below 50 MiB. Copy it to the machine, and run
    `python3 kit.py` there.

    `runner import` makes a run of what the kit measured.
    """
    with naming(folder):
        size = bundle.build(folder)
    typer.echo(f"{folder}: {size / 1e6:.1f} MB; copy it to a machine with a GPU, and run python3 kit.py there")
