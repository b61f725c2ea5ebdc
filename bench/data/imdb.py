"""The IMDB reviews (Maas et al. 2011) as Keras keeps them in imdb.npz, and a stand-in in the same format.

The stand-in's reviews have the lengths and word frequencies (Zipf) of real ones. Praise and blame are 24 words each;
every review holds as many of one as of the other, in pairs, and its label is which of a pair comes later: what a
reviewer ends on. So a model that counts words, however it weighs them, stays at chance. An eighth of the reviews is
ambivalent: order tossed by a coin. Everything drawn goes through integers, so every NumPy makes the same reviews.
"""

import functools
import io
import itertools
import os
import zipfile

import numpy as np

from bench.data import files, pickles
from bench.errors import DataError

NAME = "imdb"
GENERATOR = 1
FILE = "imdb.npz"
OFFICIAL = {FILE: "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"}  # SHA-256, as Keras checks it

# How Keras' load_data numbers the words, and how long a review is for the workload.
PAD, START, UNKNOWN, SHIFT = 0, 1, 2, 3
VOCABULARY = 30000
LENGTH = 150

_LIMIT = 2 << 30  # bytes: more than any imdb.npz unpacks to (the official one: under 100 MB)


# -- reading ---------------------------------------------------------------------------------------------------------


def find(folder):
    """(path of imdb.npz, origin). `folder` holds the file, or is the file itself."""
    folder = str(folder)
    path = folder if os.path.isfile(folder) else os.path.join(folder, FILE)
    if not os.path.isfile(path):
        raise DataError("%s is missing (%s): put Keras' imdb.npz there" % (path, files.held(folder)))
    if os.path.basename(path) != FILE:
        raise DataError("%s is not called imdb.npz: name the folder that holds Keras' imdb.npz" % path)
    return path, files.vouch(os.path.dirname(path) or ".", OFFICIAL, "sha256", "Keras' imdb.npz")


def read(path):
    """(train_x, train_y, test_x, test_y): int32 ids (N, 150) and int32 labels, in file order."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > _LIMIT:
                raise DataError("%s unpacks to more than 2 GB: it is not Keras' imdb.npz" % path)
            members = [_array(archive.read(name + ".npy")) for name in ("x_train", "y_train", "x_test", "y_test")]
    except DataError:
        raise
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise exceptions of many types
        raise DataError("%s cannot be read as Keras' imdb.npz (%s): download it again" % (path, error))
    train_x, train_y, test_x, test_y = members
    return (
        _reviews(path, train_x),
        _labels(path, train_y, train_x),
        _reviews(path, test_x),
        _labels(path, test_y, test_x),
    )


def prepare(ids):
    """The workload takes the result of read() as it is."""
    return np.ascontiguousarray(ids)


def _array(content):
    """The array in a .npy file, or the list in one that holds a pickled array of objects."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(stream)
    if dtype.hasobject:
        return pickles.loads(content[stream.tell() :])
    if dtype.kind not in "ui" or fortran:
        raise ValueError("an array of type %s" % dtype)
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape)


def _reviews(path, reviews):
    """Lists of word numbers -> ids (N, 150): Keras' start mark and shift, the last 150, zeros on the right and no mask."""
    if not isinstance(reviews, list) or not all(isinstance(review, list) for review in reviews):
        raise DataError("%s does not hold its reviews as lists of numbers: it is not Keras' imdb.npz" % path)
    last = [review[-LENGTH:] for review in reviews]
    kept = np.array([len(review) for review in last], dtype=np.int64)
    begun = np.array([len(review) < LENGTH for review in reviews])  # the start mark is among the last 150
    try:
        words = np.fromiter(itertools.chain.from_iterable(last), dtype=np.int32, count=int(kept.sum()))
    except (TypeError, ValueError, OverflowError):
        raise DataError("%s holds a review with something else than word numbers: it is not Keras' imdb.npz" % path)
    if len(words) and words.min() < 1:
        raise DataError("%s holds a word number below 1: it is not Keras' imdb.npz" % path)
    words = words + SHIFT
    words[words >= VOCABULARY] = UNKNOWN
    ids = np.full((len(reviews), LENGTH), PAD, dtype=np.int32)
    ids[begun, 0] = START
    row = np.repeat(np.arange(len(reviews)), kept)
    column = np.arange(len(words)) - np.repeat(np.cumsum(kept) - kept, kept) + begun[row]
    ids[row, column] = words
    return ids


