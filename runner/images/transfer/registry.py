"""Built images in a registry: put there by CI, found again by the tag of their inputs, and removed here when they are stale.

A published image serves only where its tag and its labels say that it was made from what a build here would be made from. The
engine checks the registry's answer by its digest, layer by layer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runner.catalog.architectures import X86_64, by_name
from runner.catalog.images import Image
from runner.errors import CannotBeginError, UserError
from runner.images import docker_client
from runner.images.recipe import common_digests, shared_layers
from runner.paths import PROJECT, cache_folder
from runner.results import store

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image as BuiltImage

    from runner.images.recipe import Recipe

# How many questions a registry answers at a time.
_AT_ONCE = 16

# The layers that images share, as CI pushed them: name:tag -> digest.
LAYERS = PROJECT / "images" / "layers.toml"
_LAYERS_HEAD = (
    "# The layers that images share, with the digest that they were pushed with. `runner images pin --registry REGISTRY` writes them.\n"
    "# What is not here is built, and never pulled by its tag. Never invent one.\n"
)

# The inputs that a user knows by a name of their own. The other labels are fields of image.toml.
_INPUTS = {
    "lock_sha256": "another lock",
    "nvidia": "other layers of NVIDIA's wheels",
    "bench_sha256": "another bench",
    "dockerfiles_sha256": "other Dockerfiles",
    "base": "another base image",
}


class RegistryError(UserError):
    """A registry that does not take or give an image; the message says which, why and what to do."""


class PublishedImage(NamedTuple):
    """The published image that image.toml names."""

    repository: str  # registry/name
    input_tag: str
    digest: str

    @property
    def reference(self) -> str:
        """The name to pull it by."""
        return f"{self.repository}@{self.digest}"


def pin_of(image: Image) -> PublishedImage | None:
    """The image's pin; None for one that is not published."""
    if image.published is None:
        return None
    name, _, digest = image.published.partition("@")
    repository, _, tag = name.rpartition(":")
    return PublishedImage(repository, tag, digest)


def is_pinned(recipe: Recipe) -> bool:
    """True if image.toml names a published image of these inputs."""
    pin = pin_of(recipe.image)
    return pin is not None and pin.input_tag == recipe.input_tag


def has_published(client: DockerClient, recipe: Recipe) -> bool:
    """True if the pin is of these inputs, and the image's registry answers for its digest."""
    pin = pin_of(recipe.image)
    if pin is None or not is_pinned(recipe):
        return False
    try:
        docker_client.registry_digest(client, pin.reference)
    except docker_client.DockerError:
        return False
    return True


def pull(client: DockerClient, recipe: Recipe, say: Callable[[str], None], builds: bool = True) -> str | None:
    """Pull the image by the digest in image.toml, and return its id; None, and why, where it cannot serve. `builds`: it is built then."""
    name, pin = recipe.image.name, pin_of(recipe.image)
    then = f"; building {name}" if builds else ""
    if pin is None:
        return None
    if pin.input_tag != recipe.input_tag:
        same = ", and only the bench differs" if _same_layers(pin, recipe) else ""
        say(f"{pin.repository}:{pin.input_tag} was built from other inputs{same}{then}")
        return None
    say(f"pulling {pin.reference}")
    try:
        image = docker_client.pull_image(client, pin.reference, say)
    except docker_client.DockerError as error:
        say(f"{name} was not pulled: {error.said}{then}")
        return None
    if stale := other_inputs(image.labels, recipe):
        say(f"{pin.reference} was built from {' and '.join(stale)}, which its tag does not say{then}")
        return None
    image.tag(*recipe.tag.split(":"))
    return str(image.id)


def _same_layers(pin: PublishedImage, recipe: Recipe) -> bool:
    """True if the published image and the recipe's differ in nothing but the bench and the labels."""
    return pin.input_tag.partition("-")[0] == recipe.layers


def identity(client: DockerClient, image: Image, image_id: str) -> str:
    """The image's name in a result: registry and digest if it came from there or went there, else its id."""
    pin = pin_of(image)
    built = docker_client.find_image(client, image_id) if pin else None
    return pin.reference if pin and built and pin.reference in _digests(built) else image_id


def _digests(image: BuiltImage) -> list[str]:
    """The names with digest that an image has in registries."""
    return list(image.attrs.get("RepoDigests") or ())


