"""Build an image of the catalog with the Docker Engine, or pull it where CI has published just this one.

Two steps: Dockerfile.base on the base image, shared by all images of that base, then images/Dockerfile on that. Before
them images/Dockerfile.cuda, where the base brings CUDA and no Python. Between them images/Dockerfile.nvidia for each layer of
NVIDIA's wheels, shared by all images whose locks hold them, or images/Dockerfile.julia, where the framework is Julia's. The
builder's own cache makes a second build short; when the tag of all inputs is there, no build is started at all. Two builds
of the same inputs give the same image: runner/images/transfer/undated.py says how.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import sys
import tarfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from runner import known_messages
from runner.catalog.architectures import for_machine
from runner.catalog.images import LINKS, Image, read_pins
from runner.errors import EngineError, ExitCode, naming
from runner.images import docker_client, installing
from runner.images.recipe import (
    BASE_IMAGE_VARIABLE,
    Recipe,
    bench_files,
    build_arguments,
    installed_files,
    source_label,
)
from runner.images.recipe import recipe as make_recipe
from runner.images.transfer import folder, registry
from runner.images.transfer.undated import first_difference, undate
from runner.paths import PROJECT, cache_folder

if TYPE_CHECKING:
    from docker import DockerClient

BUILD_NETWORK_VARIABLE = "DLBENCH_BUILD_NETWORK"

# The address of an archive of Debian's old packages, with {date} for the day.
SNAPSHOT_VARIABLE = "DLBENCH_DEBIAN_SNAPSHOT"

# pip's settings for its indexes: their variables, and their names in pip.conf.
_PIP_SETTINGS = {
    "PIP_INDEX_URL": "index-url",
    "PIP_EXTRA_INDEX_URL": "extra-index-url",
    "PIP_TRUSTED_HOST": "trusted-host",
}

# The layers that several images share, each with the lock of its build.
_BUILDING: dict[str, threading.Lock] = {}
_BUILDING_LOCK = threading.Lock()

# Why a node does not build an image, and what to do.
NOT_BUILT = (
    "is not here, and nodes build no images unless --build is given; export it where it is built (`runner images export`), and name "
    "the folder by --images-from"
)

# How many of a failed build's last lines go into the error.
SHOWN_LINES = 25


class BuildError(EngineError):
    """A build that failed; the message ends with the log's last lines and where the whole log lies."""

    exit_code = ExitCode.FOUND


class UnreachedError(BuildError):
    """The registry of the base image or a package index does not answer, or the machine lacks room: no fault of the image."""

    exit_code = ExitCode.CANNOT_BEGIN


# Words of pip, uv and apt where no server answers. The machine's own are known messages.
_UNREACHED = re.compile(
    r"Failed to establish a new connection|error sending request|Connection refused|Network is unreachable|No route to host"
    r"|[Tt]emporary failure (in name resolution|resolving)|Name or service not known|[Tt]imed out|ProxyError|proxyconnect"
    r"|HTTP error [45]|[45]\d\d (Client|Server) Error"
)


def machine_of(client: DockerClient, base: str) -> str:
    """The architecture of a base image that is here; of another one the engine pulls its own."""
    image = docker_client.find_image(client, base)
    return str((image.attrs if image else client.info()).get("Architecture"))


def recipe_here(client: DockerClient, image: Image, base_image: str | None = None) -> Recipe:
    """The recipe of the image's build by this engine: with the lock of its base image's architecture. Raises EngineError."""
    recipe = make_recipe(image, base_image)
    if not image.other_locks:
        return recipe
    with docker_client.asking(f"the architecture of {recipe.base} could not be read"):
        return replace(recipe, image=for_machine(image, machine_of(client, recipe.base)))


def built(images: docker_client.Listing, recipe: Recipe) -> str | None:
    """The id of the image with exactly these inputs; None when it must be built.

    A base image that was made anew under the same name counts as another input; one that is gone does not.
    """
    image_id, base_id = images.id_of(recipe.tag), images.id_of(recipe.base)
    fits = image_id and (base_id is None or images.label(image_id, "dlbench.base_id") == base_id)
    return image_id if fits else None


