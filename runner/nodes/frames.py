"""Frames on a pipe: a word that names the version, two lengths, a header in JSON, and bytes.

What a pipe delivers is untrusted: lengths are bounded before anything is read, and a header is checked as a file from a stranger is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.errors import UserError
from runner.results import parcel
from runner.results.untrusted import UntrustedError, document
from runner.text import in_a_line

# The last character is the version of this layout.
MAGIC = b"dlbench1"
_HEAD = struct.Struct(">8sII")

# Slurm's step daemon hands on what a program prints only when a line is whole: without it the last frame would stay there.
_END = b"\n"

# A header holds a node's description, and as many bytes of a body its plan: some hundred a cell. Other bodies are parcels.
MOST_HEADER_BYTES = 8 << 20
MOST_BODY_BYTES = parcel.MOST_BYTES
# The values of either: six thousand cells and as many that are skipped. To make more of them would hold up what the other nodes say.
MOST_VALUES = 200_000

# The most line ends between two frames.
_MOST_ENDS = 100

# The most bytes that a login shell may print before the first frame, and the part that an error shows.
_MOST_NOISE_BYTES = 64 << 10
_SHOWN = 200


class FrameError(UserError):
    """A malformed frame. Ignore this peer from now on."""


@dataclass(frozen=True)
class Frame:
    """One message: what it says, and the bytes that belong to it."""

    header: Mapping[str, Any]
    body: bytes = b""
    # The bytes of both, where they came over a pipe.
    size: int = field(default=0, compare=False)


def encode(frame: Frame) -> bytes:
    """A frame as it goes over the pipe. Raises FrameError where it is larger than a frame may be."""
    header = json.dumps(frame.header, separators=(",", ":"), allow_nan=False).encode()
    _check_sizes(len(header), len(frame.body))
    return _HEAD.pack(MAGIC, len(header), len(frame.body)) + header + frame.body + _END


def _check_sizes(header: int, body: int) -> None:
    for what, size, most in (("header", header, MOST_HEADER_BYTES), ("body", body, MOST_BODY_BYTES)):
        if size > most:
            raise FrameError(f"a frame says that its {what} has {size} bytes, and {most} is the most")


class Decoder:
    """Makes frames of the bytes of a pipe, however these are cut. After a FrameError nothing more can be read."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._begun = False
        # How many line ends came since the last frame.
        self._ends = 0
        # The bytes before the first frame, from their end.
        self.noise = b""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now. Raises FrameError."""
        self._pending += chunk
        if not self._begun and not self._skip_noise():
            return
        while (frame := self._take()) is not None:
            yield frame

    def _skip_noise(self) -> bool:
        """Drop what a shell printed before the first frame. Whether that frame has begun."""
        at = self._pending.find(MAGIC)
        # The end may be the beginning of the word.
        end = at if at >= 0 else len(self._pending) - len(MAGIC) + 1
        if end > _MOST_NOISE_BYTES:
            shown = in_a_line(bytes(self._pending[:_SHOWN]).decode("utf-8", "replace"), _SHOWN)
            raise FrameError(f"{_MOST_NOISE_BYTES} bytes came and no frame; they begin with: {shown}")
        if at < 0:
            self.noise = bytes(self._pending[-_SHOWN:])
            return False
        self.noise = bytes(self._pending[:at][-_SHOWN:])
        del self._pending[:at]
        self._begun = True
        return True

    def _take(self) -> Frame | None:
        """The next frame; None while it is not whole."""
        if self._pending.startswith(_END):
            more = len(self._pending) - len(self._pending.lstrip(_END))
            self._ends += more
            del self._pending[:more]
            if self._ends > _MOST_ENDS:
                raise FrameError(f"more than {_MOST_ENDS} empty lines came, and no frame")
        if len(self._pending) < _HEAD.size:
            return None
        magic, header_size, body_size = _HEAD.unpack_from(self._pending)
        if magic != MAGIC:
            raise FrameError(f"a frame begins with {bytes(magic)!r}, and frames of this release with {MAGIC!r}")
        _check_sizes(header_size, body_size)
        begin, end = _HEAD.size + header_size, _HEAD.size + header_size + body_size
        if len(self._pending) < end:
            return None
        with memoryview(self._pending) as view:
            header, body = bytes(view[_HEAD.size : begin]), bytes(view[begin:end])
        del self._pending[:end]
        self._ends = 0
        return Frame(_header(header), body, header_size + body_size)


def _header(content: bytes) -> Mapping[str, Any]:
    try:
        value = document(content, "a frame's header", MOST_VALUES)
    except UntrustedError as error:
        raise FrameError(str(error)) from None
    if not isinstance(value, dict):
        raise FrameError("a frame's header is no object")
    return value
