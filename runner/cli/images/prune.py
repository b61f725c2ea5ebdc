"""The command `runner images prune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import typer

from runner import trees
from runner.cli.images import SomeNames, chosen
from runner.cli.shared import note
from runner.engines.apptainer import sif
from runner.engines.process import stale_environments
from runner.errors import UserError
from runner.images.docker_client import connect
from runner.images.recipe import recipe
from runner.images.transfer import registry
from runner.text import plural


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
            _print(str(folder), sentence, None if dry_run else stale_environments.remove(folder))
            for folder, sentence in stale_environments.stale(images)
        ],
        "SIF": [
            _print(str(path), sentence, None if dry_run else trees.remove(path))
            for path, sentence in sif.stale(recipes, every=not names)
        ],
    }
    try:
        client = connect()
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
    gone = ", ".join(plural(sum(each), kind) for kind, each in removed.items() if sum(each))
    kept = ", ".join(plural(each.count(False), kind) for kind, each in removed.items() if each.count(False))
    if not gone and not kept:
        return f"no {' and no '.join(removed)} is out of date, so nothing was removed"
    if dry_run:
        return f"out of date: {gone}; --dry-run removes nothing"
    return f"removed: {gone or 'nothing'}" + (f"; out of date and kept: {kept}" if kept else "")
