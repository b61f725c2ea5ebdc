"""Parts of the result of a single operation, in NumPy, at sizes that NumPy would take too long for as a whole.

Of a product some rows and columns, of a convolution a plane and a place of all items, of what computes each row by itself some rows, the
first and the last among them. The gradient is that of the sum of the result, or of the result times d where the operation is weighted.
Not held: gradients of a recurrent layer's weights and of attention's keys and values beyond FULL, where each hangs on everything.
"""

import collections

import numpy as np

from bench.workloads import ops, rows

# index: of the part in value number `number` of the results; expected: its values; terms: of its longest sum, None for the operation's own.
Part = collections.namedtuple("Part", "number index expected terms")
Part.__new__.__defaults__ = (None,)
# The gradient of input `name`, number `number`, along a random direction; p: the inputs of a smaller problem, whose gradient by that input
# is the part at `index`.
Slope = collections.namedtuple("Slope", "number index name p")

# Up to so many million operations a part is all.
FULL = 60.0
# Of a normalisation's weight, numbers of the hidden state.
FULL_ROWS = 1 << 22
LENGTH = 1024
_PLACES = 1000


def parts(name, direction, p, random):
    """A list of Part and Slope of an operation's result, or of its gradients by each input. p: name -> float64 array."""
    return _PARTS[_kind(name)](name, direction == ops.GRADIENT, p, random)


def _kind(name):
    if name in ops.ATTENTION:
        return "attention"
    return "product" if name in ops.PRODUCTS else name


def _some(random, length, count=6):
    """Some places of `length`, the first and the last among them."""
    return np.unique(np.append(random.randint(0, length, count - 2), [0, length - 1]))


def _elementwise(name, gradient, p, random):
    a, b = p["a"], p["b"]
    at = tuple(random.randint(0, length, _PLACES) for length in a.shape)
    x, y = a[at], b[at]
    if not gradient:
        return [Part(0, at, {"add": x + y, "mul": x * y, "div": x / y}[name])]
    one = np.ones(_PLACES)
    by_a, by_b = {"add": (one, one), "mul": (y, x), "div": (one / y, -x / y**2)}[name]
    return [Part(0, at, by_a), Part(1, at, by_b)]


def _product(name, gradient, p, random):
    a, b = p["a"], p["b"]
    row, column = _some(random, len(a), 3), _some(random, b.shape[1], 3)
    if not gradient:
        return [Part(0, (row,), a[row].dot(b)), Part(0, (slice(None), column), a.dot(b[:, column]))]
    of_row, of_column = b.sum(axis=1), a.sum(axis=0)
    inner = _some(random, len(b), 3)
    return [
        Part(0, (row,), np.tile(of_row, (len(row), 1)), b.shape[1]),
        Part(0, (slice(None), inner), np.tile(of_row[inner], (len(a), 1)), b.shape[1]),
        Part(1, (slice(None), column), np.tile(of_column[:, None], (1, len(column))), len(a)),
        Part(1, (inner,), np.tile(of_column[inner][:, None], (1, b.shape[1])), len(a)),
    ]


def _dense(name, gradient, p, random):
    x, layers = p["x"], (len(p) - 1) // 2
    row, n = _some(random, len(x)), x.shape[1]
    if not gradient:
        return [Part(0, (row,), ops.OPERATIONS[name].compute(dict(p, x=x[row])))]
    sums = [x.sum(axis=0)]
    for layer in range(layers):
        sums.append(sums[-1].dot(p["w%d" % layer].T) + len(x) * p["b%d" % layer])
    # Of each row of the result the gradient is one.
    d, found, terms = np.ones(n), [], layers * n + len(x)
    for layer in reversed(range(layers)):
        out = _some(random, n)
        found.append(Part(1 + 2 * layer, (out,), d[out][:, None] * sums[layer], terms))
        found.append(Part(2 + 2 * layer, (slice(None),), len(x) * d, terms))
        d = d.dot(p["w%d" % layer])
    return found + [Part(0, (row,), np.tile(d, (len(row), 1)), terms)]