def missing_base(client: DockerClient, recipe: Recipe) -> str | None:
    """Why the base image cannot be had: it is not here, and its registry does not give it. None when it can, or when the
    whole image can be pulled.
    """
    if docker_client.find_image(client, recipe.base) or registry.has_published(client, recipe):
        return None
    try:
        docker_client.registry_digest(client, recipe.base)
    except docker_client.DockerError:
        return (
            f"the base image {recipe.base} is not here and cannot be pulled; in a clone of the project make one with `.ci/site-base "
            f"{recipe.image.python}`, and name it by --base-image or {BASE_IMAGE_VARIABLE}"
        )
    return None


def build(
    image: Image,
    base_image: str | None = None,
    say: Callable[[str], None] | None = None,
    client: DockerClient | None = None,
    logs: Path | None = None,
    cache_from: str | None = None,
    images: docker_client.Listing | None = None,
    images_from: Path | None = None,
    may_build: bool = True,
) -> str:
    """Load, pull or build the image unless it is up to date, and return its id. Raises EngineError.

    `cache_from` is a registry whose images of an earlier build serve as the builder's cache. `images` are those that the engine has:
    an image that is up to date there needs no call of the engine. `images_from` is a folder of exported images.
    """
    say = say or (lambda _: None)
    with docker_client.asking(f"building {image.name}"):
        client = client or docker_client.connect()
        recipe = recipe_here(client, image, base_image)
        images = images or docker_client.find_images(client, recipe.tag, recipe.base)
        digest = built(images, recipe)
        if digest is None and images_from is not None:
            digest = folder.load(client, recipe, images_from, say)
        if digest is None:
            digest = registry.pull(client, recipe, say, builds=may_build)
        if digest is None:
            if not may_build:
                raise BuildError(f"{image.name} {NOT_BUILT}")
            # Before a minute is spent: pip would refuse it in many words.
            for lock in recipe.image.locks:
                read_pins(lock)
            with _open_log(recipe, logs, say) as log:
                digest = _build_all(client, recipe, log, cache_from)
        registry.remember(recipe)
        if images.id_of(recipe.latest) != digest:
            client.images.get(digest).tag(*recipe.latest.split(":"))
    return digest


def build_again(client: DockerClient, recipe: Recipe, image_id: str, say: Callable[[str], None]) -> str | None:
    """Build an image with no layer of an earlier build. None where it is this one; otherwise what differs first. Raises EngineError.

    Its names are others than those in use, and are gone afterwards.
    """
    recipe = replace(recipe, again=True)
    try:
        with docker_client.asking(f"building {recipe.image.name} again"), _open_log(recipe, None, say) as log:
            again = _build_all(client, recipe, log, None)
        return None if again == image_id else first_difference(client, image_id, again)
    finally:
        for name in recipe.names:
            with contextlib.suppress(docker_client.DockerError), docker_client.asking():
                client.images.remove(name)


def debian_packages(client: DockerClient, image: str) -> dict[str, str]:
    """The packages of Debian or Ubuntu in a built image, with their versions; none where it has another package manager."""
    query = ["-W", "-f", "${Package} ${Version}\\n"]
    try:
        with docker_client.asking(f"the packages of {image} could not be read"):
            answer: bytes = client.containers.run(
                image, query, entrypoint="dpkg-query", remove=True, network_disabled=True
            )
    except docker_client.DockerError:
        return {}
    return dict(
        re.findall(r"^([a-z0-9][a-z0-9+.-]+) ([\w.+:~-]+)$", answer.decode("utf-8", "replace"), flags=re.M | re.A)
    )


