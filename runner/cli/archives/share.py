"""The command `runner share`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.shared import Out, chosen_runs, note
from runner.errors import NothingBegunError, UserError
from runner.kit.contribution import shared_run
from runner.results.store import write_bytes
from runner.text import in_a_line
from runner.verify.references.contributed import layout
from runner.verify.references.contributed.derived_rows import derived

# Reasons against a bundle that are named; `runner reference judge` has all.
_MOST_REASONS = 3


def share(
    run: Annotated[str, typer.Argument(help="A run, by id or folder.")],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help="The file to write; or the folder of a collection of references, for a file a cell: one "
            "that is there, or a name that ends in /.",
            metavar="PATH",
        ),
    ],
    by: Annotated[
        str,
        typer.Option(
            metavar="ACCOUNT",
            help="In a collection: your account there, which is the first folder. Norms count accounts.",
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    out: Out = Path("results"),
) -> None:
    """It shows what will be in it, and asks before it writes. Prints the files that it wrote.

    In the place of UUIDs and of the machine's name are pseudonyms. It has no logs, no names of folders or users, and no repeat that failed.
    """
    (folder,) = chosen_runs([run], out)
    if not yes and not _can_answer():
        raise UserError(
            "share asks before it writes, and nobody can answer here; look at a run at a terminal, or say --yes"
        )
    bundle = shared_run.bundle_of(folder, shared_run.own_salt())
    for line in shared_run.shown(bundle, shared_run.salt_path()):
        note(in_a_line(line, 2000))
    collection = output.endswith("/") or Path(output).is_dir()
    files = layout.files_of(bundle, by) if collection else {Path(): bundle.content}
    if not yes and not typer.confirm(f"write this to {output}?", default=False, err=True):
        raise NothingBegunError("nothing was written")
    for name, content in files.items():
        path = Path(output) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
        typer.echo(str(path))
        for why in derived(path).refused[:_MOST_REASONS]:
            note(f"an index of references would refuse {path}: {why}")


def _can_answer() -> bool:
    return sys.stdin.isatty()
