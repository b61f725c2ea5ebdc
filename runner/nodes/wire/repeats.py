"""A finished repeat on its way: packed on the node that measured it, and judged by the driver, which believes nothing of it.

What a cell printed travels as it came, each piece with its time by the node's clock. The driver feeds it to the code that a run without
nodes uses: the same events are checked, the same rows are made.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.catalog.images import Image, load_catalog
from runner.engines.slots import LOG_TAIL_BYTES, Exit
from runner.machine import telemetry
from runner.nodes.wire import messages
from runner.nodes.wire.frames import Frame, FrameError
from runner.plan.plan import Cell
from runner.results import store
from runner.results.untrusted import MOST_ROWS_OF_A_STEP, UntrustedError, telemetry_rows
from runner.run.attempt import Ended, not_as_planned, store_repeat
from runner.run.dispatch import Job
from runner.run.record import MAX_EVENTS, MAX_TOTAL_BYTES, Recorder

# Of a piece of what a cell printed: its bytes, and the time at which it came.
_PIECE = struct.Struct("<Id")

# Each piece ends a line, but for the last one.
_MOST_PIECES = MAX_EVENTS + 2

_MOST_TELEMETRY_BYTES = 48 << 20
_MOST_XIDS = 1000

# What one engine's read hands over at most, after the line that breaks the protocol.
_ONE_READ_BYTES = 1 << 20


def packed(attempt: str, repeat: Ended) -> Frame:
    """A repeat that has ended as the message to the driver."""
    recording, ended = repeat.recording, repeat.exit
    rows, row_seconds = _rows_that_fit(recording)
    parts = (
        b"".join(chunk for _, chunk in repeat.tape),
        b"".join(_PIECE.pack(len(chunk), at) for at, chunk in repeat.tape),
        ended.log_tail.encode("utf-8", "replace")[-LOG_TAIL_BYTES:],
        rows,
    )
    message = {
        "kind": "ended",
        "attempt": attempt,
        "code": ended.code,
        "out_of_memory": ended.out_of_memory,
        "ended_by": repeat.ended_by,
        "started_unix": repeat.recorder.row["started_unix"],
        "wall_seconds": repeat.wall_seconds,
        "began": repeat.began,
        "still": repeat.still[-messages.MOST_STILL :],
        "uuids": repeat.uuids,
        "boards": recording.boards,
        "cpus": repeat.cpus,
        "image_digest": repeat.image_digest,
        "jit_cache_grew_bytes": repeat.recorder.row.get("jit_cache_grew_bytes"),
        "xids": [(board, number) for board, number in recording.xids[:_MOST_XIDS] if 0 <= number < 2**31],
        "fault": recording.fault,
        "row_seconds": row_seconds,
        "users": recording.users.state(),
        "sizes": [len(part) for part in parts],
    }
    return Frame(message, b"".join(parts))


def _rows_that_fit(recording: telemetry.Recording) -> tuple[bytes, float]:
    """The telemetry as lines, and the seconds between two rows of a device: more where all of them are too many."""
    rows, seconds = recording.rows, recording.step
    while len(rows) > MOST_ROWS_OF_A_STEP or len(lines := _lines(rows)) > _MOST_TELEMETRY_BYTES:
        seconds *= 2
        rows = telemetry.thinned(rows, seconds)
    return lines, seconds


def _lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


class _Elsewhere:
    """A cell that ran on another machine."""

    def pid(self) -> int | None:
        return None


@dataclass(frozen=True)
class Measured:
    """Where an attempt ran, as the driver knows it: the node's own word on this does not count."""

    job: Job
    attempt: str
    node: str
    engine: str
    image_digest: str
    uuids: tuple[str, ...]
    boards: tuple[str, ...]