def _convolution(name, gradient, p, random):
    x, w, b = p["x"], p["w"], p["b"]
    sides, item, channel = x.shape[2:], _some(random, len(x), 3), _some(random, len(w), 3)
    at = tuple(random.randint(1, side - 1) for side in sides)
    if not gradient:
        compute = ops.OPERATIONS[name].compute
        planes = [
            Part(
                0,
                (slice(n, n + 1), slice(o, o + 1)),
                compute({"x": x[n : n + 1], "w": w[o : o + 1], "b": b[o : o + 1]}),
            )
            for n, o in zip(item, channel)
        ]
        around = x[(slice(None), slice(None)) + tuple(slice(place - 1, place + 2) for place in at)]
        place = around.reshape(len(x), -1).dot(w.reshape(len(w), -1).T) + b
        return planes + [Part(0, (slice(None), slice(None)) + at, place)]
    total = w.sum(axis=0)
    planes, sums = total, np.zeros((len(channel),) + w.shape[2:])
    for axis, side in enumerate(sides):
        # Of a place of x and a place of the kernel: 1 where the result that they make lies in the picture.
        reach = np.arange(side)[:, None] - np.arange(3) + 1
        within = ((reach >= 0) & (reach < side)).astype(np.float64)
        planes = np.tensordot(planes, within, (1, 1))
    for shift in np.ndindex(w.shape[2:]):
        seen = tuple(slice(max(0, move - 1), side + min(0, move - 1)) for move, side in zip(shift, sides))
        sums[(slice(None),) + shift] = x[(slice(None), channel) + seen].sum(
            axis=tuple(a for a in range(2 + len(sides)) if a != 1)
        )
    many = len(x) * int(np.prod(sides))
    return [
        Part(0, (item,), np.broadcast_to(planes, (len(item),) + planes.shape), w[:, 0].size),
        Part(0, (slice(None), channel) + at, np.tile(planes[(channel,) + at], (len(x), 1)), w[:, 0].size),
        Part(1, (slice(None), channel), np.broadcast_to(sums, (len(w),) + sums.shape), many),
        Part(2, (slice(None),), np.full(len(b), float(many)), many),
    ]


def _transposed_convolution(name, gradient, p, random):
    x, w, b = p["x"], p["w"], p["b"]
    item, channel = _some(random, len(x), 3), _some(random, x.shape[1], 3)
    if not gradient:
        n, o = item[-1], channel[0]
        plane = np.einsum("chw,cij->hiwj", x[n], w[:, o])
        plane = plane.reshape(plane.shape[0] * 2, -1) + b[o]
        i, j, k, m = (
            random.randint(0, x.shape[2]),
            random.randint(0, x.shape[3]),
            random.randint(0, 2),
            random.randint(0, 2),
        )
        place = x[:, :, i, j].dot(w[:, :, k, m]) + b
        return [Part(0, (n, o), plane), Part(0, (slice(None), slice(None), 2 * i + k, 2 * j + m), place)]
    of_input, of_weight = w.sum(axis=(1, 2, 3)), x.sum(axis=(0, 2, 3))
    many = len(x) * x.shape[2] * x.shape[3]
    return [
        Part(0, (item,), np.broadcast_to(of_input[:, None, None], (len(item),) + x.shape[1:]), w[0].size),
        Part(0, (slice(None), channel, 0, 0), np.tile(of_input[channel], (len(x), 1)), w[0].size),
        Part(
            1, (channel,), np.broadcast_to(of_weight[channel][:, None, None, None], (len(channel),) + w.shape[1:]), many
        ),
        Part(2, (slice(None),), np.full(len(b), 4.0 * many), 4 * many),
    ]


def _recurrent(name, gradient, p, random):
    operation, row = ops.OPERATIONS[name], _some(random, len(p["x"]), 4)
    fewer = collections.OrderedDict(p, x=p["x"][row])
    if not gradient:
        return [Part(0, (row,), operation.compute(fewer))]
    found = [Slope(0, (row,), "x", fewer)]
    batch, steps, units = p["x"].shape
    if operation.mop(batch, steps, units) <= FULL:
        found += [Slope(number, (slice(None),), key, p) for number, key in enumerate(p) if key != "x"]
    return found


