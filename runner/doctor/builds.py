"""Doctor's checks of what a build needs: base images and the package index."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from runner import known_messages
from runner.doctor.scene import FAIL, OK, WARN, Check, Scene
from runner.errors import EngineError, UserError
from runner.text import in_a_line

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
        # The engine's answer about its registry mostly names the registry itself.
        words, own_fix = refusal
        why = words if own_fix else f"their registry gives no answer: {words}"
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
        return in_a_line(said, 400), fix
    return None


def pip_index(scene: Scene) -> Iterator[Check]:
    """The package index that builds use answers. Without it, and with nothing installed, nothing can be measured."""
    from runner.images.installing import pip_configuration

    # pip itself is asked: it knows its configuration, proxies, certificates, and a password in a keyring.
    options = ["--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", str(_TIMEOUT_SECONDS)]
    # Of the first try pip says why it failed, and of the last one only that nothing was found.
    answer = _pip(*options, "index", "versions", "pip")
    if answer is not None and answer.returncode == 0:
        yield Check("pip index", OK, "it answers")
        return
    url = os.environ.get("PIP_INDEX_URL") or pip_configuration.read(sys.executable).get("index-url", "")
    shown, secret = _shown(url)
    said = "pip gave no answer" if answer is None else " ".join(answer.stderr.split())
    # Before it is cut: half of a password tells much.
    said = said.replace(secret, "…") if secret else said
    fix = "`pip config set global.index-url URL` names your site's index; HTTPS_PROXY a proxy"
    saw = f"{shown} does not answer ({said[-200:]})"
    if message := known_messages.find(said):
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
        return f"answers with the error {error.code} ({in_a_line(str(error.reason), 80)})"
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
