"""Built images in a registry: put there by CI, found again by digest, and removed here when they are stale.

A published image serves only where its labels say that it was made from the same lock, bench, Dockerfiles and base as a
build here would be. What the registry gives under a digest is checked by the engine, layer by layer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from runner.catalog.images import Image
from runner.errors import UserError
from runner.images.docker_client import (
    DockerError,
    NotThereError,
    asking,
    find_image,
    pull_image,
    registry_digest,
)

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image as BuiltImage

    from runner.images.recipe import Recipe

# What must be the same for an image made elsewhere to be the one that would be built here.
_INPUTS = ("lock_sha256", "bench_sha256", "dockerfiles_sha256", "base")


class RegistryError(UserError):
    """A registry that does not take or give an image; the message says which, why and what to do."""


def has_published(client: DockerClient, recipe: Recipe) -> bool:
    """Whether the image's registry answers for the digest that image.toml has."""
    if recipe.image.published is None:
        return False
    try:
        registry_digest(client, recipe.image.published)
    except DockerError:
        return False
    return True


def pull(client: DockerClient, recipe: Recipe, say: Callable[[str], None]) -> str | None:
    """Pull the image by the digest in image.toml, and return its id; None, and why, where it must be built."""
    reference = recipe.image.published
    if reference is None:
        return None
    say(f"pulling {reference}")
    try:
        image = pull_image(client, reference)
    except DockerError as error:
        say(f"{recipe.image.name} cannot be had from its registry ({error.said}); building it")
        return None
    if stale := _other_inputs(image.labels, recipe):
        say(f"{reference} was made from another {', '.join(stale)}; building it")
        return None
    image.tag(*recipe.tag.split(":"))
    return str(image.id)


def identity(client: DockerClient, image: Image, image_id: str) -> str:
    """What a result names the image by: its registry and digest where it came from there or went there, else its id."""
    built = find_image(client, image_id) if image.published else None
    return image.published if built and image.published in _digests(built) else image_id


def _digests(image: BuiltImage) -> list[str]:
    """The names with digest that an image has in registries."""
    return list(image.attrs.get("RepoDigests") or ())


def push(client: DockerClient, recipe: Recipe, registry: str) -> str:
    """Push the built image and its common layers; returns registry/name@digest. Raises RegistryError."""
    repository = f"{registry}/{recipe.image.name}"
    _push(client, recipe.base_tag, f"{registry}/base", recipe.base_tag.rpartition(":")[2])
    _push(client, recipe.tag, repository, "latest")
    return f"{repository}@{_push(client, recipe.tag, repository, recipe.tag.rpartition(':')[2])}"


def digest_of(client: DockerClient, recipe: Recipe, registry: str) -> str:
    """registry/name@digest of the image with exactly the recipe's inputs. Raises RegistryError."""
    name = recipe.image.name
    reference = f"{registry}/{name}:{recipe.tag.rpartition(':')[2]}"
    try:
        return f"{registry}/{name}@{registry_digest(client, reference)}"
    except DockerError as error:
        raise RegistryError(f"{name}: {error}; `runner images build {name} --push {registry}` puts it there") from error


def pull_base(client: DockerClient, recipe: Recipe, registry: str) -> bool:
    """Take the common layers from a registry, so that an image built on them there can be the cache. False: they are not there."""
    if find_image(client, recipe.base_tag):
        return True
    try:
        base = pull_image(client, f"{registry}/base:{recipe.base_tag.rpartition(':')[2]}")
    except DockerError:
        return False
    return base.tag(*recipe.base_tag.split(":"))


def cache(client: DockerClient, recipe: Recipe, registry: str | None) -> list[str] | None:
    """The images whose layers may serve a build: the registry's last one beside the last one here. None: the engine's own cache."""
    if registry is None:
        return None
    latest = f"{registry}/{recipe.image.name}:latest"
    with contextlib.suppress(DockerError):
        pull_image(client, latest)
        if find_image(client, recipe.latest):
            return [latest, recipe.latest]
    return [latest]


def stale(client: DockerClient, current: Collection[Recipe]) -> Iterator[tuple[str, str]]:
    """(id, what it is) of the images here that were made for one of the recipes' names from other inputs."""
    recipes = {recipe.image.name: recipe for recipe in current}
    with asking("the images here could not be listed"):
        images = client.images.list(filters={"label": "dlbench.image"})
    for image in images:
        recipe = recipes.get(image.labels["dlbench.image"])
        other = [name for name in _other_inputs(image.labels, recipe) if name != "base"] if recipe else []
        if recipe and other:
            yield str(image.id), f"{recipe.image.name} of another {', '.join(other)}"


def remove(client: DockerClient, image_id: str) -> str | None:
    """Remove an image with all its names; why it stays, where a container still uses it."""
    image = find_image(client, image_id)
    try:
        for name in (*image.tags, *_digests(image), image_id) if image else ():
            # A repository's last tag takes its digests along.
            with contextlib.suppress(NotThereError), asking(f"{name} could not be removed"):
                client.images.remove(name)
    except DockerError as error:
        return error.said
    return None


def _other_inputs(labels: dict[str, str], recipe: Recipe) -> list[str]:
    """The inputs by which an image with these labels is not the recipe's."""
    expected = recipe.labels("")
    return [name for name in _INPUTS if labels.get(f"dlbench.{name}") != expected[f"dlbench.{name}"]]


def _push(client: DockerClient, local: str, repository: str, tag: str) -> str:
    """Push a local image under another name; returns the digest that the registry gave it."""
    digest = None
    with asking(f"{repository}:{tag} could not be pushed"):
        client.images.get(local).tag(repository, tag)
        for message in client.images.push(repository, tag=tag, stream=True, decode=True):
            if "error" in message:
                raise RegistryError(f"{repository}:{tag} could not be pushed: {message['error']}")
            digest = message.get("aux", {}).get("Digest") or digest
    if digest is None or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise RegistryError(f"{repository}:{tag} was pushed, and the registry gave no digest for it")
    return str(digest)
