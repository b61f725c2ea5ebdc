"""The command `runner doctor`: each thing that a GPU cell needs, looked at by itself: what was seen, what it means, how to mend it.

The last check starts a container with every GPU and asks nvidia-smi in it what it sees: that an engine accepts a request proves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner import hints
from runner.hardware import Gpu, detect_cpu, detect_gpus, same_gpus

OK, WARN, FAIL, LEFT_OUT = "ok", "warn", "fail", "left out"

# Where CDI specifications lie, unless the engine says otherwise.
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")

# An image with CUDA is some 4 GB to fetch and twice that when it is unpacked.
_ROOM_BYTES = 15 * 10**9

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: str  # ok | warn | fail | left out
    saw: str
    means: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Scene:
    """What the checks look at, gathered once."""

    gpus: tuple[Gpu, ...]
    why_no_gpu: str | None
    refused: tuple[str, ...]
    module: str | None  # version of the loaded kernel module
    client: Any | None  # of the Docker Engine
    why_no_engine: str | None
    info: Mapping[str, Any]
    image: str | None  # an image that is there, to start a container of
    base_image: str | None


def run(as_json: bool, base_image: str | None, image: str | None) -> int:
    """Look at everything, print it, and return 0 when nothing failed, 1 when something did."""
    with scene(base_image, image) as seen:
        found = [check for look in CHECKS for check in look(seen)]
    if as_json:
        print(json.dumps({"checks": [asdict(check) for check in found], "failed": failed(found)}, indent=2))
    else:
        _print(found)
    return 1 if failed(found) else 0


def failed(found: Sequence[Check]) -> list[str]:
    return [check.name for check in found if check.status == FAIL]


@contextlib.contextmanager
def scene(base_image: str | None, image: str | None) -> Iterator[Scene]:
    """Ask the driver and the engine what there is."""
    from runner.engines.base import EngineError
    from runner.engines.docker import DockerEngine, connect

    gpus, refused, why = detect_gpus(detect_cpu().cpus)
    client, info, no_engine = None, {}, DockerEngine().unavailable()
    try:
        if no_engine is None:
            client = connect()
            info = dict(client.info())
    except EngineError as error:
        no_engine = str(error)
    try:
        there = _an_image(client, image)
        broken = tuple(each.reason for each in refused)
        yield Scene(gpus, why, broken, _kernel_module(), client, no_engine, info, there, base_image)
    finally:
        if client is not None:
            client.close()


def _kernel_module() -> str | None:
    with contextlib.suppress(OSError):
        found = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        return found.group(1) if found else None
    return None


def _an_image(client: Any | None, asked: str | None) -> str | None:
    """An image to start a container of: the one asked for, else any of ours that is there."""
    if asked or client is None:
        return asked
    ours = client.images.list(filters={"label": "dlbench.image"}) or client.images.list(name="dlbench/base")
    ours.sort(key=lambda each: int(each.attrs.get("Size") or 0))
    return str(ours[0].id) if ours else None


# -- the driver and its GPUs ----------------------------------------------------------------------------------------------


def driver(seen: Scene) -> Iterator[Check]:
    """The driver answers, and library and kernel module are of one version."""
    if seen.why_no_gpu:
        known = hints.find(seen.why_no_gpu)
        loaded = f"; the kernel module is {seen.module}" if seen.module else "; no NVIDIA kernel module is loaded"
        means = known.means if known else "no cell can use a GPU; CPU images run all the same"
        fix = known.fix if known else "install NVIDIA's driver, or load it: `modprobe nvidia`"
        nothing = not seen.module and "no NVIDIA driver" in seen.why_no_gpu
        said = seen.why_no_gpu.removesuffix("; `runner doctor` says more")
        yield Check("driver", WARN if nothing else FAIL, said + loaded, means, fix)
        return
    versions = {gpu.driver for gpu in seen.gpus}
    saw = f"driver {', '.join(versions)}, CUDA up to {', '.join({gpu.cuda_driver for gpu in seen.gpus})}"
    if seen.module and versions and seen.module not in versions:
        known = hints.find("Driver/library version mismatch")
        assert known is not None
        yield Check("driver", FAIL, f"{saw}, kernel module {seen.module}", known.means, known.fix)
        return
    yield Check("driver", OK, saw)


def gpus(seen: Scene) -> Iterator[Check]:
    """Each GPU answers, is free, keeps its driver loaded and has all its lanes."""
    for reason in seen.refused:
        known = hints.find(reason)
        yield Check("GPU", FAIL, reason, known.means if known else "cells leave it out", known.fix if known else "")
    for gpu in seen.gpus:
        well = Check("", OK, f"{gpu.model}, {gpu.memory_bytes / 2**30:.0f} GiB, free")
        for notice in list(_notices(gpu)) or [well]:
            yield replace(notice, name=f"GPU {gpu.name}")


def _notices(gpu: Gpu) -> Iterator[Check]:
    if gpu.processes:
        who = ", ".join(map(str, gpu.processes))
        means = "its times would not be its own; the matrix leaves it out"
        yield Check("", WARN, f"{gpu.model} is in use by {who}", means, "wait, end it, or --share")
    if gpu.persistence is False:
        means = "the driver is unloaded when nobody uses it: every cell pays seconds for its start"
        yield Check(
            "", WARN, f"{gpu.model}: persistence mode is off", means, "`systemctl enable --now nvidia-persistenced`"
        )
    if gpu.pcie_width and gpu.pcie_width_now and gpu.pcie_width_now < gpu.pcie_width:
        saw = f"{gpu.model} uses {gpu.pcie_width_now} of its {gpu.pcie_width} PCIe lanes"
        yield Check(
            "", WARN, saw, "copies from and to the host are slower than they could be", "look at its slot and riser"
        )


def mig(seen: Scene) -> Iterator[Check]:
    """Instances of cut GPUs, which are measured as devices of their own."""
    cut = [gpu for gpu in seen.gpus if gpu.instance is not None]
    if cut:
        saw = ", ".join(f"{gpu.name} {gpu.model}" for gpu in cut)
        yield Check("MIG", OK, saw, "each instance is a device of its own; those of one GPU run one after another")
    elif seen.gpus:
        yield Check("MIG", OK, "no GPU is cut into instances")


# -- the engine and what gives it GPUs ------------------------------------------------------------------------------------


def engine(seen: Scene) -> Iterator[Check]:
    """A Docker Engine answers."""
    if seen.client is None:
        fix = "install Docker and start it, or use --engine venv"
        yield Check("engine", FAIL, str(seen.why_no_engine), "cells cannot run in containers", fix)
        return
    yield Check(
        "engine", OK, f"Docker Engine {seen.info.get('ServerVersion')}, cgroups {seen.info.get('CgroupVersion', '?')}"
    )


def toolkit(seen: Scene) -> Iterator[Check]:
    """What of NVIDIA's Container Toolkit is on this machine."""
    if not seen.gpus or seen.client is None:
        return
    there = [
        name for name in ("nvidia-ctk", "nvidia-container-runtime-hook", "nvidia-container-cli") if shutil.which(name)
    ]
    if there:
        yield Check("toolkit", OK, f"on this PATH: {', '.join(there)}{_version(there)}")
        return
    means = "the engine most likely has nothing that gives it GPUs; only the container below proves it"
    yield Check("toolkit", WARN, "no program of the NVIDIA Container Toolkit is on this PATH", means,
                "install nvidia-container-toolkit, then `nvidia-ctk runtime configure --runtime=docker`")  # fmt: skip


