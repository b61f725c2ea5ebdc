"""The items that a cell took, by the bench's own count: what the last step trained on, and what the evaluation saw.

A bug of a feed, of a data module or of an adapter's own array shows in no digest of the data and hardly in a loss: an epoch in file order,
an evaluation of one batch, test items among those that are trained on. So what the cell must have taken is worked out here a second time,
from the data set and from the random numbers of the cell's seed, and is held against what was handed over. It needs no stored file, so it
holds for every seed, for real data and for several devices.

`of_step` and `held_out` are a second writing of bench.feeds, on purpose: they share no line with it.
"""

import numpy as np

from bench import arithmetic, contract, parity, rules
from bench.data import pictures
from bench.parity import Result

# Numbers of an item by which it is looked for among others. Those that agree in all of them are compared in full.
KEYS = 32
# Held-out pictures whose logits are computed again: one of the deep networks takes the reference a second. Of data in memory it is the
# workload's COMPARED.
COMPARED_PICTURES = 1

# Two numbers of which the larger is chosen, nearer to each other than this part of the largest: a float32 network errs by 2e-6 of it
# (bench.bounds' models of moe-bytes).
CLOSE = 2.0**-16


def check(feed, training, loop, state, size):
    """The checks of what was trained on: a list of parity.Result.

    loop: the timing.Loop that ended; state: of the random numbers before its first batch; size: items of a batch of all devices.
    last batch          how many numbers differ from those of the items that the last step had to take
    test items ...      the share of the test part that is in the training part, too
    """
    expected = training.inputs(*of_step(feed, state, size, loop.taken - 1))
    pairs = [[on_host(training.array_of(value)) for value in pair] for pair in zip(loop.last, expected)]
    wrong = sum(_differing(given, due) for given, due in pairs)
    twice = in_both(feed)
    # None of a stand-in's items is there twice.
    generated = feed.data.source == "generated"
    bound = 0.5 / feed.test_items if feed.test_items and generated else None
    return [_result("items", rules.LAST_BATCH, wrong), _result("items", rules.IN_BOTH, twice, bound)]


def of_step(feed, state, size, step):
    """(x, y) as the data set has them, of the part of this process in a step, counted from 0."""
    random, rank, share = np.random.RandomState(), feed.group.rank, size // feed.group.count
    random.set_state(state)
    stays = isinstance(feed.data, pictures.Pictures)
    order, places, whole = np.arange(feed.train_items), None, feed.train_items // size
    for taken in range(step + 1) if stays or feed.shuffled else ():
        if taken % whole == 0:
            order = random.permutation(feed.train_items)
        if stays:
            places = pictures.drawn_places(random, size, feed.data.train.stored)
    begin = step % whole * size + rank * share
    pick = order[begin : begin + share] if stays or feed.shuffled else slice(begin, begin + share)
    if stays:
        return pictures.batch(feed.data.train, pick, places[rank * share : (rank + 1) * share])
    return feed.data.train_x[pick], feed.data.train_y[pick]


def in_both(feed):
    """The share of the test part that is in the training part, too."""
    if not feed.test_items:
        return 0.0
    if isinstance(feed.data, pictures.Pictures):
        trained = set(feed.data.train.pictures)
        return sum(picture in trained for picture in feed.data.test.pictures) / float(feed.test_items)
    train, test = (x.reshape(len(x), -1) for x in (feed.data.train_x, feed.data.test_x))
    tested, twice = {}, set()
    for place, key in enumerate(_keys(test)):
        tested.setdefault(key, []).append(place)
    for row, key in enumerate(_keys(train)):
        twice.update(place for place in tested.get(key, ()) if np.array_equal(test[place], train[row]))
    return len(twice) / float(feed.test_items)


def _keys(rows):
    """Of each row some of its numbers, as bytes."""
    columns = np.linspace(0, rows.shape[1] - 1, KEYS).astype(np.int64)
    size, together = KEYS * rows.itemsize, rows[:, columns].tobytes()
    return [together[start : start + size] for start in range(0, len(together), size)]


