"""The command `runner`: its commands by name. A user's error ends here, with one sentence and its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import typer

from runner.cli.shared import PLAIN, LazyGroup
from runner.errors import UserError


class Commands(LazyGroup):
    package = "runner.cli"
    names: ClassVar[Mapping[str, str]] = {
        "matrix": "Run every image, framework and workload on the devices of this machine; write results and a report.",
        "report": "Write one self-contained HTML report from stored runs.",
        "compare": "Say which step times differ between two runs, images, GPUs or CUDA versions.",
        "history": "Say which step times moved since an earlier run, and after which change.",
        "rosetta": "Show the same workload in several frameworks, side by side.",
        "verify": "Say whether an installation computes correctly and as fast as it should.",
        "reference": "Manage references: measurements of other machines, to compare with.",
        "gpus": "Show the GPUs of this machine, their links and the processes on them.",
        "doctor": "Check all that GPU cells need, and say how to fix what is wrong.",
        "images": "Manage the catalog of images.",
    }

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            typer.echo(f"runner: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            # Where a file cannot be read or written, the code there says what to do. This names the file at least.
            sentence = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            typer.echo(f"runner: {sentence}", err=True)
            raise typer.Exit(UserError.exit_code) from None


app = typer.Typer(cls=Commands, no_args_is_help=True, **PLAIN)


@app.callback()
def main_group() -> None:
    """One benchmark, every deep-learning framework: run the matrix of images, read the report, verify a machine."""


def main() -> None:
    app()
