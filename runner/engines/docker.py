"""Cells in containers of the Docker Engine, shut off from network, host files and each other.

Every container carries its owner: this machine's boot, the process namespace, and the runner's process with its start
time. By that a later runner finds what a killed one left, and never touches what another runner is still running.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from runner import build, registry
from runner.engines.base import LOG_TAIL_BYTES, EngineError, EngineGoneError, Exit, Prepared, Slot
from runner.engines.frames import STDERR, STDOUT, read_frames

if TYPE_CHECKING:
    from socket import SocketIO

    from docker import DockerClient
    from docker.models.containers import Container
    from docker.types import DeviceRequest

    from runner.catalog import Image

OWNER_LABEL = "dlbench.owner"
RUN_LABEL = "dlbench.run"

# The user of Dockerfile.base. It stands in when the runner is root, since a cell never is.
BENCH_USER = 10001

# The same for every cell, and the same in compose.gpu.yml (a test compares them).
PIDS_LIMIT = 4096  # threads count too: TensorFlow and XLA start some per CPU
SHM_BYTES = 1 << 30  # NCCL and data loaders need more than the engine's 64 MiB
# stack: what NVIDIA's own images ask for. Neither memlock (only network cards need it, and cells have none) nor nofile (1024 of Docker 29
# are enough): an engine may itself not have what it would be asked for, and then no container starts
ULIMITS = {"core": 0, "stack": 64 << 20}
TMP_OPTIONS = "rw,exec,nosuid,nodev,mode=1777,size=2g"  # exec: compilers of frameworks load what they write there

_NO_SDK = "the Docker SDK for Python is not installed; `pip install docker`"

# Locks hold wheels for this machine only.
_ARCHITECTURES = {"x86_64", "amd64"}


class DockerEngine:
    """The engine `docker`. `base_image` stands in for the catalog's base images where there is no registry."""

    name = "docker"

    def __init__(self, base_image: str | None = None) -> None:
        self._base_image = base_image
        self._owner = owner_of(os.getpid())
        self._missing_bases: dict[str, str | None] = {}
        self._left: list[str] = []  # containers that could not be removed, since the engine did not answer

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
        wanted = build.recipe(image, self._base_image)
        if build.built(self._client, wanted):
            return None
        if wanted.base not in self._missing_bases:  # asking a registry takes its time: once for each base
            self._missing_bases[wanted.base] = build.missing_base(self._client, wanted)
        return self._missing_bases[wanted.base]

    def why_no_gpu(self) -> str | None:
        """Why the engine cannot give a GPU to a container; None when it seems to. Only a started container proves it."""
        if (
            "nvidia" in (self._info.get("Runtimes") or {})
            or any("nvidia" in str(device) for device in self._info.get("DiscoveredDevices") or ())
            or shutil.which("nvidia-container-runtime-hook")
        ):
            return None
        return "it cannot give a GPU to a container (no NVIDIA runtime; the NVIDIA Container Toolkit brings it)"

    def cost(self, image: Image) -> int:
        """Bytes of wheels to fetch; 0 when the image is built and up to date."""
        wanted = build.recipe(image, self._base_image)
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
        options = container_options(prepared, arguments, slot, data, cache, user, cdi_devices(self._info))
        labels = {OWNER_LABEL: self._owner, RUN_LABEL: label}
        client = connect(self._client.api.api_version)  # its own connections: stop() comes from another thread
        container = None
        doing = "made"
        try:
            container = client.containers.create(labels=labels, **options)
            doing = "started"
            # attached before it starts: no line is missed, and the engine keeps no second copy of the output
            stream = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
            container.start()
            container.reload()  # what it is as a process
        except BaseException as error:  # Ctrl-C as well must leave nothing behind
            if container is not None:
                remove(container, self._left)
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
            with contextlib.suppress(not_found):
                self._client.api.remove_container(self._left[-1], force=True, v=True)
                removed += 1
            self._left.pop()
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


