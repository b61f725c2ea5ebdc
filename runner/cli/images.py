"""The commands `runner images …`. Only Typer is loaded here; each command loads what it needs when it is called."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from runner.cli.shared import BaseImage, Json

if TYPE_CHECKING:
    from docker import DockerClient

    from runner.catalog.images import Image

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The catalog of images.")

Names = Annotated[list[str], typer.Argument(help="Image names or patterns.")]
SomeNames = Annotated[list[str] | None, typer.Argument(help="Image names or patterns; default: all.")]


@contextmanager
def _told() -> Iterator[None]:
    """A user's mistake, or a machine's, ends the command with one sentence and exit code 2."""
    from runner.catalog.images import CatalogError
    from runner.images.build import BuildError
    from runner.images.lock import LockError
    from runner.images.registry import RegistryError

    try:
        yield
    except (CatalogError, LockError, BuildError, RegistryError, ValueError, OSError) as error:
        _stop(str(error))


def _stop(sentence: str) -> NoReturn:
    typer.echo(f"runner: {sentence}", err=True)
    raise typer.Exit(2)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _chosen(names: list[str] | None, locks: bool = True) -> list[Image]:
    from runner.catalog.images import load_catalog, select_images

    return select_images(load_catalog(locks=locks), names or ["*"])


def _client() -> DockerClient:
    from runner.engines.base import EngineError
    from runner.engines.docker.engine import connect
    from runner.images.build import BuildError

    try:
        return connect()
    except EngineError as error:
        raise BuildError(str(error)) from None


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """Show every image of the catalog."""
    from rich.console import Console
    from rich.table import Table

    with _told():
        images = _chosen(None)
    if as_json:
        return typer.echo(json.dumps([_facts(image) for image in images], indent=2))
    table = Table(
        *("image", "frameworks", "version", "Python", "CUDA", "cuDNN", "driver ≥"),
        *("capability", "fetch", "base pinned", "untested"),
    )
    for image in images:
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
    return Console().print(table)


def _facts(image: Image) -> dict[str, object]:
    from runner.images.recipe import recipe

    return image.model_dump(mode="json") | {"lock_sha256": image.lock_sha256, "input_tag": recipe(image).input_tag}


@app.command()
def show(names: Names, as_json: Json = False) -> None:
    """Show all that is known of images, and what their locks install."""
    from runner.catalog.images import read_pins

    with _told():
        images = _chosen(names)
        facts = [
            _facts(image) | {"installs": {pin.name: pin.version for path in image.locks for pin in read_pins(path)}}
            for image in images
        ]
    if as_json:
        return typer.echo(json.dumps(facts, indent=2))
    for fact in facts:
        for field, value in fact.items():
            if isinstance(value, dict):
                value = "".join(f"\n  {name} {told}" for name, told in value.items())
            elif isinstance(value, list):
                value = ", ".join(map(str, value))
            if value not in (None, ""):
                typer.echo(f"{field}: {value}")
        typer.echo()
    return None


@app.command()
def check(
    names: SomeNames = None,
    strict: Annotated[bool, typer.Option("--strict", help="A base image without a digest is wrong, too.")] = False,
) -> None:
    """Prove from the locks, without a network, that images hold what they say. Exit code 1: something is wrong."""
    from runner.catalog.workloads import adapters, load_workloads
    from runner.images import check as images_check
    from runner.images import files as images_files

    with _told():
        images = _chosen(names)
        problems = images_check.check(images, load_workloads().values(), adapters())
        if not names:
            problems += [images_check.Problem(path, what) for path, what in images_files.out_of_step(images)]
    wrong = [problem for problem in problems if strict or not problem.only_strict]
    for problem in wrong:
        typer.echo(str(problem), err=True)
    later = len(problems) - len(wrong)
    typer.echo(
        f"{len(images)} images, {len(wrong)} problems"
        + (f"; {later} base images without a digest, which --strict counts" if later else "")
    )
    raise typer.Exit(1 if wrong else 0)


@app.command()
def build(
    names: Annotated[
        list[str] | None, typer.Argument(help="Image names or patterns; default: all tested CPU images.")
    ] = None,
    base_image: BaseImage = None,
    jobs: Annotated[int, typer.Option(help="How many to build at once.", min=1)] = 1,
    push: Annotated[str | None, typer.Option(metavar="REGISTRY", help="Push what is built there.")] = None,
    cache_from: Annotated[
        str | None, typer.Option(metavar="REGISTRY", help="Use what was pushed there before as the builder's cache.")
    ] = None,
    sbom: Annotated[Path | None, typer.Option(help="Folder for a bill of materials of each image (SPDX JSON).")] = None,
) -> None:
    """Build images with the Docker Engine; with --push, print registry/name@digest of each."""
    from runner.engines.base import Settings
    from runner.engines.docker.engine import DockerEngine
    from runner.images import build as builder
    from runner.images import files as images_files
    from runner.images import recipe as recipes
    from runner.images import registry as shelf

    def one(image: Image) -> str:
        client = _client()
        digest = builder.build(image, base_image, _say, client, cache_from=cache_from)
        if push:
            digest = shelf.push(client, recipes.recipe(image, base_image), push)
        if sbom:
            sbom.mkdir(parents=True, exist_ok=True)
            (sbom / f"{image.name}.spdx.json").write_text(images_files.sbom(image), encoding="utf-8")
        typer.echo(f"{image.name} {digest}")
        return digest

    with _told():
        images = [image for image in _chosen(names or ["*-cpu"]) if names or image.untested is None]
        if reason := DockerEngine(Settings(base_image)).unavailable():
            _stop(reason)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(jobs) as pool:
            running = [pool.submit(one, image) for image in images]
        failed = [error for future in running if (error := future.exception())]
    for error in failed:
        if not isinstance(error, (builder.BuildError, shelf.RegistryError)):
            raise error
        _say(f"runner: {error}")
    raise typer.Exit(2 if failed else 0)


@app.command()
def push(
    registry: Annotated[str, typer.Argument(help="Such as ghcr.io/owner.")], names: Names, base_image: BaseImage = None
) -> None:
    """Push images that are built here, and print registry/name@digest of each."""
    from runner.images import build as builder
    from runner.images import recipe as recipes
    from runner.images import registry as shelf

    with _told():
        client = _client()
        for image in _chosen(names):
            wanted = recipes.recipe(image, base_image)
            if builder.built(client, wanted) is None:
                _stop(f"{image.name} is not built, or stale; `runner images build {image.name}` makes it")
            typer.echo(f"{image.name} {shelf.push(client, wanted, registry)}")


@app.command()
def lock(
    names: Names,
    date: Annotated[
        str | None, typer.Option(help="Take nothing newer than this day (YYYY-MM-DD); default: today.")
    ] = None,
) -> None:
    """Make the hashed locks of images again, with uv."""
    import datetime

    from runner.images.lock import make_lock

    with _told():
        try:
            day = datetime.date.fromisoformat(date) if date else datetime.date.today()
        except ValueError:
            _stop(f"--date: {date!r} is no day; write it like 2026-11-20")
        for image in _chosen(names, locks=False):
            typer.echo(str(make_lock(image, day, _say)))


@app.command()
def pin(
    names: Names,
    registry: Annotated[
        str | None, typer.Option(help="Pin the built images that are there, and not their base images.")
    ] = None,
    base_image: BaseImage = None,
) -> None:
    """Ask registries for the digests of base images, or with --registry of built ones, and write them into image.toml."""
    from runner.images import recipe as recipes
    from runner.images import registry as shelf
    from runner.images.lock import pin_base, pin_published

    with _told():
        client = _client()
        for image in _chosen(names):
            if registry:
                reference = shelf.digest_of(client, recipes.recipe(image, base_image), registry)
                pin_published(image, reference)
                typer.echo(f"{image.name} {reference}")
            else:
                typer.echo(f"{image.name} {image.base} {pin_base(image, client)}")


@app.command()
def prune(
    names: SomeNames = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")] = False,
) -> None:
    """Remove what older locks and benches left on this machine: built images, and environments. Nothing that is not of the catalog."""
    from runner.engines.process import environments
    from runner.images.build import BuildError

    with _told():
        images = _chosen(names)
        for folder, what in environments.stale(images):
            _pruned(str(folder), what, None if dry_run else environments.remove(folder))
        try:
            client = _client()
        except BuildError as error:
            _say(f"images were not looked for: {error}")
            return
        _prune_images(client, images, dry_run)


def _prune_images(client: DockerClient, images: list[Image], dry_run: bool) -> None:
    from runner.images import recipe as recipes
    from runner.images import registry as shelf

    for image_id, what in shelf.stale(client, [recipes.recipe(image) for image in images]):
        _pruned(image_id[:19], what, None if dry_run else shelf.remove(client, image_id))


def _pruned(name: str, what: str, kept: str | None) -> None:
    typer.echo(f"{name} {what}" + (f": kept, {kept}" if kept else ""))


@app.command()
def files() -> None:
    """Write compose.gpu.yml and images/docker-bake.json again, from the catalog."""
    from runner.images import files as images_files

    with _told():
        for path in images_files.write(_chosen(None)):
            typer.echo(str(path))


@app.command()
def matrix(
    names: SomeNames = None,
    changed_since: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Only the images that changed since then.")
    ] = None,
) -> None:
    """Print the images as a matrix for a CI of GitHub: one line of JSON."""
    from runner.images import files as images_files

    with _told():
        images = _chosen(names)
        if changed_since:
            images = images_files.changed_images(images, changed_since)
    rows = [{"image": image.name, "accelerator": image.accelerator} for image in images]
    typer.echo(json.dumps({"include": rows}))
