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

if TYPE_CHECKING:
    from docker import DockerClient

    from runner.images.recipe import Recipe

# What must be the same for an image made elsewhere to be the one that would be built here.
_INPUTS = ("lock_sha256", "bench_sha256", "dockerfiles_sha256", "base")


class RegistryError(UserError):
    """A registry that does not take or give an image; the message says which, why and what to do."""


def there(client: DockerClient, wanted: Recipe) -> bool:
    """Whether the image's registry answers for the digest that image.toml has."""
    from docker.errors import APIError

    if wanted.image.published is None:
        return False
    try:
        client.images.get_registry_data(wanted.image.published)
    except APIError:
        return False
    return True


def pull(client: DockerClient, wanted: Recipe, say: Callable[[str], None]) -> str | None:
    """Pull the image by the digest in image.toml, and return its id; None, and why, where it must be built."""
    from docker.errors import APIError

    reference = wanted.image.published
    if reference is None:
        return None
    say(f"pulling {reference}")
    try:
        pulled = client.images.pull(reference)
        image = pulled[0] if isinstance(pulled, list) else pulled
    except APIError as error:
        say(f"{wanted.image.name} cannot be had from its registry ({error.explanation or error}); building it")
        return None
    if stale := _other_inputs(image.labels, wanted):
        say(f"{reference} was made from another {', '.join(stale)}; building it")
        return None
    image.tag(*wanted.tag.split(":"))
    return str(image.id)


def identity(client: DockerClient, image: Image, image_id: str) -> str:
    """What a result names the image by: its registry and digest where it came from there or went there, else its id."""
    if image.published and image.published in (client.images.get(image_id).attrs.get("RepoDigests") or ()):
        return image.published
    return image_id


def push(client: DockerClient, wanted: Recipe, registry: str) -> str:
    """Push the built image and its common layers; returns registry/name@digest. Raises RegistryError."""
    repository = f"{registry}/{wanted.image.name}"
    _push(client, wanted.base_tag, f"{registry}/base", wanted.base_tag.rpartition(":")[2])
    _push(client, wanted.tag, repository, "latest")
    return f"{repository}@{_push(client, wanted.tag, repository, wanted.tag.rpartition(':')[2])}"


def digest_of(client: DockerClient, wanted: Recipe, registry: str) -> str:
    """registry/name@digest of the image with exactly the recipe's inputs. Raises RegistryError."""
    from docker.errors import APIError

    name = wanted.image.name
    reference = f"{registry}/{name}:{wanted.tag.rpartition(':')[2]}"
    try:
        return f"{registry}/{name}@{client.images.get_registry_data(reference).id}"
    except APIError as error:
        raise RegistryError(
            f"{name}: the registry does not tell the digest of {reference} ({error.explanation or error}); "
            f"`runner images build {name} --push {registry}` puts it there"
        ) from error


def pull_base(client: DockerClient, wanted: Recipe, registry: str) -> bool:
    """Take the common layers from a registry, so that an image built on them there can be the cache. False: they are not there."""
    from docker.errors import APIError, ImageNotFound

    try:
        client.images.get(wanted.base_tag)
        return True
    except ImageNotFound:
        pass
    tag = wanted.base_tag.rpartition(":")[2]
    try:
        client.images.pull(f"{registry}/base", tag=tag).tag(*wanted.base_tag.split(":"))
    except APIError:
        return False
    return True


def cache(client: DockerClient, wanted: Recipe, registry: str | None) -> list[str] | None:
    """The images whose layers may serve a build: the registry's last one beside the last one here. None: the engine's own cache."""
    from docker.errors import APIError, ImageNotFound

    if registry is None:
        return None
    found = [f"{registry}/{wanted.image.name}:latest"]
    try:
        client.images.pull(f"{registry}/{wanted.image.name}", tag="latest")
        client.images.get(wanted.latest)
        found.append(wanted.latest)
    except (APIError, ImageNotFound):
        pass
    return found


def stale(client: DockerClient, current: Collection[Recipe]) -> Iterator[tuple[str, str]]:
    """(id, what it is) of the images here that were made for one of the recipes' names from other inputs."""
    wanted = {recipe.image.name: recipe for recipe in current}
    for image in client.images.list(filters={"label": "dlbench.image"}):
        recipe = wanted.get(image.labels["dlbench.image"])
        other = [name for name in _other_inputs(image.labels, recipe) if name != "base"] if recipe else []
        if recipe and other:
            yield str(image.id), f"{recipe.image.name} of another {', '.join(other)}"


def remove(client: DockerClient, image_id: str) -> str | None:
    """Remove an image with all its names; why it stays, where a container still uses it."""
    from docker.errors import APIError, ImageNotFound

    try:
        image = client.images.get(image_id)
        for name in (*image.tags, *(image.attrs.get("RepoDigests") or ()), image_id):
            with contextlib.suppress(ImageNotFound):  # a repository's last tag takes its digests along
                client.images.remove(name)
    except ImageNotFound:
        pass
    except APIError as error:
        return str(error.explanation or error)
    return None


def _other_inputs(labels: dict[str, str], wanted: Recipe) -> list[str]:
    """The inputs by which an image with these labels is not the recipe's."""
    expected = wanted.labels("")
    return [name for name in _INPUTS if labels.get(f"dlbench.{name}") != expected[f"dlbench.{name}"]]


def _push(client: DockerClient, local: str, repository: str, tag: str) -> str:
    """Push a local image under another name; returns the digest that the registry gave it."""
    client.images.get(local).tag(repository, tag)
    digest = None
    for message in client.images.push(repository, tag=tag, stream=True, decode=True):
        if "error" in message:
            raise RegistryError(f"{repository}:{tag} could not be pushed: {message['error']}")
        digest = message.get("aux", {}).get("Digest") or digest
    if digest is None or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise RegistryError(f"{repository}:{tag} was pushed, and the registry told no digest for it")
    return str(digest)
