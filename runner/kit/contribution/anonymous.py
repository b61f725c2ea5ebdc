"""Pseudonyms in the place of all that names a machine, a person or a folder. Pure.

A pseudonym is an HMAC with a salt that stays with the person who shares: the same GPU has the same pseudonym in all that they share, and
nobody else can compute it from a serial number. A UUID becomes a UUID, so that every check of devices works as before.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.machine.devices import Gpu
from runner.plan.combination import Cell
from runner.results.on_disk.isolation import CONTAINER_ENGINES
from runner.results.parcel import Parcel

_CONTENT = re.compile(r"(?:.*@)?(sha256:[0-9a-f]{64})")

_UUID = re.compile(rb"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])")
# An absolute path with a folder: from a slash that ends no word up to a character that no ordinary file name has.
_PATH = re.compile(rb"(?<![\w.:/<>-])/(?:[\w.+@~-]{1,255}/)+[\w.+@~-]*")
_PATH_SHOWN = b"/path"


@dataclass(frozen=True)
class Pseudonyms:
    """The pseudonyms of one salt."""

    salt: bytes

    def of(self, kind: str, name: str) -> str:
        """Sixteen hexadecimal digits in the place of a name."""
        return self._digest(f"{kind}\n{name}")[:16]

    def sha256(self, digest: str) -> str:
        """A digest in the place of one that somebody could try out."""
        return self._digest(f"digest\n{digest}")

    def text(self, text: str) -> str:
        """A text whose UUIDs and paths are replaced."""
        return self.content(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def content(self, content: bytes) -> bytes:
        """The same of bytes. A UUID becomes another of the same length."""
        content = _UUID.sub(lambda match: self._uuid(match[0].decode()).encode(), content)
        return _PATH.sub(_PATH_SHOWN, content) if b"/" in content else content

    def _uuid(self, uuid: str) -> str:
        # Some frameworks write it in capitals.
        digits = self.of("uuid", uuid.lower()) + self.of("uuid, second half", uuid.lower())
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _digest(self, text: str) -> str:
        return hmac.new(self.salt, text.encode(), hashlib.sha256).hexdigest()


def anonymous_gpu(gpu: Gpu, names: Pseudonyms) -> Gpu:
    """A GPU without what tells it from others of its model, but for its pseudonym and how it is set up."""
    near = tuple((names.text(board), distance) for board, distance in gpu.near)
    return replace(gpu, uuid=names.text(gpu.uuid), board=names.text(gpu.board), pci="", processes=(), near=near)


def anonymous_cell(cell: Cell, names: Pseudonyms) -> Cell:
    """A cell whose id says nothing of one GPU or of a folder."""
    lock = cell.lock_sha256 if _has_lock(cell) else names.sha256(cell.lock_sha256)
    return replace(cell, device_uuid=names.text(cell.device_uuid), lock_sha256=lock)


def _has_lock(cell: Cell) -> bool:
    """True if the image is of a catalog. An interpreter of the user's has the digest of its path in the place of a lock."""
    return not cell.image.startswith("host-")


def anonymous_parcel(parcel: Parcel, cell: Cell, names: Pseudonyms) -> Parcel:
    """The parcel of an anonymous cell. Its tape keeps each piece and each time; its log goes."""
    return replace(
        parcel,
        cell_id=cell.id,
        attempt=None,
        node=names.of("machine", parcel.node) if parcel.node else None,
        image_digest=_digest(parcel, names),
        uuids=_each(names, parcel.uuids),
        boards=_each(names, parcel.boards),
        xids=tuple((names.text(board), number) for board, number in parcel.xids),
        fault=parcel.fault and names.text(parcel.fault),
        proved=_each(names, parcel.proved),
        unproved={names.text(uuid): names.text(reason) for uuid, reason in parcel.unproved.items()},
        foreign=("another process",) * len(parcel.foreign),
        tape=tuple((at, names.content(output)) for at, output in parcel.tape),
        log="",
        telemetry=_rows(parcel.telemetry, names),
    )


def _digest(parcel: Parcel, names: Pseudonyms) -> str | None:
    """The digest of an image, without the name of a registry."""
    if parcel.image_digest is None:
        return None
    content = _CONTENT.fullmatch(parcel.image_digest)
    # The digest of an image says nothing of a folder. Those of the other engines are made of an interpreter's path, too.
    if parcel.engine in CONTAINER_ENGINES and content:
        return content[1]
    return f"sha256:{names.sha256(parcel.image_digest)}"


def _each(names: Pseudonyms, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(names.text, texts))


def _rows(rows: Iterable[Mapping[str, Any]], names: Pseudonyms) -> tuple[Mapping[str, Any], ...]:
    renamed = functools.cache(names.text)
    return tuple({**row, "device": renamed(row["device"])} for row in rows)
