"""Cells in containers of the Docker Engine, shut off from network, host files and each other.

Every container carries its owner: this machine's boot, the process namespace, and the runner's process with its start
time. By that a later runner finds what a killed one left, and never touches what another runner is still running.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import build, registry
from runner.engines.base import LOG_TAIL_BYTES, EngineError, Exit, Prepared, Slot

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

    from runner.catalog import Image

OWNER_LABEL = "dlbench.owner"
RUN_LABEL = "dlbench.run"

# The user of Dockerfile.base. It stands in when the runner is root, since a cell never is.
BENCH_USER = 10001

# The same for every cell, and the same in compose.gpu.yml (a test compares them).
PIDS_LIMIT = 4096  # threads count too: TensorFlow and XLA start some per CPU
SHM_BYTES = 1 << 30  # NCCL and data loaders need more than the engine's 64 MiB
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

    @functools.cached_property
    def _client(self) -> DockerClient:
        return _connect()

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

        rootless = any("rootless" in option or "userns" in option for option in self._info.get("SecurityOptions") or ())
        user = prepare_cache(cache, shared=rootless)
        options = container_options(prepared, arguments, slot, data, cache, user)
        labels = {OWNER_LABEL: self._owner, RUN_LABEL: label}
        client = _connect(self._client.api.api_version)  # its own connections: stop() comes from another thread
        container = None
        doing = "made"
        try:
            container = client.containers.create(labels=labels, **options)
            doing = "started"
            # attached before it starts: no line is missed, and the engine keeps no second copy of the output
            stream = container.attach(stdout=True, stderr=True, stream=True, demux=True, logs=False)
            container.start()
        except BaseException as error:  # Ctrl-C as well must leave nothing behind
            if container is not None:
                container.remove(force=True, v=True)
            client.close()
            if isinstance(error, DockerException):
                sentence = f"{prepared.image.name}: the container could not be {doing}: {_short(error)}"
                raise EngineError(sentence) from error
            raise
        return DockerRunning(client, container, stream)

    def sweep(self) -> int:
        """Remove the containers whose runner has died; return how many."""
        from docker.errors import NotFound

        removed = 0
        for container in self._client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True):
            if not is_dead(container.labels.get(OWNER_LABEL, "")):
                continue
            try:
                container.remove(force=True, v=True)
                removed += 1
            except NotFound:
                pass  # another runner swept it first
        return removed


class DockerRunning:
    """A started container. Exactly one thread reads events() and then calls wait(); any may call stop()."""

    def __init__(
        self, client: DockerClient, container: Container, stream: Iterator[tuple[bytes | None, bytes | None]]
    ) -> None:
        self._client = client
        self._container = container
        self._stream = stream
        self._log = bytearray()
        self._exit: Exit | None = None

    def events(self) -> Iterator[bytes]:
        """Standard output as the engine hands it over, until the container ends; keeps the end of standard error."""
        for out, err in self._stream:
            if err:
                self._log += err
                del self._log[:-LOG_TAIL_BYTES]
            if out:
                yield out

    def stop(self) -> None:
        """Kill the container at once."""
        from docker.errors import APIError

        # Over a connection of its own. 404 or 409: the container is gone or has ended, and all is done.
        client = _connect(self._client.api.api_version)
        try:
            client.api.kill(str(self._container.id))
        except APIError as error:
            if error.status_code not in (404, 409):
                raise EngineError(
                    f"container {self._container.short_id} could not be killed: {_short(error)}"
                ) from error
        finally:
            client.close()

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
                raise EngineError(
                    f"the Docker Engine lost container {self._container.short_id}: {_short(error)}"
                ) from error
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
            self._container.remove(force=True, v=True)
            self._client.close()


def container_options(
    prepared: Prepared,
    arguments: Sequence[str],
    slot: Slot,
    data: Path | None,
    cache: Path,
    user: str,
) -> dict[str, Any]:
    """What the container may do and see, as arguments of docker-py's create()."""
    from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

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
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "log_config": LogConfig(type="none"),
        "hostname": "cell",
        "environment": environment,
    }
    if slot.cpus:
        options["cpuset_cpus"] = ",".join(map(str, slot.cpus))
    if slot.memory_bytes is not None:
        options["mem_limit"] = options["memswap_limit"] = slot.memory_bytes  # equal: no swap
    if slot.device_kind == "cuda":
        options["device_requests"] = [DeviceRequest(device_ids=list(slot.device_uuids), capabilities=[["gpu"]])]
    else:
        environment["NVIDIA_VISIBLE_DEVICES"] = (
            "void"  # where NVIDIA's runtime is the default one, it gives a CPU cell no GPU
        )
    return options


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


def _connect(version: str = "auto") -> DockerClient:
    """A client of the engine that the environment names. Raises EngineError when there is no SDK or no engine."""
    try:
        import docker
    except ImportError:
        raise EngineError(_NO_SDK) from None
    try:
        return docker.from_env(version=version)
    except docker.errors.DockerException as error:
        raise EngineError(_why_no_engine(error)) from error


def _why_no_engine(error: BaseException) -> str:
    text = str(error)
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if "Permission denied" in text:
        return f"this user may not use the Docker Engine at {where}; join the group `docker`, or run a rootless engine"
    if "No such file" in text or "refused" in text:
        return f"no Docker Engine answers at {where}"
    return f"no Docker Engine answers at {where} ({_short(error)})"


def _short(error: BaseException) -> str:
    """An error's sentence without the HTTP around it."""
    text = str(getattr(error, "explanation", None) or error)
    return text.strip().replace("\n", " ")[:300]
