"""The one way to the Docker Engine. Errors of docker-py, requests and urllib3 become this project's here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import docker.utils
from docker import DockerClient
from docker.context import ContextAPI
from docker.credentials.errors import StoreError
from docker.errors import APIError, ContainerError, DockerException, ImageNotFound, NotFound, StreamParseError
from docker.models.images import Image
from docker.utils.socket import SocketError
from requests.exceptions import JSONDecodeError, RequestException, Timeout
from urllib3.exceptions import HTTPError, ReadTimeoutError

from runner.errors import EngineError, EngineGoneError

# The words of a registry, or of an engine that asks one: what they mean, and what to do.
#
# They are those of dockerd 20.10 to 28, of containerd and of Docker Hub, most of them met (tests/engine/test_registry_answers.py).


@dataclass(frozen=True)
class Meaning:
    """The meaning of an answer, by a pattern that is in its words, in any case of letters."""

    pattern: str
    means: str
    fix: str
    # A refusal of this user, or an image that is not there: callers may go on without it.
    kind: Literal["other", "refused", "absent"] = "other"


_AGAIN = "try again later"
_MIRROR = '"registry-mirrors" in daemon.json, or --base-image, names another one'

# The first that fits counts. An engine speaks of what is absent and what is refused in one sentence, and repeats a page that it got.
MEANINGS = (
    Meaning(r"no space left", "the engine's disk is full", "`runner images prune` frees a part of it"),
    Meaning(
        r"no matching manifest|does not match the specified platform|no match for platform",
        "the image has no build for this kind of processor",
        "take an image of this machine's architecture (`uname -m`)",
    ),
    Meaning(
        r"verification failed|failed to verify|digest mismatch|does not match|unexpected commit digest",
        "the registry gave other content than the digest says: it was damaged or tampered with, so nothing of it is kept",
        "try again; if it stays so, a proxy or the registry changes what it hands on",
    ),
    Meaning(
        r"proxy authentication required|proxyconnect|connecting to proxy",
        "the engine's proxy refuses or does not answer, and not the registry",
        "its settings or HTTPS_PROXY name another one (`docker info` shows them)",
    ),
    Meaning(
        r"toomanyrequests|too many requests|rate limit|http 429",
        "the registry gives this address no more images for now",
        "`docker login` raises its limit, or wait some hours; a mirror in daemon.json asks it less",
    ),
    Meaning(
        r"http 408|request time-?out",
        "the registry waited in vain for the engine's question: packets are lost on the way",
        'a VPN or bridge with a smaller MTU is the usual reason: `ip link` shows it, and "mtu" in daemon.json sets it',
    ),
    Meaning(
        r"invalid character '<'|unexpected content type.*html|content-type.*text/html",
        "something answers in the place of the registry, with a page of its own: a network that asks for a login first, or a proxy or "
        "firewall that forbids the address",
        "open the registry's address in a browser on that machine and log in, or ask who runs the network",
    ),
    Meaning(
        r"certificate has expired|is not yet valid",
        "its certificate is out of date, or the clock of the engine's machine is wrong",
        "`date` tells the clock; a registry of your site needs a new certificate",
    ),
    Meaning(
        r"cannot validate certificate for|certificate is (not )?valid for|any IP SANs|legacy common name|no valid names",
        "its certificate is of another name than the one that was asked",
        "ask the registry by the name in its certificate; if that is a stranger's, something answers in its place",
    ),
    Meaning(
        r"x509|certificate|tls: (bad|unknown)",
        "its certificate is not trusted here: a proxy shows one of its own, or the registry's authority is your site's",
        "give the engine that authority's certificate (/etc/docker/certs.d/HOST/ca.crt)",
    ),
    Meaning(
        r"server gave HTTP response|first record does not look like a TLS handshake",
        "the registry answers without encryption, and the engine asks for it",
        'give the registry a certificate, or name it in "insecure-registries" of daemon.json',
    ),
    Meaning(
        r"unauthorized|denied|authentication required|no basic auth|forbidden",
        "the registry refuses this user, or hides that it has no such image",
        "`docker login` names another one",
        "refused",
    ),
    Meaning(
        r"unknown blob|blob unknown",
        "the registry lacks a part of the image",
        "push the image again, or ask the registry that a mirror copies",
    ),
    Meaning(
        r"manifest\.v1|schema ?1|unsupported (manifest )?media ?type",
        "the image has a form that this engine does not read",
        "push it again with a newer Docker, or take a newer engine",
    ),
    # A fault of its own comes before what is not found: some write both into one sentence.
    Meaning(
        r"http status: 5\d\d|http 5\d\d|internal server error|bad gateway|service unavailable|gateway time-?out",
        "the registry has a fault of its own, or is overloaded",
        f"{_AGAIN}; {_MIRROR}",
    ),
    Meaning(
        r"no such host|server misbehaving|name resolution|dns",
        "the registry does not answer: its name is not known on the engine's machine",
        "look at the address, and at that machine's DNS (/etc/resolv.conf)",
    ),
    Meaning(
        r"manifest unknown|name unknown|not found|no such image|no such manifest",
        "the registry does not have it",
        "look at its name and tag; some registries say so of a private one until `docker login`",
        "absent",
    ),
    Meaning(
        r"connection reset|broken pipe|\bEOF\b|byte range request|connection closed",
        "the connection to the registry broke off",
        f"{_AGAIN}; if it stays so, a firewall or proxy cuts it",
    ),
    Meaning(
        r"connection refused|timeout|timed out|deadline exceeded|no route to host|network is unreachable|host is down",
        "the registry does not answer",
        f"look at the network of the engine's machine, and whether it needs a proxy (`docker info` shows it); {_MIRROR}",
    ),
)


def registry_meaning(words: str) -> Meaning | None:
    """The meaning of an engine's words; None where nobody knows them."""
    return next((each for each in MEANINGS if re.search(each.pattern, words, re.IGNORECASE)), None)


