"""Gets an image of no catalog into the engine, and shows it the bench: read-only, beside all that a cell's container has."""

from __future__ import annotations

import json
import platform
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.catalog.addresses import ForeignImage, is_file
from runner.catalog.architectures import by_name
from runner.errors import BadFileError, EngineError
from runner.images import docker_client
from runner.paths import BENCH
from runner.results.on_disk.image_names import PREFIX

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image as EngineImage

# The place of the bench in the container. Nothing else lies there, so nothing else can be imported from it.
FOLDER = "/dlbench"

_MOST_MANIFEST = 1 << 20


def obtain(client: DockerClient, address: str, say: Callable[[str], None]) -> EngineImage:
    """The image of an address: the one that the engine has, else from its file or its registry. Raises EngineError."""
    reference = address.removeprefix(PREFIX)
    if is_file(address):
        return _loaded(client, Path(reference).expanduser(), say)
    if image := docker_client.find_image(client, reference):
        return image
    size = docker_client.bytes_to_pull(reference, _docker_name(platform.machine()))
    say(f"{address} is not here and is fetched from its registry{f': {size / 1e9:.2f} GB' if size else ''}")
    try:
        return docker_client.pull_image(client, reference, say)
    except docker_client.NotThereError as error:
        raise EngineError(f"{error}; look at the name and the tag") from error
    except docker_client.DeniedError:
        # It says how to log in.
        raise
    except docker_client.DockerError as error:
        raise EngineError(
            f"{error}; where it can be had, `docker save` makes a file of it: docker:./FILE.tar"
        ) from error


def pin(image: EngineImage, address: str) -> str:
    """The image by the digest of the registry that the address names; by its id where it has none of it."""
    repository = _repository(address.removeprefix(PREFIX))
    digests = [str(name) for name in image.attrs.get("RepoDigests") or ()]
    return next((name for name in digests if _short(name.partition("@")[0]) == repository), str(image.id))


def unfit(image: EngineImage, engine: dict[str, Any]) -> str | None:
    """Why the engine cannot run an image natively; None when it can. `engine` is its answer about itself."""
    system, machine = str(image.attrs.get("Os")), str(image.attrs.get("Architecture"))
    here = str(engine.get("Architecture"))
    if system != "linux":
        return f"it is an image of {system}, and cells run on Linux; name one for linux/{_docker_name(here)}"
    if _docker_name(machine) != _docker_name(here):
        return (
            f"it is for {machine}, and this engine runs on {here}, where it would be emulated; pull the one of this machine with "
            f"`docker pull --platform linux/{_docker_name(here)}`"
        )
    return None


def with_bench(options: dict[str, Any], image: ForeignImage) -> dict[str, Any]:
    """The options of a cell's container, with this checkout's bench on the path of the image's Python."""
    from docker.types import Mount

    mount = Mount(f"{FOLDER}/{BENCH.name}", str(BENCH.resolve()), type="bind", read_only=True)
    path = ":".join(filter(None, (FOLDER, image.python_path)))
    return options | {
        "mounts": [*options["mounts"], mount],
        "environment": options["environment"] | {"PYTHONPATH": path},
        # Python takes its working folder for a place of modules.
        "working_dir": FOLDER,
    }


def variables(image: EngineImage) -> dict[str, str]:
    """The variables that the image sets."""
    entries = (image.attrs.get("Config") or {}).get("Env") or ()
    return dict(str(entry).partition("=")[::2] for entry in entries)


def _loaded(client: DockerClient, path: Path, say: Callable[[str], None]) -> EngineImage:
    """The image of a file of `docker save`, loaded unless the engine has it."""
    image_id = _id_in(path)
    if image := docker_client.find_image(client, image_id):
        return image
    say(f"loading {path} ({path.stat().st_size / 1e9:.2f} GB)")
    with docker_client.asking(f"{path} could not be loaded"), docker_client.patient(client), open(path, "rb") as file:
        images = client.images.load(file)
    if len(images) != 1:
        raise BadFileError(f"{path} holds {len(images)} images; save one by itself: `docker save NAME -o FILE.tar`")
    return images[0]


def _id_in(path: Path) -> str:
    """The id of the only image of a file of `docker save`. Raises BadFileError."""
    again = "make it again: `docker save NAME -o FILE.tar`"
    try:
        with tarfile.open(path) as archive:
            member = archive.extractfile("manifest.json")
            entries = json.loads(member.read(_MOST_MANIFEST)) if member else []
        digests = [re.search(r"[0-9a-f]{64}", str(entry["Config"])) for entry in entries]
    except OSError as error:
        raise BadFileError(f"{path} cannot be read ({error.strerror or error}); {again}") from None
    except (tarfile.TarError, KeyError, TypeError, ValueError, RecursionError, EOFError):
        raise BadFileError(f"{path} is no file of `docker save`; {again}") from None
    if len(digests) != 1 or digests[0] is None:
        raise BadFileError(f"{path} holds {len(digests)} images; save one by itself: `docker save NAME -o FILE.tar`")
    return f"sha256:{digests[0][0]}"


def _repository(reference: str) -> str:
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return _short(f"{head}{slash}{last.partition(':')[0]}")


def _short(name: str) -> str:
    """A name without the registry that it has by default, which Podman shows."""
    return name.removeprefix("docker.io/").removeprefix("library/")


def _docker_name(machine: str) -> str:
    architecture = by_name(machine)
    return architecture.docker if architecture else machine