def _version(there: Sequence[str]) -> str:
    if "nvidia-ctk" not in there:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(["nvidia-ctk", "--version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
        return f" ({told.stdout.splitlines()[0]})" if told.stdout else ""
    return ""


def runtime(seen: Scene) -> Iterator[Check]:
    """The runtime `nvidia`, which is not needed, and what it is when it is the default."""
    if seen.client is None or not seen.gpus:
        return
    known = sorted(seen.info.get("Runtimes") or {})
    if seen.info.get("DefaultRuntime") == "nvidia":
        yield Check(
            "runtime",
            OK,
            "nvidia is the default runtime",
            "CPU cells are given NVIDIA_VISIBLE_DEVICES=void, so they see no GPU",
        )
    else:
        yield Check(
            "runtime", OK, f"runtimes: {', '.join(known)}", "the runtime nvidia is not needed for requests by UUID"
        )


def cdi(seen: Scene) -> Iterator[Check]:
    """CDI specifications, and whether they name today's GPUs."""
    from runner.engines.container import cdi_devices

    if seen.client is None or not seen.gpus:
        return
    folders = [Path(folder) for folder in seen.info.get("CDISpecDirs") or _CDI_FOLDERS]
    files = [path for folder in folders if folder.is_dir() for path in sorted(folder.glob("nvidia*"))]
    known = cdi_devices(seen.info)
    if known:
        missing = [gpu.uuid for gpu in seen.gpus if f"nvidia.com/gpu={gpu.uuid}" not in known]
        if missing:
            fix = "`systemctl restart nvidia-cdi-refresh`, or `nvidia-ctk cdi generate --device-name-strategy=uuid`"
            means = "they are asked for by the hook instead"
            yield Check("CDI", WARN, f"the engine's CDI names lack {', '.join(missing)}", means, fix)
        else:
            yield Check("CDI", OK, "the engine knows every GPU by its CDI name; cells ask for them so")
    elif files:
        yield Check(
            "CDI",
            OK,
            f"{', '.join(map(str, files))}; this engine does not tell of CDI",
            "GPUs are asked for by the hook",
        )
    else:
        yield Check("CDI", OK, "no CDI specification", "GPUs are asked for by the hook")


def cgroups(seen: Scene) -> Iterator[Check]:
    """Whether containers may lose their GPUs when systemd reloads."""
    from runner.engines.container import cdi_devices

    if seen.client is None or not seen.gpus:
        return
    driver_of = str(seen.info.get("CgroupDriver"))
    if driver_of == "systemd" and not cdi_devices(seen.info):
        known = hints.find("Failed to initialize NVML: Unknown Error")
        assert known is not None
        means = "a `systemctl daemon-reload` while a cell runs takes its GPU away (NVML: Unknown Error)"
        yield Check("cgroups", WARN, "cgroup driver systemd, and GPUs come by the hook", means, known.fix)
    else:
        yield Check("cgroups", OK, f"cgroup driver {driver_of}")


def container(seen: Scene) -> Iterator[Check]:
    """Start a container with every GPU, and compare what nvidia-smi in it sees."""
    if seen.client is None or not seen.gpus:
        why = "there is no engine" if seen.client is None else "there is no GPU"
        yield Check("container", LEFT_OUT, f"not started: {why}")
        return
    if seen.image is None:
        fix = "`runner images build` some image first, or name one with --image"
        yield Check(
            "container",
            WARN,
            "not started: no image of ours is here",
            "whether GPUs reach a container is not known",
            fix,
        )
        return
    uuids = [gpu.uuid for gpu in seen.gpus]
    try:
        printed = _nvidia_smi(seen, uuids)
    except Exception as error:  # docker-py's and requests' many
        yield _explained(str(getattr(error, "explanation", None) or error))
        return
    listed = re.findall(r"UUID: ((?:GPU|MIG)-[0-9a-fA-F-]+)", printed)
    inside = [uuid for uuid in listed if not _is_parent(uuid, seen)]
    if same_gpus(inside, uuids):
        yield Check("container", OK, f"a container sees {', '.join(inside)}: just what it was given")
    elif inside:
        means = "a cell would measure another GPU than its row says; every GPU cell will fail"
        fix = "`nvidia-ctk cdi list` and /etc/nvidia-container-runtime/config.toml; make the CDI specification again"
        yield Check(
            "container", FAIL, f"a container was given {', '.join(uuids)} and sees {', '.join(inside)}", means, fix
        )
    else:
        yield _explained(printed)


def _is_parent(uuid: str, seen: Scene) -> bool:
    """nvidia-smi lists a cut GPU above its instances."""
    return any(gpu.board == uuid != gpu.uuid for gpu in seen.gpus)


def _explained(said: str) -> Check:
    said = " ".join(said.split())[:400]
    known = hints.find(said)
    means = known.means if known else "GPU cells cannot run in containers here"
    fix = known.fix if known else "the message is the engine's; its log (`journalctl -u docker`) may say more"
    return Check("container", FAIL, said or "nvidia-smi printed nothing", means, fix)


def _nvidia_smi(seen: Scene, uuids: Sequence[str]) -> str:
    """What `nvidia-smi -L` prints in a container with these GPUs, asked for as cells ask. Raises what docker-py raises."""
    from docker.errors import ContainerError

    from runner.engines.container import cdi_devices, device_request

    assert seen.client is not None
    try:
        printed = seen.client.containers.run(
            seen.image,
            entrypoint=["nvidia-smi"],
            command=["-L"],
            device_requests=[device_request(uuids, cdi_devices(seen.info))],
            environment={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            remove=True,
            stderr=True,
        )
    except ContainerError as error:
        said = error.stderr
        return said.decode("utf-8", "replace") if isinstance(said, bytes) and said else str(error)
    return bytes(printed).decode("utf-8", "replace")


# -- what images are made from --------------------------------------------------------------------------------------------


def disk(seen: Scene) -> Iterator[Check]:
    """Room where images, environments and results go."""
    places = {"images": str(seen.info.get("DockerRootDir") or ""), "this folder": str(Path.cwd())}
    for what, folder in places.items():
        if not folder or not Path(folder).exists():
            continue
        free = shutil.disk_usage(folder).free
        saw = f"{free / 1e9:.0f} GB free for {what} ({folder})"
        if free < _ROOM_BYTES:
            yield Check(
                "disk",
                WARN,
                saw,
                "a CUDA image takes some 12 GB while it is made",
                "`docker system df`, `docker image prune`",
            )
        else:
            yield Check("disk", OK, saw)


def base_image(seen: Scene) -> Iterator[Check]:
    """The base images are here, or their registry can be asked."""
    from runner.catalog import load_catalog

    if seen.client is None:
        return
    wanted = sorted({image.base for image in load_catalog().values()})
    if seen.base_image:
        pythons = sorted({image.python for image in load_catalog().values() if image.accelerator == "cpu"})
        wanted = sorted({seen.base_image.replace("{python}", python) for python in pythons})
    missing = [name for name in wanted if not _is_here(seen.client, name)]
    if not missing:
        yield Check("base images", OK, f"{len(wanted)} are here")
        return
    reachable = _registry_answers(seen.client, missing[0])
    saw = f"{len(missing)} of {len(wanted)} are not here ({missing[0]}, ...)"
    if reachable is None:
        yield Check("base images", OK, f"{saw}; their registry answers")
    else:
        fix = "a mirror in daemon.json, or --base-image with an image of your site"
        yield Check(
            "base images",
            WARN,
            f"{saw}, and their registry does not answer: {reachable}",
            "images cannot be built",
            fix,
        )


def _is_here(client: Any, name: str) -> bool:
    from docker.errors import DockerException

    try:
        client.images.get(name)
    except DockerException:
        return False
    return True


def _registry_answers(client: Any, name: str) -> str | None:
    """None when the registry can be asked for an image; else what it said."""
    from docker.errors import DockerException

    try:
        client.images.get_registry_data(name)
    except DockerException as error:
        return " ".join(str(getattr(error, "explanation", None) or error).split())[:200]
    return None


def pip_index(_: Scene) -> Iterator[Check]:
    """Whether pip, as it is configured here, is answered by the package index that builds ask."""
    url = _pip_setting()
    # without what may be a password
    shown = f"{urlsplit(url).scheme}://{urlsplit(url).hostname}" if url else "pip's own index"
    options = ["--no-input", "--disable-pip-version-check", "--retries", "0", "--timeout", str(_TIMEOUT_SECONDS)]
    asked = _pip(*options, "index", "versions", "pip")
    if asked is not None and asked.returncode == 0:
        yield Check("pip index", OK, f"{shown} answers")
        return
    said = "pip gave no answer" if asked is None else " ".join(asked.stderr.split())[-200:]
    said = said.replace(urlsplit(url).netloc, urlsplit(url).hostname or "") if url else said
    fix = "`pip config set global.index-url URL` names your site's index; HTTPS_PROXY a proxy"
    yield Check("pip index", WARN, f"{shown} does not answer ({said})", "wheels cannot be fetched", fix)


def _pip_setting() -> str | None:
    """The index that pip is configured for; None for its own default."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    told = _pip("config", "get", "global.index-url")
    return (told.stdout.strip() or None) if told is not None else None


def _pip(*words: str) -> subprocess.CompletedProcess[str] | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [sys.executable, "-m", "pip", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=6 * _TIMEOUT_SECONDS, check=False)
    return None


CHECKS: tuple[Callable[[Scene], Iterator[Check]], ...] = (
    driver, gpus, mig, engine, toolkit, runtime, cdi, cgroups, container, disk, base_image, pip_index,
)  # fmt: skip


def _print(found: Sequence[Check]) -> None:
    for check in found:
        print(f"{check.status:8} {check.name}: {check.saw}")
        if check.status in (WARN, FAIL):
            for word, sentence in (("means", check.means), ("fix", check.fix)):
                if sentence:
                    print(f"{'':9}{word}: {sentence}")
    bad = failed(found)
    print(f"\n{len(bad)} failed: {', '.join(bad)}" if bad else "\nnothing failed")