# How often a push or a pull says how far it is.
BYTES_SECONDS = 10.0

_PATIENCE_SECONDS = 1800
# A registry that does not say how large an image is within this time is not asked further.
MANIFEST_SECONDS = 30

# The program of a store of credentials, by the store's name in ~/.docker/config.json.
_STORE = "docker-credential-{}"
# The key of docker-py's settings for the stores without a program.
_LEFT_OUT = "dlbench-left-out"

# The address of the latest client, for the sentence of an engine that does not answer.
_latest_host: str | None = None


class DockerError(EngineError):
    """The Docker Engine answers that it cannot. `said`: its own words; `fix`: what to do, where it is known."""

    def __init__(self, sentence: str, said: str, fix: str = "") -> None:
        super().__init__(sentence)
        self.said, self.fix = said, fix


class NotThereError(DockerError):
    """The engine, or a registry, has no container or image of that name."""


class DeniedError(DockerError):
    """A registry refuses this user. Some registries also say so of an image that they do not have."""


_KINDS = {"refused": DeniedError, "absent": NotThereError, "other": DockerError}


@contextlib.contextmanager
def asking_registry(client: DockerClient, attempt: str) -> Iterator[None]:
    """As `asking`, for an engine's question to a registry. `said` begins with the meaning."""
    try:
        with asking():
            yield
    except EngineGoneError as error:
        if not (_timed_out(error.__cause__) and _answers(client)):
            raise
        # The engine is here, and waits for its registry.
        raise _of_a_registry(attempt, "timeout: the engine got no answer for too long") from error
    except DockerError as error:
        refusal = _of_a_registry(attempt, error.said)
        if isinstance(refusal, DeniedError) and (stores := _left_out(client)):
            names = ", ".join(map(_STORE.format, stores))
            raise DeniedError(f"{refusal}; its settings name {names}, which is not on PATH", error.said) from error
        raise refusal from error


def _timed_out(error: BaseException | None) -> bool:
    """True if an answer took too long. In the middle of one, requests and docker-py pass urllib3's error on."""
    return isinstance(error, Timeout | ReadTimeoutError) or "Read timed out" in str(error)


def _answers(client: DockerClient) -> bool:
    """True if the engine itself answers."""
    try:
        with asking():
            return bool(client.ping())
    except EngineError:
        return False


def _of_a_registry(attempt: str, words: str) -> DockerError:
    """The error of what an engine says of its registry in these words."""
    known = registry_meaning(words)
    if known is None:
        return DockerError(f"{attempt}: {words}", words)
    said = f"{known.means} ({words})"
    return _KINDS[known.kind](f"{attempt}: {said}; {known.fix}", said, known.fix)