def _labels(path, labels, reviews):
    labels = np.asarray(labels)
    if labels.shape != (len(reviews),) or labels.dtype.kind not in "ui" or not np.isin(labels, (0, 1)).all():
        raise DataError("%s does not hold one label, 0 or 1, a review: it is not Keras' imdb.npz" % path)
    return labels.astype(np.int32)


# -- the stand-in ----------------------------------------------------------------------------------------------------

WORDS = 88584  # words in Keras' index
FIRST, EACH = 40, 24  # praise and blame alternate among the ranks 40 to 87, about as frequent as "good" and "bad"
PAIRS = 8
# Quantiles of the lengths of real reviews, roughly: (share in 1 024ths, words).
QUANTILES = ((0, 11), (102, 90), (256, 126), (512, 176), (768, 284), (922, 455), (973, 610), (1014, 900), (1023, 2494))
_TABLE_BITS = 20


def write_stand_in(folder, train_items, test_items, seed):
    """Write imdb.npz of a stand-in: four members as Keras' file has them."""
    random = np.random.RandomState(seed)
    members = []
    for items in (train_items, test_items):
        words, end, labels = draw(random, items)
        words, end = words.tolist(), end.tolist()
        reviews = np.empty(items, dtype=object)
        reviews[:] = [words[begin:stop] for begin, stop in zip([0] + end, end)]
        members += [reviews, labels]
    with open(os.path.join(folder, FILE), "wb") as file:
        np.savez(file, x_train=members[0], y_train=members[1], x_test=members[2], y_test=members[3])


def draw(random, items):
    """(words of all reviews in a row, where each ends, labels): word numbers by rank, from 1; int64 labels."""
    labels = random.randint(0, 2, items)
    lengths = _length_table()[random.randint(0, 1024, items)]
    end = np.cumsum(lengths)
    total = int(lengths.sum())
    pick = np.frombuffer(random.bytes(4 * total), "<u4") & ((1 << _TABLE_BITS) - 1)
    words = _word_table()[pick]
    _place_opinions(random, words, lengths, end, labels)
    return words, end, labels.astype(np.int64)


def _length_table():
    share, words = np.array(QUANTILES).T
    at = np.arange(1024)
    below = np.minimum(np.searchsorted(share, at, side="right"), len(share) - 1) - 1
    return words[below] + (at - share[below]) * (words[below + 1] - words[below]) // (share[below + 1] - share[below])


@functools.lru_cache(maxsize=1)
def _word_table():
    """Word numbers, each as often as Zipf's law says (flattened at the top as in English); no words of opinion."""
    cumulated = np.cumsum(1.0 / (np.arange(WORDS) + 3.7))
    size = 1 << _TABLE_BITS
    table = np.searchsorted(cumulated, (np.arange(size) + 0.5) * (cumulated[-1] / size)).astype(np.int32) + 1
    opinion = (table >= FIRST) & (table < FIRST + 2 * EACH)
    table[opinion] += 2 * EACH
    return table


def _place_opinions(random, words, lengths, end, labels):
    """Put pairs of praise and blame among the last 149 words of each review, in the order its label says."""
    items, window = len(lengths), np.minimum(lengths, LENGTH - 1)
    # The smallest of random keys choose distinct places; each key ends in its place, so no two are equal and any sort
    # will do.
    place = np.arange(LENGTH - 1, dtype=np.uint32)
    keys = np.frombuffer(random.bytes(4 * items * (LENGTH - 1)), "<u4").reshape(items, LENGTH - 1)
    keys = np.where(place < window[:, None], keys & 0x7FFFFF00, 0x80000000).astype(np.uint32) | place
    places = (np.sort(keys, axis=1)[:, : 2 * PAIRS] & 0xFF).astype(np.int64).reshape(items, PAIRS, 2)
    places.sort(axis=2)
    ambivalent = random.randint(0, 8, items) == 0
    ends_on = np.where(ambivalent[:, None], random.randint(0, 2, (items, PAIRS)), labels[:, None])
    opinions = FIRST + 2 * random.randint(0, EACH, (items, PAIRS, 2)) + np.stack([1 - ends_on, ends_on], axis=2)
    chosen = np.arange(PAIRS) < np.minimum(PAIRS, window // 3)[:, None]
    at = (end - window)[:, None, None] + places
    words[at[chosen]] = opinions[chosen]