def push(
    client: DockerClient,
    recipe: Recipe,
    registry: str,
    say: Callable[[str], None] = lambda _: None,
    *,
    finish: bool = True,
    digest: str | None = None,
    index: str | None = None,
) -> str:
    """Push the built image and the layers that it shares; returns registry/name:tag@digest. Raises RegistryError.

    The tag of the inputs is pushed last: a registry that has it has all of the image. It is not pushed where the image is not
    finished, nor where the registry gives another digest than this one. An engine of another architecture than x86_64 pushes under tags
    that end in its name. `index` is such a name: the tags are then of an index of both images.
    """
    repository, ending = f"{registry}/{recipe.image.name}", _ending(client, recipe)
    if index and ending:
        raise RegistryError(f"--index: {recipe.image.name} is built for {ending[1:]}; push it, and the index on x86_64")
    for common in (recipe.base_tag, *recipe.nvidia_tags):
        name, _, digits = common.partition("/")[2].partition(":")
        _push(client, common, f"{registry}/{name}", digits + ending, say)
    if ending:
        tag = recipe.input_tag + ending
        return f"{repository}:{tag}@{_push(client, recipe.tag, repository, tag, say)}"
    pushed = _push(client, recipe.tag, repository, "latest", say)
    if index:
        other = digest_of(client, recipe, registry, f"-{index}")
        both = [f"{repository}@{pushed}", f"{repository}@{other.rpartition('@')[2]}"]
        pushed = _push_index(f"{repository}:latest", both)
    if digest is not None and pushed != digest:
        raise RegistryError(f"{repository}:latest has the digest {pushed}, not {digest}; it gets no tag of its inputs")
    if not finish:
        return f"{repository}:latest@{pushed}"
    finished = f"{repository}:{recipe.input_tag}"
    if index:
        return f"{finished}@{_push_index(finished, both)}"
    return f"{finished}@{_push(client, recipe.tag, repository, recipe.input_tag, say)}"


def _ending(client: DockerClient, recipe: Recipe) -> str:
    """The end of the tags in a registry of what is built for another architecture than x86_64: -arm64. "" for x86_64."""
    built = docker_client.find_image(client, recipe.tag)
    architecture = by_name(str(built.attrs["Architecture"])) if built else X86_64
    return "" if architecture in (None, X86_64) else f"-{architecture.docker}"


def _push_index(name: str, references: Sequence[str]) -> str:
    """Push one name for images of several architectures that the registry has; returns the digest of the index. Raises RegistryError.

    The engine has no such call: Docker's program does it, with the user's login.
    """
    # A Docker of 20.10 has the command only so.
    environment = {**os.environ, "DOCKER_CLI_EXPERIMENTAL": "enabled"}
    plain = docker_client.in_the_open(name)
    for words in (["create", "--amend", *plain, name, *references], ["push", "--purge", *plain, name]):
        command = ["docker", "manifest", *words]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        except OSError as error:
            raise CannotBeginError(f"{name}: an index is pushed by the program docker: {error}") from None
        if ended.returncode:
            raise RegistryError(f"{name}: the index could not be pushed: {ended.stderr.strip()[-300:]}")
    return ended.stdout.strip().rpartition("\n")[2]


def digest_of(client: DockerClient, recipe: Recipe, registry: str, ending: str = "") -> str:
    """registry/name:tag@digest of the image with exactly the recipe's inputs. Raises RegistryError.

    `ending` is that of the tags of another architecture.
    """
    name = recipe.image.name
    reference = f"{registry}/{name}:{recipe.input_tag}{ending}"
    try:
        return f"{reference}@{docker_client.registry_digest(client, reference)}"
    except docker_client.DockerError as error:
        raise RegistryError(f"{name}: {error}; `runner images build {name} --push {registry}` puts it there") from error


def missing(client: DockerClient, recipes: Iterable[Recipe], registry: str) -> list[Recipe]:
    """The recipes of which the registry has no image with exactly their inputs. Raises DockerError where it cannot be asked.

    A registry that refuses the user is taken for one that lacks the image: some answer so for every name that they do not have.
    """

    def is_missing(recipe: Recipe) -> bool:
        try:
            docker_client.registry_digest(client, f"{registry}/{recipe.image.name}:{recipe.input_tag}")
        except (docker_client.NotThereError, docker_client.DeniedError):
            return True
        return False

    asked = list(recipes)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [recipe for recipe, lacks in zip(asked, pool.map(is_missing, asked), strict=True) if lacks]


def layer_digests() -> Mapping[str, str]:
    """The layers that images share, by name:tag, with the digest that they were pushed with. Raises RegistryError."""
    try:
        text = LAYERS.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        digests = tomllib.loads(text)
    except ValueError as error:
        raise RegistryError(f"{LAYERS}: {error}; `runner images pin --registry REGISTRY` writes it") from None
    for name, digest in digests.items():
        if not isinstance(digest, str) or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise RegistryError(
                f"{LAYERS}: {name}: {str(digest)[:80]!r} is no digest; `runner images pin --registry REGISTRY` writes it"
            )
    return digests


