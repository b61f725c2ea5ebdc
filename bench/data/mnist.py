"""MNIST (LeCun, Cortes, Burges 1998): the four IDX files, plain or as .gz, and a stand-in in the plain format.

The stand-in's classes are ten patterns of 7 x 7 light and dark blocks, each under a weaker one of another class and noise, and every
image comes with its negative, of the same label. So the best linear model by any convex loss is the constant (by symmetry, w
and -w do equally well, and so does their mean, 0): chance. Rectified units tell a pattern from its negative and both from the rest. An
eighth of the images is faint. All arithmetic is in integers, so every NumPy makes the same pixels.
"""

import gzip
import os
import struct
import zlib

import numpy as np

from bench.data import files
from bench.errors import DataError

NAME = "mnist"
GENERATOR = 1
CLASSES = 10
SHAPE = (1, 28, 28)
PIXELS = 28 * 28
# An IDX file begins with two zeros, its type (8: unsigned bytes) and its number of dimensions.
MAGIC = {1: 0x00000801, 3: 0x00000803}
# The most items of a file: a header that lies must not fill the memory. MNIST has 60 000, EMNIST 814 255.
MOST_ITEMS = 1000000

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
# MD5 of the files, and of the archives that they are published as (torchvision checks the latter).
PLAIN = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
GZIP = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
VERSIONS = (("", PLAIN), (".gz", GZIP))
FOLDERS = ("", "mnist", os.path.join("MNIST", "raw"))  # the last is torchvision's


# -- reading ---------------------------------------------------------------------------------------------------------


def find(folder):
    """((folder, ending, whether the test files are there), origin) of the files under `folder`; the plain ones where there are both.

    The published experiment has no test set: t10k-* may be missing, both files of it.
    """
    folder = str(folder)
    if not os.path.isdir(folder):
        raise DataError("%s is not a folder: name the one that holds %s" % (folder, TRAIN[0]))
    for ending, official in VERSIONS:
        for at in (os.path.join(folder, sub) for sub in FOLDERS):
            present = [name for name in TRAIN + TEST if os.path.exists(os.path.join(at, name + ending))]
            dotted = _dotted(at, ending)
            if dotted:
                raise DataError(
                    "%s: MNIST's files are called so with `-` instead of `.`: rename it and the others" % dotted
                )
            if present:
                tested = any(name in present for name in TEST)
                sums = {name + ending: official[name + ending] for name in TRAIN + (TEST if tested else ())}
                return (at, ending, tested), files.vouch(at, sums, "md5", "MNIST's four files")
    message = "%s holds no MNIST (%s and %s, or the same with .gz); %s: put MNIST's four files there"
    raise DataError(message % ((folder,) + TRAIN + (files.held(folder),)))


def _dotted(folder, ending):
    """The path of a file that has a dot in its name where MNIST's own has a hyphen, as some archives unpack it; None without one."""
    paths = (os.path.join(folder, name.replace("-idx", ".idx") + ending) for name in TRAIN + TEST)
    return next((path for path in paths if os.path.exists(path)), None)


def read(located):
    """(train_x, train_y, test_x, test_y) of what find() found: uint8 (N, 1, 28, 28) and int32, in file order.

    Without test files the last two are empty.
    """
    folder, ending, tested = located
    train = _pair(*(os.path.join(folder, name + ending) for name in TRAIN))
    if not tested:
        return train + (np.empty((0,) + SHAPE, np.uint8), np.empty(0, np.int32))
    return train + _pair(*(os.path.join(folder, name + ending) for name in TEST))


def prepare(images):
    """Pixels / 255 as float32: no mean or deviation."""
    return np.divide(images, np.float32(255), dtype=np.float32)


def _pair(images_path, labels_path):
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != SHAPE[1:]:
        message = "%s has images of %d x %d, and MNIST's are 28 x 28: it is another data set"
        raise DataError(message % ((images_path,) + images.shape[1:]))
    if len(images) != len(labels):
        message = "%s has %d labels for the %d images of %s: they are not of one set; download both again"
        raise DataError(message % (labels_path, len(labels), len(images), os.path.basename(images_path)))
    if len(labels) and labels.max() >= CLASSES:
        raise DataError("%s has a label outside 0 to 9: it is not MNIST's (EMNIST?)" % labels_path)
    return images.reshape((-1,) + SHAPE), labels.astype(np.int32)


