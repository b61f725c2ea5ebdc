"""Images without times: the same layers and settings have the same digest, whenever and wherever they were built.

The Dockerfiles give every file one time. The rest is the times and the containers' ids that the engine writes into an image's
configuration. An image that is loaded with another configuration keeps its layers: none is copied.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Any

from runner.images.docker_client import DockerError, asking

if TYPE_CHECKING:
    from docker import DockerClient


# The time that the Dockerfiles give to files: the first that a zip file can hold.
EPOCH = "1980-01-01T00:00:00Z"

# Fields that differ between two builds of the same settings: the step before, and the container's name by the engine.
_OF_THE_BUILD = ("Image", "Hostname")

# The builder's prefix of a step: the number of the build's arguments, and then each. It writes |0 where there was a proxy only.
_ARGUMENTS = re.compile(r"\|(\d+) ")


def undate(
    client: DockerClient, image_id: str, tag: str, created: str = EPOCH, site: Mapping[str, str] | None = None
) -> str | None:
    """Give the built image a configuration without the times of its build, and the tag; returns its id. None where the engine cannot.

    `created` is the image's own time, as in 2026-11-20T00:00:00Z. An engine that keeps its images in containerd's store wants the
    layers as well. `site` are the arguments of the build that the image does not depend on.
    """
    with asking(f"{tag} could not be read"):
        image = client.images.get(image_id)
        attributes, history = image.attrs, image.history()
    config = configuration(attributes, history, created, site)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    layers = [f"{number}/layer.tar" for number in range(len(attributes["RootFS"]["Layers"]))]
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": layers}]
    try:
        with asking(f"{tag} could not be loaded"):
            client.images.load(_archive({name: config, "manifest.json": json.dumps(manifest).encode()}))
            return str(client.images.get(tag).id)
    except DockerError:
        return None


def configuration(
    attributes: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    created: str,
    site: Mapping[str, str] | None = None,
) -> bytes:
    """An image's configuration (OCI, JSON) from what the engine says of it, with nothing that two builds do not share.

    `history` is the engine's, the last step first. It is dropped where the sizes do not say which steps made a layer. Its steps have
    one time: an image serves as the cache of a build only where its first steps are those of the image below it.
    """
    site = site or {}
    steps = [
        {"created": EPOCH, "created_by": _without(site, str(step.get("CreatedBy") or ""))}
        | ({} if step.get("Size") else {"empty_layer": True})
        for step in reversed(history)
        if not str(step.get("CreatedBy")).endswith(tuple(f"ARG {name}" for name in site))
    ]
    layers = attributes["RootFS"]["Layers"]
    settings = attributes["Config"] or {}
    made = {
        "architecture": attributes["Architecture"],
        "os": attributes["Os"],
        "variant": attributes.get("Variant"),
        "created": created,
        "config": {name: value for name, value in settings.items() if value and name not in _OF_THE_BUILD},
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": steps if sum("empty_layer" not in step for step in steps) == len(layers) else None,
    }
    return json.dumps({name: value for name, value in made.items() if value}, sort_keys=True).encode()


def _without(site: Mapping[str, str], step: str) -> str:
    """A step as it would be written at a site that has no such settings."""
    if not (match := _ARGUMENTS.match(step)):
        return step
    count = int(match[1])
    step = f" {step[match.end() :]}"
    for name, value in site.items():
        if f" {name}={value} " in step:
            step, count = step.replace(f" {name}={value} ", " ", 1), count - 1
    return f"|{count}{step}" if count else step[1:]


def first_difference(client: DockerClient, first: str, second: str) -> str:
    """The difference of two images: a layer with the first file in it, or the settings. Exports both where a layer differs."""
    with asking("the images could not be read"):
        attributes = [client.images.get(image).attrs for image in (first, second)]
    layers = [image["RootFS"]["Layers"] for image in attributes]
    for number, (one, other) in enumerate(zip_longest(*layers), start=1):
        if one != other:
            where = f"layer {number} of {len(layers[0])}"
            if one is None or other is None:
                return f"{where} is in one of them only"
            files = (_layer(client, image, number - 1) for image in (first, second))
            return f"{where}: {_first_file(*files)}"
    for name in sorted({*attributes[0]["Config"], *attributes[1]["Config"]} - {*_OF_THE_BUILD}):
        if attributes[0]["Config"].get(name) != attributes[1]["Config"].get(name):
            return f"the setting {name} of the image"
    return "the times in the image's configuration; this engine takes no image without its layers"


def _layer(client: DockerClient, image: str, number: int) -> dict[str, tuple[Any, ...]]:
    """A layer's files: name -> what is compared of each."""
    with tempfile.TemporaryFile() as file, asking(f"{image} could not be exported"):
        for part in client.images.get(image).save():
            file.write(part)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            manifest = json.load(_member(archive, "manifest.json"))
            with tarfile.open(fileobj=_member(archive, manifest[0]["Layers"][number])) as layer:
                return dict(_entries(layer))


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    content = archive.extractfile(name)
    assert content is not None, name
    return content


def _entries(layer: tarfile.TarFile) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for entry in layer:
        content = layer.extractfile(entry) if entry.isreg() else None
        digest = hashlib.sha256(content.read()).hexdigest() if content else entry.linkname
        yield entry.name, (entry.type, entry.size, entry.mode, (entry.uid, entry.gid), digest, entry.mtime)


_COMPARED = ("its kind", "its size", "its mode", "its owner", "its content", "its time")


def _first_file(one: Mapping[str, tuple[Any, ...]], other: Mapping[str, tuple[Any, ...]]) -> str:
    """The first file, in the order of names, that is not the same in both layers, and what of it."""
    for name in sorted({*one, *other}):
        if name not in one or name not in other:
            return f"/{name} is in one of them only"
        for what, first, second in zip(_COMPARED, one[name], other[name], strict=True):
            if first != second:
                return f"/{name} differs in {what} ({first}, {second})"
    return "the order of its files"


def _archive(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
