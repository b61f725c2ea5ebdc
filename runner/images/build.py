"""Build an image of the catalog with the Docker Engine, or pull it where CI has published just this one.

Two steps: Dockerfile.base on the base image, shared by all images of that base, then images/Dockerfile on that. Before
them images/Dockerfile.cuda, where the base brings CUDA and no Python; between them images/Dockerfile.julia, where the
framework is Julia's. The builder's own cache makes a second build short; when the tag of all inputs is there, no build is
started at all.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from runner.catalog.images import Image
from runner.errors import EngineError
from runner.images import registry
from runner.images.docker_client import DockerError, asking, connect, find_image, pull_image, registry_digest
from runner.images.recipe import BASE_IMAGE_VARIABLE, Recipe, bench_files, build_arguments, installed_files
from runner.images.recipe import recipe as make_recipe
from runner.paths import PROJECT, cache_folder

if TYPE_CHECKING:
    from docker import DockerClient

BUILD_NETWORK_VARIABLE = "DLBENCH_BUILD_NETWORK"

# How many of a failed build's last lines go into the error.
SHOWN_LINES = 25


class BuildError(EngineError):
    """A build that failed; the message ends with the log's last lines and where the whole log lies."""


def built(client: DockerClient, recipe: Recipe) -> str | None:
    """The id of the image with exactly these inputs; None when it must be built.

    A base image that was made anew under the same name counts as another input; one that is gone does not.
    """
    image = find_image(client, recipe.tag)
    if image is None:
        return None
    base = find_image(client, recipe.base)
    fits = base is None or image.labels.get("dlbench.base_id") == base.id
    return str(image.id) if fits else None


def missing_base(client: DockerClient, recipe: Recipe) -> str | None:
    """Why the base image cannot be had: it is not here, and its registry does not give it. None when it can, or when the
    whole image can be pulled.
    """
    if find_image(client, recipe.base) or registry.has_published(client, recipe):
        return None
    try:
        registry_digest(client, recipe.base)
    except DockerError as error:
        return _no_base(recipe, error)
    return None


def build(
    image: Image,
    base_image: str | None = None,
    say: Callable[[str], None] | None = None,
    client: DockerClient | None = None,
    logs: Path | None = None,
    cache_from: str | None = None,
) -> str:
    """Pull or build the image unless it is up to date, and return its id. Raises EngineError.

    `cache_from` is a registry whose images of an earlier build serve as the builder's cache.
    """
    recipe = make_recipe(image, base_image)
    say = say or (lambda _: None)
    log_path = (logs or cache_folder() / "build-logs") / f"{image.name}.log"
    with asking(f"building {image.name}"):
        client = client or connect()
        digest = built(client, recipe) or registry.pull(client, recipe, say)
        if digest is None:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(log_path, "w", encoding="utf-8") as log:
                digest = _build_all(client, recipe, _Log(log, log_path, say), cache_from)
        client.images.get(digest).tag(*recipe.latest.split(":"))
    return digest


def _build_all(client: DockerClient, recipe: Recipe, log: _Log, cache_from: str | None) -> str:
    """Every step of the image; returns its id."""
    base_id = _base_id(client, recipe, log)
    _build_common(client, recipe, log, cache_from)
    image = recipe.image
    before = _build_julia(client, recipe, log) if image.julia else recipe.base_tag
    files = [
        (PROJECT / "images" / "Dockerfile", "images/Dockerfile"),
        *((path, f"images/{image.name}/{path.name}") for path in installed_files(image)),
    ]
    context = _archive([*files, *((PROJECT / "bench" / path, f"bench/{path}") for path in bench_files(image))])
    arguments = {"BASE": before} | build_arguments(image)
    log.title(f"{image.name}: {image.download_gb:g} GB to fetch where no earlier layer serves")
    cache = registry.cache(client, recipe, cache_from)
    return _run_build(client, log, context, "images/Dockerfile", recipe.tag, arguments, recipe.labels(base_id), cache)