def _row_by_row(name, gradient, p, random):
    """Operations that compute each row by itself, with weights of a row's length or without."""
    operation, of_rows = ops.OPERATIONS[name], [key for key in p if key in ("h", "scores", "d")]
    row = _some(random, len(p[of_rows[0]]), 8)
    fewer = collections.OrderedDict((key, value[row] if key in of_rows else value) for key, value in p.items())
    if not gradient:
        return [Part(0, (row,), operation.compute(fewer))]
    found = [Part(0, (row,), operation.gradients(fewer)[0])]
    if "w" in p and p["h"].size <= FULL_ROWS:
        found += [Part(number, (slice(None),), value) for number, value in enumerate(operation.gradients(p)) if number]
    elif "b" in p:
        found.append(Part(2, (slice(None),), p["d"].sum(axis=0)))
    return found


def _cross_entropy(name, gradient, p, random):
    logits, ids = p["logits"], p["ids"]
    if gradient:
        row = _some(random, len(ids), 8)
        (value,) = rows.cross_entropy_gradients({"logits": logits[row], "ids": ids[row]})
        return [Part(0, (row,), value * (len(row) / float(len(ids))))]
    loss = 0.0
    for begin in range(0, len(ids), 256):
        fewer = {"logits": logits[begin : begin + 256], "ids": ids[begin : begin + 256]}
        loss += float(rows.cross_entropy(fewer)) * len(fewer["ids"]) / len(ids)
    return [Part(0, (), np.asarray(loss))]


def _embedding(name, gradient, p, random):
    """The rows of some ids, of the one that comes most often, and of one that does not come."""
    ids, often = p["ids"], np.bincount(p["ids"], minlength=len(p["table"]))
    row = np.unique(np.append(ids[_some(random, len(ids), 8)], [often.argmax(), often.argmin()]))
    return [Part(0, (row,), np.array([p["d"][ids == each].sum(axis=0) for each in row]), int(often.max()))]


def _attention(name, gradient, p, random):
    q, k, v = p["q"], p["k"], p["v"]
    batch, length, heads, dim = q.shape
    group = heads // k.shape[2]
    picked = [
        (random.randint(batch), length - 1 if turn < 2 else random.randint(length), random.randint(heads))
        for turn in range(8)
    ]
    found = []
    for n, t, head in picked:
        keys, values = k[n, : t + 1, head // group], v[n, : t + 1, head // group]
        scores = keys.dot(q[n, t, head]) / np.sqrt(dim)
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        expected = weights.dot(values)
        if gradient:
            by_weight = values.sum(axis=1)
            expected = (weights * (by_weight - weights.dot(by_weight))).dot(keys) / np.sqrt(dim)
        found.append((n, t, head, expected))
    # Together: of the first position the gradient is zero.
    at = tuple(np.array(place) for place in list(zip(*found))[:3])
    whole = [Part(0, at, np.array([expected for _, _, _, expected in found]))]
    for n in {0, batch - 1} if gradient and length <= LENGTH else ():
        head = random.randint(k.shape[2])
        of_head = slice(head, head + 1)
        fewer = {
            "q": q[n : n + 1, :, head * group : (head + 1) * group],
            "k": k[n : n + 1, :, of_head],
            "v": v[n : n + 1, :, of_head],
        }
        _, by_key, by_value = ops.OPERATIONS[name].gradients(fewer)
        at = slice(n, n + 1), slice(None), of_head
        whole += [Part(1, at, by_key), Part(2, at, by_value)]
    return whole


_PARTS = {
    "add": _elementwise,
    "mul": _elementwise,
    "div": _elementwise,
    "product": _product,
    "dense": _dense,
    "dense_x5": _dense,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv2d_transposed": _transposed_convolution,
    "lstm": _recurrent,
    "lstm_cell": _recurrent,
    "gru": _recurrent,
    "gru_cell": _recurrent,
    "layer_norm": _row_by_row,
    "rms_norm": _row_by_row,
    "softmax": _row_by_row,
    "cross_entropy": _cross_entropy,
    "embedding": _embedding,
    "attention": _attention,
}
