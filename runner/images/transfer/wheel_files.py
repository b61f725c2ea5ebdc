"""Reads which machines the shared libraries of a wheel are for, from its index, by ranges: the wheels of all GPU images are 40 GB."""

from __future__ import annotations

import functools
import http.client
import io
import struct
import urllib.request
import zipfile
from collections.abc import Iterator
from typing import IO

_BLOCK = 1 << 24
_TIMEOUT_S = 60


class _RemoteFile(io.RawIOBase):
    """A file behind an address, which is read by ranges of at least 64 KiB."""

    def __init__(self, url: str) -> None:
        self._url = url
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            self._size = int(answer.headers["Content-Length"])
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={self._at}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            if answer.status != 206:
                raise OSError(f"{self._url} is not given by ranges")
            try:
                data = answer.read()
            except http.client.HTTPException as error:
                # An index that ends in the middle of an answer; this exception is none of the system's.
                raise OSError(f"{self._url}: its answer was cut off: {error}") from None
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@functools.cache
def machines(url: str) -> frozenset[int]:
    """The machines (e_machine of ELF) that the shared libraries of a wheel are for. Raises OSError, zipfile.BadZipFile."""
    heads = (member.read(20) for member in _libraries(url))
    return frozenset(struct.unpack_from("<H", head, 18)[0] for head in heads if head[:4] == b"\x7fELF")


def _libraries(url: str) -> Iterator[IO[bytes]]:
    """Each file of a wheel that is named as a shared library, opened."""
    local = urllib.request.url2pathname(url[len("file://") :]) if url.startswith("file:") else None
    source: IO[bytes] = io.FileIO(local) if local else io.BufferedReader(_RemoteFile(url), _BLOCK)
    with source, zipfile.ZipFile(source) as wheel:
        for name in wheel.namelist():
            if ".so" in name.rpartition("/")[2]:
                with wheel.open(name) as member:
                    yield member