def _build_all(client: DockerClient, recipe: Recipe, log: _Log, cache_from: str | None) -> str:
    """Every step of the image; returns its id."""
    pip = pip_settings()
    base_id = _base_id(client, recipe, log)
    cache_from = cache_from or registry.cache_registry(client, recipe)
    _build_common(client, recipe, log, cache_from, base_id, pip)
    _build_nvidia(client, recipe, log, cache_from, base_id, pip)
    image = recipe.image
    if image.julia:
        _build_julia(client, recipe, log)
    files = [
        (LINKS, f"images/{LINKS.name}"),
        *((path, f"images/{image.name}/{path.name}") for path in installed_files(image)),
        *((PROJECT / "bench" / path, f"bench/{path}") for path in bench_files(image)),
    ]
    steps = _steps(PROJECT / "images" / "Dockerfile", pip, recipe.labels(base_id) | source_label())
    context = _archive(files, {"images/Dockerfile": steps})
    arguments = {"BASE": recipe.below_tag} | build_arguments(image) | pip
    if image.debian and (archive := os.environ.get(SNAPSHOT_VARIABLE)):
        arguments["DEBIAN_SNAPSHOT"] = archive.replace("{date}", f"{image.locked:%Y%m%d}T000000Z").rstrip("/")
    log.title(f"{image.name}: {image.download_gb:g} GB to fetch where no earlier layer serves")
    # A published image's history is without the site's settings: none of its steps serves one that has them.
    cache = None if recipe.again or pip else registry.cache(client, recipe, cache_from)
    if (
        cache is None
        and not pip
        and not docker_client.find_image(client, recipe.steps_tag)
        and docker_client.find_image(client, recipe.latest)
    ):
        # It was pulled, or its steps were removed: then its own layers serve.
        cache = [recipe.latest]
    # The image that the builder made keeps a name: without, its steps could not serve a later build.
    made = _run_build(client, log, context, "images/Dockerfile", recipe.steps_tag, arguments, cache, recipe.again)
    if undated := undate(client, made, recipe.tag, recipe.created, pip):
        return undated
    log.write("this engine takes no image without its layers: the image holds the time of its build\n")
    client.images.get(made).tag(*recipe.tag.split(":"))
    return made


def _build_common(
    client: DockerClient, recipe: Recipe, log: _Log, cache_from: str | None, base_id: str, pip: dict[str, str]
) -> None:
    """The layers that all images of this base share, under the recipe's base_tag."""
    image, below = recipe.image, recipe.base
    if _is_here(client, recipe, recipe.base_tag, base_id, cache_from):
        return
    if image.cuda_from == "base":
        below = recipe.python_tag
        context = _archive([(PROJECT / "images" / "Dockerfile.cuda", "images/Dockerfile.cuda")])
        log.title(f"{image.name}: Python {image.python} on {recipe.base}")
        arguments = {"BASE": recipe.base, "PYTHON": image.python}
        _run_build(client, log, context, "images/Dockerfile.cuda", below, arguments, again=recipe.again)
    steps = _steps(PROJECT / "Dockerfile.base", pip, recipe.common_labels(base_id))
    context = _archive([], {"Dockerfile.base": steps})
    log.title(f"{image.name}: common layers on {recipe.base}")
    arguments = {"BASE": below} | pip
    made = _run_build(client, log, context, "Dockerfile.base", recipe.base_tag, arguments, again=recipe.again)
    undate(client, made, recipe.base_tag, site=pip)


def _is_here(client: DockerClient, recipe: Recipe, tag: str, base_id: str, cache_from: str | None) -> bool:
    """True if the engine has these layers, on the base image that has its name now, or gets them from the registry."""
    here = docker_client.find_image(client, tag)
    if here and here.labels.get("dlbench.base_id") == base_id:
        return True
    return cache_from is not None and not recipe.again and registry.pull_common(client, tag, base_id, cache_from)


