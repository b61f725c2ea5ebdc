"""PNG pictures (ISO 15948) of 8 bits, grey or RGB, by Pillow: every image whose frameworks train on pictures has it.

Only what photographs are stored as is read: no palette, no transparency, no interlacing. Anything else, and anything that Pillow finds
damaged, is a PictureError. The header is checked before a pixel is unpacked.
"""

import io
import struct
import sys

import numpy as np

from bench.errors import DataError

try:
    from PIL import Image
    from PIL import __version__ as _version

    DECODER = "Pillow " + _version
except ImportError:
    Image = DECODER = None

MOST_PIXELS = 1 << 24  # a chest X-ray as published has 2^20
SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB = 0, 2  # the header's colour types


class PictureError(ValueError):
    """The fault of a picture, in words that follow its name."""


def require_pillow():
    """Raises DataError in a Python without Pillow."""
    if Image is None:
        command = "%s -m pip install pillow" % sys.executable
        raise DataError("pictures are read with Pillow, and this Python does not have it; install it: %s" % command)


def decode(content):
    """uint8 (H, W, C), C 1 or 3, of a file's bytes. Raises PictureError, and DataError without Pillow."""
    require_pillow()
    _check_header(content)
    try:
        with Image.open(io.BytesIO(content)) as image:
            pixels = np.asarray(image)
    except Exception as error:  # a damaged file makes Pillow raise exceptions of many types
        raise PictureError("is damaged (%s)" % error)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _check_header(content):
    if not content.startswith(SIGNATURE):
        raise PictureError("is no PNG")
    if content[12:16] != b"IHDR" or len(content) < 29:
        raise PictureError("does not begin with its header")
    width, height, depth, colour, compression, filtering, interlaced = struct.unpack(">IIBBBBB", content[16:29])
    if depth != 8 or colour not in (GREY, RGB) or interlaced or compression or filtering:
        kind = "bit depth %d, colour type %d%s" % (depth, colour, ", interlaced" if interlaced else "")
        raise PictureError("is of %s; convert it to 8-bit grey or RGB, not interlaced" % kind)
    if not 0 < width * height <= MOST_PIXELS:
        raise PictureError("is %d x %d pixels; at most %d are read" % (width, height, MOST_PIXELS))


def write(pixels):
    """The file's bytes of uint8 (H, W, C), C 1 or 3. Raises DataError without Pillow."""
    require_pillow()
    stream = io.BytesIO()
    # The fastest compression: a stand-in is written once, and thousands of pictures long.
    Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0]).save(stream, "PNG", compress_level=1)
    return stream.getvalue()
