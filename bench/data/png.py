"""PNG pictures (ISO 15948) of 8 bits, grey or RGB: a strict reader, a writer, and the image's own decoder where it has one.

The reader takes what photographs are stored as: no palette, no transparency, no interlacing. Anything else, and anything damaged, is a
PngError: chunks are checked by their CRC, the pixels by the size that the header gives, and no file makes it take more memory than
MOST_PIXELS pixels do.
"""

import struct
import zlib

import numpy as np

try:  # an image that has Pillow decodes with its C code, some three times as fast
    from PIL import Image
    from PIL import __version__ as _version

    DECODER = "Pillow " + _version
except ImportError:
    Image, DECODER = None, "NumPy"

MOST_PIXELS = 1 << 24  # a chest X-ray as published has 2^20
SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3}  # colour type of the header -> bytes a pixel at 8 bits
NONE, SUB, UP, AVERAGE, PAETH = range(5)


class PngError(ValueError):
    """What is wrong with a picture, in words that follow its name."""


def decode(content):
    """uint8 (H, W, C), C 1 or 3, of a file's bytes. Raises PngError."""
    return _decode_with_pillow(content) if Image else read(content)


def _decode_with_pillow(content):
    import io

    _header(next(_chunks(content), (b"", b"")))  # the same pictures, whoever decodes
    try:
        with Image.open(io.BytesIO(content)) as image:
            pixels = np.asarray(image)
    except Exception as error:  # whatever a damaged file makes Pillow raise
        raise PngError("is damaged (%s)" % error)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def read(content):
    """What decode() returns, by zlib and NumPy alone. Raises PngError."""
    chunks = _chunks(content)
    width, height, channels = _header(next(chunks, (b"", b"")))
    data, ended = [], False
    for name, body in chunks:
        if name == b"IDAT":
            data.append(body)
        elif name == b"IEND":
            ended = True
            break
        elif name[:1].isupper():
            raise PngError("has the critical chunk %r, which no grey or RGB picture needs" % name)
    if not ended:
        raise PngError("ends before its IEND chunk: it is cut short")
    rows = _inflate(b"".join(data), height, 1 + width * channels)
    filters = rows[:, 0]
    if filters.max() > PAETH:
        raise PngError("has the unknown filter %d in row %d" % (filters.max(), filters.argmax()))
    pixels = rows[:, 1:].reshape(height, width, channels)
    return _unfilter_diagonals(pixels, filters) if (filters >= AVERAGE).any() else _unfilter_rows(pixels, filters)


def _chunks(content):
    """(name, body) of each chunk, its CRC checked."""
    if content[:8] != SIGNATURE:
        raise PngError("is no PNG")
    at = 8
    while at < len(content):
        if len(content) - at < 12:
            raise PngError("is cut short within a chunk")
        (size,) = struct.unpack_from(">I", content, at)
        end = at + 8 + size
        if end + 4 > len(content):
            raise PngError("is cut short within the chunk %r" % content[at + 4 : at + 8])
        if zlib.crc32(content[at + 4 : end]) & 0xFFFFFFFF != struct.unpack_from(">I", content, end)[0]:
            raise PngError("has a wrong CRC in the chunk %r: it is damaged" % content[at + 4 : at + 8])
        yield content[at + 4 : at + 8], content[at + 8 : end]
        at = end + 4


def _header(chunk):
    """(width, height, bytes a pixel)."""
    name, body = chunk
    if name != b"IHDR" or len(body) != 13:
        raise PngError("does not begin with its header")
    width, height, depth, colour, compression, filtering, interlaced = struct.unpack(">IIBBBBB", body)
    if depth != 8 or colour not in _CHANNELS or interlaced or compression or filtering:
        kind = "bit depth %d, colour type %d%s" % (depth, colour, ", interlaced" if interlaced else "")
        raise PngError("is of %s; convert it to 8-bit grey or RGB, not interlaced" % kind)
    if not 0 < width * height <= MOST_PIXELS:
        raise PngError("is %d x %d pixels; at most %d are read" % (width, height, MOST_PIXELS))
    return width, height, _CHANNELS[colour]