def _build_nvidia(
    client: DockerClient, recipe: Recipe, log: _Log, cache_from: str | None, base_id: str, pip: dict[str, str]
) -> None:
    """The layers of NVIDIA's wheels on the common layers, each under its tag. Two images with the same one build it once."""
    name, below = "images/Dockerfile.nvidia", recipe.base_tag
    # The layers do not depend on where the wheels come from, and do not say it.
    site = pip | {"EXTRA_INDEX": recipe.image.extra_index or ""}
    for tag, layer in zip(recipe.nvidia_tags, recipe.nvidia, strict=True):
        with _one_at_a_time(tag):
            if not _is_here(client, recipe, tag, base_id, cache_from):
                log.title(
                    f"{recipe.image.name}: {', '.join(layer.wheels)}, in a layer for all images with these wheels"
                )
                steps = _steps(PROJECT / name, pip, {"dlbench.nvidia": layer.digest})
                arguments = {"BASE": below, "WHEELS": layer.argument} | {
                    key: value for key, value in site.items() if value
                }
                made = _run_build(client, log, _archive([], {name: steps}), name, tag, arguments, again=recipe.again)
                undate(client, made, tag, site=site)
        below = tag


@contextlib.contextmanager
def _one_at_a_time(tag: str) -> Iterator[None]:
    """One thread after the other: images that are built side by side wait for the layer that they share, and do not fetch it twice."""
    with _BUILDING_LOCK:
        lock = _BUILDING.setdefault(tag, threading.Lock())
    with lock:
        yield


def _build_julia(client: DockerClient, recipe: Recipe, log: _Log) -> None:
    """Julia and the image's packages on the common layers."""
    image = recipe.image
    name = "images/Dockerfile.julia"
    files = [(PROJECT / name, name), *((path, f"images/{image.name}/{path.name}") for path in image.julia_paths)]
    log.title(f"{image.name}: {image.julia} and its packages")
    arguments = {"BASE": recipe.base_tag, "IMAGE": image.name, "JULIA": image.julia or ""}
    _run_build(client, log, _archive(files), name, recipe.julia_tag, arguments, again=recipe.again)


def _base_id(client: DockerClient, recipe: Recipe, log: _Log) -> str:
    """The id of the base image, pulled when it is not here."""
    if image := docker_client.find_image(client, recipe.base):
        return str(image.id)
    log.title(f"pulling {recipe.base}")
    try:
        return str(docker_client.pull_image(client, recipe.base, log.title).id)
    except docker_client.DockerError as error:
        raise UnreachedError(f"building {recipe.image.name}: {_no_base(recipe, error)}") from None


def _no_base(recipe: Recipe, error: docker_client.DockerError) -> str:
    return (
        f"the base image {recipe.base} is not here and cannot be pulled ({error.said}); where there is "
        f"no registry, make one in a clone of the project with `.ci/site-base {recipe.image.python}` and name it by --base-image or "
        f"{BASE_IMAGE_VARIABLE}, e.g. dlbench-site:{{python}}"
    )


