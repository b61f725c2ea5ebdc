"""Doctor's checks of the engine and of what gives its containers GPUs.

The last one starts containers as cells get them, and asks nvidia-smi and CUDA in them: that an engine accepts a request proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from runner import known_messages, text
from runner.doctor.scene import FAIL, OK, SKIPPED, WARN, Check, Scene, advised
from runner.engines import choose
from runner.engines.base import Settings
from runner.engines.docker import container as docker_container
from runner.errors import EngineError, UserError
from runner.images.docker_client import DockerError
from runner.machine.devices import same_gpus

# Doctor's checks of what a build needs: base images and the package index.

_TIMEOUT_SECONDS = 10.0
_BASE_FIX = "a mirror in daemon.json, or --base-image with an image of your site"


def base_image(scene: Scene) -> Iterator[Check]:
    """The base images are on this machine, or their registry answers."""
    from runner.catalog.images import load_catalog
    from runner.images.recipe import base_reference

    if scene.client is None:
        return
    images = [image for image in load_catalog().values() if not scene.base_image or image.accelerator == "cpu"]
    bases = sorted({base_reference(image, scene.base_image) for image in images})
    missing = [name for name in bases if not _is_here(scene.client, name)]
    if not missing:
        yield Check("base images", OK, f"{len(bases)} are here")
        return
    refusal = _registry_refuses(scene.client, missing[0])
    saw = f"{len(missing)} of {len(bases)} are not here ({missing[0]}, ...)"
    if refusal is None:
        yield Check("base images", OK, f"{saw}; their registry answers")
    else:
        # The engine's answer about its registry mostly names the registry itself. It may also say what the engine lacks.
        words, own_fix = refusal
        meaning, own_fix = ("", own_fix) if own_fix else advised(words, "", "")
        why = f"{meaning} ({words})" if meaning else words if own_fix else f"their registry gives no answer: {words}"
        fix = f"{own_fix}; or --base-image with an image of your site" if own_fix else _BASE_FIX
        yield Check(
            "base images",
            WARN,
            f"{saw}; {why}",
            "images on these bases cannot be built; the line `cells` says where cells run all the same",
            fix,
        )


def _is_here(client: Any, name: str) -> bool:
    from runner.images.docker_client import find_image

    with contextlib.suppress(EngineError):
        return find_image(client, name) is not None
    return False


def _registry_refuses(client: Any, name: str) -> tuple[str, str] | None:
    """(its message, what to do) of a registry that does not tell of an image; None if it does."""
    from runner.images.docker_client import DockerError, registry_digest

    try:
        registry_digest(client, name)
    except EngineError as error:
        said, fix = (error.said, error.fix) if isinstance(error, DockerError) else (str(error), "")
        return text.in_a_line(said, 400), fix
    return None


def pip_index(scene: Scene) -> Iterator[Check]:
    """The package index that builds use answers. Without it, and with nothing installed, nothing can be measured."""
    from runner.images import installing

    # pip itself is asked: it knows its configuration, proxies, certificates, and a password in a keyring.
    options = ["--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", str(_TIMEOUT_SECONDS)]
    # Of the first try pip says why it failed, and of the last one only that nothing was found.
    answer = _pip(*options, "index", "versions", "pip")
    if answer is not None and answer.returncode == 0:
        yield Check("pip index", OK, "it answers")
        return
    url = os.environ.get("PIP_INDEX_URL") or installing.pip_settings(sys.executable).get("index-url", "")
    shown, secret = _shown(url)
    said = "pip gave no answer" if answer is None else " ".join(answer.stderr.split())
    # Before it is cut: half of a password tells much.
    said = said.replace(secret, "…") if secret else said
    fix = "`pip config set global.index-url URL` names your site's index; HTTPS_PROXY a proxy"
    saw = f"{shown} does not answer ({said[-200:]})"
    if (message := known_messages.find(said)) and not message.general:
        # It is not the index: a disk, a proxy.
        match = re.search(message.pattern, said)
        begin = max(0, match.start() - 20) if match else 0
        saw, fix = f"pip did not reach {shown}: {message.means} ({said[begin : begin + 200]})", message.fix
    elif url and not secret and (own_words := _own_words(url)):
        saw = f"{shown} {own_words}"
    if scene.client is None and not _is_anything_installed():
        means = "nothing can be measured: there is no engine, no environment is made, and none can be, as wheels cannot be fetched"
        yield Check("pip index", FAIL, saw, means, fix)
        return
    yield Check("pip index", WARN, saw, "wheels cannot be fetched", fix)


def _own_words(url: str) -> str:
    """The answer of an index of which pip says only that it found nothing: the end of a sentence; empty where it cannot be asked."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/pip/", timeout=_TIMEOUT_SECONDS) as answer:
            page: bytes = answer.read(1 << 20)
    except urllib.error.HTTPError as error:
        return f"answers with the error {error.code} ({text.in_a_line(str(error.reason), 80)})"
    except (OSError, ValueError):
        return ""
    if b"pip-" in page:
        return ""
    return "answers with a page that lists no packages: that of a network that asks for a login first, or of another address"


