"""The command `runner`. Only Typer is loaded here; each command loads what it needs when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its help alone would load what costs as much as all the rest
    pretty_exceptions_enable=False,
    help="One benchmark, every deep-learning framework: run the matrix of images, read the report, verify a machine.",
)
images_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The catalog of images.")
app.add_typer(images_app, name="images")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script, on standard output.")]
Words = Annotated[list[str] | None, typer.Option(help="Names between commas; may be given more than once.")]


def words(values: list[str] | None) -> tuple[str, ...]:
    """The words of an option that may be repeated and may hold commas."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def could_not_start(error: BaseException) -> NoReturn:
    typer.echo(f"runner: {error}", err=True)
    raise typer.Exit(2)


@app.command()
def matrix(
    gpus: Annotated[str, typer.Option(help="all, none, or indices or UUIDs between commas.")] = "all",
    images: Annotated[
        list[str] | None, typer.Option(help="Image names or patterns like 'torch-*'; default: all.")
    ] = None,
    frameworks: Words = None,
    workloads: Words = None,
    precision: Words = None,
    modes: Annotated[
        list[str] | None,
        typer.Option(help="How frameworks compile: default, or e.g. default,compile; all: each that they declare."),
    ] = None,
    preset: Annotated[str, typer.Option(help="quick, standard or full.")] = "quick",
    engine: Annotated[str, typer.Option(help="auto, docker, venv or host (the interpreter it is in).")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the data, the parameters and the order of the cells.", min=0)] = 1,
    repeats: Annotated[int, typer.Option(help="How often each cell is run, in shuffled blocks.", min=1)] = 1,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which a cell is taken to hang.", min=1)] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("results"),
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a run that was interrupted.")] = None,
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
    as_json: Json = False,
) -> None:
    """Run every image, framework and workload on the devices of this machine, and write results and a report."""
    import json

    from runner import matrix as command

    if preset not in ("quick", "standard", "full"):
        could_not_start(ValueError(f"--preset: there is no {preset!r}; there are quick, standard and full"))
    options = command.Options(
        gpus=gpus,
        images=words(images),
        frameworks=words(frameworks),
        workloads=words(workloads),
        precisions=words(precision) or ("fp32",),
        modes=words(modes) or ("default",),
        preset=preset,
        engine=engine,
        seed=seed,
        repeats=repeats,
        timeout=timeout,
        out=out,
        data=data,
        base_image=base_image,
        python=python,
    )
    try:
        if dry_run:
            return command.print_plan(command.look_ahead(options), as_json)
        begin = command.resume(resume, out) if resume else command.start(options, sys.argv)
        prospect, run, manifest = begin
        command.say_where(prospect)
        code = command.execute(prospect, run)
        if as_json:
            typer.echo(json.dumps(command.summary(run, manifest), indent=2))
    except command.USER_ERRORS as error:
        could_not_start(error)
    except OSError as error:
        typer.echo(f"runner: {error}; what had ended before is kept, and --resume goes on from there", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("runner: interrupted before a cell was started", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(code)


@app.command()
def report(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, by id or folder; default: the newest.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("results"),
) -> None:
    """Write one self-contained HTML report from stored runs."""
    from runner.store import StoreError

    there = sorted(path.parent for path in out.glob("*/run.json"))
    if not runs and not there:
        could_not_start(StoreError(f"{out} holds no run; `runner matrix` makes one, --out names another folder"))
    folders = [out / run if (out / run).is_dir() else Path(run) for run in runs] if runs else there[-1:]
    from reports import render

    try:
        render(folders, output)
    except StoreError as error:
        could_not_start(error)
    typer.echo(str(output))


@app.command()
def rosetta(
    workload: Annotated[str, typer.Argument(help="Such as cnn-cifar10.")],
    frameworks: Annotated[list[str], typer.Argument(help="Two or more frameworks, such as torch chainer.")],
    html: Annotated[Path | None, typer.Option(help="Write one self-contained HTML page instead.")] = None,
) -> None:
    """Show the same workload in several frameworks, side by side."""
    from reports import rosetta as stone

    try:
        if html is None:
            stone.terminal(workload, frameworks)
            return
        html.write_text(stone.page(workload, frameworks), encoding="utf-8")
    except (stone.RosettaError, OSError) as error:
        could_not_start(error)
    typer.echo(str(html))


@images_app.command("list")
def images_list(as_json: Json = False) -> None:
    """Show every image of the catalog."""
    import json

    from runner.catalog import CatalogError, load_catalog

    try:
        catalog = load_catalog()
    except CatalogError as error:
        could_not_start(error)
    if as_json:
        rows = [image.model_dump(mode="json") | {"lock_sha256": image.lock_sha256} for image in catalog.values()]
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        *("image", "frameworks", "version", "Python", "CUDA", "cuDNN", "driver ≥"),
        *("capability", "fetch", "base pinned", "untested"),
    )
    for image in catalog.values():
        low, high = image.min_compute_capability, image.max_compute_capability
        table.add_row(
            image.name,
            ", ".join(image.frameworks),
            image.framework_version,
            image.python,
            image.cuda or "-",
            image.cudnn or "-",
            image.min_driver or "-",
            f"{low} to {high}" if low else "-",
            f"{image.download_gb:.2f} GB",
            "yes" if image.base_digest else "no digest yet",
            image.untested or "",
        )
    Console().print(table)


@images_app.command("build")
def images_build(
    names: Annotated[
        list[str] | None, typer.Argument(help="Image names or patterns; default: all tested CPU images.")
    ] = None,
    base_image: Annotated[
        str | None, typer.Option(envvar="DLBENCH_BASE_IMAGE", help="Base image of a site without a registry.")
    ] = None,
) -> None:
    """Build images with the Docker Engine."""
    from runner.catalog import CatalogError, load_catalog, select_images
    from runner.engines.base import EngineError
    from runner.engines.docker import DockerEngine

    try:
        chosen = select_images(load_catalog(), names or ["*-cpu"])
        chosen = [image for image in chosen if names or image.untested is None]
        engine = DockerEngine(base_image)
        if reason := engine.unavailable():
            raise EngineError(reason)
        for image in chosen:
            prepared = engine.prepare(image, lambda line: typer.echo(line, err=True))
            typer.echo(f"{image.name} {prepared.digest}")
    except (CatalogError, EngineError) as error:
        could_not_start(error)


@images_app.command("lock")
def images_lock(
    names: Annotated[list[str], typer.Argument(help="Image names or patterns.")],
    date: Annotated[
        str | None, typer.Option(help="Take nothing newer than this day (YYYY-MM-DD); default: today.")
    ] = None,
) -> None:
    """Make the hashed locks of images again, with uv."""
    import datetime

    from runner.catalog import CatalogError, load_catalog, select_images
    from runner.lock import LockError, make_lock

    try:
        day = datetime.date.fromisoformat(date) if date else datetime.date.today()
        for image in select_images(load_catalog(locks=False), names):
            typer.echo(str(make_lock(image, day, lambda line: typer.echo(line, err=True))))
    except (CatalogError, LockError, ValueError) as error:
        could_not_start(error)


@images_app.command("pin")
def images_pin(names: Annotated[list[str], typer.Argument(help="Image names or patterns.")]) -> None:
    """Ask the registry for the digest of each base image, and write it into image.toml."""
    import docker

    from runner.catalog import CatalogError, load_catalog, select_images
    from runner.lock import LockError, pin_base

    try:
        client = docker.from_env()
        for image in select_images(load_catalog(), names):
            typer.echo(f"{image.name} {image.base} {pin_base(image, client)}")
    except (CatalogError, LockError, docker.errors.DockerException) as error:
        could_not_start(error)


def main() -> None:
    app()
