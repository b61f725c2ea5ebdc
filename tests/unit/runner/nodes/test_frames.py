"""Frames come whole out of a pipe, however it cuts them, and what is no frame is refused before it is read."""

from __future__ import annotations

import contextlib
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.nodes import frames
from runner.nodes.frames import MAGIC, Decoder, Frame, FrameError, encode

HEADERS = st.dictionaries(st.text(max_size=8), st.integers(-(2**62), 2**62) | st.text(max_size=20), max_size=4)
FRAMES = st.lists(st.builds(Frame, HEADERS, st.binary(max_size=300)), min_size=1, max_size=5)


@given(FRAMES, st.integers(1, 97), st.binary(max_size=200).filter(lambda noise: MAGIC[:1] not in noise))
def test_frames_come_back_whatever_the_cuts_and_whatever_a_shell_printed_before(
    sent: list[Frame], size: int, noise: bytes
) -> None:
    stream = noise + b"".join(map(encode, sent))
    decoder = Decoder()
    came = [frame for at in range(0, len(stream), size) for frame in decoder.feed(stream[at : at + size])]
    assert came == sent


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_or_a_frame_error(stream: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert all(isinstance(frame.header, dict) for frame in Decoder().feed(MAGIC + stream))


def head(header: int, body: int, magic: bytes = MAGIC) -> bytes:
    return struct.pack(">8sII", magic, header, body)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (head(2**32 - 1, 0), "its header has 4294967295 bytes"),
        (head(2, 2**32 - 1), "its body has 4294967295 bytes"),
        (head(2, 0) + b"[]", "no object"),
        (head(4, 0) + b"{nan", "is not JSON"),
        (head(9, 0) + b'{"a":1e9}' + head(2, 0, b"dlbench9"), "begins with b'dlbench9'"),
        (head(30, 0) + b'{"a":1' + b"0" * 23 + b"}", "too large"),
        (head(9, 0) + b'{"a":NaN}', "no number"),
        (b"x" * (frames._MOST_NOISE_BYTES + 20), "bytes came and no frame; they begin with: xxx"),
    ],
)
def test_what_is_no_frame_is_refused_with_a_sentence(stream: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why.replace("(", r"\(")):
        list(Decoder().feed(stream))


def test_a_peer_that_sends_line_ends_for_ever_is_refused_before_it_has_sent_many() -> None:
    decoder = Decoder()
    frame = encode(Frame({"kind": "beat"}))
    for chunk in [frame + b"\n" * 50] * 3 + [frame[:3], frame[3:]]:
        list(decoder.feed(chunk))
    list(decoder.feed(b"\n" * 60))
    with pytest.raises(FrameError, match="more than 100 empty lines came, and no frame"):
        list(decoder.feed(b"\n" * 60))


@pytest.mark.parametrize("value", [b"[]", b"{}", b"1", b'"":0'])
def test_a_header_of_a_million_values_is_refused_before_they_are_made(value: bytes) -> None:
    ends = b"{}" if b":" in value else b"[]"
    header = b'{"x":' + ends[:1] + b",".join([value] * 1_000_000) + ends[1:] + b"}"
    stream, began = head(len(header), 0) + header, time.thread_time()
    with pytest.raises(FrameError, match="a frame's header has more than 200000 values"):
        list(Decoder().feed(stream))
    assert time.thread_time() - began < 0.2


def test_a_length_that_lies_takes_no_memory() -> None:
    """A frame that says that it has 100 MB waits for them: nothing is set aside for it."""
    decoder = Decoder()
    assert list(decoder.feed(head(2, 100 << 20) + b"{}")) == []
    assert len(decoder._pending) < 100


def test_a_message_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_BODY_BYTES", 10)
    with pytest.raises(FrameError, match="10 is the most"):
        encode(Frame({}, b"x" * 11))


@given(FRAMES)
def test_a_frame_ends_with_its_line_so_that_what_hands_on_lines_hands_it_on_whole(sent: list[Frame]) -> None:
    decoder = Decoder()
    for frame in sent:
        content = encode(frame)
        whole_lines = content[: content.rindex(b"\n") + 1]
        assert list(decoder.feed(whole_lines)) == [frame]