def pin_layers(client: DockerClient, recipes: Iterable[Recipe], registry: str) -> list[str]:
    """Write the digests of the layers that these images share and the registry has; returns their names."""
    digests = dict(layer_digests())
    names = {tag.partition("/")[2] for recipe in recipes for tag in (recipe.base_tag, *recipe.nvidia_tags)}
    for name in sorted(names):
        with contextlib.suppress(docker_client.DockerError):
            digests[name] = docker_client.registry_digest(client, f"{registry}/{name}")
    lines = [f'"{name}" = "{digest}"\n' for name, digest in sorted(digests.items())]
    store.write_bytes(LAYERS, (_LAYERS_HEAD + "".join(lines)).encode())
    return sorted(names & digests.keys())


def pull_common(client: DockerClient, tag: str, base_id: str, registry: str) -> bool:
    """Take layers that images share from a registry, so that an image built on them there can be the cache.

    By the digest that they were pinned with: a tag, and a label that says what lies below, are the registry's own word. False: they are
    not pinned, not there, or on another base image.
    """
    name = tag.partition("/")[2]
    digest = layer_digests().get(name)
    if digest is None:
        return False
    reference = f"{registry}/{name.partition(':')[0]}@{digest}"
    try:
        common = docker_client.pull_image(client, reference)
    except docker_client.DockerError:
        return False
    return common.labels.get("dlbench.base_id") == base_id and common.tag(*tag.split(":"))


def cache_registry(client: DockerClient, recipe: Recipe) -> str | None:
    """The registry of the published image, where that has the layers below the bench and this machine has not."""
    pin = pin_of(recipe.image)
    if recipe.again or pin is None or not _same_layers(pin, recipe):
        return None
    with docker_client.asking("the images here could not be listed"):
        if client.images.list(filters={"reference": f"{recipe.tag.partition(':')[0]}:{recipe.layers}-*"}):
            return None
    return pin.repository.rpartition("/")[0]


def cache(client: DockerClient, recipe: Recipe, registry: str | None) -> list[str] | None:
    """The images whose layers may serve a build: the registry's beside the last one here. None: the engine's own cache.

    The registry's is the published image, by its digest, where that has the same layers below the bench. What a registry calls its latest
    is nobody's pin: its steps would become a part of the image.
    """
    if registry is None:
        return None
    repository, pin = f"{registry}/{recipe.image.name}", pin_of(recipe.image)
    if pin is None or pin.repository != repository or not _same_layers(pin, recipe):
        return None
    source = pin.reference
    with contextlib.suppress(docker_client.DockerError):
        docker_client.pull_image(client, source)
        if docker_client.find_image(client, recipe.steps_tag):
            return [source, recipe.steps_tag]
    return [source]


def stale(client: DockerClient, recipes: Mapping[str, Callable[[], Recipe]]) -> Iterator[tuple[str, str]]:
    """(id, what it is) of the images here that were made for one of these names from other inputs than its recipe's.

    What another checkout on this machine built last stays. Only the recipes of images that are here are made: a recipe reads every
    source of the bench.
    """
    for image in _left_by_builds(client):
        if make := recipes.get(image.labels["dlbench.image"]):
            recipe = make()
            if other := [words for words in other_inputs(image.labels, recipe) if words != _INPUTS["base"]]:
                yield str(image.id), f"{recipe.image.name}, built from {' and '.join(other)}" + _staying(image)


def unknown(client: DockerClient, catalog: Collection[Image]) -> Iterator[tuple[str, str]]:
    """(id, what it is) of what builds left here for no image of the catalog, and no other checkout on this machine needs.

    A step without a name that is younger than an hour may be of a build that goes on.
    """
    names = {image.name for image in catalog}
    for image in _left_by_builds(client):
        if (name := image.labels["dlbench.image"]) not in names:
            yield str(image.id), f"{name}, which the catalog does not have" + _staying(image)
    with docker_client.asking("the images here could not be listed"):
        common = client.images.list(filters={"label": "dlbench.common", "dangling": False})
        # There may be hundreds of steps, and to look at one takes the engine's time: its list says which of them count.
        steps = client.api.images(filters={"label": "dlbench.common", "dangling": True})
        an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
        old = [
            client.images.get(step["Id"])
            for step in steps
            if step["Created"] < an_hour_ago and "dlbench.image" not in (step.get("Labels") or {})
        ]
    kept, current = _used_elsewhere(), common_digests()
    shared = {layer.digest for image in catalog for layer in shared_layers(image)}
    for image in common:
        if "dlbench.image" in image.labels:
            continue
        what = "common layers, built from another Dockerfile.base"
        if image.labels.get("dlbench.common") in current:
            if image.labels.get("dlbench.nvidia", "") in {"", *shared}:
                continue
            what = "NVIDIA's wheels, which no image of the catalog has in this layer"
        if kept.isdisjoint(image.tags) and _is_of_a_build(image):
            yield str(image.id), what + _staying(image)
    yield from ((str(image.id), "a step of a build") for image in old if _is_of_a_build(image))


