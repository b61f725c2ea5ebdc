"""The command `runner import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench import identity
from runner.cli.report import write_report
from runner.cli.shared import Out, note
from runner.kit import archive as archives
from runner.kit.agreement import share
from runner.kit.imported import Imported, import_archive
from runner.text import in_a_line


def import_(
    archive: Annotated[Path, typer.Argument(help="The gpu-kit-results.tar.gz that a kit has made.", dir_okay=False)],
    out: Out = Path("results"),
) -> None:
    """Every line of it is checked as if it came from a cell of this machine. Prints the folder of the run."""
    read = archives.read(archive)
    if read.facts.bench_sha256 != identity.source_digest():
        note("runner: the kit was made of another bench than this checkout's; its cells cannot stand beside new ones")
    imported = import_archive(read, out)
    for line in [*lines(imported), *(in_a_line(f"skipped {sentence}") for sentence in imported.dropped)]:
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
    for outcome in imported.outcomes:
        if outcome.status != "ok":
            step = outcome.step
            what = f"{outcome.status:8} {step.kind} {step.framework} {step.workload} {step.precision}"
            text.append(in_a_line(f"{what}: {outcome.reason}"))
    for gpu, (counter, integral) in imported.energies.items():
        agreement = share(counter, integral)
        text.append(
            in_a_line(f"energy   {gpu}: counter {counter:.0f} J, power over time {integral:.0f} J ({agreement})")
        )
    for name, gap in imported.events:
        text.append(in_a_line(f"windows  {name}: the clock is within {100 * gap:.2g} % of CUDA's events"))
    return text
