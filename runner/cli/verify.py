"""The commands `runner verify` and `runner reference`. Only Typer is loaded here, as in runner/cli/main.py."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.shared import BaseImage, Json, Out, Seed, Timeout

if TYPE_CHECKING:
    from runner.verify.references.saved import Shelf
    from runner.verify.verify import Verification

References = Annotated[
    Path | None,
    typer.Option(
        envvar="DLBENCH_REFERENCES", help="Folder of your references; default: dlbench/references in your data folder."
    ),
]

reference_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="References: what was measured elsewhere, to compare with."
)


def shelf(folder: Path | None, to_write: bool = False) -> Shelf:
    """The user's references. Raises SavedError for a folder that is none."""
    import os

    from runner.verify.references.saved import SavedError, Shelf

    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    if folder and folder.exists() and not folder.is_dir():
        raise SavedError(f"--references: {folder} is not a folder; name one that holds *.reference.parquet files")
    if folder and not folder.exists() and not to_write:
        typer.echo(f"--references: {folder} is not there, so there is no reference to compare with", err=True)
    return Shelf([folder or home / "dlbench" / "references"])


def verify(
    run: Annotated[
        list[str] | None, typer.Option(metavar="RUN", help="Judge stored runs, by id or folder; measure nothing.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Measure an image of the catalog instead of this environment.")
    ] = None,
    python: Annotated[Path | None, typer.Option(help="The interpreter to measure; default: the runner's own.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="host, docker, venv or auto; default: host, and auto with --image.")
    ] = None,
    gpus: Annotated[str, typer.Option(help="all, none, or indices or UUIDs between commas.")] = "all",
    each_gpu: Annotated[
        bool, typer.Option("--each-gpu", help="Compare the GPUs of one model with one another, without a reference.")
    ] = False,
    frameworks: Annotated[
        list[str] | None, typer.Option(help="Names between commas; default: all that are there.")
    ] = None,
    workloads: Annotated[
        list[str] | None, typer.Option(help="Names between commas, or all; default: cnn-cifar10,gru-imdb.")
    ] = None,
    precision: Annotated[list[str] | None, typer.Option(help="Names between commas; default: fp32.")] = None,
    preset: Annotated[str, typer.Option(help="quick, standard or full: that of the reference.")] = "quick",
    repeats: Annotated[int, typer.Option(help="Processes for each cell: they tell how much runs differ.", min=1)] = 3,
    most_repeats: Annotated[
        int, typer.Option(help="Go on with a cell that is unsure, where no more repeats than this would tell.", min=1)
    ] = 9,
    reference: Annotated[
        list[str] | None, typer.Option(help="Compare with these references only, by name or file; default: all.")
    ] = None,
    references: References = None,
    margin: Annotated[
        float | None,
        typer.Option(help="What counts as equal, in percent; default: 5 for a GPU, 8 for a CPU.", min=0.1, max=100),
    ] = None,
    seed: Seed = 1,
    timeout: Timeout = None,
    base_image: BaseImage = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown here.")] = None,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:
    """Tell whether an installation computes right and as fast as it should.

    Exit codes: 0 it does, 1 it does not, 2 that could not be told (no reference, or too little was measured).
    """
    from runner.cli.main import chosen_runs, could_not_start, words
    from runner.cli.shared import write_report
    from runner.errors import UserError
    from runner.results.store import StoreError
    from runner.run.options import Options
    from runner.verify import verify as command

    if preset not in ("quick", "standard", "full"):
        could_not_start(ValueError(f"--preset: there is no {preset!r}; there are quick, standard and full"))
    chosen = words(workloads) or command.WORKLOADS
    options = Options(
        gpus=gpus,
        images=(image,) if image else (),
        frameworks=words(frameworks),
        workloads=() if chosen == ("all",) else chosen,
        precisions=words(precision) or ("fp32",),
        preset=preset,  # type: ignore[arg-type]
        engine=engine or ("auto" if image else "host"),
        seed=seed,
        repeats=repeats,
        timeout=timeout,
        out=out,
        base_image=base_image,
        python=python,
    )
    try:
        there = shelf(references)
        known = [there.find(name) for name in reference] if reference else there.all()

        def judged(folders: Sequence[Path]) -> Verification:
            return command.assess(folders, known, margin / 100 if margin else None)

        def further(folder: Path) -> dict[str, int]:
            return command.repeats_wanted(judged([folder]), most_repeats)

        folders = (
            chosen_runs(run, out) if run else command.measure_here(options, sys.argv, write_report, each_gpu, further)
        )
        found = judged(folders)
        found = command.with_fleets(found) if each_gpu else found
        if not found.findings:
            raise StoreError("the runs hold no cell, so there is nothing to judge")
        _tell(found, as_json, junit, markdown)
    except (UserError, OSError) as error:
        could_not_start(error)
    except KeyboardInterrupt:
        could_not_start(InterruptedError("interrupted: nothing was judged"))
    raise typer.Exit(found.exit_code)


def _tell(found: Verification, as_json: bool, junit: Path | None, markdown: Path | None) -> None:
    """Print the findings, and write the files that were asked for."""
    import json

    from rich.console import Console

    from runner.results.store import write_bytes
    from runner.verify import output as verify_output
    from runner.verify.verify import as_json as plain

    if junit:
        write_bytes(junit, verify_output.junit(found))
    if markdown:
        write_bytes(markdown, verify_output.markdown(found).encode())
    if as_json:
        typer.echo(json.dumps(plain(found), indent=2, allow_nan=False))
    else:
        verify_output.terminal(found, Console())


@reference_app.command("save")
def reference_save(
    run: Annotated[str, typer.Argument(help="A run, by id or folder.")],
    name: Annotated[str, typer.Option(help="What it shall be called.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace another of this name.")] = False,
    references: References = None,
    out: Out = Path("results"),
) -> None:
    """Keep a run's cells, with their samples, as a reference."""
    from runner.results.store import run_folder
    from runner.run.begin import runner_version
    from runner.verify.references.measured import reference_of

    with _user_errors():
        made = reference_of(run_folder(run, out), name, runner_version())
        path = shelf(references, to_write=True).put(made, replace)
        typer.echo(f"{path} {len(made.cells)} cells sha256:{made.sha256}")


@reference_app.command("list")
def reference_list(references: References = None, as_json: Json = False) -> None:
    """Show every reference there is, and the published numbers."""
    from runner.verify.references import show

    with _user_errors():
        show.print_list(shelf(references), as_json)


@reference_app.command("show")
def reference_show(
    name: Annotated[str, typer.Argument(help="A reference by name or file, or: published.")],
    workload: Annotated[str | None, typer.Option(help="This workload only.")] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(help="published: GPUs between commas; default: K80,P100,V100.")
    ] = None,
    run: Annotated[list[str] | None, typer.Option(help="published: put these runs beside them.")] = None,
    references: References = None,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:
    """Show a reference's cells; or the published numbers, with a machine of yours beside K80, P100 and V100."""
    from runner.cli.main import chosen_runs, words
    from runner.verify.references import show

    with _user_errors():
        if name == "published":
            folders = chosen_runs(run, out) if run else []
            show.print_published(workload, words(gpu) or show.GPUS, folders, as_json)
        else:
            show.print_reference(shelf(references).find(name), workload, as_json)


@reference_app.command("diff")
def reference_diff(
    first: Annotated[str, typer.Argument(help="A reference by name or file.")],
    second: Annotated[str, typer.Argument(help="The one that it is held against.")],
    references: References = None,
    as_json: Json = False,
) -> None:
    """Compare two references, cell by cell, with the verdict that the first would get."""
    from runner.verify.references import show

    with _user_errors():
        there = shelf(references)
        show.print_diff(there.find(first), there.find(second), as_json)


@reference_app.command("export")
def reference_export(
    name: Annotated[str, typer.Argument(help="A reference by name.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    references: References = None,
) -> None:
    """Write a reference as one Parquet file with its manifest and hashes inside."""
    from runner.results.store import write_bytes
    from runner.verify.references.saved import to_bytes

    with _user_errors():
        found = shelf(references).find(name)
        write_bytes(output, to_bytes(found))
        typer.echo(f"{output} sha256:{found.sha256}")


@reference_app.command("import")
def reference_import(
    file: Annotated[Path, typer.Argument(help="A file that `runner reference export` wrote.", dir_okay=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace another of this name.")] = False,
    references: References = None,
) -> None:
    """Take up somebody's reference, after every hash was checked."""
    from runner.verify.references.saved import read

    with _user_errors():
        found = read(file)
        typer.echo(f"{shelf(references, to_write=True).put(found, replace)} sha256:{found.sha256}")


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    """What a user can cause is told as a sentence, with exit code 2."""
    from runner.cli.main import could_not_start
    from runner.results.store import StoreError
    from runner.verify.references.published import PublishedError
    from runner.verify.references.saved import SavedError

    try:
        yield
    except (SavedError, PublishedError, StoreError, OSError) as error:
        could_not_start(error)