def watch(client: DockerClient, attempt: str, messages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The messages of a push or a pull. Raises DockerError where one of them is an error: the engine's answer has status 200 then."""
    with asking_registry(client, attempt):
        for message in messages:
            if "error" in message:
                words = short(RuntimeError(message["error"]))
                raise DockerError(words, words)
            yield message


@contextlib.contextmanager
def asking(attempt: str = "") -> Iterator[None]:
    """Raise DockerError and EngineGoneError for what the libraries raise in the block. `attempt` says what could not be done."""
    begin = f"{attempt}: " if attempt else ""
    try:
        yield
    except DockerException as error:
        kind = NotThereError if isinstance(error, NotFound) else DockerError
        said = short(error)
        raise kind(f"{begin}{said}", said) from error
    except StoreError as error:
        said = " ".join(str(error).split())
        fix = 'install that program, or take "credsStore" and "credHelpers" out of ~/.docker/config.json (or of DOCKER_CONFIG\'s)'
        raise DockerError(f"{begin}docker's credentials cannot be read ({said}); {fix}", said) from error
    # docker-py hands these on as they are. The last two: the engine broke off in the middle of an answer.
    except (RequestException, HTTPError, StreamParseError, SocketError) as error:
        raise EngineGoneError(f"{begin}{why_no_engine(error)}") from error


class Client(DockerClient):
    """A client that can be made again: for a question of its own to the same engine."""

    # The address of the engine; None: the one that the environment names.
    host: str | None = None


def connect(version: str = "auto", host: str | None = None) -> Client:
    """A client of the engine at this address, or of the one that the environment names. Raises EngineGoneError."""
    global _latest_host
    _latest_host = host
    try:
        # The library warns of a store without a program with a line of its source.
        warnings.filterwarnings("ignore", message=_STORE.format(""))
        variables = os.environ | ({"DOCKER_HOST": host} if host else {})
        client = cast(Client, Client.from_env(version=version, environment=variables))
        client.host = host
        _leave_out_missing_stores(client.api._auth_configs)  # type: ignore[attr-defined]
        return client
    except (DockerException, ValueError) as error:  # a port that is no number, of an address in the environment
        raise EngineGoneError(why_no_engine(error)) from error


def _left_out(client: DockerClient) -> list[str]:
    return client.api._auth_configs.get(_LEFT_OUT, [])  # type: ignore[attr-defined, no-any-return]


def _leave_out_missing_stores(settings: dict[str, Any]) -> None:
    """Docker Desktop's settings outlive its programs (WSL, ssh): without its store, public images and those that are here serve.

    What is left out is noted in the settings: a registry may refuse this user for it.
    """
    helpers, store = settings.get("credHelpers") or {}, settings.get("credsStore")
    missing = {name for name in (*helpers.values(), store) if name and not shutil.which(_STORE.format(name))}
    settings[_LEFT_OUT] = sorted(missing)
    settings["credHelpers"] = {server: name for server, name in helpers.items() if name not in missing}
    if store in missing:
        del settings["credsStore"]
        # The library reads the file again where nothing is left.
        settings["auths"] = settings.get("auths") or {"none.invalid": {}}


@contextlib.contextmanager
def patient(client: DockerClient) -> Iterator[None]:
    """Wait longer for an answer in the block: an engine puts a large image together, or takes it apart, without a word."""
    usual, client.api.timeout = client.api.timeout, _PATIENCE_SECONDS
    try:
        yield
    finally:
        client.api.timeout = usual


def find_image(client: DockerClient, reference: str) -> Image | None:
    """The image with this name or id; None when the engine has none."""
    with asking(f"the image {reference} could not be looked up"):
        try:
            return client.images.get(reference)
        except ImageNotFound:
            return None


class Listing:
    """The images that an engine had at one moment. It answers for every image of the catalog, and the engine is asked once."""

    def __init__(self, entries: Iterable[Mapping[str, Any]]) -> None:
        self._ids: dict[str, str] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        loaded: dict[str, str] = {}
        for entry in entries:
            self._labels[str(entry["Id"])] = entry.get("Labels") or {}
            for name in entry.get("RepoTags") or ():
                self._ids[_short_name(name)] = str(entry["Id"])
                if name.startswith(_LOADED):
                    loaded[_short_name(name.removeprefix(_LOADED))] = str(entry["Id"])
        # A name that an image has by itself goes before one that it has because it was loaded from a file.
        self._ids = loaded | self._ids

    def id_of(self, reference: str) -> str | None:
        """The id of the image with this name and tag; None when there is none. A name with a digest has none here."""
        name = _short_name(reference)
        return self._ids.get(name if ":" in name.rpartition("/")[2] else f"{name}:latest")

    def label(self, image_id: str, name: str) -> str | None:
        """A label of an image in the listing."""
        return self._labels[image_id].get(name)


# Podman puts this before the name of an image that was built or loaded from a file.
_LOADED = "localhost/"


def _short_name(reference: str) -> str:
    """A name without the registry that it has by default, which Podman shows."""
    return reference.removeprefix("docker.io/").removeprefix("library/")


def list_images(client: DockerClient) -> Listing:
    """The images that have a name. It takes one call of the engine."""
    with asking("the images here could not be listed"):
        return Listing(client.api.images(filters={"dangling": False}))


def find_images(client: DockerClient, *references: str) -> Listing:
    """A listing of these images only. If an engine has hundreds, that is quicker than a list of all."""
    images = [image for reference in references if (image := find_image(client, reference))]
    return Listing({"Id": image.id, "RepoTags": image.tags, "Labels": image.labels} for image in images)


def pull_image(client: DockerClient, reference: str, say: Callable[[str], None] = lambda _: None) -> Image:
    """Fetch an image from its registry. Raises DockerError, and says which error of the registry it is."""
    attempt = f"{reference} could not be pulled"
    # docker-py's own images.pull drops the errors in the answer and then finds no such image.
    repository, tag = docker.utils.parse_repository_tag(reference)
    with asking_registry(client, attempt):
        messages = client.api.pull(repository, tag=tag or "latest", stream=True, decode=True)
    for _ in say_bytes(f"pulling {reference}", watch(client, attempt, messages), say):
        pass
    with asking(attempt):
        return client.images.get(reference)


def in_the_open(name: str) -> list[str]:
    """The option of Docker's program for a registry of this machine, which the engine takes without encryption."""
    return ["--insecure"] if re.match(r"(127\.|localhost[:/])", name) else []


def bytes_to_pull(reference: str, architecture: str) -> int | None:
    """The compressed layers of an image in its registry, in bytes; None where Docker's program is not here or cannot tell.

    The engine has no such call. `architecture` is in Docker's words.
    """
    command = ["docker", "manifest", "inspect", "--verbose", *in_the_open(reference), reference]
    environment = {**os.environ, "DOCKER_CLI_EXPERIMENTAL": "enabled"}
    try:
        ended = subprocess.run(command, capture_output=True, env=environment, check=True, timeout=MANIFEST_SECONDS)
        found = json.loads(ended.stdout)
        for entry in found if isinstance(found, list) else [found]:
            platform = entry["Descriptor"]["platform"]
            if (platform["os"], platform["architecture"]) == ("linux", architecture):
                manifest = entry.get("SchemaV2Manifest") or entry["OCIManifest"]
                return sum(int(layer["size"]) for layer in manifest["layers"])
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, LookupError, AttributeError):
        pass
    return None


