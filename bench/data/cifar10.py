"""CIFAR-10 (Krizhevsky 2009): the Python and the binary version, and a stand-in in the Python version's format.

The stand-in's classes are ten gratings (two wavelengths, five directions) of random phase, contrast and brightness
under noise, and every image comes with its negative, of the same label. So the mean image of every class is the same
grey, and the best linear model by any convex loss is the constant (by symmetry, w and -w do equally well, and so does
their mean, 0): chance. A convolution followed by a maximum sees the gratings. An eighth of the images is faint. All
arithmetic is in integers, so every NumPy makes the same pixels.
"""

import math
import os

import numpy as np

from bench.data import files, pickles
from bench.errors import DataError

NAME = "cifar10"
GENERATOR = 2
CLASSES = 10
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32

# MD5 of the members of cifar-10-python.tar.gz (as torchvision checks them) and of cifar-10-binary.tar.gz.
PYTHON = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
BINARY = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
VERSIONS = (
    ("cifar-10-batches-py", PYTHON, "cifar-10-python.tar.gz"),
    ("cifar-10-batches-bin", BINARY, "cifar-10-binary.tar.gz"),
)


# -- reading ---------------------------------------------------------------------------------------------------------


def find(folder):
    """((folder, file names), origin) of the version under `folder`, which is the one with the files or its parent."""
    folder = str(folder)
    if not os.path.isdir(folder):
        raise DataError("%s is not a folder: name the one that holds cifar-10-batches-py" % folder)
    for sub, official, archive in VERSIONS:
        # Keras 3 unpacks the archive into a folder of its own.
        for at in (folder, os.path.join(folder, sub), os.path.join(folder, sub + "-target", sub)):
            if any(os.path.exists(os.path.join(at, name)) for name in official):
                return (at, sorted(official)), files.vouch(at, official, "md5", archive)
    for _, _, archive in VERSIONS:
        if os.path.exists(os.path.join(folder, archive)):
            raise DataError(
                "%s is still packed: run `tar -xzf %s` in %s" % (os.path.join(folder, archive), archive, folder)
            )
    message = "%s holds no CIFAR-10 (data_batch_1 … test_batch, or the same with .bin); %s: unpack cifar-10-python.tar.gz there"
    raise DataError(message % (folder, files.held(folder)))


def read(located):
    """(train_x, train_y, test_x, test_y) of what find() found: uint8 (N, 3, 32, 32) and int32, in file order."""
    folder, names = located
    decode = _decode_binary if names[0].endswith(".bin") else _decode_python
    batches = [decode(os.path.join(folder, name)) for name in names]  # sorted: data_batch_1 … 5, test_batch
    train_x = np.concatenate([x for x, _ in batches[:-1]]).reshape((-1,) + SHAPE)
    train_y = np.concatenate([y for _, y in batches[:-1]])
    return train_x, train_y, batches[-1][0].reshape((-1,) + SHAPE), batches[-1][1]


def prepare(images):
    """Pixels / 255 as float32: no mean or deviation, no augmentation."""
    return np.divide(images, np.float32(255), dtype=np.float32)


def _decode_python(path):
    try:
        batch = pickles.loads(files.read_bytes(path))
    except pickles.Refused as error:
        raise DataError(
            "%s holds %s, which no CIFAR-10 batch does: unpack cifar-10-python.tar.gz again" % (path, error)
        )
    data, labels = (batch.get(b"data"), batch.get(b"labels")) if isinstance(batch, dict) else (None, None)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        raise DataError("%s has no `data` of shape (N, 3072) and type uint8: it is not a CIFAR-10 batch" % path)
    if not isinstance(labels, list) or not all(isinstance(v, int) for v in labels):
        raise DataError("%s has no `labels` as a list of numbers: it is not a CIFAR-10 batch" % path)
    return data, _labels(path, np.array(labels, dtype=np.int64), len(data))