def _shown(url: str) -> tuple[str, str]:
    """An index as it is shown, and the name and password in its address, which are not."""
    secret = url.partition("//")[2].partition("/")[0].rpartition("@")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        # The error of a wrong address may repeat it.
        return "an address that is none", secret
    return f"{parts.scheme}://{parts.hostname}" if url else "pip's own index", secret


def _is_anything_installed() -> bool:
    """True if an environment is made, or this interpreter has a framework."""
    from runner.engines.process import venv
    from runner.engines.process.host import HostEngine

    # Without a home there is no cache; another check says so.
    with contextlib.suppress(UserError):
        return venv.is_any_made() or HostEngine().unavailable() is None
    return False


def _pip(*words: str) -> subprocess.CompletedProcess[str] | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [sys.executable, "-m", "pip", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=6 * _TIMEOUT_SECONDS, check=False)
    return None


_HOOK = "nvidia-container-runtime-hook"

# The folders of CDI specifications, unless the engine names others.
_FOLDERS = ("/etc/cdi", "/var/run/cdi")


def engine(scene: Scene) -> Iterator[Check]:
    """A Docker Engine answers. Environments measure the same without one."""
    if scene.client is None:
        means = (
            "it is optional: `runner matrix` takes environments (--engine venv). Containers have system libraries and a Python of their "
            "own, and cells in them can neither read nor write your files"
        )
        why = str(scene.why_no_engine)
        # An answer that is an error stands in brackets behind it: something is there.
        absent = why.startswith("no container engine answers") and not why.endswith(")")
        fix = (
            "for containers, install Docker and start it"
            if absent
            else "`docker version` and its log (`journalctl -u docker`) tell more"
        )
        yield Check("engine", WARN, why, means, advised(why, means, fix)[1])
        return
    yield Check("engine", OK, f"{scene.engine}, cgroups {scene.info.get('CgroupVersion', '?')}")


def cells(scene: Scene) -> Iterator[Check]:
    """The engine that `--engine auto` takes here for the images of this machine's devices, and what it guarantees of a cell."""
    from runner.catalog.images import load_catalog

    kind = "cuda" if scene.gpus else "cpu"
    images = [image for image in load_catalog().values() if image.accelerator == kind and image.untested is None]
    chosen, why = choose("auto", Settings(base_image=scene.base_image), lambda _: images, bool(scene.gpus))
    yield Check("cells", OK, f"{why}; {chosen.guarantees()}")


def toolkit(scene: Scene) -> Iterator[Check]:
    """The parts of NVIDIA's Container Toolkit on this machine."""
    if not scene.gpus or scene.client is None:
        return
    programs = [name for name in ("nvidia-ctk", "nvidia-container-cli", _HOOK) if shutil.which(name)]
    if programs:
        yield Check("toolkit", OK, f"on this PATH: {', '.join(programs)}{_version(programs)}")
        return
    means = "the engine most likely has nothing that gives it GPUs; only the container below proves it"
    fix = "install nvidia-container-toolkit, then `nvidia-ctk runtime configure --runtime=docker`"
    yield Check("toolkit", WARN, "no program of the NVIDIA Container Toolkit is on this PATH", means, fix)


