"""docs/libraries.json: what the libraries of each GPU image's wheels ask the loader for. `runner images libraries` writes it."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

from packaging.version import Version
from pydantic import BaseModel, ConfigDict, ValidationError

from runner.catalog.images import LINKS, CatalogError, Image
from runner.images import lock_facts, locking
from runner.images.libraries import base_names
from runner.images.libraries.resolution import Resolution, is_cuda, resolve
from runner.images.libraries.shared_objects import SharedObject
from runner.images.libraries.wheel_files import shared_objects
from runner.paths import PROJECT
from runner.results import store

RECORD = PROJECT / "docs" / "libraries.json"

# Package -> the first version of which it was read that these are loaded by their paths, and their stems: torch's __init__.py does it in
# `_preload_cuda_deps`, and ONNX Runtime's in `preload_dlls`, which the bench calls.
_LOADED = {
    "torch": (Version("2.14"), ("libcublas", "libcublasLt", "libnvJitLink", "libnvrtc", "libnvrtc-builtins")),
    "onnxruntime-gpu": (
        Version("1.26"),
        ("libcublas", "libcublasLt", "libcudart", "libcudnn", "libcufft", "libcurand", "libnvrtc"),
    ),
}


class Library(BaseModel):
    """The facts of a library, without the names that are none of CUDA's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    soname: str = ""
    folders: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


class Wheel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    pin: str
    # path in the wheel -> facts; those that ask for a library of CUDA or are one
    libraries: dict[str, Library] = {}


class ReadLock(BaseModel):
    """The files that pip fetches for an image's lock, by their sha256. Those without libraries of CUDA are left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lock_sha256: str
    date: date
    files: int
    wheels: tuple[str, ...]
    # Worked out from these facts and the scripts that the image runs. Running these takes a second an image.
    scripts_sha256: str = ""
    column: str = ""


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    images: dict[str, ReadLock] = {}
    wheels: dict[str, Wheel] = {}


@cache
def read_record() -> Record:
    """Raises CatalogError."""
    if not RECORD.is_file():
        return Record()
    try:
        return Record.model_validate_json(RECORD.read_bytes())
    except ValidationError as error:
        raise CatalogError(f"{RECORD}: {error.errors()[0]['msg']}; take the file back from the repository") from None


def write_record(record: Record) -> None:
    """A line an image and a line a wheel; a wheel that no image has is left out."""
    used = {digest for image in record.images.values() for digest in image.wheels}
    wheels = {digest: wheel for digest, wheel in record.wheels.items() if digest in used}
    parts = []
    for name, entries in (("images", record.images), ("wheels", wheels)):
        lines = [
            f"{json.dumps(key)}: {entry.model_dump_json(exclude_defaults=True)}"
            for key, entry in sorted(entries.items())
        ]
        parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
    store.write_bytes(RECORD, ("{" + ",\n".join(parts) + "}\n").encode())
    read_record.cache_clear()


def read_lock(image: Image, record: Record, day: date, say: Callable[[str], None]) -> Record:
    """The record with this image's lock in it. Wheels that are in the record are not read again. Raises LockError, OSError, BadZipFile."""
    files = lock_facts.files(locking.pylock(image, image.locked, say), image.python)
    wheels = dict(record.wheels)
    for pin, file in files.items():
        if file.sha256 not in wheels and file.address.endswith(".whl"):
            say(f"{image.name}: reading {pin}")
            try:
                wheels[file.sha256] = wheel_facts(pin, dict(shared_objects(file.address)))
            except zipfile.BadZipFile as error:
                raise OSError(f"{file.address}: {error}") from None
    own = tuple(
        sorted(file.sha256 for file in files.values() if file.sha256 in wheels and wheels[file.sha256].libraries)
    )
    read = ReadLock(lock_sha256=image.lock_sha256, date=day, files=len(files), wheels=own)
    return worked_out(image, Record(images={**record.images, image.name: read}, wheels=wheels))


def worked_out(image: Image, record: Record) -> Record:
    """The record with the column of an image whose lock is in it, by the scripts of today. Raises KeyError where it is not."""
    facts = {"scripts_sha256": _scripts_sha256(image), "column": column(image, _resolution(image, record), record)}
    return record.model_copy(
        update={"images": record.images | {image.name: record.images[image.name].model_copy(update=facts)}}
    )


def wheel_facts(pin: str, objects: dict[str, SharedObject | None]) -> Wheel:
    libraries = {}
    for path, facts in objects.items():
        if facts is None:
            continue
        needed, named = (tuple(filter(is_cuda, names)) for names in (facts.needed, facts.named))
        # The scripts of images put links into the folders `libs` of frameworks.
        if needed or named or is_cuda(path.rpartition("/")[2]) or "/libs/" in path:
            libraries[path] = Library(soname=facts.soname, folders=facts.folders, needed=needed, named=named)
    return Wheel(pin=pin, libraries=libraries)


def _scripts(image: Image) -> list[Path]:
    return [path for path in (LINKS, image.finish_path) if path.is_file()]


def _scripts_sha256(image: Image) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in _scripts(image))).hexdigest()


def resolution(image: Image, record: Record, links: bool = True) -> Resolution | None:
    """How the image's libraries find each other; None where its lock was not read. `links`: with the script of all images."""
    lock = record.images.get(image.name)
    return None if lock is None or lock.lock_sha256 != image.lock_sha256 else _resolution(image, record, links)


def _resolution(image: Image, record: Record, links: bool = True) -> Resolution:
    wheels = [record.wheels[digest] for digest in record.images[image.name].wheels]
    versions = dict(wheel.pin.split("==") for wheel in wheels)
    loaded = {
        name
        for package, (first, names) in _LOADED.items()
        if package in versions and Version(versions[package]) >= first
        for name in names
    }
    scripts = [path for path in _scripts(image) if links or path != LINKS]
    libraries = {
        path: SharedObject(**facts.model_dump()) for wheel in wheels for path, facts in wheel.libraries.items()
    }
    found = resolve(libraries, loaded, scripts, image.cuda_from == "base")
    names = base_names.formed(image)
    return replace(found, asked=found.asked + len(names), of_the_base=tuple(sorted({*found.of_the_base, *names})))


def cell_text(image: Image) -> str:
    """The column "libraries" of docs/gpu-images.md."""
    lock = read_record().images.get(image.name)
    if lock is None or (lock.lock_sha256, lock.scripts_sha256) != (image.lock_sha256, _scripts_sha256(image)):
        return "**not read with this lock and these scripts**"
    return lock.column


def column(image: Image, found: Resolution, record: Record) -> str:
    """How many of the names are found, each one that is not, and what is known of those that the base image has to have."""
    words = f"{found.found} of {found.asked}"
    if found.of_the_base:
        files = {path.rpartition("/")[2] for wheel in record.wheels.values() for path in wheel.libraries}
        names = base_names.of_the_base(image, found.of_the_base, files)
        words += f" in its wheels; the others are in the base image, which was not read (it has no digest yet): {names}"
    return words + "".join(f"; **{at.library.rpartition('/')[2]} does not find {at.name}**" for at in found.missing)
