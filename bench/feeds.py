"""The sources of a training cell's mini-batches: arrays in memory, pictures on a disk, or a pool of random tensors.

A feed has `train_items` and `test_items`, `batches(training, size, random)`, which yields mini-batches for ever in the layout that the
adapter wants, `held_out(training, size)`, which yields (x, y) of the held-out part once, and `validated`: whether `validation(training,
size)` yields those of another one.
"""

import collections
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench.data import pictures


def in_order(training, x, y, size, rank=0, count=1):
    """[(inputs, labels as the step wants them, labels)] of the whole mini-batches in file order, each made once by the adapter.

    Of `count` processes each takes its own part of every batch.
    """
    batches, part = [], size // count
    for start in range(rank * part, len(x) - size + 1 + rank * part, size):
        labels = y[start : start + part]
        batches.append(tuple(training.inputs(x[start : start + part], labels)) + (labels,))
    return batches


def mini_batches(x, y, size, random, rank=0, count=1):
    """Whole mini-batches for ever: every epoch shuffled by observation, the remainder left out.

    Of `count` processes, which shuffle alike, each takes its own part of every batch.
    """
    part = size // count
    while True:
        order = random.permutation(len(x))
        for start in range(0, len(x) - size + 1, size):
            pick = order[start + rank * part : start + (rank + 1) * part]
            yield x[pick], y[pick]


class Waited(object):
    """An iterator that counts the seconds that its caller waits for it: two readings of the clock a mini-batch."""

    def __init__(self, batches, clock=time.perf_counter):
        self._batches, self._clock = batches, clock
        self.seconds = 0.0

    def __iter__(self):
        return self

    def __next__(self):
        begin = self._clock()
        batch = next(self._batches)
        self.seconds += self._clock() - begin
        return batch


class ArrayFeed(object):
    """A data set that fits in memory. `group` (bench.parallel) says which process this is; each takes its part of every batch."""

    def __init__(self, data, shuffled, group):
        self.data, self.shuffled, self.group = data, shuffled, group
        self.train_items, self.test_items, self.validated = len(data.train_x), len(data.test_x), False
        self.evaluated = None

    def batches(self, training, size, random):
        x, y = self.data.train_x, self.data.train_y
        if self.shuffled:
            x, y = training.inputs(x, y)
            return mini_batches(x, y, size, random, self.group.rank, self.group.count)
        ordered = in_order(training, x, y, size, self.group.rank, self.group.count)
        return itertools.cycle([(x, y) for x, y, _ in ordered])

    def held_out(self, training, size):
        """Whole mini-batches, made once; the processes take turns. If nothing is held out, the first batch of the training data."""
        if self.evaluated is None:
            x, y = self.data.test_x, self.data.test_y
            if self.test_items:
                made = in_order(training, x, y, min(size, self.test_items))[self.group.rank :: self.group.count]
            else:
                x, y = self.data.train_x[:size], self.data.train_y[:size]
                made = in_order(training, x, y, size, self.group.rank, self.group.count)
            self.evaluated = [(x, labels) for x, _, labels in made]
        return iter(self.evaluated)


class PictureFeed(object):
    """Pictures decoded, cropped and turned while the steps before theirs are computed: each mini-batch by one of `workers` threads.

    Threads and not processes: Pillow's decoder and NumPy's loops release the interpreter's lock, and starting a process is not safe beside
    a framework that has threads. Random numbers are drawn in order, whichever thread decodes.
    Of several processes (`group`) each decodes its own part of every mini-batch, and they take turns at what is held out; `devices` of one
    process share each of its mini-batches evenly.
    """

    def __init__(self, data, workers, group, devices=1):
        self.data, self.workers, self.group, self.devices = data, workers, group, devices
        self.train_items, self.test_items = len(data.train.pictures), len(data.test.pictures)
        self.validated = data.validation is not None

    def batches(self, training, size, random):
        part, share = self.data.train, size // self.group.count

        def picks():
            while True:
                order = random.permutation(len(part.pictures))
                for start in range(0, len(order) - size + 1, size):
                    places = pictures.drawn_places(random, size, part.stored)
                    own = slice(self.group.rank * share, (self.group.rank + 1) * share)
                    yield order[start : start + size][own], places[own]

        return self._made(training, part, picks())

    def held_out(self, training, size):
        """All of it, the last mini-batch as small as it comes (a metric is of every item): the centre of each picture."""
        return self._of(training, self.data.test, size)

    def validation(self, training, size):
        return self._of(training, self.data.validation, size)

    def _of(self, training, part, size):
        """(x, labels); x may have more rows than there are labels, so that the devices can share it."""
        picks = np.array_split(np.arange(len(part.pictures)), range(size, len(part.pictures), size))
        own = [pick for pick in picks if len(pick)][self.group.rank :: self.group.count]
        even = [np.resize(pick, -(-len(pick) // self.devices) * self.devices) for pick in own]
        made = self._made(training, part, ((pick, pictures.centre(len(pick), part.stored)) for pick in even))
        return ((x, part.labels[pick]) for (x, _), pick in zip(made, own))

    def _made(self, training, part, picks):
        """(x, y) of each (pick, places), in order. At most one more than there are workers is made ahead."""

        def make(pick, places):
            return training.inputs(*pictures.batch(part, pick, places))

        with ThreadPoolExecutor(self.workers) as pool:
            ahead = collections.deque(pool.submit(make, *pick) for pick in itertools.islice(picks, self.workers + 1))
            try:
                while ahead:
                    made = ahead.popleft().result()
                    ahead.extend(pool.submit(make, *pick) for pick in itertools.islice(picks, 1))
                    yield made
            finally:
                for future in ahead:
                    future.cancel()


class PoolFeed(object):
    """Random numbers in memory, as in the published synthetic run, from a pool that is used again and again.

    A whole epoch of pictures would take 52.6 GB. The pool is larger than any cache, and the order of its mini-batches changes nothing. Of
    several processes (`group`) each draws its own part of every mini-batch. draw(random, items): (x, y), of the workload.
    """

    POOL = 8  # mini-batches: 308 MB for those of 64 pictures

    def __init__(self, items, draw, seed, group):
        self.train_items, self.test_items, self.validated = items, 0, False
        self.draw, self.seed, self.group = draw, seed, group

    def batches(self, training, size, random):
        own, part = np.random.RandomState(self.seed + self.group.rank), size // self.group.count
        pool = []
        for _ in range(min(self.POOL, max(1, self.train_items // size))):
            pool.append(training.inputs(*self.draw(own, part)))
        return itertools.cycle(pool)

    def held_out(self, training, size):
        return iter(())