def _version(programs: Sequence[str]) -> str:
    if "nvidia-ctk" not in programs:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(["nvidia-ctk", "--version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
        return f" ({answer.stdout.splitlines()[0]})" if answer.stdout else ""
    return ""


def hook(scene: Scene) -> Iterator[Check]:
    """The program that gives containers GPUs where the engine does not know them by CDI names."""
    if not scene.gpus or scene.client is None:
        return
    path = shutil.which(_HOOK)
    if not _without_cdi_name(scene):
        yield Check("hook", OK, "not needed: the engine knows every GPU by its CDI name")
    elif path:
        yield Check("hook", OK, path, "dockerd looks for it on its own PATH, when it starts")
    else:
        means = "dockerd looks for it on its own PATH when it starts, and without it refuses GPUs that it knows by no CDI name"
        fix = "install nvidia-container-toolkit (not Docker from snap), then restart dockerd"
        yield Check("hook", WARN, f"{_HOOK} is not on this PATH", means, fix)


def _without_cdi_name(scene: Scene) -> list[str]:
    named = docker_container.cdi_devices(scene.info)
    return [gpu.uuid for gpu in scene.gpus if docker_container.cdi_name(gpu.uuid) not in named]


def runtime(scene: Scene) -> Iterator[Check]:
    """The runtime `nvidia`, which is not needed, and what it is when it is the default."""
    if scene.client is None or not scene.gpus:
        return
    runtimes = sorted(scene.info.get("Runtimes") or {})
    if scene.info.get("DefaultRuntime") == "nvidia":
        yield Check(
            "runtime",
            OK,
            "nvidia is the default runtime",
            "CPU cells are given NVIDIA_VISIBLE_DEVICES=void, so they see no GPU",
        )
    else:
        yield Check(
            "runtime", OK, f"runtimes: {', '.join(runtimes)}", "the runtime nvidia is not needed for requests by UUID"
        )


def cdi(scene: Scene) -> Iterator[Check]:
    """CDI specifications, and whether they name today's GPUs."""
    if scene.client is None or not scene.gpus:
        return
    missing = _without_cdi_name(scene)
    instead = "the hook gives GPUs to containers"
    if not missing:
        yield Check("CDI", OK, "the engine knows every GPU by its CDI name; cells request them by it")
    elif any(name.startswith(docker_container.CDI_KIND) for name in docker_container.cdi_devices(scene.info)):
        fix = "`systemctl restart nvidia-cdi-refresh`, or `nvidia-ctk cdi generate --device-name-strategy=uuid`"
        means = f"the specification is older than the GPUs' MIG layout, or names them by index; {instead}"
        yield Check("CDI", WARN, f"the engine's CDI names lack {', '.join(missing)}", means, fix)
    elif scene.info.get("CDISpecDirs"):
        yield Check("CDI", OK, f"no CDI name of a GPU in {', '.join(scene.info['CDISpecDirs'])}", instead)
    elif files := docker_container.cdi_specifications({"CDISpecDirs": _FOLDERS}):
        saw = f"{', '.join(map(str, files))}; this engine has no CDI, or has it switched off"
        yield Check("CDI", OK, saw, instead)
    else:
        yield Check("CDI", OK, "no CDI specification", instead)


def cgroups(scene: Scene) -> Iterator[Check]:
    """True if containers may lose their GPUs when systemd reloads."""
    if scene.client is None or not scene.gpus:
        return
    driver_of = str(scene.info.get("CgroupDriver"))
    if driver_of == "systemd" and _without_cdi_name(scene):
        message = known_messages.find("Failed to initialize NVML: Unknown Error")
        assert message is not None
        means = "a `systemctl daemon-reload` while a cell runs takes its GPU away (NVML: Unknown Error)"
        yield Check("cgroups", WARN, "cgroup driver systemd, and the hook gives GPUs to containers", means, message.fix)
    else:
        yield Check("cgroups", OK, f"cgroup driver {driver_of}")


def container(scene: Scene) -> Iterator[Check]:
    """Start containers as cells get them: what nvidia-smi sees with every GPU, and what CUDA opens."""
    if scene.client is None or not scene.gpus:
        why = "there is no engine" if scene.client is None else "there is no GPU"
        yield Check("container", SKIPPED, f"not started: {why}")
        return
    if scene.image is None:
        fix = "`runner images build` some image first, or name one with --image"
        yield Check(
            "container",
            WARN,
            "not started: no image of this project is here",
            "whether GPUs reach a container is not known",
            fix,
        )
        return
    uuids = [gpu.uuid for gpu in scene.gpus]
    try:
        printed = docker_container.trial_output(scene.client, scene.info, scene.image, uuids, ("nvidia-smi", "-L"))
        listed = re.findall(r"UUID: ((?:GPU|MIG)-[0-9a-fA-F-]+)", printed)
        # nvidia-smi lists a cut GPU above its instances.
        inside = [uuid for uuid in listed if not any(gpu.board == uuid != gpu.uuid for gpu in scene.gpus)]
        if same_gpus(inside, uuids):
            yield _opened(scene, inside)
        elif inside:
            means = "a cell would measure another GPU than its row says; every GPU cell will fail"
            fix = (
                "`nvidia-ctk cdi list` and /etc/nvidia-container-runtime/config.toml; make the CDI specification again"
            )
            saw = f"a container was given {', '.join(uuids)} and sees {', '.join(inside)}"
            yield Check("container", FAIL, saw, means, fix)
        else:
            yield _explained(printed)
    except EngineError as error:
        yield _explained(error.said if isinstance(error, DockerError) else str(error))


def _opened(scene: Scene, inside: Sequence[str]) -> Check:
    """CUDA in a container: nvidia-smi answers also where CUDA opens nothing. Raises EngineError."""
    assert scene.client is not None
    assert scene.image is not None
    whole = [gpu.uuid for gpu in scene.gpus if gpu.instance is None]
    # CUDA shows a process one instance of a cut GPU, so each has a container of its own, as its cells have.
    through: list[str] = []
    for uuids in filter(None, [whole, *([gpu.uuid] for gpu in scene.gpus if gpu.instance is not None)]):
        seen = docker_container.trial_of_cuda(scene.client, scene.info, scene.image, uuids)
        if seen is None:
            means = "whether CUDA opens them in a container is not known"
            saw = f"a container sees {', '.join(inside)}; the image has no bench to ask CUDA with"
            return Check("container", WARN, saw, means, "name an image of this project with --image")
        if seen.reason or not same_gpus(seen.uuids, uuids):
            said, _, fix = seen.reason.partition("; ")
            opens = f"CUDA opens {', '.join(seen.uuids) or 'none of them'}" + (said and f" ({said})")
            saw = f"a container sees {', '.join(uuids)} through {seen.through}, and {opens}"
            fix = (
                fix
                or "`nvidia-ctk cdi generate` after `modprobe nvidia_uvm`, so that /dev/nvidia-uvm is in the specification"
            )
            return Check("container", FAIL, saw, "every GPU cell in a container will fail", fix)
        through.append(seen.through)
    way = " and ".join(dict.fromkeys(through))
    saw = f"a container with a cell's limits sees {', '.join(inside)}: just what it was given, through {way}; CUDA opens them"
    return Check("container", OK, saw)


def _explained(said: str) -> Check:
    said = " ".join(said.split())[:400]
    fix = "the message is the engine's; its log (`journalctl -u docker`) may say more"
    advice = advised(said, "GPU cells cannot run in containers here", fix)
    return Check("container", FAIL, said or "nvidia-smi printed nothing", *advice)
