"""Reads the stream in which the Docker Engine sends what a container prints: frames of a header and bytes.

docker-py reads such a stream too (`attach(demux=True)`), but wakes four times for each line. With eight cells that print a dozen lines a
second each, that cost the runner more CPU than everything else it does. Here lines gather for a moment and are read together.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Iterator

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
