"""The commands that carry images away or remove them: push, export and prune."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import psutil
import typer
from filelock import FileLock, Timeout

from runner import text, trees
from runner.catalog.architectures import AARCH64, by_name
from runner.catalog.images import Image
from runner.cli.images import Names, SomeNames, chosen, one_after_another
from runner.cli.shared import BaseImage, note
from runner.engines import sif
from runner.engines.process.interpreters import Interpreter, find_interpreter
from runner.engines.process.venv import COMPLETE, COMPLETE_TRIAL, environment_folder, is_any_of, trial_folder
from runner.errors import UserError
from runner.images import builder, docker_client
from runner.images.recipe import recipe
from runner.images.transfer import folder, registry
from runner.images.transfer import registry as registries

# Finds the environments of locks that no image of the catalog has any more, and removes those that nobody uses.


def stale_environments(images: Iterable[Image]) -> Iterator[tuple[Path, str]]:
    """(found, what it is) of these images' environments that the engine `venv` would not take today, and of those that a try left.

    An image whose Python is not on this machine is passed over: nobody can say which of its environments is today's.
    """
    for image in images:
        # To find an interpreter takes longer than all the rest.
        if not is_any_of(image.name):
            continue
        interpreter = find_interpreter(image.python)
        if not isinstance(interpreter, Interpreter):
            continue
        current = environment_folder(image, interpreter)
        # The name of one image may begin with another's.
        own = re.compile(re.escape(image.name) + "-[0-9a-f]{12}")
        for found in sorted(current.parent.glob(f"{image.name}-*")):
            if found != current and found.is_dir() and own.fullmatch(found.name):
                yield found, f"{image.name} of another lock or Python, {trees.size(found).on_disk / 1e9:.1f} GB"
        for found in sorted(trial_folder(current).parent.glob(f"{image.name}-*")):
            if found.is_dir() and own.fullmatch(found.name):
                yield found, f"{image.name} as `runner images try` left it, {trees.size(found).on_disk / 1e9:.1f} GB"


def remove_environment(found: Path) -> str | None:
    """Remove an environment; why it stays, where it is being made or something runs in it. Raises OSError."""
    try:
        with FileLock(f"{found}.lock", timeout=0):
            if number := _user(found):
                return f"process {number} runs in it"
            # First: half an environment must not pass for a whole one.
            for marker in (COMPLETE, COMPLETE_TRIAL):
                (found / marker).unlink(missing_ok=True)
            return trees.remove(found)
    except Timeout:
        return "a runner is making it"
    return None


def _user(found: Path) -> int | None:
    """A process that was started with a program of the found."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"]
        if command and command[0].startswith(f"{found}/"):
            return int(process.pid)
    return None


# The command `runner images prune`.


def prune(
    names: SomeNames = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")] = False,
) -> None:
    """Without names, also removes the images that the catalog does not have and what builds left over. Keeps what a process or a container
    uses, the images that another checkout on this machine built last, and each name that is not of the form that builds and pushes give."""
    images = chosen(names)
    recipes = {image.name: partial(recipe, image) for image in images}
    removed = {
        "environment": [
            _print(str(folder), sentence, None if dry_run else remove_environment(folder))
            for folder, sentence in stale_environments(images)
        ],
        "SIF": [
            _print(str(path), sentence, None if dry_run else trees.remove(path))
            for path, sentence in sif.stale(recipes, every=not names)
        ],
    }
    try:
        client = docker_client.connect()
    except UserError as error:
        note(f"images were not looked for: {error}")
    else:
        found = list(registry.stale(client, recipes))
        if not names:
            found += registry.unknown(client, images)
        removed["image"] = [
            _print(image_id[:19], sentence, None if dry_run else registry.remove(client, image_id))
            for image_id, sentence in found
        ]
    note(end_of(removed, dry_run))


