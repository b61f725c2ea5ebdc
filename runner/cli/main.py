"""The command `runner`. Only Typer is loaded here; each command loads what it needs when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from runner.cli import images as cli_images
from runner.cli import verify as cli_verify
from runner.cli.shared import BaseImage, Json, Out, Seed, Timeout

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its help alone would load what costs as much as all the rest
    pretty_exceptions_enable=False,
    help="One benchmark, every deep-learning framework: run the matrix of images, read the report, verify a machine.",
)
app.add_typer(cli_images.app, name="images")


Margin = Annotated[
    float, typer.Option(help="The smallest change that matters, in percent of the step time.", min=0.1, max=50)
]


def words(values: list[str] | None) -> tuple[str, ...]:
    """The words of an option that may be repeated and may hold commas."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def counts(text: str) -> tuple[int, ...]:
    """Numbers of devices between commas, each once."""
    if not all(word.strip().isdecimal() and 0 < int(word) < 10_000 for word in text.split(",")):
        could_not_start(
            ValueError(f"--devices: {text!r} is not a number of devices, or several between commas like 1,2,4")
        )
    return tuple(sorted({int(word) for word in text.split(",")}))


def could_not_start(error: BaseException) -> NoReturn:
    typer.echo(f"runner: {error}", err=True)
    raise typer.Exit(2)


def one_format(*asked: bool) -> None:
    if sum(asked) > 1:
        could_not_start(ValueError("--markdown, --csv and --json: give one of them"))


def print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value, indent=2))


def stored_runs(out: Path) -> list[Path]:
    """The folders of all runs under `out`, oldest first: a run's id begins with its time."""
    from runner.results.store import StoreError

    there = sorted(path.parent for path in out.glob("*/run.json"))
    if not there:
        could_not_start(StoreError(f"{out} holds no run; `runner matrix` makes one, --out names another folder"))
    return there


def chosen_runs(runs: list[str] | None, out: Path) -> list[Path]:
    """The folders of runs given by id or folder, each once; the newest run where none is given."""
    from runner.results.store import run_folder

    if not runs:
        return stored_runs(out)[-1:]
    found = [run_folder(run, out) for run in runs]
    return [
        folder for at, folder in enumerate(found) if folder.resolve() not in {each.resolve() for each in found[:at]}
    ]


