"""Windows of any file of bytes, and a stand-in whose entropy is an exact number.

A window has 257 bytes: x is the first 256, y the last 256. Of a file the last tenth is held out, and windows begin anywhere, evenly spaced.

The stand-in has documents of 64 bytes. Byte 0 is its key, one of 4 (0x30 to 0x33), byte 1 a letter, one of 32 (0x40 to 0x5F), both uniform.
Each further byte is, with probability 0.8, the letter that follows the one before it in the key's permutation, else any letter. No two of
the four permutations agree anywhere. Windows begin at a document and do not overlap, so that each has its keys: then no model goes below
the entropy, 1.7263 bits a byte, and no table of byte pairs below 3.2867. To get there a model needs its positions, attention over up to
62 bytes, and a table of two arguments.
"""

import os

import numpy as np

from bench.data import files
from bench.errors import DataError

NAME = "bytes"
GENERATOR = 1
LENGTH = 256
# As they are published: the text of char-rnn and nanoGPT, and that of Hutter's prize. --data may also name a file by itself.
FILES = ("input.txt", "enwik8")
HELD_OUT = 10  # a tenth

# -- reading ---------------------------------------------------------------------------------------------------------


def find(folder):
    """((path, path of the held-out part or None), origin). `folder` holds one of FILES, or is the file itself."""
    folder = str(folder)
    if os.path.isfile(os.path.join(folder, files.MARKER)):
        origin = files.vouch(folder, dict.fromkeys(PARTS), "sha256", "the stand-in")
        return tuple(os.path.join(folder, part) for part in PARTS), origin
    named = [os.path.join(folder, name) for name in FILES if os.path.isfile(os.path.join(folder, name))]
    if not os.path.isfile(folder) and len(named) != 1:
        message = "%s holds %s of %s (%s): put one of them there, or name a file"
        raise DataError(message % (folder, "several" if named else "none", " and ".join(FILES), files.held(folder)))
    return (folder if os.path.isfile(folder) else named[0], None), files.OWN


def read(located):
    """(train_x, train_y, test_x, test_y): uint8 (N, 256), views of the file's bytes."""
    path, held_out = located
    content = np.frombuffer(files.read_bytes(path), np.uint8)
    if held_out:
        return windows(path, content, LENGTH) + windows(
            held_out, np.frombuffer(files.read_bytes(held_out), np.uint8), LENGTH
        )
    cut = len(content) - len(content) // HELD_OUT
    return windows(path, content[:cut], 1) + windows(path, content[cut:], 1)


def windows(path, content, step):
    """(x, y) of the windows that begin at every `step`-th byte. Raises DataError where there is none."""
    many = (len(content) - LENGTH - 1) // step + 1
    if many < 1:
        raise DataError("%s is too short: it must have %d bytes; give more" % (path, HELD_OUT * (LENGTH + 1)))
    strided = np.lib.stride_tricks.as_strided
    return tuple(strided(part, (many, LENGTH), (step, 1), writeable=False) for part in (content, content[1:]))


def prepare(x):
    """The workload takes the result of read() as it is."""
    return x


# -- the stand-in ----------------------------------------------------------------------------------------------------

PARTS = ("train.bin", "test.bin")
KEYS, LETTERS, DOCUMENT = 4, 32, 64
FIRST_KEY, FIRST_LETTER = 0x30, 0x40
RIGHT = 0.8
SOURCE_SEED = 20171124
_AT_ONCE = 2**15  # documents


def write_stand_in(folder, train_items, test_items, seed):
    """Write the two parts, of whole documents: of the last one only the first byte is in a window."""
    random = np.random.RandomState(seed)
    for part, items in zip(PARTS, (train_items, test_items)):
        left = items * LENGTH // DOCUMENT + 1
        with open(os.path.join(folder, part), "wb") as file:
            while left:
                many = min(left, _AT_ONCE)
                file.write(draw(random, many).tobytes())
                left -= many


def draw(random, documents):
    """uint8 (documents, 64)."""
    table, keys = permutations(), random.randint(0, KEYS, documents)
    drawn = random.randint(0, LETTERS, (documents, DOCUMENT))
    right = random.random_sample((documents, DOCUMENT)) < RIGHT
    for place in range(2, DOCUMENT):
        drawn[:, place] = np.where(right[:, place], table[keys, drawn[:, place - 1]], drawn[:, place])
    drawn += FIRST_LETTER
    drawn[:, 0] = keys + FIRST_KEY
    return drawn.astype(np.uint8)


def permutations():
    """int (KEYS, LETTERS): permutations of which no two agree anywhere."""
    random, found = np.random.RandomState(SOURCE_SEED), []
    while len(found) < KEYS:
        one = random.permutation(LETTERS)
        if all((one != other).all() for other in found):
            found.append(one)
    return np.array(found)


def entropy():
    """Bits a byte of whole documents."""
    noise = (1.0 - RIGHT) / LETTERS
    each = -(RIGHT + noise) * np.log2(RIGHT + noise) - (LETTERS - 1) * noise * np.log2(noise)
    return (np.log2(KEYS) + np.log2(LETTERS) + (DOCUMENT - 2) * each) / DOCUMENT


def bits(documents):
    """Bits a byte of documents, uint8 (N, 64), by the source's own probabilities: the floor of this sample."""
    x, noise = documents.astype(np.int64), (1.0 - RIGHT) / LETTERS
    follows = permutations()[x[:, :1] - FIRST_KEY, x[:, 1:-1] - FIRST_LETTER]
    p = np.where(follows == x[:, 2:] - FIRST_LETTER, RIGHT + noise, noise)
    return float((np.log2(KEYS) + np.log2(LETTERS) - np.log2(p).sum(axis=1)).mean() / DOCUMENT)
