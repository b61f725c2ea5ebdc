"""Pictures that stay in files until a mini-batch needs them: cut to 224 x 224, turned, and given ImageNet's mean 0 and deviation 1."""

import collections

import numpy as np

SIDE = 224
MEAN = (0.485, 0.456, 0.406)  # of ImageNet, as every pretrained network takes it
DEVIATION = (0.229, 0.224, 0.225)

# One part of a data set. pictures: what names each, to read(picture) -> uint8 (stored, stored, 3); labels: an array, one row a picture.
Part = collections.namedtuple("Part", "pictures labels read stored")
# A data set; validation is None where nothing but the test part is held out.
Pictures = collections.namedtuple("Pictures", "name source sha256 train validation test")

# float32 (256, 3): a byte of a channel -> (byte / 255 - mean) / deviation
_VALUES = ((np.arange(256.0)[:, None] / 255.0 - MEAN) / DEVIATION).astype(np.float32)


def normalised(pixels, top, left, flip):
    """float32 (3, 224, 224) of the crop at (top, left), turned left to right where `flip`: ImageNet's mean 0 and deviation 1."""
    crop = pixels[top : top + SIDE, left : left + SIDE]
    crop = crop[:, ::-1] if flip else crop
    out = np.empty((3, SIDE, SIDE), np.float32)
    for channel in range(3):
        # mode="clip" makes no copy; "raise" would.
        np.take(_VALUES[:, channel], crop[:, :, channel], out=out[channel], mode="clip")
    return out


def batch(part, pick, places):
    """(x (N, 3, 224, 224) float32, y (N, ...)) of the pictures `pick`; places: (top, left, flip) of each. Raises DataError."""
    x = np.empty((len(pick), 3, SIDE, SIDE), np.float32)
    for index, (which, place) in enumerate(zip(pick, places)):
        x[index] = normalised(part.read(part.pictures[which]), *place)
    return x, part.labels[pick]


def drawn_places(random, items, stored):
    """A random crop of pictures of stored x stored and a toss of a coin for each."""
    limit = stored - SIDE + 1
    return list(zip(random.randint(0, limit, items), random.randint(0, limit, items), random.randint(0, 2, items)))


def centre(items, stored):
    return [((stored - SIDE) // 2, (stored - SIDE) // 2, 0)] * items


def spaced(items, listed):
    """`items` evenly spaced ones of a list, or all where there are no more."""
    return [listed[index * len(listed) // items] for index in range(items)] if items < len(listed) else listed
