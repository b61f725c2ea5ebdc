"""Cells in containers of the Docker Engine, shut off from network, host files and each other.

Every container carries its owner, by which a later runner finds what a killed one left (runner/engines/process/process.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from runner.catalog import architectures, guarantees
from runner.catalog.addresses import ForeignImage
from runner.engines.base import LOG_TAIL_BYTES, Engine, EngineError, Exit, Launch, ReadyImage, Settings
from runner.engines.docker import read_back
from runner.engines.docker.container import (
    CDI_KIND,
    cdi_devices,
    container_options,
    device_groups,
    hook_driver,
    is_unknown_hook,
    maps_users,
    prepare_cache,
)
from runner.engines.docker.foreign_image import with_bench
from runner.engines.process.process import is_dead, owner_of
from runner.errors import UserError, system_fault
from runner.images import builder, docker_client
from runner.images.recipe import Recipe, layer_bytes
from runner.images.recipe import recipe as make_recipe
from runner.images.transfer import folder, registry
from runner.paths import CACHE_FIX, cache_folder, nearest
from runner.results.on_disk.isolation import not_held

if TYPE_CHECKING:
    from socket import SocketIO

    from docker.models.containers import Container

    from runner.catalog.images import Image
    from runner.results.on_disk.isolation import Isolation

OWNER_LABEL = "dlbench.owner"
RUN_LABEL = "dlbench.run"

# An engine that is well answers a ping in milliseconds, also while one of its containers hangs.
_PING_SECONDS = 10.0

# The longest that an engine takes over the end of one container; its own limit for a kill is 10 s.
_END_SECONDS = 20

# So often an engine that answers is asked to kill a container, before the container counts as one that cannot be ended.
_KILLS = 3


class DockerEngine(Engine):
    """The engine `docker`."""

    name = "docker"
    loads_images = True

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._base_image = self._settings.base_image
        self._owner = owner_of(os.getpid())
        self._missing_bases: dict[str, str | None] = {}
        self._machines: dict[str, str] = {}
        self._images: docker_client.Listing | None = None
        self._recipes: dict[str, Recipe] = {}
        # containers, by id or name, that could not be removed, since the engine did not answer
        self._left: list[str] = []

    @functools.cached_property
    def _client(self) -> docker_client.Client:
        return docker_client.connect()

    @property
    def client(self) -> docker_client.Client:
        """The connection to the engine. Raises EngineError."""
        return self._client

    def built(self, recipe: Recipe) -> str | None:
        """The id of the image that is built of these inputs and up to date; None where there is none."""
        return builder.built(self._listed(), recipe)

    @functools.cached_property
    def _info(self) -> dict[str, Any]:
        return dict(self._client.info())

    @property
    def info(self) -> Mapping[str, Any]:
        """The engine's answer about its machine. Raises EngineError."""
        with docker_client.asking():
            return self._info

    @functools.cached_property
    def version(self) -> dict[str, Any]:
        """The engine's answer about itself: its name, its version, its parts. Raises EngineError."""
        with docker_client.asking():
            return dict(self._client.version())

    @functools.cached_property
    def _hook(self) -> str:
        return hook_driver(self._info)

    def unavailable(self) -> str | None:
        if reason := self.why_no_build():
            return reason
        url = self._client.api.base_url
        if not url.startswith("http+"):
            return f"the engine at {url} is on another machine and cannot see this one's folders; unset DOCKER_HOST"
        try:
            return self._other_files
        except OSError as error:
            return f"its cells need a folder to write: {system_fault(error)}; {CACHE_FIX}"
        except UserError as error:
            return str(error)

    @functools.cached_property
    def _other_files(self) -> str | None:
        """Why its containers do not see this machine's files. It is asked once: a cell that hangs must not wait for the answer."""
        return read_back.why_not_the_same_files(self._client, nearest(cache_folder()), {OWNER_LABEL: self._owner})

    def answer(self) -> None:
        _ping(self._client)

    def why_no_build(self) -> str | None:
        """Why no engine can build images; None when one can. It may be on another machine: a build needs none of this one's folders."""
        try:
            # Each time: the other answers are cached, and an engine may go away.
            _ping(self._client)
            with docker_client.asking():
                if self._info.get("OSType") != "linux":
                    return f"the engine runs {self._info.get('OSType')} containers; the images are Linux images"
        except EngineError as error:
            return str(error)
        return None

    def unfit(self, image: Image) -> str | None:
        recipe = self._recipe(image)
        if reason := architectures.why_not_measured(
            image, self._machine(recipe.base), str(self._info.get("Architecture"))
        ):
            return reason
        if builder.built(self._listed(), recipe) or self._exported(recipe):
            return None
        if recipe.base not in self._missing_bases:  # a registry is slow: ask it once for each base
            self._missing_bases[recipe.base] = builder.missing_base(self._client, recipe)
        return self._missing_bases[recipe.base]

    def _machine(self, name: str) -> str:
        """The architecture of an image: the engine is asked once."""
        if name not in self._machines:
            self._machines[name] = builder.machine_of(self._client, name)
        return self._machines[name]

    def why_no_gpu(self) -> str | None:
        if (
            "nvidia" in (self._info.get("Runtimes") or {})
            or any(name.startswith(CDI_KIND) for name in cdi_devices(self._info))
            or shutil.which("nvidia-container-runtime-hook")
        ):
            return None
        return "it cannot give a GPU to a container (no NVIDIA runtime; the NVIDIA Container Toolkit brings it)"

    def guarantees(self) -> str:
        return guarantees.sentence(*self.kind())

    def kind(self) -> tuple[str, bool, str]:
        """The engine's key in that table."""
        return self.name, maps_users(self._info), str(self._info.get("CgroupVersion") or "1")

    def _listed(self) -> docker_client.Listing:
        """The images that are here, asked for once until the next one is prepared: a plan asks about every image of the catalog."""
        if self._images is None:
            self._images = docker_client.list_images(self._client)
        return self._images

    def _recipe(self, image: Image) -> Recipe:
        """The recipe of the image's build, read once until the next one is prepared: it walks over the whole bench."""
        recipe = self._recipes.get(image.name) or make_recipe(image, self._base_image)
        self._recipes[image.name] = recipe
        return recipe

    def _exported(self, recipe: Recipe) -> folder.Exported | None:
        """The image in the folder of exported images. A damaged one is reported when it is loaded."""
        with contextlib.suppress(folder.FolderError):
            found = folder.find(self._settings.images_from, recipe) if self._settings.images_from else None
            return found if found and folder.base_here(self._listed(), recipe, found.base_id) else None
        return None

    def unobtainable(self, image: Image) -> str | None:
        """Why nodes do not get the image: no place has it, and nobody asked them to build."""
        if self._settings.may_build:
            return None
        recipe = self._recipe(image)
        has = builder.built(self._listed(), recipe) or self._exported(recipe) or registry.is_pinned(recipe)
        return None if has else f"it {builder.NOT_BUILT}"

    def parts(self, image: Image) -> Mapping[str, int]:
        """Bytes to fetch: of an exported image, or of the wheels of each layer of NVIDIA's that is not here, and of the image's own."""
        recipe = self._recipe(image)
        if builder.built(self._listed(), recipe):
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
        exported = None if builder.built(self._listed(), recipe) else self._exported(recipe)
        return {recipe.tag: exported.bytes} if exported else super().disk_parts(image)

    def images_folder(self) -> Path | None:
        folder = self._info.get("DockerRootDir")
        return Path(folder) if folder else None

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        """Load, pull or build the image unless it is up to date. Raises EngineError."""
        self._images = None
        self._recipes.clear()
        image_id = builder.build(
            image,
            self._base_image,
            say,
            client=self._client,
            images_from=self._settings.images_from,
            may_build=self._settings.may_build,
        )
        digest = registry.identity(self._client, image, image_id)
        machine = self._machine(self._recipe(image).base)
        return ReadyImage(architectures.for_machine(image, machine), digest, ("python", "-m", "bench"))

    def start(self, launch: Launch) -> DockerRunning:
        """Start one cell in a container of its own. Raises EngineError, and leaves nothing behind then."""
        # An image from a folder or a registry may be of another architecture than its base here. A check of it is no measurement.
        if "run" in launch.arguments[:1]:
            machine, kernel = self._machine(launch.prepared.digest), str(self._info.get("Architecture"))
            if reason := architectures.emulated(machine, kernel):
                raise EngineError(f"{launch.prepared.image.name}: {reason}")
        try:
            return self._started(launch, self.options(launch, self._hook))
        except docker_client.DockerError as error:
            if not is_unknown_hook(error.said):
                raise
            self._hook = ""
        return self._started(launch, self.options(launch, self._hook))

    def options(self, launch: Launch, hook: str) -> dict[str, Any]:
        """The container's limits, as arguments of docker-py's create()."""
        user = prepare_cache(launch.cache, shared=maps_users(self._info))
        names, groups = cdi_devices(self._info), device_groups(self._info)
        options = container_options(launch, user, names, groups, hook)
        return (
            with_bench(options, launch.prepared.source) if isinstance(launch.prepared.source, ForeignImage) else options
        )

    def _started(self, launch: Launch, options: dict[str, Any]) -> DockerRunning:
        labels = {OWNER_LABEL: self._owner, RUN_LABEL: launch.label}
        image = launch.prepared.image.name
        # A client of its own: stop() comes from another thread. A name of our own: an engine may make a container and answer too late.
        client = docker_client.connect(self._client.api.api_version, self._client.host)
        name = f"dlbench-{secrets.token_hex(8)}"
        container = None
        try:
            with docker_client.asking(f"{image}: the container could not be made"):
                container = client.containers.create(name=name, labels=labels, **options)
                isolation = read_back.isolation(self.version, self._info, options, self.host_config(container))
            if "GPUs" in not_held(isolation):
                asked, has = isolation["limits"]["GPUs"]
                raise EngineError(
                    f"{image}: {isolation['engine']} gave the container {has} of {asked} GPUs, without a word"
                )
            with docker_client.asking(f"{image}: the container could not be started"):
                # Attach before it starts, so that no line is lost and the engine keeps no second copy of the output.
                stream = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
                container.start()
        except BaseException:  # Ctrl-C too must leave nothing behind
            if container is not None:
                _remove_or_note(client, str(container.id), self._left)
            else:
                self._left.append(name)  # the engine may have made it all the same: the next sweep looks
            client.close()
            raise
        # A connection by socket gives a socket's stream, and unavailable() refuses any other.
        return DockerRunning(client, container, cast("SocketIO", stream), self._left, isolation)

    def host_config(self, container: Container) -> Mapping[str, Any]:
        """The limits of a container as the engine has them, in the words of Docker's API."""
        return cast("Mapping[str, Any]", container.attrs["HostConfig"])

    def sweep(self) -> int:
        """Remove the containers whose runner has died, and our own that could not be ended; return how many.

        A container that cannot be removed stays for the next sweep: it says nothing of the engine.
        """
        with docker_client.asking("the containers of earlier runners could not be listed"):
            # Without a look at each of them, as docker-py's own list takes: a container that hangs does not answer that.
            listed = self._client.api.containers(all=True, filters={"label": OWNER_LABEL})
        dead = [str(entry["Id"]) for entry in listed if is_dead((entry.get("Labels") or {}).get(OWNER_LABEL, ""))]
        # Cells that end meanwhile append to the list of those that are left.
        left, self._left[:] = list(self._left), []
        removed: list[str] = []

        def remove(container: str) -> None:
            if _remove_or_note(self._client, container, self._left):
                removed.append(container)

        # Side by side: each that hangs, as after an engine was killed, takes its time. Daemons: none keeps this process.
        threads = [threading.Thread(target=remove, args=(each,), daemon=True) for each in dict.fromkeys([*left, *dead])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(removed)


class DockerRunning:
    """A started container. Exactly one thread reads events() and then calls wait(); any may call stop().

    The reader never calls the engine: an engine that waits for its reader would wait for ever. Threads of this class's own call it.
    """

    def __init__(
        self,
        client: docker_client.Client,
        container: Container,
        stream: SocketIO,
        left: list[str],
        isolation: Isolation | None = None,
    ) -> None:
        self._client = client
        self._isolation = isolation
        self._left = left
        self._container = container
        # Not known yet, or never.
        self._init: int | None = None
        self._stream = stream
        self._frames = read_back.read_frames(stream.fileno())  # one iterator: a frame that is half read continues
        self._log = bytearray()
        self._exit: Exit | None = None
        self._lock = threading.Lock()
        self._killer: threading.Thread | None = None
        # The engine has said how it ended, or could not, or it is given up.
        self._settled = threading.Event()
        self._state: dict[str, Any] | None = None
        self._error: EngineError | None = None
        threading.Thread(target=self._learn_pid, daemon=True).start()

    def _learn_pid(self) -> None:
        """Ask the engine for the container's process, over a connection of its own."""
        with contextlib.suppress(EngineError, KeyError), _own_client(self._client) as client, docker_client.asking():
            self._init = int(client.api.inspect_container(str(self._container.id))["State"]["Pid"])

    def events(self) -> Iterator[bytes]:
        """Standard output as the engine hands it over, until the container ends; keeps the end of standard error."""
        try:
            for stream, part in self._frames:
                if stream == read_back.STDERR:
                    self._log += part
                    del self._log[:-LOG_TAIL_BYTES]
                elif stream == read_back.STDOUT:
                    yield part
        except OSError as error:  # the engine is gone; wait() asks what became of the container
            self._log += f"\nthe connection to the Docker Engine broke: {error}".encode()

    def stop(self) -> None:
        """Have the container killed at once, by a thread that goes on until it has ended."""
        with self._lock:
            if self._killer is None and not self._settled.is_set():
                self._killer = threading.Thread(target=self._kill, daemon=True)
                self._killer.start()

    def _kill(self) -> None:
        """Kill the container until it has ended. If it does not end, and the engine answers, it is given up."""
        kills = 0
        while kills < _KILLS:
            with contextlib.suppress(EngineError):
                with _own_client(self._client) as client:
                    with contextlib.suppress(EngineError), docker_client.asking():
                        client.api.kill(str(self._container.id))
                    if self._settled.wait(_END_SECONDS):
                        return
                    # An engine that does not answer is waited for: it may come back.
                    _ping(client)
                kills += 1
            if self._settled.wait(1.0):
                return
        self._left.append(str(self._container.id))
        self._settled.set()
        # Wakes the reader.
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(fileno=os.dup(self._stream.fileno())) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)

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
        if self._exit is None:
            for _ in self.events():  # read the rest: a cell whose output nobody reads would block
                pass
            threading.Thread(target=self._settle, daemon=True).start()
            self._settled.wait()
            if self._error:
                raise self._error
            tail = self._log.decode("utf-8", "replace")
            if self._state is None:
                name = f"container {self._container.name} ({self._container.short_id})"
                left = f"{name} could not be ended; the next run tries to remove it (`docker rm --force` does the same)"
                self._exit = Exit(128 + signal.SIGKILL, False, tail, left, self._isolation)
                return self._exit
            if self._state.get("Error"):
                tail += f"\n{self._state['Error']}"
            code, out_of_memory = int(self._state["ExitCode"]), bool(self._state["OOMKilled"])
            self._exit = Exit(code, out_of_memory, tail, isolation=self._isolation)
        return self._exit

    def _settle(self) -> None:
        """Ask the engine how the container ended, and have it removed."""
        try:
            with docker_client.asking(f"container {self._container.short_id} was lost"):
                self._state = self._final_state()
        except EngineError as error:
            self._error = error
        finally:
            self._settled.set()

    def _final_state(self) -> dict[str, Any]:
        try:
            self._container.wait()
            self._container.reload()
            return dict(self._container.attrs["State"])
        finally:
            _remove_or_note(self._client, str(self._container.id), self._left)
            self._stream.close()
            self._client.close()


def _ping(client: docker_client.Client) -> None:
    """Return when the engine has answered, which it does at once or not at all. Raises EngineError."""
    with docker_client.asking():
        client.api.get(f"{client.api.base_url}/_ping", timeout=_PING_SECONDS).raise_for_status()


@contextlib.contextmanager
def _own_client(client: docker_client.Client) -> Iterator[docker_client.Client]:
    """A further connection, for a question about one container: nothing waits behind it. Raises EngineError."""
    own = docker_client.connect(client.api.api_version, client.host)
    own.api.timeout = _END_SECONDS
    try:
        yield own
    finally:
        own.close()


def _remove_or_note(client: docker_client.Client, container: str, left: list[str]) -> bool:
    """Remove a container by id or name, whatever it is doing. If the engine does not do it, note it among those that are left.

    Says whether it was removed: False also where it is gone already.
    """
    try:
        with docker_client.asking(), _own_client(client) as own:
            own.api.remove_container(container, force=True, v=True)
    except docker_client.NotThereError:
        return False
    except EngineError:
        left.append(container)
        return False
    return True