@app.command()
def matrix(
    gpus: Annotated[
        str, typer.Option(help="all, none, or indices (3, or 3:0 for a MIG instance) or UUIDs between commas.")
    ] = "all",
    share: Annotated[bool, typer.Option("--share", help="Use GPUs that somebody else computes on as well.")] = False,
    each_gpu: Annotated[
        bool, typer.Option("--each-gpu", help="Every cell on every GPU: finds the weak one among equals.")
    ] = False,
    devices: Annotated[
        str,
        typer.Option(
            help="GPUs a cell: 1, or e.g. 1,2,4. Without GPUs, processes or virtual devices that share the cell's CPUs."
        ),
    ] = "1",
    scaling: Annotated[
        str, typer.Option(help="Of cells with several devices: weak keeps the batch of each, strong that of all.")
    ] = "weak",
    cool_down: Annotated[
        bool, typer.Option("--cool-down", help="Before each cell, let its GPU get as cool as it was at the start.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End at once when another runner holds a GPU, and say which.")
    ] = False,
    images: Annotated[
        list[str] | None, typer.Option(help="Image names or patterns like 'torch-*'; default: all.")
    ] = None,
    frameworks: Annotated[list[str] | None, typer.Option(help="Names between commas; default: all.")] = None,
    workloads: Annotated[list[str] | None, typer.Option(help="Names between commas; default: all.")] = None,
    precision: Annotated[list[str] | None, typer.Option(help="Names between commas; default: fp32.")] = None,
    modes: Annotated[
        list[str] | None,
        typer.Option(help="How frameworks compile: default, or e.g. default,compile; all: each that they declare."),
    ] = None,
    preset: Annotated[str, typer.Option(help="quick, standard or full.")] = "quick",
    engine: Annotated[str, typer.Option(help="auto, docker, venv or host (the interpreter it is in).")] = "auto",
    seed: Seed = 1,
    repeats: Annotated[int, typer.Option(help="How often each cell is run, in shuffled blocks.", min=1)] = 1,
    timeout: Timeout = None,
    out: Out = Path("results"),
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a run that was interrupted, with the options that it began with."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; start nothing.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the real data sets; without it, stand-ins are made.", exists=True, file_okay=False
        ),
    ] = None,
    base_image: Annotated[
        str | None,
        typer.Option(
            envvar="DLBENCH_BASE_IMAGE", help="Base image of a site without a registry, e.g. 'site:{python}'."
        ),
    ] = None,
    python: Annotated[
        Path | None, typer.Option(help="With --engine host: the interpreter to measure; default: the runner's own.")
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="After each measurement, a few steps under the framework's own profiler."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run every image, framework and workload on the devices of this machine, and write results and a report.

    Exit code 0: all cells are ok; 1: some failed or were not run; 2: it could not start.
    """
    import json

    from runner.cli.shared import write_report
    from runner.errors import UserError
    from runner.run import begin, progress, summary
    from runner.run import matrix as command
    from runner.run.options import Options

    if resume is not None and dry_run:
        could_not_start(
            ValueError("--resume and --dry-run: give one of them; a run goes on with the plan that it began with")
        )
    if preset not in ("quick", "standard", "full"):
        could_not_start(ValueError(f"--preset: there is no {preset!r}; there are quick, standard and full"))
    if scaling not in ("weak", "strong"):
        could_not_start(ValueError(f"--scaling: there is no {scaling!r}; there are weak and strong"))
    options = Options(
        gpus=gpus,
        share=share,
        each_gpu=each_gpu,
        devices=counts(devices),
        scaling=scaling,  # type: ignore[arg-type]
        cool_down=cool_down,
        wait=not no_wait,
        images=words(images),
        frameworks=words(frameworks),
        workloads=words(workloads),
        precisions=words(precision) or ("fp32",),
        modes=words(modes) or ("default",),
        preset=preset,  # type: ignore[arg-type]
        engine=engine,
        seed=seed,
        repeats=repeats,
        timeout=timeout,
        out=out,
        data=data,
        base_image=base_image,
        python=python,
        profile=profile,
    )
    try:
        if dry_run:
            from runner.cli.plan_table import print_plan

            return print_plan(begin.look_ahead(options), as_json)
        prospect, run = begin.resume(resume, out) if resume is not None else begin.start(options, sys.argv)
    except (UserError, OSError) as error:
        could_not_start(error)
    except KeyboardInterrupt:
        typer.echo("runner: interrupted before a cell was started", err=True)
        raise typer.Exit(1) from None
    try:
        progress.announce(prospect)
        code = command.execute(prospect, run, write_report, resumed=resume is not None)
        if as_json:
            typer.echo(json.dumps(summary.document(run), indent=2))
    except UserError as error:
        could_not_start(error)
    except OSError as error:
        typer.echo(f"runner: {error}; what had ended before is kept, and --resume goes on from there", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"runner: interrupted; go on with: runner matrix --resume {run.run_id}", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(code)


app.command()(cli_verify.verify)
app.add_typer(cli_verify.reference_app, name="reference")


@app.command()
def gpus(as_json: Json = False) -> None:
    """Show the GPUs of this machine, what they are joined by and what runs on them."""
    from runner.cli import gpus as command

    command.show(as_json)


@app.command()
def doctor(
    base_image: BaseImage = None,
    image: Annotated[
        str | None, typer.Option(help="The image that a container is started of; default: one of ours that is there.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at all that GPU cells need, start a container with every GPU, and say how to mend what is wrong.

    Exit code 0: nothing failed; 1: something did; 2: it could not look.
    """
    from runner.catalog.images import CatalogError
    from runner.doctor import doctor as command
    from runner.engines.base import EngineError

    try:
        code = command.run(as_json, base_image, image)
    except (CatalogError, EngineError, OSError) as error:
        could_not_start(error)
    raise typer.Exit(code)


@app.command()
def report(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, by id or folder; default: the newest.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    out: Out = Path("results"),
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a summary for a README instead.")] = False,
) -> None:
    """Write one self-contained HTML report from stored runs."""
    from reports.data.tables import load
    from reports.page.render import render
    from reports.page.summary import markdown
    from runner.results.store import StoreError

    folders = chosen_runs(runs, out)
    try:
        if as_markdown:
            typer.echo(markdown(load(folders)), nl=False)
        else:
            render(folders, output)
            typer.echo(str(output))
    except StoreError as error:
        could_not_start(error)
    except OSError as error:
        could_not_start(
            StoreError(f"--output {output} cannot be written ({error.strerror}); name a file in a folder of yours")
        )


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A run, image, GPU or CUDA version: what B is held against.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another of the same kind.")],
    runs: Annotated[
        list[str] | None,
        typer.Option("--runs", help="Where images, GPUs and CUDA versions are looked up; default: the newest run."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="What A and B are, where it is not plain: run, image, gpu or cuda.")
    ] = None,
    margin: Margin = 5.0,
    out: Out = Path("results"),
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Say which step times differ between two runs, images, GPUs or CUDA versions: real, noise, or cannot tell.

    Exit code 0: nothing is slower in B; 1: something is, or no longer runs; 2: it cannot be told of every cell.
    """
    from reports.answers import compare as command
    from reports.answers.export import comma_separated, terminal
    from reports.data.tables import load
    from runner.results.store import StoreError, run_folder

    one_format(as_markdown, as_csv, as_json)
    pair = [run_folder(word, out) for word in (a, b)]
    try:
        if by in (None, "run") and all((folder / "run.json").is_file() for folder in pair):
            found = command.compare(load(pair), pair[0].resolve().name, pair[1].resolve().name, "run", margin / 100)
        else:
            found = command.compare(load(chosen_runs(list(words(runs)), out)), a, b, by, margin / 100)
    except (command.CompareError, StoreError) as error:
        could_not_start(error)
    if as_json:
        print_json(command.document(found))
    elif as_csv:
        typer.echo(comma_separated(command.records(found)), nl=False)
    elif as_markdown:
        typer.echo(command.markdown(found), nl=False)
    else:
        terminal(command.table(found))
        for line in command.remarks(found):
            typer.echo(line)
    raise typer.Exit(found.exit_code)


@app.command()
def history(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, by id or folder; default: all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show noise and what cannot be told too.")] = False,
    margin: Margin = 5.0,
    out: Out = Path("results"),
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, of every row.")] = False,
    as_json: Json = False,
) -> None:
    """Say which step times moved since an earlier run, and after which change of driver, image or bench.

    Exit code 0: nothing moved; 1: something did; 2: it cannot be told of every cell.
    """
    from reports.answers import history as command
    from reports.answers.export import comma_separated, terminal
    from reports.data.tables import load
    from runner.results.store import StoreError

    one_format(as_markdown, as_csv, as_json)
    try:
        found = command.history(load(chosen_runs(runs, out) if runs else stored_runs(out)), margin / 100)
    except StoreError as error:
        could_not_start(error)
    rows = found.rows if everything else found.moved
    if as_json:
        print_json(command.document(found))
    elif as_csv:
        typer.echo(comma_separated(command.records(found)), nl=False)
    elif as_markdown:
        typer.echo(command.markdown(found, rows), nl=False)
    else:
        if rows:
            terminal(command.table(rows))
        typer.echo(found.summary)
    raise typer.Exit(found.exit_code)


@app.command()
def rosetta(
    workload: Annotated[str, typer.Argument(help="Such as cnn-cifar10.")],
    frameworks: Annotated[list[str], typer.Argument(help="Two or more frameworks, such as torch chainer.")],
    html: Annotated[Path | None, typer.Option(help="Write one self-contained HTML page instead.")] = None,
) -> None:
    """Show the same workload in several frameworks, side by side."""
    from reports.page import rosetta as stone

    try:
        if html is None:
            stone.terminal(workload, frameworks)
            return
        html.write_text(stone.page(workload, frameworks), encoding="utf-8")
    except (stone.RosettaError, OSError) as error:
        could_not_start(error)
    typer.echo(str(html))


def main() -> None:
    app()
