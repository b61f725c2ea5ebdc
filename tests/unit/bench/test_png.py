"""The PNG reader: what Pillow reads of whatever Pillow or our own writer wrote, and a sentence for everything else."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bench.data import png

RANDOM = np.random.RandomState(7)


def picture(height: int, width: int, channels: int) -> np.ndarray:
    """Noise on a slope: every filter has something to guess."""
    slope = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[:, :, None]
    return ((slope + RANDOM.randint(0, 90, (height, width, channels))) % 256).astype(np.uint8)


def by_pillow(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def made(header: tuple[int, ...] = (2, 2, 8, 0, 0, 0, 0), raw: bytes = bytes(6), more: bytes = b"") -> bytes:
    """A PNG of these header fields and raw rows: a filter's number before each row."""
    return (
        png.SIGNATURE
        + chunk(b"IHDR", struct.pack(">IIBBBBB", *header))
        + more
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 3]), st.data())
def test_what_is_written_with_any_filters_is_read_by_both(h: int, w: int, c: int, data: st.DataObject) -> None:
    pixels = picture(h, w, c)
    content = png.write(pixels, data.draw(st.lists(st.integers(0, 4), min_size=h, max_size=h)))
    np.testing.assert_array_equal(png.read(content), pixels)
    np.testing.assert_array_equal(by_pillow(content), pixels)
    np.testing.assert_array_equal(png.decode(content), pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_pillow_s_own_files_are_read(channels: int) -> None:
    """Pillow chooses a filter for each row, mostly Paeth's."""
    pixels = picture(264, 264, channels)
    stream = io.BytesIO()
    Image.fromarray(pixels if channels == 3 else pixels[:, :, 0]).save(stream, "PNG")
    np.testing.assert_array_equal(png.read(stream.getvalue()), pixels)


GOOD = made()
BROKEN = [
    (b"GIF89a" + bytes(40), "is no PNG"),
    (GOOD[:-5], "cut short"),
    (GOOD[:-12], "IEND"),
    (GOOD[:20] + b"\x07" + GOOD[21:], "wrong CRC"),
    (GOOD[:8], "does not begin with its header"),
    (made((2, 2, 16, 0, 0, 0, 0)), "bit depth 16"),
    (made((2, 2, 8, 3, 0, 0, 0)), "colour type 3"),
    (made((2, 2, 8, 6, 0, 0, 0)), "colour type 6"),
    (made((2, 2, 8, 0, 0, 0, 1)), "interlaced"),
    (made((0, 2, 8, 0, 0, 0, 0)), "0 x 2 pixels"),
    (made((1 << 20, 1 << 20, 8, 2, 0, 0, 0)), "at most"),
    (made(raw=bytes(5)), "fewer pixels"),
    (made(raw=bytes(7)), "more pixels"),
    (made(raw=bytes([0, 1, 2, 9, 1, 2])), "filter 9 in row 1"),
    (made(more=chunk(b"PLTE", bytes(3))), "critical chunk"),
    (GOOD.replace(chunk(b"IDAT", zlib.compress(bytes(6))), chunk(b"IDAT", b"no zlib")), "damaged pixels"),
]


@pytest.mark.parametrize(("content", "says"), BROKEN, ids=[says for _, says in BROKEN])
def test_what_is_damaged_or_of_another_kind_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(png.PngError, match=says):
        png.read(content)


@pytest.mark.parametrize("content", [BROKEN[index][0] for index in (0, 3, 5, 6, 7, 10)])
def test_pillow_is_given_no_file_that_our_reader_would_refuse(content: bytes) -> None:
    with pytest.raises(png.PngError):
        png.decode(content)


def test_a_bomb_is_refused_before_it_unpacks() -> None:
    """Its pixels unpack to a thousand times what its header says."""
    with pytest.raises(png.PngError, match="more pixels"):
        png.read(made(raw=bytes(64 << 20)))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_byte_that_flips_makes_it_fail_otherwise(data: st.DataObject) -> None:
    content = bytearray(png.write(picture(6, 6, 3), [0, 1, 2, 3, 4, 4]))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(png.PngError):
        png.read(bytes(content))


def test_the_decoder_that_runs_is_named() -> None:
    assert png.DECODER.startswith("Pillow ")
