"""The command `runner import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench import identity
from runner.cli.report import write_report
from runner.cli.shared import Out, note
from runner.kit import archive as archives
from runner.kit.agreement import sentence
from runner.kit.imported import Imported, import_archive
from runner.text import in_a_line


def import_(
    archive: Annotated[
        Path, typer.Argument(help="The archive that a kit has made, or `runner share`.", dir_okay=False)
    ],
    out: Out = Path("results"),
) -> None:
    """Every line of it is checked as if it came from a cell of this machine. Prints the folder of the run."""
    read = archives.read(archive)
    if read.facts.bench_sha256 != identity.source_digest():
        note("runner: it was measured with another bench than this checkout's; its cells cannot stand beside new ones")
    imported = import_archive(read, out)
    for line in [*lines(imported), *(in_a_line(f"skipped {dropped}") for dropped in imported.dropped)]:
        note(line)
    note(f"report   {write_report(imported.run.folder)}")
    typer.echo(str(imported.run.folder))


def lines(imported: Imported) -> list[str]:
    """The import's result in sentences; failures are named."""
    counts: dict[tuple[str, str], int] = {}
    for outcome in imported.outcomes:
        key = outcome.step.kind, outcome.status
        counts[key] = counts.get(key, 0) + 1
    said = [f"{count} × {kind} {status}" for (kind, status), count in sorted(counts.items())]
    rest = "; run kit.py again on the machine that measured it for the rest" if imported.not_done else ""
    text = [f"{', '.join(said) or 'nothing'}; {imported.not_done} steps were not done{rest}"]
    shown = [each for each in imported.outcomes if each.status != "ok" or each.step.kind == "events"]
    text += [in_a_line(f"{each.status:8} {each.step}: {each.reason}") for each in shown]
    text += [in_a_line(f"energy   {sentence(gpu, *both)}") for gpu, both in imported.energies.items()]
    return text
