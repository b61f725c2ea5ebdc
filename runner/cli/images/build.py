"""The commands that build images: build, reproduce, and ci-matrix for the jobs that do."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from runner.catalog.architectures import AARCH64, why_not
from runner.catalog.images import Image
from runner.cli.images import Names, SomeNames, chosen, one_after_another, raise_together
from runner.cli.shared import BaseImage, note
from runner.engines.base import Settings
from runner.engines.docker.engine import DockerEngine
from runner.errors import CannotBeginError, UserError, one_code
from runner.images import builder, docker_client, generated_files
from runner.images.recipe import recipe
from runner.images.transfer import registry
from runner.results.store import write_bytes

# The command `runner images ci-matrix`.


def ci_matrix(
    names: SomeNames = None,
    missing_from: Annotated[
        str | None,
        typer.Option(
            metavar="REGISTRY", help="Only the images that this registry lacks: it has none of just these inputs."
        ),
    ] = None,
    base_image: BaseImage = None,
) -> None:
    """GitHub builds one job for each image of the matrix, and one more on a machine of the architecture that `index` names."""
    images = chosen(names)
    if not names:
        # Nobody has built these, so their jobs would be red for ever. Named, they are built.
        images = [image for image in images if image.untested is None]
    if missing_from:
        recipes = [recipe(image, base_image) for image in images]
        images = [lacking.image for lacking in registry.missing(docker_client.connect(), recipes, missing_from)]
    rows = [
        {
            "image": image.name,
            "accelerator": image.accelerator,
            "index": AARCH64.docker if why_not(image, AARCH64.name) is None else "",
        }
        for image in images
    ]
    typer.echo(json.dumps({"include": rows}))


# The command `runner images reproduce`.


def reproduce(names: Names, base_image: BaseImage = None) -> None:
    """Builds without any earlier layer, and compares with the image that is here, or that the registry has. Exit code 1: one differs."""
    client = docker_client.connect()
    different: list[str] = []

    def build_twice(image: Image) -> None:
        image_id = builder.build(image, base_image, note, client)
        difference = builder.build_again(client, builder.recipe_here(client, image, base_image), image_id, note)
        different.extend([difference] if difference else [])
        typer.echo(f"{image.name} {image_id} " + (f"differs: {difference}" if difference else "is reproduced"))

    one_after_another(build_twice, chosen(names))
    raise typer.Exit(one_code(bool(different), is_open=False))


def build(
    names: Annotated[
        list[str] | None, typer.Argument(help="Image names or patterns; default: all tested CPU images.")
    ] = None,
    base_image: BaseImage = None,
    jobs: Annotated[int, typer.Option(help="Number of images to build at once.", min=1)] = 1,
    push: Annotated[
        str | None, typer.Option(metavar="REGISTRY", help="Push the built images to this registry.")
    ] = None,
    cache_from: Annotated[
        str | None, typer.Option(metavar="REGISTRY", help="Use the images of this registry as the builder's cache.")
    ] = None,
    sbom: Annotated[Path | None, typer.Option(help="Folder for a bill of materials of each image (SPDX JSON).")] = None,
) -> None:
    """Prints the digest of each image; with --push, registry/name@digest."""

    def build_one(image: Image) -> None:
        client = docker_client.connect()
        image_recipe = builder.recipe_here(client, image, base_image)
        digest = builder.build(image, base_image, note, client, cache_from=cache_from, images=here)
        if push:
            digest = registry.push(client, image_recipe, push, note)
        if sbom:
            sbom.mkdir(parents=True, exist_ok=True)
            text = generated_files.sbom(
                image_recipe.image, image_recipe.base, builder.debian_packages(client, image_recipe.tag)
            )
            write_bytes(sbom / f"{image.name}.spdx.json", text.encode())
        typer.echo(f"{image.name} {digest}")

    images = [image for image in chosen(names or ["*-cpu"]) if names or image.untested is None]
    if reason := DockerEngine(Settings(base_image)).why_no_build():
        raise CannotBeginError(reason)
    # One question for all of them: most are up to date.
    here = docker_client.list_images(docker_client.connect())
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(build_one, image) for image in images]
    errors = [error for future in futures if (error := future.exception())]
    for error in errors:
        if not isinstance(error, UserError):
            raise error
    raise_together([error for error in errors if isinstance(error, UserError)], len(images) - len(errors))
