"""The data sets, read from their real files, or from generated stand-ins in the same file formats.

A data set is a module here, and "data" in a workload's .json is its name. It has NAME, GENERATOR, and write_stand_in(folder, train_items,
test_items, seed). A set that fits in memory has also find(folder), read(located) and prepare(x). A set whose pictures stay in files until
a step needs them has instead load(folder, train_items, test_items, seed, cache), which returns bench.data.pictures.Pictures.

`load("cifar10", folder, ...)` reads the files under `folder` and refuses files that differ from the official ones; without a
folder it generates a stand-in once, keeps it in the cache, and reads that with the same reader.
"""

import collections
import hashlib
import importlib
import os
import tempfile

import numpy as np

from bench import rules
from bench.data import files
from bench.errors import DataError

__all__ = ["DataError", "Dataset", "default_cache", "load", "names", "problem", "stays_in_files"]

# name: "cifar10", or "cifar10 (own files)" where the files are not the official ones but a SHA256SUMS vouches for them;
# source: "files" | "generated"; sha256: of the observations and labels used, whatever file format they came in.
Dataset = collections.namedtuple("Dataset", "name source sha256 train_x train_y test_x test_y")


def default_cache():
    """The folder of stand-ins: DLBENCH_CACHE, or one among the temporary files."""
    return os.environ.get("DLBENCH_CACHE") or os.path.join(tempfile.gettempdir(), "dlbench-cache")


def load(name, folder, train_items, test_items, seed, cache=None):
    """Return the Dataset `name`: x as the workload takes it, y int32, all C-contiguous. Of a set that stays in files: its Pictures.

    folder: where the real files lie, or None for a stand-in. train_items, test_items: at most this many; where the
    files hold more, that many evenly spaced ones (a file may be sorted by label). seed: of the stand-in. cache: a
    writable folder. Raises DataError, naming the file, what is wrong and the fix.
    """
    kind = _module(name)
    cache = cache or default_cache()
    if stays_in_files(name):
        return kind.load(folder, train_items, test_items, seed, cache)
    if folder is None:
        folder = files.stand_in(cache, name, kind.GENERATOR, seed, train_items, test_items, kind.write_stand_in)
    located, origin = kind.find(folder)
    train_x, train_y, test_x, test_y = kind.read(located)
    train_x, train_y = _spaced(train_x, train_y, train_items)
    test_x, test_y = _spaced(test_x, test_y, test_items)
    digest = _digest(train_x, train_y, test_x, test_y)
    label = name + " (own files)" if origin == files.OWN else name
    source = "generated" if origin == files.GENERATED else "files"
    return Dataset(label, source, digest, kind.prepare(train_x), train_y, kind.prepare(test_x), test_y)


def names():
    """The names of all data sets: the modules here that can write a stand-in."""
    stems = sorted(os.path.splitext(name)[0] for name in os.listdir(os.path.dirname(__file__)) if name.endswith(".py"))
    return [stem for stem in stems if stem != "__init__" and hasattr(_module(stem), "write_stand_in")]


def problem(name, folder):
    """The sentence why the files of a data set cannot be read from a folder; None where they can. Pictures are listed and not opened."""
    kind = _module(name)
    try:
        if stays_in_files(name):
            kind.load(str(folder), 1, 2, 0, None)
        else:
            kind.find(folder)
    except DataError as error:
        return str(error)
    return None


def stays_in_files(name):
    """True if the pictures of a data set stay in files until a step needs them."""
    return name not in rules.RANDOM and hasattr(_module(name), "load")


def _module(name):
    return importlib.import_module("bench.data." + name)


def _spaced(x, y, items):
    """`items` evenly spaced observations, or all where there are no more."""
    if items >= len(x):
        return x, y
    pick = np.arange(items, dtype=np.int64) * len(x) // items
    return x[pick], y[pick]


def _digest(*arrays):
    sha256 = hashlib.sha256()
    for array in arrays:
        sha256.update(("%s %s;" % (array.dtype.str, array.shape)).encode("ascii"))
        if array.size:  # no view of nothing: a set may have no test files
            sha256.update(memoryview(np.ascontiguousarray(array)).cast("B"))
    return sha256.hexdigest()
