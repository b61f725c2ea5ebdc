"""The PNG reader: what Pillow reads of whatever was written, and a sentence for everything else."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from bench.data import png
from bench.errors import DataError

RANDOM = np.random.RandomState(7)


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def made(header: tuple[int, ...] = (2, 2, 8, 0, 0, 0, 0), raw: bytes = bytes(6)) -> bytes:
    """A PNG of these header fields and raw rows: a filter's number before each row."""
    fields = struct.pack(">IIBBBBB", *header)
    parts = chunk(b"IHDR", fields) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return png.SIGNATURE + parts


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_written_is_read_and_so_are_pillow_s_own_files(channels: int) -> None:
    pixels = RANDOM.randint(0, 256, (264, 200, channels)).astype(np.uint8)
    np.testing.assert_array_equal(png.decode(png.write(pixels)), pixels)
    stream = io.BytesIO()
    Image.fromarray(pixels if channels == 3 else pixels[:, :, 0]).save(stream, "PNG")
    np.testing.assert_array_equal(png.decode(stream.getvalue()), pixels)


GOOD = made()
LARGE = png.write(RANDOM.randint(0, 256, (264, 264, 3)).astype(np.uint8))
BROKEN = [
    (b"GIF89a" + bytes(40), "is no PNG"),
    (LARGE[: len(LARGE) // 2], "is damaged"),
    (GOOD[:30] + b"\x07" + GOOD[31:], "is damaged"),  # a wrong CRC
    (GOOD[:8], "does not begin with its header"),
    (made((2, 2, 16, 0, 0, 0, 0)), "bit depth 16"),
    (made((2, 2, 8, 3, 0, 0, 0)), "colour type 3"),
    (made((2, 2, 8, 6, 0, 0, 0)), "colour type 6"),
    (made((2, 2, 8, 0, 0, 0, 1)), "interlaced"),
    (made((0, 2, 8, 0, 0, 0, 0)), "0 x 2 pixels"),
    (made((1 << 20, 1 << 20, 8, 2, 0, 0, 0)), "at most"),
    (GOOD.replace(chunk(b"IDAT", zlib.compress(bytes(6))), chunk(b"IDAT", b"no zlib")), "is damaged"),
]


@pytest.mark.parametrize(("content", "says"), BROKEN)
def test_what_is_damaged_or_of_another_kind_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(png.PictureError, match=says):
        png.decode(content)


def test_no_byte_that_flips_makes_it_fail_otherwise() -> None:
    """Either the picture is refused, or it still has the size that its header says."""
    good = png.write(RANDOM.randint(0, 256, (6, 6, 3)).astype(np.uint8))
    for at in range(len(good)):
        content = good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
        try:
            assert png.decode(content).shape == (6, 6, 3)
        except png.PictureError:
            continue


def test_a_python_without_pillow_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png, "Image", None)
    for use in (lambda: png.decode(GOOD), lambda: png.write(np.zeros((2, 2, 3), np.uint8))):
        with pytest.raises(DataError, match="does not have it; install it: .* -m pip install pillow"):
            use()


def test_the_decoder_that_runs_is_named() -> None:
    assert png.DECODER.startswith("Pillow ")