def container_options(
    prepared: Prepared,
    arguments: Sequence[str],
    slot: Slot,
    data: Path | None,
    cache: Path,
    user: str,
    cdi: Collection[str] = (),
) -> dict[str, Any]:
    """What the container may do and see, as arguments of docker-py's create(). `cdi` are the names that the engine knows."""
    from docker.types import LogConfig, Mount, Ulimit

    mounts = [Mount("/cache", str(cache.resolve()), type="bind")]
    arguments = list(arguments)
    if data is not None:
        mounts.append(Mount("/data", str(data.resolve()), type="bind", read_only=True))
        arguments += ["--data", "/data"]
    environment = {
        "DLBENCH_CACHE": "/cache",
        "HOME": "/tmp",
        "USER": "bench",
        "LOGNAME": "bench",
        "CUDA_CACHE_PATH": "/cache/cuda",
        "PYTHONFAULTHANDLER": "1",  # a crash, and the watchdog's SIGABRT, write the stack
    }
    options: dict[str, Any] = {
        "image": prepared.digest,
        "entrypoint": list(prepared.command),
        "command": arguments,
        "user": user,
        "read_only": True,
        "network_mode": "none",
        "ipc_mode": "private",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": PIDS_LIMIT,
        "shm_size": SHM_BYTES,
        "tmpfs": {"/tmp": TMP_OPTIONS},
        "mounts": mounts,
        "init": True,  # reaps what a framework leaves, and makes a signal end the cell
        "ulimits": [Ulimit(name=name, soft=limit, hard=limit) for name, limit in ULIMITS.items()],
        "log_config": LogConfig(type="none"),
        "hostname": "cell",
        "environment": environment,
    }
    if slot.cpus:
        options["cpuset_cpus"] = ",".join(map(str, slot.cpus))
    if slot.memory_bytes is not None:
        options["mem_limit"] = options["memswap_limit"] = slot.memory_bytes  # equal: no swap
    if slot.memory_nodes:
        options["cpuset_mems"] = ",".join(map(str, slot.memory_nodes))
    if slot.device_kind == "cuda":
        options["device_requests"] = [device_request(slot.device_uuids, cdi)]
        # compute: CUDA; utility: nvidia-smi and NVML. The hook reads it from here, and the image's own may say less
        environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    else:
        environment["NVIDIA_VISIBLE_DEVICES"] = (
            "void"  # where NVIDIA's runtime is the default one, it gives a CPU cell no GPU
        )
    return options


def device_request(uuids: Sequence[str], cdi: Collection[str]) -> DeviceRequest:
    """What asks the engine for these GPUs: by CDI name where it knows all of them, else of NVIDIA's hook.

    A container that got its devices by CDI keeps them when systemd reloads; one that got them of the hook may lose them.
    """
    from docker.types import DeviceRequest

    names = [f"nvidia.com/gpu={uuid}" for uuid in uuids]
    if set(names) <= set(cdi):
        return DeviceRequest(driver="cdi", device_ids=names)
    return DeviceRequest(device_ids=list(uuids), capabilities=[["gpu"]])


def cdi_devices(info: Mapping[str, Any]) -> frozenset[str]:
    """The CDI names that an engine tells of in its `info`; none where it has no CDI."""
    found = info.get("DiscoveredDevices") or ()
    return frozenset(str(device.get("ID")) for device in found if device.get("Source") == "cdi")


def prepare_cache(cache: Path, shared: bool) -> str:
    """Make the cache folder, writable for the user that the cell runs as, and return that user as uid:gid.

    It is the runner's own user, or the image's when the runner is root. Where the engine maps users (`shared`:
    rootless, or a user namespace) the cell's user has another number on the host, and the folder is opened as /tmp is.
    """
    cache.mkdir(parents=True, exist_ok=True)
    if shared:
        cache.chmod(0o1777)
        return f"{BENCH_USER}:{BENCH_USER}"
    if os.getuid() == 0:
        os.chown(cache, BENCH_USER, BENCH_USER)
        return f"{BENCH_USER}:{BENCH_USER}"
    return f"{os.getuid()}:{os.getgid()}"


def owner_of(pid: int) -> str:
    """A process as boot/namespace/pid/start time: the same name never comes back for another process."""
    return f"{_boot_id()}/{_pid_namespace()}/{pid}/{_start_time(pid)}"


def is_dead(owner: str) -> bool:
    """Whether the process that this label names is certainly gone. One of another namespace cannot be judged."""
    parts = owner.split("/")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    boot, namespace, pid, start = parts
    if boot != _boot_id():
        return True
    return namespace == _pid_namespace() and _start_time(int(pid)) != start


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:").strip("[]")


def _start_time(pid: int) -> str | None:
    """When a process started, in clock ticks after boot; None when it is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


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