def _print(name: str, sentence: str, why_kept: str | None) -> bool:
    """Print the line of an image or an environment; returns whether it goes."""
    typer.echo(f"{name} {sentence}" + (f": kept, {why_kept}" if why_kept else ""))
    return why_kept is None


def end_of(removed: Mapping[str, Sequence[bool]], dry_run: bool) -> str:
    """How many of each kind were out of date, and went or stay. Current ones are not counted: they stay."""
    gone = ", ".join(text.plural(sum(each), kind) for kind, each in removed.items() if sum(each))
    kept = ", ".join(text.plural(each.count(False), kind) for kind, each in removed.items() if each.count(False))
    if not gone and not kept:
        return f"no {' and no '.join(removed)} is out of date, so nothing was removed"
    if dry_run:
        return f"out of date: {gone}; --dry-run removes nothing"
    return f"removed: {gone or 'nothing'}" + (f"; out of date and kept: {kept}" if kept else "")


# The most images to name that cannot be exported.
_NAMED = 5


def push(
    registry: Annotated[str, typer.Argument(help="Such as ghcr.io/owner.")],
    names: Names,
    base_image: BaseImage = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished", help="Push under the tag latest only: the tag of the inputs says that an image is finished."
        ),
    ] = False,
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="SHA256", help="Give the tag of the inputs only to an image with this digest, such as a signed one."
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="ARCHITECTURE",
            help="Push an index of this image and of the one for this architecture, such as arm64, that a machine of it has pushed there.",
        ),
    ] = None,
) -> None:
    """Prints registry/name@digest of each image."""
    images = chosen(names)
    if digest and len(images) != 1:
        raise UserError(f"--digest: it is of one image, and {len(images)} are named")
    # An index is pushed from x86-64, whose tags have no ending.
    if index is not None and by_name(index) != AARCH64:
        raise UserError(f"--index: {index!r} is not another architecture than this image's; write {AARCH64.docker}")
    client = docker_client.connect()
    here = docker_client.list_images(client)

    def push_one(image: Image) -> None:
        image_recipe = recipe(image, base_image)
        if builder.built(here, image_recipe) is None:
            raise UserError(f"{image.name} is not built, or stale; `runner images build {image.name}` makes it")
        pushed = registries.push(
            client,
            image_recipe,
            registry,
            note,
            finish=not unfinished,
            digest=digest,
            index=AARCH64.docker if index else None,
        )
        typer.echo(f"{image.name} {pushed}")

    one_after_another(push_one, images)


class Form(StrEnum):
    """The forms of an image in a folder."""

    DOCKER = "docker"
    SIF = "sif"


def export(
    names: Names,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A folder that all nodes see.")],
    base_image: BaseImage = None,
    form: Annotated[
        Form, typer.Option("--as", help="The form: a file of `docker save`, or a SIF for --engine apptainer.")
    ] = Form.DOCKER,
) -> None:
    """A run loads them with `--images-from FOLDER`. Prints the file of each image."""
    images = chosen(names)
    client = docker_client.connect()
    here = docker_client.list_images(client)
    recipes = {image.name: recipe(image, base_image) for image in images}
    if missing := [one.image.name for one in recipes.values() if builder.built(here, one) is None]:
        some = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else "")
        raise UserError(f"not built, or stale: {some}; `runner images build {shlex.join(names)}` makes them")
    if form is Form.SIF:
        sif.version()

    def export_one(image: Image) -> None:
        one = recipes[image.name]
        if form is Form.SIF:
            path = sif.export(client, one, str(builder.built(here, one)), to, note)
            typer.echo(f"{one.image.name} {path} {path.stat().st_size / 1e9:.2f} GB")
            return
        note(f"exporting {one.image.name}")
        entry, new = folder.export(client, one, to)
        said = "" if new else " (was there)"
        typer.echo(f"{one.image.name} {to / entry.sha256}.tar {entry.bytes / 1e9:.2f} GB{said}")

    one_after_another(export_one, images)
