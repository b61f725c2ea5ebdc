"""The one way to the Docker Engine. What docker-py, requests and urllib3 raise becomes an error of ours here, and goes no further."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import docker
from docker import DockerClient
from docker.errors import ContainerError, DockerException, ImageNotFound, NotFound
from docker.models.images import Image
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from runner.errors import EngineError, EngineGoneError


class DockerError(EngineError):
    """The Docker Engine answers that it cannot. `said`: its own words. `status`: the HTTP status of its answer, if it has one."""

    def __init__(self, sentence: str, said: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.said = said
        self.status = status


class NotThereError(DockerError):
    """The engine, or a registry, has no container or image of that name."""


@contextlib.contextmanager
def asking(attempt: str = "") -> Iterator[None]:
    """Raise DockerError and EngineGoneError for what the libraries raise in the block. `attempt` says what could not be done."""
    begin = f"{attempt}: " if attempt else ""
    try:
        yield
    except DockerException as error:
        kind = NotThereError if isinstance(error, NotFound) else DockerError
        said = short(error)
        raise kind(f"{begin}{said}", said, getattr(error, "status_code", None)) from error
    except (RequestException, HTTPError) as error:  # docker-py hands these on as they are
        raise EngineGoneError(f"{begin}{why_no_engine(error)}") from error


def connect(version: str = "auto") -> DockerClient:
    """A client of the engine that the environment names. Raises EngineGoneError."""
    try:
        return docker.from_env(version=version)
    except DockerException as error:
        raise EngineGoneError(why_no_engine(error)) from error


def find_image(client: DockerClient, reference: str) -> Image | None:
    """The image with this name or id; None when the engine has none."""
    with asking(f"the image {reference} could not be looked up"):
        try:
            return client.images.get(reference)
        except ImageNotFound:
            return None


def pull_image(client: DockerClient, reference: str) -> Image:
    """Fetch an image from its registry. Raises DockerError."""
    with asking(f"{reference} could not be pulled"):
        pulled = client.images.pull(reference)
        return pulled[0] if isinstance(pulled, list) else pulled


def registry_digest(client: DockerClient, reference: str) -> str:
    """The digest that a registry has for this name. Raises DockerError."""
    with asking(f"the registry does not tell the digest of {reference}"):
        return str(client.images.get_registry_data(reference).id)


def why_no_engine(error: BaseException) -> str:
    """The sentence for an engine that does not answer."""
    text = str(error)
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if "Permission denied" in text:
        return f"this user may not use the Docker Engine at {where}; join the group `docker`, or run a rootless engine"
    if "No such file" in text or "refused" in text:
        return f"no Docker Engine answers at {where}"
    return f"no Docker Engine answers at {where} ({short(error)})"


def short(error: BaseException) -> str:
    """An error's sentence without the HTTP around it. What the runtime and its hooks said stands at its end."""
    said: Any = getattr(error, "explanation", None) or error
    if isinstance(error, ContainerError) and error.stderr:
        said = error.stderr
    text = (said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)).strip().replace("\n", " ")
    return text if len(text) <= 600 else f"{text[:100]} … {text[-500:]}"
