"""The engine's stream of frames, read in whatever pieces it comes."""

from __future__ import annotations

import os
import random
import struct
import threading
import time

import pytest

from runner.engines.docker import read_back as docker_stream
from runner.engines.docker.read_back import STDERR, STDOUT, read_frames


def frame(stream: int, payload: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(payload)) + payload


SENT = [(STDOUT, b"one\n"), (STDERR, b""), (STDERR, b"warning"), (STDOUT, b"x" * 200_000), (STDOUT, b"last")]


@pytest.mark.parametrize("most", [1, 3, 9, 1000, 1_000_000])
def test_every_byte_comes_out_of_its_own_stream_in_whatever_pieces_it_arrives(most: int) -> None:
    receiving, sending = os.pipe()
    whole = b"".join(frame(*each) for each in SENT)
    chosen = random.Random(most)

    def send() -> None:
        at = 0
        while at < len(whole):
            size = min(most, chosen.randint(1, most)) if at < 2000 or most >= 1000 else 50_000
            at += os.write(sending, whole[at : at + size])
        os.close(sending)

    thread = threading.Thread(target=send)
    thread.start()
    got: dict[int, bytes] = {}
    for stream, part in read_frames(receiving, gather=0):
        got[stream] = got.get(stream, b"") + part
    thread.join()
    os.close(receiving)
    assert got == {STDOUT: b"one\n" + b"x" * 200_000 + b"last", STDERR: b"warning"}


def test_lines_gather_but_the_end_is_told_at_once() -> None:
    receiving, sending = os.pipe()
    frames = read_frames(receiving, gather=30.0)
    os.write(sending, frame(STDOUT, b"a"))
    assert next(frames) == (STDOUT, b"a")
    ending = threading.Timer(0.2, os.close, (sending,))
    begin = time.monotonic()
    ending.start()
    assert list(frames) == []
    assert time.monotonic() - begin < 10
    os.close(receiving)


def test_a_reader_reads_once_a_tick_and_not_once_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wake-up costs differs between machines, and how many there are by how readers wait for the interpreter; reads are a count."""
    receiving, sending = os.pipe()
    reads, read = [], os.read
    monkeypatch.setattr(docker_stream.os, "read", lambda *words: (reads.append(1), read(*words))[1])

    def send() -> None:
        for _ in range(60):
            os.write(sending, frame(STDOUT, b"a line\n"))
            time.sleep(0.02)
        os.close(sending)

    thread = threading.Thread(target=send)
    thread.start()
    whole = b"".join(part for _, part in read_frames(receiving))
    thread.join()
    os.close(receiving)
    assert whole == b"a line\n" * 60
    # Five on an idle machine: one before the first tick, and one that finds the end. A machine on which it takes ten seconds has 26.
    assert len(reads) <= 30


def test_much_output_is_not_held_up() -> None:
    receiving, sending = os.pipe()
    whole = frame(STDOUT, b"x" * 3_000_000)
    thread = threading.Thread(target=lambda: (os.write(sending, whole), os.close(sending)))
    begin = time.monotonic()
    thread.start()
    assert sum(len(part) for _, part in read_frames(receiving, gather=30.0)) == 3_000_000
    assert time.monotonic() - begin < 10
    thread.join()
    os.close(receiving)


def test_a_reader_that_stopped_within_a_frame_goes_on_there() -> None:
    receiving, sending = os.pipe()
    frames = read_frames(receiving, gather=0)
    os.write(sending, frame(STDOUT, b"abc")[:10])
    assert next(frames) == (STDOUT, b"ab")
    os.write(sending, b"c" + frame(STDERR, b"d"))
    os.close(sending)
    assert list(frames) == [(STDOUT, b"c"), (STDERR, b"d")]
    os.close(receiving)