def read_idx(path, dimensions):
    """The unsigned bytes of an IDX file, an array of `dimensions` dimensions. Raises DataError, naming the file and the fix."""
    try:
        with files.opened(path) as raw, gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw as file:
            head = file.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions:
                raise DataError("%s ends within its head, after %d bytes: download it again" % (path, len(head)))
            numbers = struct.unpack(">%dI" % (1 + dimensions), head)
            if numbers[0] != MAGIC[dimensions]:
                message = "%s begins with %08x, and an IDX file of bytes in %d dimensions with %08x: it is another file"
                raise DataError(message % (path, numbers[0], dimensions, MAGIC[dimensions]))
            shape = numbers[1:]
            if shape[0] > MOST_ITEMS or any(side > 1024 for side in shape[1:]):
                sides = " x ".join(str(number) for number in shape)
                raise DataError("%s says that it holds %s bytes: it is damaged, or no MNIST" % (path, sides))
            size = int(np.prod(shape, dtype=np.int64))
            values = file.read(size + 1)  # one more, to see whether there is more
    except (IOError, OSError, EOFError, zlib.error) as error:
        raise DataError("%s cannot be read (%s): download it again, or make it readable" % (path, error))
    if len(values) != size:
        held = "more" if len(values) > size else "only %d" % len(values)
        raise DataError("%s says that it holds %d bytes, and holds %s: download it again" % (path, size, held))
    return np.frombuffer(values, np.uint8).reshape(shape)


# -- the stand-in ----------------------------------------------------------------------------------------------------

BLOCKS = 7
# Class -> +1 or -1 for each block. Those of two classes differ in 15 to 34 of the 49.
PATTERNS = np.random.RandomState(1998).randint(0, 2, (CLASSES, BLOCKS, BLOCKS)).astype(np.int16) * 2 - 1
CONTRAST = (56, 97)  # of a strong image, in grey levels; a faint one has an eighth of it
OTHER = 40  # at most this much of another class's pattern
NOISE = 48
_CHUNK = 5000


def write_stand_in(folder, train_items, test_items, seed):
    """Write the four plain files of a stand-in."""
    random = np.random.RandomState(seed)
    for names, items in ((TRAIN, train_items), (TEST, test_items)):
        x, y = draw(random, items)
        for name, values in zip(names, (x.reshape(-1, 28, 28), y)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(idx(values))


def idx(values):
    """A uint8 array as the bytes of an IDX file."""
    head = struct.pack(">%dI" % (1 + values.ndim), MAGIC[values.ndim], *values.shape)
    return head + np.ascontiguousarray(values, np.uint8).tobytes()


def draw(random, items):
    """`items` stand-in images and labels, uint8 (N, 1, 28, 28) and uint8: half are the others' negatives, shuffled."""
    half = (items + 1) // 2
    y = random.randint(0, CLASSES, half)
    x = np.empty((2 * half,) + SHAPE, dtype=np.uint8)
    for start in range(0, half, _CHUNK):
        part = _patterns(random, y[start : start + _CHUNK])
        x[start : start + len(part)] = part
    np.subtract(255, x[:half], out=x[half:])
    order = random.permutation(2 * half)[:items]
    return x[order], np.concatenate([y, y])[order].astype(np.uint8)


def _patterns(random, classes):
    n = len(classes)
    contrast = random.randint(CONTRAST[0], CONTRAST[1] + 1, (n, 1, 1)) >> (3 * (random.randint(0, 8, (n, 1, 1)) == 0))
    others = (classes + random.randint(1, CLASSES, n)) % CLASSES
    weaker = np.clip(random.randint(-OTHER, OTHER + 1, (n, 1, 1)), -contrast // 2, contrast // 2)
    blocks = PATTERNS[classes] * contrast.astype(np.int16) + PATTERNS[others] * weaker.astype(np.int16)
    grey = 128 + blocks.repeat(4, axis=1).repeat(4, axis=2)[:, None]
    noise = np.frombuffer(random.bytes(n * PIXELS), np.uint8).reshape((n,) + SHAPE).astype(np.int16)
    return np.clip(grey + (((noise - 128) * NOISE) >> 7), 0, 255)
