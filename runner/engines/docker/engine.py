"""Cells in containers of the Docker Engine, shut off from network, host files and each other.

Every container carries its owner, by which a later runner finds what a killed one left (runner/engines/ownership.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from runner.engines.base import LOG_TAIL_BYTES, Engine, EngineError, EngineGoneError, Exit, Prepared, Settings, Slot
from runner.engines.docker import cdi
from runner.engines.docker.container import container_options, prepare_cache
from runner.engines.docker.stream import STDERR, STDOUT, read_frames
from runner.engines.ownership import is_dead, owner_of
from runner.images import build, registry
from runner.images import recipe as recipes

if TYPE_CHECKING:
    from socket import SocketIO

    from docker import DockerClient
    from docker.models.containers import Container

    from runner.catalog.images import Image

OWNER_LABEL = "dlbench.owner"
RUN_LABEL = "dlbench.run"

_NO_SDK = "the Docker SDK for Python is not installed; `pip install docker`"

# Locks hold wheels for this machine only.
_ARCHITECTURES = {"x86_64", "amd64"}


class DockerEngine(Engine):
    """The engine `docker`."""

    name = "docker"

    def __init__(self, settings: Settings | None = None) -> None:
        self._base_image = settings.base_image if settings else None
        self._owner = owner_of(os.getpid())
        self._missing_bases: dict[str, str | None] = {}
        self._left: list[
            str
        ] = []  # containers, by id or name, that could not be removed, since the engine did not answer

    @functools.cached_property
    def _client(self) -> DockerClient:
        return connect()

    @functools.cached_property
    def _info(self) -> dict[str, Any]:
        return dict(self._client.info())

    def unavailable(self) -> str | None:
        """Why no engine can be used here; None when one can."""
        try:
            from docker.errors import DockerException
            from requests.exceptions import RequestException
        except ImportError:
            return _NO_SDK
        try:
            self._client.ping()  # what else is asked here is remembered, and an engine may go away
            url = self._client.api.base_url
            if not url.startswith("http+"):
                return f"the engine at {url} is on another machine and cannot see this one's folders; unset DOCKER_HOST"
            if self._info.get("OSType") != "linux":
                return f"the engine runs {self._info.get('OSType')} containers; the images are Linux images"
        except EngineError as error:
            return str(error)
        except (DockerException, RequestException) as error:
            return _why_no_engine(error)
        return None

    def unfit(self, image: Image) -> str | None:
        """Why the engine cannot run this image; None when it can."""
        architecture = str(self._info.get("Architecture"))
        if architecture not in _ARCHITECTURES:
            return f"{image.name} is locked for x86_64; the engine's machine is {architecture}"
        wanted = recipes.recipe(image, self._base_image)
        if build.built(self._client, wanted):
            return None
        if wanted.base not in self._missing_bases:  # asking a registry takes its time: once for each base
            self._missing_bases[wanted.base] = build.missing_base(self._client, wanted)
        return self._missing_bases[wanted.base]

    def why_no_gpu(self) -> str | None:
        """Why the engine cannot give a GPU to a container; None when it seems to. Only a started container proves it."""
        if (
            "nvidia" in (self._info.get("Runtimes") or {})
            or any(name.startswith(cdi.KIND) for name in cdi.devices(self._info))
            or shutil.which("nvidia-container-runtime-hook")
        ):
            return None
        return "it cannot give a GPU to a container (no NVIDIA runtime; the NVIDIA Container Toolkit brings it)"

    def cost(self, image: Image) -> int:
        """Bytes of wheels to fetch; 0 when the image is built and up to date."""
        wanted = recipes.recipe(image, self._base_image)
        return 0 if build.built(self._client, wanted) else image.download_bytes

    def images_folder(self) -> Path | None:
        """Where images lie; None where the engine does not tell."""
        folder = self._info.get("DockerRootDir")
        return Path(folder) if folder else None

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        """Build the image unless it is up to date. Raises EngineError."""
        try:
            digest = build.build(image, self._base_image, say, client=self._client)
            digest = registry.identity(self._client, image, digest)
        except build.EngineLostError as error:
            raise EngineGoneError(str(error)) from error
        except build.BuildError as error:
            raise EngineError(str(error)) from error
        return Prepared(image, digest, ("python", "-m", "bench"))

    def start(
        self,
        prepared: Prepared,
        arguments: Sequence[str],
        slot: Slot,
        label: str,
        data: Path | None,
        cache: Path,
    ) -> DockerRunning:
        """Start one cell in a container of its own. Raises EngineError, and leaves nothing behind then."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        rootless = any("rootless" in option or "userns" in option for option in self._info.get("SecurityOptions") or ())
        user = prepare_cache(cache, shared=rootless)
        options = container_options(prepared, arguments, slot, data, cache, user, cdi.devices(self._info))
        labels = {OWNER_LABEL: self._owner, RUN_LABEL: label}
        # Its own connections: stop() comes from another thread. And a name: an engine may make a container and answer too late.
        client = connect(self._client.api.api_version)
        name = f"dlbench-{secrets.token_hex(8)}"
        container = None
        doing = "made"
        try:
            container = client.containers.create(name=name, labels=labels, **options)
            doing = "started"
            # attached before it starts: no line is missed, and the engine keeps no second copy of the output
            stream = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
            container.start()
            container.reload()  # what it is as a process
        except BaseException as error:  # Ctrl-C as well must leave nothing behind
            if container is not None:
                remove(container, self._left)
            else:
                self._left.append(name)  # it may be there all the same; the next sweep looks
            client.close()
            if isinstance(error, DockerException | RequestException):
                raise _failed(f"{prepared.image.name}: the container could not be {doing}", error) from error
            raise
        return DockerRunning(
            client, container, cast("SocketIO", stream), self._left
        )  # of a socket: unavailable() saw to it

    def sweep(self) -> int:
        """Remove the containers whose runner has died, and our own that an engine without an answer left; return how many."""
        from docker.errors import DockerException, NotFound
        from requests.exceptions import RequestException

        try:
            return self._sweep(NotFound)
        except (DockerException, RequestException) as error:
            raise _failed("the Docker Engine does not answer", error) from error

    def _sweep(self, not_found: type[Exception]) -> int:
        removed = 0
        while self._left:
            name = self._left.pop()  # first of all: cells that end meanwhile add to them
            try:
                self._client.api.remove_container(name, force=True, v=True)
                removed += 1
            except not_found:
                pass
            except BaseException:
                self._left.append(name)
                raise
        for container in self._client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True):
            if not is_dead(container.labels.get(OWNER_LABEL, "")):
                continue
            try:
                container.remove(force=True, v=True)
                removed += 1
            except not_found:
                pass  # another runner swept it first
        return removed