def _decode_binary(path):
    raw = np.frombuffer(files.read_bytes(path), np.uint8)
    if raw.size % (1 + PIXELS):
        raise DataError(
            "%s is %d bytes long, no multiple of 3073: unpack cifar-10-binary.tar.gz again" % (path, raw.size)
        )
    rows = raw.reshape(-1, 1 + PIXELS)
    return rows[:, 1:], _labels(path, rows[:, 0], len(rows))


def _labels(path, labels, expected):
    if len(labels) != expected:
        raise DataError("%s has %d labels for %d images: it is damaged" % (path, len(labels), expected))
    if len(labels) and not (labels.min() >= 0 and labels.max() < CLASSES):
        raise DataError("%s has a label outside 0 to 9: it is not a CIFAR-10 batch (CIFAR-100?)" % path)
    return labels.astype(np.int32)


# -- the stand-in ----------------------------------------------------------------------------------------------------

# One turn is 256 units, so that the angle of a wave wraps as a byte does.
# A sine cut at half its height: nearly a square, whose steep sides a 3 x 3 kernel finds within some thirty steps.
WAVE = np.array(
    [max(-127, min(127, int(round(254 * math.sin(math.pi * k / 128))))) for k in range(256)], dtype=np.int16
)
# Class -> advance in units a pixel, along x and y: wavelengths of 3 and 8 pixels in steps of 36 degrees.
WAVES = np.array(
    [
        (int(round(256.0 / length * math.cos(turn))), int(round(256.0 / length * math.sin(turn))))
        for length in (3, 8)
        for turn in (math.radians(36 * k) for k in range(5))
    ]
)
CONTRAST = (96, 127)  # of a strong image, in grey levels; a faint one has an eighth of it
NOISE = 16
_CHUNK = 2000


def write_stand_in(folder, train_items, test_items, seed):
    """Write data_batch_1 … 5 and test_batch of a stand-in, in the Python version's format."""
    random = np.random.RandomState(seed)
    x, y = draw(random, train_items)
    parts = zip(sorted(PYTHON), np.array_split(x, 5), np.array_split(y, 5))
    for name, part_x, part_y in parts:
        _write_batch(os.path.join(folder, name), part_x, part_y)
    _write_batch(os.path.join(folder, "test_batch"), *draw(random, test_items))


def _write_batch(path, x, y):
    label = ("generated " + os.path.basename(path)).encode("ascii")
    names = [b"generated_%06d.png" % number for number in range(len(x))]
    with open(path, "wb") as file:
        file.write(pickles.python2_batch(label, y, x.reshape(len(x), PIXELS), names))


def draw(random, items):
    """`items` stand-in images and labels, uint8 (N, 3, 32, 32) and uint8: half are the others' negatives, shuffled."""
    half = (items + 1) // 2
    y = random.randint(0, CLASSES, half)
    x = np.empty((2 * half,) + SHAPE, dtype=np.uint8)
    for start in range(0, half, _CHUNK):
        part = _gratings(random, y[start : start + _CHUNK])
        x[start : start + len(part)] = part
    np.subtract(255, x[:half], out=x[half:])
    order = random.permutation(2 * half)[:items]
    return x[order], np.concatenate([y, y])[order].astype(np.uint8)


def _gratings(random, classes):
    n = len(classes)
    advance = (WAVES[classes] + random.randint(-4, 5, (n, 2))).astype(np.uint8)
    phase = random.randint(0, 256, (n, 1, 1)).astype(np.uint8)
    at = np.arange(32, dtype=np.uint8)
    angle = phase + advance[:, 1, None, None] * at[:, None] + advance[:, 0, None, None] * at  # bytes wrap: a full turn
    contrast = random.randint(CONTRAST[0], CONTRAST[1] + 1, (n, 1, 1)) >> (3 * (random.randint(0, 8, (n, 1, 1)) == 0))
    wave = (WAVE[angle] * contrast.astype(np.int16)) >> 7
    grey = random.randint(112, 145, (n, 3, 1, 1)).astype(np.int16)  # a slight tint
    noise = np.frombuffer(random.bytes(n * PIXELS), np.uint8).reshape((n,) + SHAPE).astype(np.int16)
    return np.clip(grey + wave[:, None] + (((noise - 128) * NOISE) >> 7), 0, 255)
