"""Reads back from the engine what a container has of what it was asked for. Engines drop limits that they cannot apply without a word:
rootless Podman on cgroups v1 those of memory, processes and CPUs, and before 5.4.0 GPUs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import select
import struct
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.engines.docker import container
from runner.errors import EngineGoneError
from runner.images.docker_client import DockerError, NotThereError, asking
from runner.results.on_disk.isolation import Isolation

if TYPE_CHECKING:
    from docker import DockerClient


# Reads the stream in which the Docker Engine sends what a container prints: frames of a header and bytes.
#
# docker-py reads such a stream too (`attach(demux=True)`), but wakes four times for each line. With eight cells that print a dozen lines
# a second each, that cost the runner more CPU than everything else it does. Here lines gather for a moment and are read together.

STDOUT, STDERR = 1, 2

# Docker Engine API, "Attach to a container", stream format: one byte says the stream, four the length, big-endian.
_HEADER = struct.Struct(">BxxxL")
_READ_BYTES = 64 * 1024
_GATHER_SECONDS = 0.4
_FEW_BYTES = 4096  # some thirty lines: a cell that prints more than that at a time is read as fast as it prints


def read_frames(descriptor: int, gather: float = _GATHER_SECONDS) -> Iterator[tuple[int, bytes]]:
    """(stream, bytes) as they come, until the other side closes; a frame may come in parts. Raises OSError.

    After it has read a few lines it waits for up to `gather` seconds; the end of the stream ends the wait. Readers wake on a shared tick,
    so that they share one wake-up of the interpreter. Much output is never held up: an engine does not wait long for a reader.
    """
    ready, closed = select.poll(), select.poll()
    ready.register(descriptor, select.POLLIN)
    closed.register(descriptor, select.POLLRDHUP)  # and of itself POLLHUP
    header, stream, left = b"", 0, 0
    while True:
        ready.poll()
        try:
            read = os.read(descriptor, _READ_BYTES)
        except (
            BlockingIOError
        ):  # a timeout set elsewhere makes it non-blocking, and poll() may report data that is not there
            continue
        if not read:
            return
        at = 0
        while at < len(read):
            if left:
                part = read[at : at + left]
                at, left = at + len(part), left - len(part)
                yield stream, part
                continue
            missing = _HEADER.size - len(header)
            header, at = header + read[at : at + missing], at + missing
            if len(header) == _HEADER.size:
                (stream, left), header = _HEADER.unpack(header), b""
        if gather and len(read) < _FEW_BYTES:
            closed.poll(1000 * (gather - time.monotonic() % gather))


# The proof that an engine mounts this machine's own folders: its socket may lie in a container, and its daemon elsewhere.
#
# Nothing is started and no image is needed: the engine makes a container of an empty one, and hands out the file that it mounts there.

_NAME = "file"


def why_not_the_same_files(client: DockerClient, folder: Path, labels: Mapping[str, str]) -> str | None:
    """Why a container does not see a folder (it must exist) as this process does; None where it does, or where the engine cannot say.

    `labels` are the container's, for the sweep. Raises EngineGoneError, and OSError where nothing can be written into the folder.
    """
    secret = secrets.token_hex(16).encode()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".dlbench-") as probe:
        path = Path(probe) / _NAME
        path.write_bytes(secret)
        try:
            if _in_container(client, probe, labels) == secret:
                return None
        except EngineGoneError:
            raise
        except NotThereError:
            pass
        except DockerError as error:
            if "bind source path" not in error.said:
                return None
        except (tarfile.TarError, KeyError, ValueError):
            # The engine answered otherwise than it should, such as with a full disk: that says nothing of its folders.
            return None
    return (
        f"it does not see the files of {folder}: it runs elsewhere, or this is a container with the engine's socket; "
        "mount that folder at the same path where the engine runs, or use --engine venv"
    )


def _in_container(client: DockerClient, folder: str, labels: Mapping[str, str]) -> bytes:
    """The file of a folder as a container sees it. Raises DockerError and EngineGoneError."""
    from docker.types import Mount

    with asking(), _empty_image(client) as image:
        mounts = [Mount("/probe", folder, type="bind", read_only=True)]
        container = client.api.create_container(
            image, command=["none"], labels=dict(labels), host_config=client.api.create_host_config(mounts=mounts)
        )["Id"]
        try:
            chunks, _ = client.api.get_archive(container, f"/probe/{_NAME}")
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                member = archive.extractfile(_NAME)
                return member.read() if member else b""
        finally:
            client.api.remove_container(container, force=True)


@contextlib.contextmanager
def _empty_image(client: DockerClient) -> Iterator[str]:
    """An image without a file, by its id, while the block runs."""
    nothing = io.BytesIO()
    tarfile.open(fileobj=nothing, mode="w").close()
    answer = client.api.import_image_from_data(nothing.getvalue())
    image = str(json.loads(answer.strip().splitlines()[-1])["status"])
    try:
        yield image
    finally:
        client.api.remove_image(image)


# Limit -> docker-py's option that asks for it, and the field of HostConfig that has it (Docker Engine API, "Inspect a container").
_FIELDS = {
    "network": ("network_mode", "NetworkMode"),
    "read-only root": ("read_only", "ReadonlyRootfs"),
    "memory": ("mem_limit", "Memory"),
    "swap": ("memswap_limit", "MemorySwap"),
    "processes": ("pids_limit", "PidsLimit"),
    "CPUs": ("cpuset_cpus", "CpusetCpus"),
    "memory nodes": ("cpuset_mems", "CpusetMems"),
}


def isolation(
    version: Mapping[str, Any], info: Mapping[str, Any], options: Mapping[str, Any], host: Mapping[str, Any]
) -> Isolation:
    """The fact of a container that was made with these options of docker-py, and has this HostConfig.

    `version` and `info` are the engine's answers about itself.
    """
    limits = {
        limit: [options[option], host.get(field)] for limit, (option, field) in _FIELDS.items() if option in options
    }
    limits["capabilities"] = ["none", _capabilities(host)]
    limits["seccomp"] = ["default", _seccomp(info, host)]
    limits["no new privileges"] = [True, _no_new_privileges(host)]
    # An engine that does not show them is told by the bench's own check, before anything is measured.
    if (requests := options.get("device_requests")) and "DeviceRequests" in host:
        asked, has = _uuids(requests), _uuids(host["DeviceRequests"] or ())
        limits["GPUs"] = [len(asked), len(asked & has)]
    security = info.get("SecurityOptions") or ()
    rootless = any("rootless" in option for option in security)
    return {"engine": engine_name(version), "rootless": rootless, "limits": limits}


def engine_name(version: Mapping[str, Any]) -> str:
    """The engine's own name and version: Podman's socket answers as Docker's does, and says in its components what it is."""
    component = (version.get("Components") or [{}])[0]
    name = str(component.get("Name") or "Engine")
    return f"{'Docker Engine' if name == 'Engine' else name} {component.get('Version') or version.get('Version')}"


def _uuids(requests: Iterable[Mapping[str, Any]]) -> set[str]:
    """The GPUs of requests, which name them by UUID or by CDI name."""
    return {
        str(device).removeprefix(container.cdi_name(""))
        for request in requests
        for device in request.get("DeviceIDs") or ()
    }


def _capabilities(host: Mapping[str, Any]) -> str:
    dropped = "ALL" in (host.get("CapDrop") or ())
    return "none" if dropped and not host.get("CapAdd") and not host.get("Privileged") else "some"


def _seccomp(info: Mapping[str, Any], host: Mapping[str, Any]) -> str:
    """The filter of system calls: the engine's default, unless it has none or the container has another."""
    own = [option for option in host.get("SecurityOpt") or () if option.startswith("seccomp")]
    engines = [option for option in info.get("SecurityOptions") or () if "seccomp" in option]
    if host.get("Privileged") or not engines or any("unconfined" in option for option in (*own, *engines)):
        return "none"
    return "another" if own else "default"


def _no_new_privileges(host: Mapping[str, Any]) -> bool:
    return any(
        option.startswith("no-new-privileges") and not option.endswith("false")
        for option in host.get("SecurityOpt") or ()
    )