class DockerRunning:
    """A started container. Exactly one thread reads events() and then calls wait(); any may call stop()."""

    def __init__(
        self,
        client: DockerClient,
        container: Container,
        stream: SocketIO,
        left: list[str],
    ) -> None:
        self._client = client
        self._left = left
        self._container = container
        self._init = int(container.attrs["State"]["Pid"])
        self._stream = stream
        self._frames = read_frames(stream.fileno())  # one for good: what is half read goes on where it was
        self._log = bytearray()
        self._exit: Exit | None = None

    def events(self) -> Iterator[bytes]:
        """Standard output as the engine hands it over, until the container ends; keeps the end of standard error."""
        from requests.exceptions import RequestException
        from urllib3.exceptions import HTTPError

        try:
            for stream, part in self._frames:
                if stream == STDERR:
                    self._log += part
                    del self._log[:-LOG_TAIL_BYTES]
                elif stream == STDOUT:
                    yield part
        except (RequestException, HTTPError, OSError) as error:  # the engine is gone; wait() finds out what is left
            self._log += f"\nthe connection to the Docker Engine broke: {_short(error)}".encode()

    def stop(self) -> None:
        """Kill the container at once."""
        self._kill()

    def dump(self) -> None:
        """Signal the cell itself, from the host: the init process of the container hands on any signal but this one."""
        init = self.pid()
        if init is not None:
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{init}/task/{init}/children").read_text().split():
                    os.kill(int(child), signal.SIGABRT)

    def _kill(self) -> None:
        from docker.errors import APIError, DockerException
        from requests.exceptions import RequestException

        # Over a connection of its own. 404 or 409: the container is gone or has ended, and all is done.
        client = connect(self._client.api.api_version)
        try:
            client.api.kill(str(self._container.id))
        except APIError as error:
            if error.status_code not in (404, 409):
                raise EngineError(
                    f"container {self._container.short_id} could not be killed: {_short(error)}"
                ) from error
        except (DockerException, RequestException) as error:
            raise _failed("the Docker Engine does not answer", error) from error
        finally:
            client.close()

    def pid(self) -> int | None:
        """The container's init process; None where the engine runs in other namespaces, and the number names another here."""
        try:
            mine = str(self._container.id) in Path(f"/proc/{self._init}/cgroup").read_text()
        except OSError:
            return None
        return self._init if mine else None

    def wait(self) -> Exit:
        """Wait for the container's end, remove it, and say how it ended."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        if self._exit is None:
            for _ in self.events():  # whoever stopped reading early must not leave the cell blocked on its output
                pass
            try:
                state = self._final_state()
            except (DockerException, RequestException) as error:
                raise _failed(f"the Docker Engine lost container {self._container.short_id}", error) from error
            tail = self._log.decode("utf-8", "replace")
            if state.get("Error"):
                tail += f"\n{state['Error']}"
            self._exit = Exit(int(state["ExitCode"]), bool(state["OOMKilled"]), tail)
        return self._exit

    def _final_state(self) -> dict[str, Any]:
        try:
            self._container.wait()
            self._container.reload()
            return dict(self._container.attrs["State"])
        finally:
            remove(self._container, self._left)
            self._stream.close()
            self._client.close()


def remove(container: Container, left: list[str]) -> None:
    """Remove a container, whatever it is doing; where the engine does not answer, it is noted among those that are left."""
    from docker.errors import DockerException, NotFound
    from requests.exceptions import RequestException

    try:
        container.remove(force=True, v=True)
    except NotFound:
        pass  # somebody else removed it
    except (DockerException, RequestException):
        left.append(str(container.id))


def connect(version: str = "auto") -> DockerClient:
    """A client of the engine that the environment names. Raises EngineError when there is no SDK or no engine."""
    try:
        import docker
    except ImportError:
        raise EngineError(_NO_SDK) from None
    try:
        return docker.from_env(version=version)
    except docker.errors.DockerException as error:
        raise EngineGoneError(_why_no_engine(error)) from error


def _failed(what: str, error: BaseException) -> EngineError:
    """The error for the user; of the kind that says that the engine is gone where the connection broke."""
    from requests import exceptions

    kind = EngineGoneError if isinstance(error, exceptions.ConnectionError | exceptions.Timeout) else EngineError
    return kind(f"{what}: {_short(error)}")


def _why_no_engine(error: BaseException) -> str:
    text = str(error)
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if "Permission denied" in text:
        return f"this user may not use the Docker Engine at {where}; join the group `docker`, or run a rootless engine"
    if "No such file" in text or "refused" in text:
        return f"no Docker Engine answers at {where}"
    return f"no Docker Engine answers at {where} ({_short(error)})"


def _short(error: BaseException) -> str:
    """An error's sentence without the HTTP around it. What the runtime and its hooks said stands at its end."""
    text = str(getattr(error, "explanation", None) or error).strip().replace("\n", " ")
    return text if len(text) <= 600 else f"{text[:100]} … {text[-500:]}"