def _left_by_builds(client: DockerClient) -> Iterator[BuiltImage]:
    """The built images here, without those that another checkout built last and their steps."""
    with docker_client.asking("the images here could not be listed"):
        images = client.images.list(filters={"label": "dlbench.image"})
    kept = _used_elsewhere()
    needed = [_own_labels(image) for image in images if not kept.isdisjoint(image.tags)]
    return (image for image in images if _own_labels(image) not in needed and _is_of_a_build(image))


def _own_labels(image: BuiltImage) -> dict[str, str]:
    return {name: value for name, value in image.labels.items() if name.startswith("dlbench.")}


def _own_tags(image: BuiltImage) -> list[str]:
    """The names that builds, pushes and pulls give an image, in whichever registry.

    The labels do not show it: an image that a user builds on one of ours inherits them.
    """
    name, digits = re.escape(image.labels.get("dlbench.image", "")), "[0-9a-f]{12}"
    of_a_build = rf".+/((base|cuda|julia|nvidia):{digits}(-\w+)?|steps:{name}|{name}:(latest|{digits}-{digits}(-\w+)?))"
    return [tag for tag in image.tags if re.fullmatch(of_a_build, tag)]


def _foreign_names(image: BuiltImage) -> list[str]:
    """The other names of an image. A digest is ours where its repository has a build's name."""
    own, names = _own_tags(image), {image.labels.get("dlbench.image"), "base", "nvidia"}
    digests = [name for name in _digests(image) if name.partition("@")[0].rpartition("/")[2] not in names]
    return [tag for tag in image.tags if tag not in own] + digests


def _is_of_a_build(image: BuiltImage) -> bool:
    """True if a build here named the image, or nobody did."""
    return bool(_own_tags(image)) or not _foreign_names(image)


def _staying(image: BuiltImage) -> str:
    """The sentence on an image that keeps its layers, because a user named it too."""
    names = _foreign_names(image)
    return f"; it stays as {', '.join(names)}" if names else ""


def remember(recipe: Recipe) -> None:
    """Write down what this checkout built last of an image: another checkout's `runner images prune` leaves it."""
    text = "\n".join([str(PROJECT), recipe.tag, recipe.base_tag, *recipe.nvidia_tags])
    path = _checkouts() / hashlib.sha256(str(PROJECT).encode()).hexdigest()[:16] / recipe.image.name
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        store.write_bytes(path, text.encode())


def _used_elsewhere() -> set[str]:
    """The names of the images that other checkouts built last, as long as their folders are there."""
    names: set[str] = set()
    for path in _checkouts().glob("*/*"):
        with contextlib.suppress(OSError, ValueError):
            checkout, *tags = path.read_text(encoding="utf-8").splitlines()
            if checkout != str(PROJECT) and Path(checkout).is_dir():
                names.update(tags)
    return names


def _checkouts() -> Path:
    return cache_folder() / "checkouts"


def remove(client: DockerClient, image_id: str) -> str | None:
    """Remove an image, or only the names that builds gave it where it has others; why it stays, where a container still uses it."""
    image = docker_client.find_image(client, image_id)
    if image is None:
        return None
    own = _own_tags(image)
    try:
        for name in own if _foreign_names(image) else (*own, *_digests(image), image_id):
            # A repository's last tag takes its digests along.
            with contextlib.suppress(docker_client.NotThereError), docker_client.asking(f"{name} could not be removed"):
                client.images.remove(name)
    except docker_client.DockerError as error:
        return error.said
    return None


def other_inputs(labels: dict[str, str], recipe: Recipe) -> list[str]:
    """The inputs of the image with these labels that differ from the recipe's, in a user's words.

    Another base image under the same name is none.
    """
    expected = {name: value for name, value in recipe.labels("").items() if name.startswith("dlbench.")}
    del expected["dlbench.base_id"]
    other = [name.removeprefix("dlbench.") for name, value in expected.items() if labels.get(name) != value]
    return list(dict.fromkeys(_INPUTS.get(name, "another image.toml") for name in other))


def _push(client: DockerClient, local: str, repository: str, tag: str, say: Callable[[str], None]) -> str:
    """Push a local image under another name; returns the digest that the registry gave it."""
    attempt, digest = f"{repository}:{tag} could not be pushed", None
    try:
        with docker_client.asking(attempt):
            client.images.get(local).tag(repository, tag)
            messages = client.images.push(repository, tag=tag, stream=True, decode=True)
        for message in docker_client.say_bytes(
            f"pushing {repository}:{tag}", docker_client.watch(client, attempt, messages), say
        ):
            digest = message.get("aux", {}).get("Digest") or digest
    except docker_client.DockerError as error:
        raise RegistryError(str(error)) from error
    if digest is None or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise RegistryError(f"{repository}:{tag} was pushed, and the registry gave no digest for it")
    return str(digest)