def registry_digest(client: DockerClient, reference: str) -> str:
    """The digest that a registry has for this name. Raises DockerError."""
    with asking_registry(client, f"the digest of {reference} could not be read"):
        return str(client.images.get_registry_data(reference).id)


def why_no_engine(error: BaseException) -> str:
    """The sentence for an engine that does not answer."""
    text = str(error)
    where = _latest_host or os.environ.get("DOCKER_HOST") or _of_context() or "unix:///var/run/docker.sock"
    if "Permission denied" in text:
        return (
            f"this user may not use the container engine at {where}; join the group `docker`, or run a rootless engine"
        )
    if "No such file" in text or ("refused" in text and "ProxyError" not in text):
        return f"no container engine answers at {where}"
    if isinstance(error.__cause__, JSONDecodeError):
        return f"something that is no container engine answers at {where}, with a page of its own; look at that address"
    if isinstance(error.__cause__, APIError):
        return f"the container engine at {where} answers with an error ({short(error.__cause__)}); `docker version` asks it as well"
    return f"no container engine answers at {where} ({short(error)})"


def _of_context() -> str | None:
    """The address of Docker's context, which the library asks where no variable names one; None without a context."""
    try:
        address = ContextAPI.kwargs_from_context(environment=os.environ).get("base_url")
    except Exception:
        # Files of the user's that Docker itself cannot read.
        return None
    return str(address) if address else None


def short(error: BaseException) -> str:
    """An error's sentence without the HTTP around it. The runtime's and its hooks' message stands at its end."""
    said: Any = getattr(error, "explanation", None) or error
    if isinstance(error, ContainerError) and error.stderr:
        said = error.stderr
    text = (said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)).strip().replace("\n", " ")
    return text if len(text) <= 600 else f"{text[:100]} … {text[-500:]}"


def say_bytes(
    what: str, messages: Iterable[Mapping[str, Any]], say: Callable[[str], None]
) -> Iterator[Mapping[str, Any]]:
    """The messages of a push or a pull. From time to time one line says how much of it is done.

    The layers that an engine has not yet begun are not in the sum.
    """
    layers: dict[str, tuple[int, int]] = {}
    due = time.monotonic() + BYTES_SECONDS
    for message in messages:
        detail = message.get("progressDetail") or {}
        done, size = detail.get("current"), detail.get("total")
        if message.get("status") in ("Downloading", "Pushing") and isinstance(done, int) and isinstance(size, int):
            layers[str(message.get("id"))] = (min(done, size), size)
        elif message.get("status") in ("Download complete", "Pushed") and message.get("id") in layers:
            size = layers[message["id"]][1]
            layers[message["id"]] = (size, size)
        if layers and time.monotonic() >= due:
            due = time.monotonic() + BYTES_SECONDS
            done, size = (sum(column) for column in zip(*layers.values(), strict=True))
            say(f"{what}: {done / 1e9:.2f} of {size / 1e9:.2f} GB")
        yield message