def judged(
    run: store.RunStore,
    measured: Measured,
    message: messages.Ended,
    body: bytes,
    code: Mapping[tuple[str, str], str],
    data_given: bool,
    observe: Callable[[Any], None] | None = None,
) -> tuple[str, str | None]:
    """Judge a repeat that a node measured and store it: (status, reason). Raises FrameError for what no agent sends.

    `code` as in attempt.Site. `observe` gets each event.
    """
    tape, log, rows = unpacked(message, body)
    job = measured.job
    if message.uuids != measured.uuids or message.boards != measured.boards:
        raise FrameError("a repeat ran on other devices than it was given")
    if strangers := {row["device"] for row in rows} - {"cpu", *measured.boards}:
        raise FrameError(f"the telemetry of a repeat is of {sorted(strangers)[0]!r}, which it was not given")
    name = store.file_name(job.cell.id, job.repeat)
    recorder = Recorder(run.folder / "events" / f"{name}.jsonl", observe)
    try:
        for at, piece in tape:
            recorder.feed(piece, at)
    finally:
        recorder.close()
    wrong = not_as_planned(recorder, job.cell, measured.uuids, code) if recorder.environment else None
    recorder.row["started_unix"] = message.started_unix
    recorder.row["jit_cache_grew_bytes"] = message.jit_cache_grew_bytes
    repeat = Ended(
        job=job,
        engine=measured.engine,
        image_digest=measured.image_digest,
        uuids=measured.uuids,
        recorder=recorder,
        recording=_recording(message, measured, rows),
        exit=Exit(message.code, message.out_of_memory, log),
        ended_by=message.ended_by or wrong,
        wall_seconds=message.wall_seconds,
        data_given=data_given,
        cpus=message.cpus,
        image=_image(job.cell),
        began=message.began,
        still=message.still,
        attempt=measured.attempt,
        node=measured.node,
    )
    return store_repeat(run, repeat)


def _image(cell: Cell) -> Image | None:
    """The image of a cell; None where it is none of this checkout's catalog: an interpreter of the node's user."""
    image = _catalog().get(cell.image)
    return image if image and image.lock_sha256 == cell.lock_sha256 else None


@functools.cache
def _catalog() -> Mapping[str, Image]:
    return load_catalog()


def unpacked(message: messages.Ended, body: bytes) -> tuple[list[tuple[float, bytes]], str, tuple[dict[str, Any], ...]]:
    """What was printed with its times, the end of the log, and the rows of telemetry. Raises FrameError."""
    printed_size, pieces_size, log_size, rows_size = message.sizes
    if (
        printed_size > MAX_TOTAL_BYTES + _ONE_READ_BYTES
        or pieces_size > _MOST_PIECES * _PIECE.size
        or log_size > LOG_TAIL_BYTES
        or rows_size > _MOST_TELEMETRY_BYTES
    ):
        raise FrameError("a repeat has more output, pieces of it, log or telemetry than any agent keeps")
    ends = [sum(message.sizes[: at + 1]) for at in range(len(message.sizes))]
    printed, pieces = body[: ends[0]], body[ends[0] : ends[1]]
    log, rows = body[ends[1] : ends[2]], body[ends[2] : ends[3]]
    if pieces_size % _PIECE.size:
        raise FrameError("the times of a repeat's output are torn")
    tape: list[tuple[float, bytes]] = []
    begin, last = 0, -math.inf
    for size, at in _PIECE.iter_unpack(pieces):
        if not (math.isfinite(at) and at >= last and begin + size <= len(printed)):
            raise FrameError("the times of a repeat's output go back, or are of more than it printed")
        tape.append((at, printed[begin : begin + size]))
        begin, last = begin + size, at
    if begin != len(printed):
        raise FrameError("a part of a repeat's output has no time")
    try:
        return tape, log.decode("utf-8", "replace"), telemetry_rows(rows, "the telemetry of a repeat")
    except UntrustedError as error:
        raise FrameError(str(error)) from None


def _recording(message: messages.Ended, measured: Measured, rows: Sequence[Mapping[str, Any]]) -> telemetry.Recording:
    """What the node saw of the devices."""
    recording = telemetry.Recording(measured.boards, _Elsewhere(), (), measured.uuids)
    recording.users.restore(message.users.proved, message.users.reasons, message.users.foreign)
    recording.rows = [dict(row) for row in rows]
    recording.xids = list(message.xids)
    recording.fault = message.fault
    recording.step = message.row_seconds
    return recording
