"""The names in a file of `docker save`, read before an engine loads it: an engine gives an image every name of such a file.

Without a look, a file that says that it is one image could also take the name of another, or of a base image, on every node. The
file may come from anybody: each read is bounded, and its members are passed over.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

# A manifest is a line a layer.
_MOST_LIST_BYTES = 1 << 20
# A long name is a member of its own, which is read at once.
_MOST_NAME_BYTES = 64 << 10
# An image has some 130 layers at most, of four members each.
_MOST_MEMBERS = 10_000
_MOST_HEADER_BYTES = 16 << 20
# A whole archive ends with two empty blocks.
_END = bytes(2 * tarfile.BLOCKSIZE)


class _Image(BaseModel):
    names: list[str] | None = Field(None, alias="RepoTags")


class _Entry(BaseModel):
    annotations: dict[str, str] | None = None


class _Index(BaseModel):
    manifests: list[_Entry]


_MANIFEST = TypeAdapter(list[_Image])
_REPOSITORIES = TypeAdapter(dict[str, dict[str, str]])

# Engines with containerd's image store name images by the last one.
_LISTS = ("manifest.json", "repositories", "index.json")
_NAME, _REFERENCE = "io.containerd.image.name", "org.opencontainers.image.ref.name"


class _Bounded:
    """A file with a limit on its reads: a header can say that gigabytes of names follow."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _MOST_HEADER_BYTES
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        self._left -= size
        if not 0 <= size <= _MOST_NAME_BYTES or self._left < 0:
            raise tarfile.ReadError("its headers are too long")
        return self._file.read(size)


def why_not(file: BinaryIO, tag: str) -> str | None:
    """Why this is not a whole file of `docker save` of the image `tag` alone; None where it is one."""
    try:
        lists = _lists(file)
        if "manifest.json" not in lists:
            return "it is no file of `docker save`"
        names = [name for image in _MANIFEST.validate_json(lists["manifest.json"]) for name in image.names or [""]]
        if len(names) != 1:
            return f"it holds {len(names)} images or names of images instead of one"
        others = {*names, *_further_names(lists, tag)} - {tag, f"docker.io/{tag}"}
    except (tarfile.TarError, ValidationError, ValueError, OverflowError) as error:
        # A message of pydantic has many lines.
        reason = f" ({error})" if isinstance(error, tarfile.TarError) else ""
        return f"it is no file of `docker save`{reason}"
    if others:
        return f"it names {sorted(others)[0][:200]!r}, and not {tag} alone"
    return None if _ends(file) else "its end is missing"


def _lists(file: BinaryIO) -> dict[str, bytes]:
    """The files in the archive that say what its images are called. Raises TarError, also where one of them is there twice."""
    found: dict[str, bytes] = {}
    file.seek(0)
    # Another reader may take the first or the last of two, or follow a link.
    with tarfile.open(fileobj=_Bounded(file), mode="r:") as archive:  # type: ignore[call-overload]
        for member in _members(archive):
            name = posixpath.normpath(f"/{member.name}").lstrip("/")
            if name not in _LISTS:
                continue
            plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
            if name in found or not plain or member.size > _MOST_LIST_BYTES:
                raise tarfile.ReadError(f"{name} is there twice, or is no short file")
            file.seek(member.offset_data)
            found[name] = file.read(member.size)
    return found


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for _ in range(_MOST_MEMBERS):
        member = archive.next()
        if member is None:
            return
        yield member
    raise tarfile.ReadError(f"it has more than {_MOST_MEMBERS} members")


def _further_names(lists: dict[str, bytes], tag: str) -> Iterator[str]:
    """The images' names in the two other lists, in full."""
    repository, _, short = tag.rpartition(":")
    if "repositories" in lists:
        for name, tags in _REPOSITORIES.validate_json(lists["repositories"]).items():
            yield from (f"{name}:{each}" for each in tags)
    if "index.json" in lists:
        for entry in _Index.model_validate_json(lists["index.json"]).manifests:
            annotations = entry.annotations or {}
            if _NAME in annotations:
                yield annotations[_NAME]
            if _REFERENCE in annotations:
                reference = annotations[_REFERENCE]
                yield f"{repository}:{reference}" if reference == short else reference


def _ends(file: BinaryIO) -> bool:
    """True if the archive has its end: an engine that breaks off its answer has status 200 all the same."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - len(_END)))
    return file.read(len(_END)) == _END