def _run_build(
    client: DockerClient,
    log: _Log,
    context: io.BytesIO,
    dockerfile: str,
    tag: str,
    arguments: dict[str, str],
    cache: list[str] | None = None,
    again: bool = False,
) -> str:
    """One build by the engine's builder; returns the image's id. `cache`: the only images whose layers may serve; `again`: none may."""
    stream = client.api.build(
        fileobj=context,
        custom_context=True,
        dockerfile=dockerfile,
        tag=tag,
        buildargs=arguments | _proxies(),
        cache_from=cache,
        nocache=again,
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
            failed = log.failure(message["error"])
            lacks = _UNREACHED.search(failed) or known_messages.is_of_the_host(failed)
            raise (UnreachedError if lacks else BuildError)(failed)
    return str(client.images.get(tag).id)


@contextlib.contextmanager
def _open_log(recipe: Recipe, logs: Path | None, say: Callable[[str], None]) -> Iterator[_Log]:
    """The log of a build of this image: a file in `logs`, by default in the cache."""
    path = (logs or cache_folder() / "build-logs") / f"{recipe.image.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        yield _Log(file, path, say)


class _Log:
    """A build's log: all of it in a file, what it fetches to the user, its last lines in memory for an error."""

    def __init__(self, file: io.TextIOWrapper, path: Path, say: Callable[[str], None]) -> None:
        self._file = file
        self._path = path
        self._say = say
        self._last: deque[str] = deque(maxlen=known_messages.MOST_LINES)

    def title(self, line: str) -> None:
        self._say(line)
        self.write(f"== {line}\n")

    def write(self, text: str) -> None:
        with naming(self._path):
            self._file.write(text)
            self._file.flush()
        for line in text.splitlines():
            if line.strip():
                self._last.append(line.rstrip())
            if match := re.match(r"\s*Downloading (\S+) \((\d+\.\d+ [MG]B)\)", line):
                self._say(f"fetching {' '.join(match[1].rsplit('/', 1)[-1].split('-')[:2])}, {match[2]}")

    def failure(self, reason: str) -> str:
        lines = "\n".join(f"  {line}" for line in list(self._last)[-SHOWN_LINES:])
        if not known_messages.find(lines) and (cause := known_messages.cause(self._last)):
            lines = f"  {cause}\n{lines}"
        reason = known_messages.other_file("\n".join(self._last)) or reason
        return f"{self._path.stem} could not be built: {reason}\n{lines}\nthe whole log: {self._path}"


def _steps(dockerfile: Path, pip: Iterable[str], labels: Mapping[str, str]) -> str:
    """The Dockerfile with the image's labels, and in its last stage the site's settings as arguments.

    An argument is a variable of the steps and none of the image. It is not in the file: where a site has none, no step is for it.
    """
    head, start, stage = dockerfile.read_text(encoding="utf-8").rpartition("\nFROM ")
    base, _, steps = stage.partition("\n")
    arguments = "".join(f"ARG {name}\n" for name in pip)
    return f"{head}{start}{base}\n{arguments}{steps}{label_step(labels)}"


def label_step(labels: Mapping[str, str]) -> str:
    """All labels as one step of a Dockerfile. The engine makes a container for each step, and a step of each label that it is given."""

    def quoted(text: str) -> str:
        return '"' + re.sub(r'(["\\$])', r"\\\1", " ".join(text.split())) + '"'

    return f"LABEL {' '.join(f'{name}={quoted(text)}' for name, text in labels.items())}\n"


def _archive(files: Iterable[tuple[Path, str]], texts: Mapping[str, str] | None = None) -> io.BytesIO:
    """A build context as a tar in memory: the same bytes for the same files, whoever owns them and whenever they were written.

    `texts` are files that are not on the disk: name -> content.
    """
    buffer = io.BytesIO()
    contents = [(name, text.encode()) for name, text in (texts or {}).items()]
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in itertools.chain(contents, ((name, path.read_bytes()) for path, name in files)):
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


def pip_settings() -> dict[str, str]:
    """The indexes of the site's pip, from the environment, else from pip.conf. Raises BuildError if that holds a password.

    An empty variable leaves it to the base image. Folders of this machine are not in a build, and its loopback only with its network.
    """
    configured, settings = installing.pip_settings(sys.executable), {}
    for variable, option in _PIP_SETTINGS.items():
        words = os.environ.get(variable, configured.get(option, "")).split()
        if any("@" in word for word in words):
            raise BuildError(
                f"{variable} or {option} in pip.conf holds a user or a password, and a build would leave it in the image's history. "
                f"Name an address without one; or set {variable} to nothing, and put a pip.conf into the base image"
            )
        if fitting := [word for word in words if option == "trusted-host" or _in_reach_of_builds(word)]:
            settings[variable] = " ".join(fitting)
    return settings


def _in_reach_of_builds(url: str) -> bool:
    address = urlsplit(url)
    if address.scheme not in ("http", "https"):
        return False
    here = address.hostname in ("localhost", "127.0.0.1", "::1")
    return not here or os.environ.get(BUILD_NETWORK_VARIABLE) == "host"
