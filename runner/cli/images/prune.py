"""The command `runner images prune`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from runner.cli.images import SomeNames, chosen
from runner.cli.shared import note
from runner.engines.process import environments
from runner.errors import UserError
from runner.images.docker_client import connect
from runner.images.recipe import recipe
from runner.images.transfer import registry


def prune(
    names: SomeNames = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")] = False,
) -> None:
    """Without names, also removes the images that the catalog does not have and what builds left over. Keeps what a process or a container
    uses, the images that another checkout on this machine built last, and each image and name that no build, push or pull made here."""
    images = chosen(names)
    removed = [
        _print(str(folder), sentence, None if dry_run else environments.remove(folder))
        for folder, sentence in environments.stale(images)
    ]
    try:
        client = connect()
    except UserError as error:
        note(f"images were not looked for: {error}")
        _print_end(removed, dry_run)
        return
    found = list(registry.stale(client, {image.name: partial(recipe, image) for image in images}))
    if not names:
        found += registry.unknown(client, images)
    removed += [
        _print(image_id[:19], sentence, None if dry_run else registry.remove(client, image_id))
        for image_id, sentence in found
    ]
    _print_end(removed, dry_run)


def _print(name: str, sentence: str, why_kept: str | None) -> bool:
    """Print the line of an image or an environment; returns whether it goes."""
    typer.echo(f"{name} {sentence}" + (f": kept, {why_kept}" if why_kept else ""))
    return why_kept is None


def _print_end(removed: list[bool], dry_run: bool) -> None:
    """How many went, beside the lines that a script reads."""
    if dry_run:
        note(f"{len(removed)} would be removed; nothing was, because of --dry-run")
    else:
        note(f"{sum(removed)} removed, {len(removed) - sum(removed)} kept")
