"""The data sets, read from their real files, or from generated stand-ins in the same file formats.

`load("cifar10", folder, ...)` reads the files under `folder` and refuses files that differ from the official ones; without a
folder it generates a stand-in once, keeps it in the cache, and reads that with the same reader.
"""

import collections
import hashlib
import os
import tempfile

import numpy as np

from bench.data import files
from bench.errors import DataError

__all__ = ["DataError", "Dataset", "load", "default_cache"]

# name: "cifar10", or "cifar10 (own files)" where the files are not the official ones but a SHA256SUMS vouches for them;
# source: "files" | "generated"; sha256: of the observations and labels used, whatever file format they came in.
Dataset = collections.namedtuple("Dataset", "name source sha256 train_x train_y test_x test_y")


def default_cache():
    """Where stand-ins are kept: DLBENCH_CACHE, or a folder among the temporary files."""
    return os.environ.get("DLBENCH_CACHE") or os.path.join(tempfile.gettempdir(), "dlbench-cache")


def load(name, folder, train_items, test_items, seed, cache=None):
    """Return the Dataset `name` ("cifar10" | "imdb" | "mnist"): x as the workload takes it, y int32, all C-contiguous.

    folder: where the real files lie, or None for a stand-in. train_items, test_items: at most this many; where the
    files hold more, that many evenly spaced ones (a file may be sorted by label). seed: of the stand-in. cache: a
    writable folder. Raises DataError, naming the file, what is wrong and the fix.
    """
    from bench.data import cifar10, imdb, mnist

    kind = {"cifar10": cifar10, "imdb": imdb, "mnist": mnist}[name]
    if folder is None:
        cache, write = cache or default_cache(), kind.write_stand_in
        folder = files.stand_in(cache, kind.NAME, kind.GENERATOR, seed, train_items, test_items, write)
    located, origin = kind.find(folder)
    train_x, train_y, test_x, test_y = kind.read(located)
    train_x, train_y = _spaced(train_x, train_y, train_items)
    test_x, test_y = _spaced(test_x, test_y, test_items)
    digest = _digest(train_x, train_y, test_x, test_y)
    label = name + " (own files)" if origin == files.OWN else name
    source = "generated" if origin == files.GENERATED else "files"
    return Dataset(label, source, digest, kind.prepare(train_x), train_y, kind.prepare(test_x), test_y)


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
