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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from runner.engines.base import LOG_TAIL_BYTES, Engine, EngineError, Exit, Prepared, Settings, Slot
from runner.engines.docker import cdi
from runner.engines.docker.container import container_options, device_groups, maps_users, prepare_cache
from runner.engines.docker.stream import STDERR, STDOUT, read_frames
from runner.engines.ownership import is_dead, owner_of
from runner.images import build
from runner.images.docker_client import DockerError, Listing, NotThereError, asking, connect, list_images
from runner.images.recipe import Recipe, layer_bytes
from runner.images.recipe import recipe as make_recipe
from runner.images.transfer import folder, registry

if TYPE_CHECKING:
    from socket import SocketIO

    from docker import DockerClient
    from docker.models.containers import Container

    from runner.catalog.images import Image

OWNER_LABEL = "dlbench.owner"
RUN_LABEL = "dlbench.run"

# Locks hold wheels for this machine only.
_ARCHITECTURES = {"x86_64", "amd64"}


class DockerEngine(Engine):
    """The engine `docker`."""

    name = "docker"
    loads_images = True

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._base_image = self._settings.base_image
        self._owner = owner_of(os.getpid())
        self._missing_bases: dict[str, str | None] = {}
        self._images: Listing | None = None
        self._recipes: dict[str, Recipe] = {}
        # containers, by id or name, that could not be removed, since the engine did not answer
        self._left: list[str] = []

    @functools.cached_property
    def _client(self) -> DockerClient:
        return connect()

    @functools.cached_property
    def _info(self) -> dict[str, Any]:
        return dict(self._client.info())

    def unavailable(self) -> str | None:
        """Why no engine can run cells here; None when one can."""
        if reason := self.why_no_build():
            return reason
        url = self._client.api.base_url
        if not url.startswith("http+"):
            return f"the engine at {url} is on another machine and cannot see this one's folders; unset DOCKER_HOST"
        return None

    def answer(self) -> None:
        """Return when the engine has answered. Raises EngineError."""
        with asking():
            self._client.ping()

    def why_no_build(self) -> str | None:
        """Why no engine can build images; None when one can. It may be on another machine: a build needs none of this one's folders."""
        try:
            with asking():
                self._client.ping()  # each time: the other answers are cached, and an engine may go away
                if self._info.get("OSType") != "linux":
                    return f"the engine runs {self._info.get('OSType')} containers; the images are Linux images"
        except EngineError as error:
            return str(error)
        return None

    def unfit(self, image: Image) -> str | None:
        """Why the engine cannot run this image; None when it can."""
        architecture = str(self._info.get("Architecture"))
        if architecture not in _ARCHITECTURES:
            return f"{image.name} is locked for x86_64; the engine's machine is {architecture}"
        recipe = self._recipe(image)
        if build.built(self._listed(), recipe) or self._exported(recipe):
            return None
        if recipe.base not in self._missing_bases:  # a registry is slow: ask it once for each base
            self._missing_bases[recipe.base] = build.missing_base(self._client, recipe)
        return self._missing_bases[recipe.base]

    def why_no_gpu(self) -> str | None:
        """Why the engine cannot give a GPU to a container; None when it seems to. Only a started container proves it."""
        if (
            "nvidia" in (self._info.get("Runtimes") or {})
            or any(name.startswith(cdi.KIND) for name in cdi.devices(self._info))
            or shutil.which("nvidia-container-runtime-hook")
        ):
            return None
        return "it cannot give a GPU to a container (no NVIDIA runtime; the NVIDIA Container Toolkit brings it)"

    def _listed(self) -> Listing:
        """The images that are here, asked for once until the next one is prepared: a plan asks about every image of the catalog."""
        if self._images is None:
            self._images = list_images(self._client)
        return self._images

    def _recipe(self, image: Image) -> Recipe:
        """What a build of the image depends on, read once until the next one is prepared: it walks over the whole bench."""
        recipe = self._recipes.get(image.name) or make_recipe(image, self._base_image)
        self._recipes[image.name] = recipe
        return recipe

    def _exported(self, recipe: Recipe) -> folder.Exported | None:
        """What the folder of exported images has of this one. One that is damaged is said when it is to be loaded."""
        with contextlib.suppress(folder.FolderError):
            found = folder.find(self._settings.images_from, recipe) if self._settings.images_from else None
            return found if found and folder.base_here(self._listed(), recipe, found.base_id) else None
        return None

    def unobtainable(self, image: Image) -> str | None:
        """Why nodes do not get the image: no place has it, and nobody asked them to build."""
        if self._settings.may_build:
            return None
        recipe = self._recipe(image)
        has = build.built(self._listed(), recipe) or self._exported(recipe) or registry.is_pinned(recipe)
        return None if has else f"it {build.NOT_BUILT}"

    def cost(self, image: Image) -> int:
        """Bytes of wheels to fetch; 0 when the image is built and up to date."""
        return sum(self.parts(image).values())

    def parts(self, image: Image) -> Mapping[str, int]:
        """Bytes to fetch: of an exported image, or of the wheels of each layer of NVIDIA's that is not here, and of the image's own."""
        recipe = self._recipe(image)
        if build.built(self._listed(), recipe):
            return {}
        if exported := self._exported(recipe):
            return {recipe.tag: exported.bytes}
        shared = dict(zip(recipe.nvidia_tags, layer_bytes(image).values(), strict=True))
        own = image.download_bytes - sum(shared.values())
        return {tag: size for tag, size in shared.items() if self._listed().id_of(tag) is None} | {recipe.tag: own}

    def disk_parts(self, image: Image) -> Mapping[str, int]:
        """The same parts on the disk: an exported image is not compressed."""
        if self._settings.images_from is None:
            return super().disk_parts(image)
        recipe = self._recipe(image)
        exported = None if build.built(self._listed(), recipe) else self._exported(recipe)
        return {recipe.tag: exported.bytes} if exported else super().disk_parts(image)

    def images_folder(self) -> Path | None:
        """Where images lie; None where the engine does not tell."""
        folder = self._info.get("DockerRootDir")
        return Path(folder) if folder else None

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        """Load, pull or build the image unless it is up to date. Raises EngineError."""
        self._images = None
        self._recipes.clear()
        image_id = build.build(
            image,
            self._base_image,
            say,
            client=self._client,
            images_from=self._settings.images_from,
            may_build=self._settings.may_build,
        )
        digest = registry.identity(self._client, image, image_id)
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
        user = prepare_cache(cache, shared=maps_users(self._info))
        names, groups = cdi.devices(self._info), device_groups(self._info)
        options = container_options(prepared, arguments, slot, data, cache, user, names, groups)
        labels = {OWNER_LABEL: self._owner, RUN_LABEL: label}
        # A client of its own: stop() comes from another thread. A name of our own: an engine may make a container and answer too late.
        client = connect(self._client.api.api_version)
        name = f"dlbench-{secrets.token_hex(8)}"
        container = None
        try:
            with asking(f"{prepared.image.name}: the container could not be made"):
                container = client.containers.create(name=name, labels=labels, **options)
            with asking(f"{prepared.image.name}: the container could not be started"):
                # Attach before it starts, so that no line is lost and the engine keeps no second copy of the output.
                stream = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
                container.start()
                container.reload()  # now it has a process id
        except BaseException:  # Ctrl-C too must leave nothing behind
            if container is not None:
                _remove_or_note(client, str(container.id), self._left)
            else:
                self._left.append(name)  # the engine may have made it all the same: the next sweep looks
            client.close()
            raise
        # A connection by socket gives a socket's stream, and unavailable() refuses any other.
        return DockerRunning(client, container, cast("SocketIO", stream), self._left)

    def sweep(self) -> int:
        """Remove the containers whose runner has died, and our own that an engine without an answer left; return how many."""
        removed = 0
        while self._left:
            name = self._left.pop()  # the last one, since cells that end meanwhile append
            try:
                removed += _remove(self._client, name)
            except BaseException:
                self._left.append(name)
                raise
        with asking("the containers of earlier runners could not be listed"):
            ours = self._client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True)
        dead = [container for container in ours if is_dead(container.labels.get(OWNER_LABEL, ""))]
        return removed + sum(_remove(self._client, str(container.id)) for container in dead)


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
        self._frames = read_frames(stream.fileno())  # one iterator: a frame that is half read continues
        self._log = bytearray()
        self._exit: Exit | None = None

    def events(self) -> Iterator[bytes]:
        """Standard output as the engine hands it over, until the container ends; keeps the end of standard error."""
        try:
            for stream, part in self._frames:
                if stream == STDERR:
                    self._log += part
                    del self._log[:-LOG_TAIL_BYTES]
                elif stream == STDOUT:
                    yield part
        except OSError as error:  # the engine is gone; wait() asks what became of the container
            self._log += f"\nthe connection to the Docker Engine broke: {error}".encode()

    def stop(self) -> None:
        """Kill the container at once, over a connection of its own."""
        client = connect(self._client.api.api_version)
        try:
            with asking(f"container {self._container.short_id} could not be killed"):
                client.api.kill(str(self._container.id))
        except DockerError as error:
            if error.status not in (404, 409):  # it is gone, or it has ended
                raise
        finally:
            client.close()

    def dump(self) -> None:
        """Signal the cell itself, from the host: the init process of the container hands on any signal but this one."""
        init = self.pid()
        if init is not None:
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{init}/task/{init}/children").read_text().split():
                    os.kill(int(child), signal.SIGABRT)

    def pid(self) -> int | None:
        """The container's init process; None where the engine runs in other namespaces, and the number names another here."""
        try:
            mine = str(self._container.id) in Path(f"/proc/{self._init}/cgroup").read_text()
        except OSError:
            return None
        return self._init if mine else None

    def scratch(self) -> None:
        """Its /tmp is memory, which has a limit of its own."""

    def wait(self) -> Exit:
        """Wait for the container's end, remove it, and say how it ended."""
        if self._exit is None:
            for _ in self.events():  # read the rest: a cell whose output nobody reads would block
                pass
            with asking(f"container {self._container.short_id} was lost"):
                state = self._final_state()
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
            _remove_or_note(self._client, str(self._container.id), self._left)
            self._stream.close()
            self._client.close()


def _remove(client: DockerClient, container: str) -> bool:
    """Remove a container by id or name, whatever it is doing; False where it is gone already. Raises EngineError."""
    try:
        with asking(f"container {container[:20]} could not be removed"):
            client.api.remove_container(container, force=True, v=True)
    except NotThereError:
        return False
    return True


def _remove_or_note(client: DockerClient, container: str, left: list[str]) -> None:
    """Remove a container; where the engine does not do it, note it among those that are left."""
    try:
        _remove(client, container)
    except EngineError:
        left.append(container)