def _build_common(client: DockerClient, recipe: Recipe, log: _Log, cache_from: str | None) -> None:
    """The layers that all images of this base share, under the recipe's base_tag."""
    image, below = recipe.image, recipe.base
    if cache_from and registry.pull_base(client, recipe, cache_from):
        return
    if image.cuda_from == "base":
        below = recipe.python_tag
        context = _archive([(PROJECT / "images" / "Dockerfile.cuda", "images/Dockerfile.cuda")])
        log.title(f"{image.name}: Python {image.python} on {recipe.base}")
        arguments = {"BASE": recipe.base, "PYTHON": image.python}
        _run_build(client, log, context, "images/Dockerfile.cuda", below, arguments, {})
    context = _archive([(PROJECT / "Dockerfile.base", "Dockerfile.base")])
    log.title(f"{image.name}: common layers on {recipe.base}")
    _run_build(client, log, context, "Dockerfile.base", recipe.base_tag, {"BASE": below}, {})


def _build_julia(client: DockerClient, recipe: Recipe, log: _Log) -> str:
    """Julia and the image's packages on the common layers; returns the tag."""
    image = recipe.image
    name = "images/Dockerfile.julia"
    files = [(PROJECT / name, name), *((path, f"images/{image.name}/{path.name}") for path in image.julia_paths)]
    log.title(f"{image.name}: {image.julia} and its packages")
    arguments = {"BASE": recipe.base_tag, "IMAGE": image.name, "JULIA": image.julia or ""}
    _run_build(client, log, _archive(files), name, recipe.julia_tag, arguments, {})
    return recipe.julia_tag


def _base_id(client: DockerClient, recipe: Recipe, log: _Log) -> str:
    """The id of the base image, pulled when it is not here."""
    if image := find_image(client, recipe.base):
        return str(image.id)
    log.title(f"pulling {recipe.base}")
    try:
        return str(pull_image(client, recipe.base).id)
    except DockerError as error:
        raise BuildError(f"building {recipe.image.name}: {_no_base(recipe, error)}") from None


def _no_base(recipe: Recipe, error: DockerError) -> str:
    return (
        f"the base image {recipe.base} is not here and cannot be pulled ({error.said}); where there is "
        f"no registry, make one with `.ci/site-base {recipe.image.python}` and name it by --base-image or "
        f"{BASE_IMAGE_VARIABLE}, e.g. dlbench-site:{{python}}"
    )


def _run_build(
    client: DockerClient,
    log: _Log,
    context: io.BytesIO,
    dockerfile: str,
    tag: str,
    arguments: dict[str, str],
    labels: dict[str, str],
    cache: list[str] | None = None,
) -> str:
    """One build by the engine's builder; returns the image's id. `cache`: the only images whose layers may serve."""
    stream = client.api.build(
        fileobj=context,
        custom_context=True,
        dockerfile=dockerfile,
        tag=tag,
        buildargs=arguments | _proxies(),
        labels=labels,
        cache_from=cache,
        rm=True,
        forcerm=True,
        decode=True,
        # e.g. `host`, where a bridge does not reach the package index
        network_mode=os.environ.get(BUILD_NETWORK_VARIABLE) or None,
    )
    for message in stream:
        if "stream" in message:
            log.write(message["stream"])
        if "error" in message:
            log.write(message["error"] + "\n")
            raise BuildError(log.failure(message["error"]))
    return str(client.images.get(tag).id)


class _Log:
    """A build's log: all of it in a file, what it fetches to the user, its last lines in memory for an error."""

    def __init__(self, file: io.TextIOWrapper, path: Path, say: Callable[[str], None]) -> None:
        self._file = file
        self._path = path
        self._say = say
        self._last: deque[str] = deque(maxlen=SHOWN_LINES)

    def title(self, line: str) -> None:
        self._say(line)
        self.write(f"== {line}\n")

    def write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()
        for line in text.splitlines():
            if line.strip():
                self._last.append(line.rstrip())
            if match := re.match(r"\s*Downloading (\S+) \((\d+\.\d+ [MG]B)\)", line):
                self._say(f"fetching {' '.join(match[1].rsplit('/', 1)[-1].split('-')[:2])}, {match[2]}")

    def failure(self, reason: str) -> str:
        lines = "\n".join(f"  {line}" for line in self._last)
        return f"{self._path.stem} could not be built: {reason}\n{lines}\nthe whole log: {self._path}"


def _archive(files: Iterable[tuple[Path, str]]) -> io.BytesIO:
    """A build context as a tar in memory: the same bytes for the same files, whoever owns them and whenever they were
    written.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, name in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def _proxies() -> dict[str, str]:
    """The site's proxies, for the build only: the builder knows these names and keeps them out of the image and its
    history.
    """
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    return {name: os.environ[name] for name in names if os.environ.get(name)}
