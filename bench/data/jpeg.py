"""JPEG pictures of one size, by Pillow: the images of the workloads that read pictures have it.

A JPEG has no checksums. A picture that ends early is refused, as is one whose header or coding is broken. Damage that still decodes is not
seen. Nothing is scaled while it is decoded (Pillow's `draft`): a picture is stored at the size that a step takes.
"""

import io

import numpy as np

from bench.data import png

SIGNATURE = b"\xff\xd8\xff"
SCAN = b"\xff\xda"
MOST_SCANS = 500  # a progressive picture has some ten; each costs a pass over all pixels, in as few as twelve bytes


def decode(content, side):
    """uint8 (side, side, 3) of a file's bytes: grey and CMYK become RGB. Raises PictureError."""
    png.require_pillow()
    from PIL.JpegImagePlugin import JpegImageFile  # this reader and none of Pillow's others

    try:
        with JpegImageFile(io.BytesIO(content)) as image:
            if image.size != (side, side):  # known before anything is decoded
                raise ValueError("it has %d x %d pixels" % image.size)
            if content.count(SCAN) > MOST_SCANS:
                raise ValueError("it has more than %d scans" % MOST_SCANS)
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # a damaged file makes Pillow raise exceptions of many types
        raise png.PictureError("is a JPEG that cannot be used (%s)" % error)