def _inflate(data, height, stride):
    decompressor = zlib.decompressobj()
    try:
        raw = decompressor.decompress(data, height * stride + 1)
    except zlib.error as error:
        raise PngError("has damaged pixels (%s)" % error)
    if len(raw) != height * stride:
        raise PngError("has %s pixels than its header says" % ("more" if len(raw) > height * stride else "fewer"))
    return np.frombuffer(raw, np.uint8).reshape(height, stride)


def _unfilter_rows(pixels, filters):
    """Filters None, Sub and Up: sums along a row at once for all rows, then row after row; bytes wrap as the format has it."""
    out = pixels.copy()
    sub = filters == SUB
    out[sub] = np.cumsum(pixels[sub], axis=1, dtype=np.uint8)
    for row in np.flatnonzero(filters == UP):
        if row:
            out[row] += out[row - 1]
    return out


def _unfilter_diagonals(pixels, filters):
    """Every filter. A pixel needs those to its left, above, and left above, so a whole diagonal is done at once.

    Diagonal d holds pixel (row, d - row) at place row + 1; what lies outside the picture is zero.
    """
    height, width, channels = pixels.shape
    kinds = np.append(np.uint8(NONE), filters)[:, None]
    row = np.arange(height)
    skewed = np.zeros((height + width - 1, height + 1, channels), np.uint8)
    for column in range(width):
        skewed[row + column, row + 1] = pixels[:, column]
    done = np.zeros((height + width + 1, height + 1, channels), np.int16)  # two diagonals of zeros before the first
    average, paeth, left_only, above_only = kinds == AVERAGE, kinds == PAETH, kinds == SUB, kinds == UP
    for d in range(height + width - 1):
        first, last = max(0, d - width + 1) + 1, min(height, d + 1) + 1  # its places within the picture
        left, above, corner = done[d + 1, first:last], done[d + 1, first - 1 : last - 1], done[d, first - 1 : last - 1]
        # |p - a|, |p - b| and |p - c| of p = a + b - c (ISO 15948, 9.4)
        by_left, by_above = np.abs(above - corner), np.abs(left - corner)
        by_corner = np.abs(left + above - 2 * corner)
        nearest = np.where(
            (by_left <= by_above) & (by_left <= by_corner), left, np.where(by_above <= by_corner, above, corner)
        )
        here = slice(first, last)
        guess = left * left_only[here] + above * above_only[here]
        guess += ((left + above) >> 1) * average[here] + nearest * paeth[here]
        done[d + 2, here] = (skewed[d, here] + guess) & 255
    out = np.empty_like(pixels)
    for column in range(width):
        out[:, column] = done[row + column + 2, row + 1]
    return out


def write(pixels, filters=UP):
    """The file's bytes of uint8 (H, W, C), C 1 or 3. filters: the one filter, or that of each row."""
    height, width, channels = pixels.shape
    filters = np.broadcast_to(np.asarray(filters, np.uint8), (height,))
    padded = np.zeros((height + 1, width + 1, channels), np.int16)
    padded[1:, 1:] = pixels
    left, above, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    by_left, by_above, by_corner = np.abs(above - corner), np.abs(left - corner), np.abs(left + above - 2 * corner)
    nearest = np.where(
        (by_left <= by_above) & (by_left <= by_corner), left, np.where(by_above <= by_corner, above, corner)
    )
    guess = np.choose(filters[:, None, None], [0 * left, left, above, (left + above) >> 1, nearest])
    rows = ((pixels - guess) & 255).astype(np.uint8).reshape(height, -1)
    raw = np.concatenate([filters[:, None], rows], axis=1).tobytes()
    colour = {count: kind for kind, count in _CHANNELS.items()}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body) & 0xFFFFFFFF)
