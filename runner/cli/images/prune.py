"""The command `runner images prune`."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli.images import SomeNames, chosen
from runner.cli.shared import note
from runner.engines.process import environments
from runner.errors import UserError
from runner.images import registry
from runner.images.docker_client import connect
from runner.images.recipe import recipe


def prune(
    names: SomeNames = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")] = False,
) -> None:
    """Removes only what belongs to images of the catalog. Keeps what a process or a container uses."""
    images = chosen(names)
    for folder, sentence in environments.stale(images):
        _print(str(folder), sentence, None if dry_run else environments.remove(folder))
    try:
        client = connect()
    except UserError as error:
        note(f"images were not looked for: {error}")
        return
    for image_id, sentence in registry.stale(client, [recipe(image) for image in images]):
        _print(image_id[:19], sentence, None if dry_run else registry.remove(client, image_id))


def _print(name: str, sentence: str, why_kept: str | None) -> None:
    typer.echo(f"{name} {sentence}" + (f": kept, {why_kept}" if why_kept else ""))
