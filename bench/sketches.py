"""The comparison of tensors: a sketch of an array, or of how far training moved it."""

import collections
import zlib

import numpy as np


class Moved(collections.namedtuple("Moved", "after before")):
    """A tensor's movement, as two flat arrays. New arrays of a large tensor's size take longer to get than to fill: it has no third one."""

    @property
    def size(self):
        return self.before.size

    def piece(self, start=None, stop=None):
        """Some of its numbers in float64, or all."""
        return np.subtract(self.after[start:stop], self.before[start:stop], dtype=np.float64)


class Sketch(object):
    """The sketch of one tensor. Its `of` is a vector whose difference to another's has, up to 5 %, the 2-norm of the tensors'.

    Small tensors are kept whole. Large ones are count-sketched (Charikar et al. 2002): each element is added with a random sign to one
    of `buckets` sums; E||s||^2 = ||v||^2 with relative deviation sqrt(2 / buckets) on the square, 4.4 % for 1024.
    """

    PIECE = 2**15  # numbers that are added at a time: they stay in the processor's cache
    MOST_BUCKETS = 2**15

    def __init__(self, name, size, buckets):
        if buckets > self.MOST_BUCKETS:
            raise ValueError("%s: a sketch of %d sums; at most %d" % (name, buckets, self.MOST_BUCKETS))
        self.size, self.sums = size, buckets if size > buckets else None
        if self.sums is None:
            return
        random = np.random.RandomState(zlib.crc32(name.encode("ascii")))
        # Twice as many sums, those of the positive sign last.
        self.places = np.empty(size, dtype=np.uint16)
        for start, stop in self._pieces():
            self.places[start:stop] = random.randint(0, buckets, stop - start)
        for start, stop in self._pieces():
            self.places[start:stop] += (buckets * random.randint(0, 2, stop - start)).astype(np.uint16)

    def of(self, value):
        """float64 vector of an array of that size, or of a Moved."""
        if isinstance(value, Moved):
            piece = value.piece
        else:
            flat = np.ravel(value)

            def piece(start, stop):
                return flat[start:stop].astype(np.float64)

        if self.sums is None:
            return piece(0, self.size)
        both = np.zeros(2 * self.sums)
        for start, stop in self._pieces():
            both += np.bincount(self.places[start:stop], weights=piece(start, stop), minlength=2 * self.sums)
        return both[self.sums :] - both[: self.sums]

    def _pieces(self):
        return [(start, min(self.size, start + self.PIECE)) for start in range(0, self.size, self.PIECE)]


def movement(parameters, after):
    """tensor -> its Moved, from what was loaded and what was read. Raises ValueError where a tensor was read in another shape."""
    for name, before in parameters.items():
        refuse_shape(name, after[name], before)
    moved = [(name, Moved(np.ravel(after[name]), np.ravel(before))) for name, before in parameters.items()]
    return collections.OrderedDict(moved)


def refuse_shape(name, read, loaded):
    """Raises ValueError where a tensor was read in another shape than it was loaded in."""
    if np.shape(read) != np.shape(loaded):
        raise ValueError("%s was read as %r and loaded as %r" % (name, np.shape(read), np.shape(loaded)))