def in_file_order(parts):
    """The batches of several processes, which took turns at them: [of each process] -> [all]."""
    return [parts[at % len(parts)][at // len(parts)] for at in range(sum(len(part) for part in parts))]


def evaluated(name, feed, parameters, precision, size, pairs, variant=""):
    """The checks of the last evaluation: a list of parity.Result.

    parameters: tensor -> float32 array, as the evaluation had them; pairs: [(logits, labels)] of its batches, in file order.

    held-out items      how many have no logits, or another item's label
    logits              of some of these items: their relative error, by the reference from these parameters
    """
    x_of, labels = held_out(feed, size)
    given = np.concatenate([labels_of for _, labels_of in pairs])
    logits = np.concatenate([logits_of[: len(labels_of)] for logits_of, labels_of in pairs])
    both = min(len(given), len(labels))
    wrong = abs(len(labels) - len(given)) + max(0, len(given) - len(logits))
    wrong += np.count_nonzero((given[:both] != labels[:both]).reshape(both, -1).any(axis=1))
    in_memory = contract.specification(name).COMPARED
    compared = COMPARED_PICTURES if isinstance(feed.data, pictures.Pictures) else in_memory
    # From the last one on: an evaluation that is cut short lacks it.
    pick = np.linspace(len(labels) - 1, 0, min(compared, len(labels))).astype(np.int64)
    rounding = arithmetic.Exact()
    exact = reference_logits(name, parameters, *x_of(pick), rounding=rounding, variant=variant)
    # An item that has no logits counts as zeros.
    seen = np.array([logits[place] if place < len(logits) else np.zeros(logits.shape[1:]) for place in pick])
    held = settled(rounding.choices, len(pick))
    error = parity.relative_error(seen[held], exact[held])
    bound = rules.taken(precision)["evaluated", "logits"]
    return [_result("evaluated", rules.HELD_OUT, wrong), _result("evaluated", "logits", error, bound)]


def worst(results):
    """Of several evaluations of one cell, of each statement the parity.Result with the largest error."""
    largest = {}
    for result in results:
        key = result.quantity, result.tensor
        if key not in largest or not result.error <= largest[key].error:
            largest[key] = result
    return list(largest.values())


def held_out(feed, size):
    """(pick -> (x, y) of these items, labels of all that an evaluation sees): what is held out, of arrays whole batches of it.

    Where nothing is held out, it is the first batch of the training part.
    """
    if isinstance(feed.data, pictures.Pictures):
        part = feed.data.test
        return lambda pick: pictures.batch(part, pick, pictures.centre(len(pick), part.stored)), part.labels
    x, y = (feed.data.test_x, feed.data.test_y) if feed.test_items else (feed.data.train_x[:size], feed.data.train_y)
    batch = min(size, len(x))
    return lambda pick: (x[pick], y[pick]), y[: len(x) // batch * batch]


def settled(choices, items):
    """Which logits of `items` items do not hang on a choice that rounding may turn: an index of their array.

    No position sees a later one. So those of each item before its first close choice.
    """
    if not choices:
        return slice(None)
    clear = np.all([gap > CLOSE * np.abs(numbers).max() for numbers, gap in choices], axis=0)
    return np.logical_and.accumulate(clear.reshape(items, -1), axis=1)


def reference_logits(name, parameters, x, y, rounding, variant=""):
    """The logits of the evaluation, from parameters in float32, which errs by a thousandth of the bound."""
    workload = contract.specification(name)
    x = x.astype(np.float32) if x.dtype.kind == "f" else x
    if workload.predict:
        return workload.predict(parameters, x, rounding)
    return workload.loss_and_gradients(parameters, x, y, rounding, variant)[0]


def on_host(array):
    """Any framework's array as NumPy's. Each framework has its own word for it; the others are NumPy's already, or convert themselves."""
    for word in () if isinstance(array, np.ndarray) else ("cpu", "asnumpy", "numpy", "get"):
        array = getattr(array, word)() if callable(getattr(array, word, None)) else array
    return np.asarray(array)


def _differing(given, due):
    """How many numbers of two arrays differ; all of them where the shapes do."""
    return np.count_nonzero(given != due) if given.shape == due.shape else max(1, due.size)


def _result(quantity, tensor, error, bound=None):
    """bound: where it is not the one of every precision."""
    bound = rules.taken("fp32")[quantity, tensor] if bound is None else bound
    return Result(quantity, tensor, float(error), bound, bool(error <= bound))
