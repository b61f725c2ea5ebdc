"""Curves of single operations over their size (dl_bench, 2021, and its author's list of what was still wanted).

An operation is measured forward, and forward with the gradient of the sum of its output by every input. Work is counted as
floating-point operations: one an element of an elementwise result, 2 m n k for a product of matrices (dl_bench counts 2 m n (k - 1):
convert when comparing); with the gradient three times the forward work for products, since each of the two factors' gradients is a
product of the same size. Traffic is the least there can be: every input read once, every result written once; the gradients of a sum
are the result's own, handed on.

Where several devices share a cell, it measures what they do together alone (bench.collectives).
Attention is causal. Its products are counted over the half of the scores that it needs, and with the gradient 3.5 times that: two products
forward, and five for the gradients, one of which forms the scores anew (Dao 2023, "FlashAttention-2"). Each backend is an operation of its
own. Its sums are held to fp32 at the shorter precisions too: all backends sum so.

The operations of a transformer's rows (bench.workloads.rows) count one operation an element, as an elementwise one does: the memory bounds
them. Their gradient is that of the sum of the result times d, which is drawn and read as any input. Of a table that ids name rows of, the
named rows are read.

At fp8 there are the products of matrices alone, as networks are trained with it (Micikevicius et al. 2022, "FP8 formats for deep
learning"): factors in e4m3, the gradient of the result in e5m2, sums in fp32, results in bf16.
"""

import collections

import numpy as np

from bench import arithmetic, collectives, reference
from bench.workloads import attention, rows

ITEMSIZE = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}

FORWARD, GRADIENT, STEP, COPY, REDUCE = "forward", "gradient", "step", "copy", collectives.REDUCE

# One operation. sizes: the ladder, each a tuple of whole numbers; inputs(*size): name -> shape; result(*size): its shape;
# compute(p): the result in NumPy from name -> array; mop(*size): million operations forward; terms(*size): length of its longest sum;
# factor: what the gradient multiplies the work by; gradients(p): those by each input in NumPy, where a slope would be too blunt;
# sums: the largest unit roundoff of its sums, where that is not the precision's own; weighted: True if the gradient is of the sum of the
# result times an array "d", which is the last of the inputs then.
Operation = collections.namedtuple("Operation", "sizes inputs result compute mop terms factor gradients sums weighted")
Operation.__new__.__defaults__ = (None, None, False)


def _shapes(*pairs):
    return collections.OrderedDict(pairs)


def _elementwise(compute, factor):
    """Two square matrices of side n."""
    return Operation(
        sizes=tuple((n,) for n in (32, 128, 512, 1024, 2048, 4096, 8192, 16384)),
        inputs=lambda n: _shapes(("a", (n, n)), ("b", (n, n))),
        result=lambda n: (n, n),
        compute=lambda p: compute(p["a"], p["b"]),
        mop=lambda n: n * n / 1e6,
        terms=lambda n: 1,
        factor=factor,
    )


def _matmul(*sizes):
    """(m, k) times (k, n)."""
    return Operation(
        sizes=sizes,
        inputs=lambda m, k, n: _shapes(("a", (m, k)), ("b", (k, n))),
        result=lambda m, k, n: (m, n),
        compute=lambda p: p["a"].dot(p["b"]),
        mop=lambda m, k, n: 2.0 * m * k * n / 1e6,
        terms=lambda m, k, n: k,
        factor=3.0,
    )


def _dense(layers):
    """`layers` dense layers in a row, (batch, n) -> (batch, n), weights (out, in)."""

    def inputs(batch, n):
        arrays = [("x", (batch, n))]
        for index in range(layers):
            arrays += [("w%d" % index, (n, n)), ("b%d" % index, (n,))]
        return _shapes(*arrays)

    def compute(p):
        x = p["x"]
        for index in range(layers):
            x = x.dot(p["w%d" % index].T) + p["b%d" % index]
        return x

    return Operation(
        sizes=tuple((64, n) for n in (64, 256, 512, 1024, 2048, 4096, 8192)),
        inputs=inputs,
        result=lambda batch, n: (batch, n),
        compute=compute,
        mop=lambda batch, n: layers * (2.0 * n + 1) * batch * n / 1e6,
        terms=lambda batch, n: layers * n,
        factor=3.0,
    )


def _convolution(dimensions, *sizes):
    """Kernel 3, padding 1, stride 1. Sizes are (batch, channels in and out, length of a side)."""

    def compute(p):
        x, w = p["x"], p["w"]
        if dimensions == 1:  # as a picture of one row, under a kernel whose other rows are zero
            x, w = x[:, :, None], np.pad(w[:, :, None], ((0, 0), (0, 0), (1, 1), (0, 0)), mode="constant")
        y, _ = reference.conv2d(x, w, p["b"], 1, arithmetic.Exact())
        return y[:, :, 0] if dimensions == 1 else y

    def result(batch, channels, side):
        return (batch, channels) + (side,) * dimensions

    return Operation(
        sizes=sizes,
        inputs=lambda batch, channels, side: _shapes(
            ("x", result(batch, channels, side)), ("w", (channels, channels) + (3,) * dimensions), ("b", (channels,))
        ),
        result=result,
        compute=compute,
        mop=lambda batch, channels, side: 2.0 * batch * channels**2 * side**dimensions * 3**dimensions / 1e6,
        terms=lambda batch, channels, side: channels * 3**dimensions,
        factor=3.0,
    )


def _transposed_convolution(*sizes):
    """Kernel 2, stride 2, no padding: each input makes 2 x 2 outputs of its own. w is (in, out, 2, 2)."""

    def compute(p):
        blocks = np.einsum("nchw,coij->nohiwj", p["x"], p["w"])
        n, o, h, _, w, _ = blocks.shape
        return blocks.reshape(n, o, 2 * h, 2 * w) + p["b"][:, None, None]

    return Operation(
        sizes=sizes,
        inputs=lambda batch, channels, side: _shapes(
            ("x", (batch, channels, side, side)), ("w", (channels, channels, 2, 2)), ("b", (channels,))
        ),
        result=lambda batch, channels, side: (batch, channels, 2 * side, 2 * side),
        compute=compute,
        mop=lambda batch, channels, side: 2.0 * batch * channels**2 * side**2 * 4 / 1e6,
        terms=lambda batch, channels, side: channels,
        factor=3.0,
    )


def _recurrent(gates, compute):
    """From a zero state over `steps` positions to the last state. Gates are stacked: LSTM i, f, g, o, GRU r, z, n."""
    return Operation(
        sizes=((8, 8, 32), (16, 32, 64), (32, 64, 128), (64, 150, 128), (64, 150, 512), (128, 256, 1024)),
        inputs=lambda batch, steps, units: _shapes(
            ("x", (batch, steps, units)),
            ("w", (gates * units, units)),
            ("u", (gates * units, units)),
            ("b", (gates * units,)),
            ("c", (gates * units,)),
        ),
        result=lambda batch, steps, units: (batch, units),
        compute=compute,
        mop=lambda batch, steps, units: 4.0 * steps * batch * gates * units**2 / 1e6,
        terms=lambda batch, steps, units: steps * units,
        factor=3.0,
    )


def _gru(p):
    h, _ = reference.gru(p["x"].transpose(1, 0, 2), p["w"], p["b"], p["u"], p["c"], arithmetic.Exact())
    return h


def _lstm(p):
    units = p["u"].shape[1]
    h = c = np.zeros((len(p["x"]), units))
    for x in p["x"].transpose(1, 0, 2):
        gates = x.dot(p["w"].T) + p["b"] + h.dot(p["u"].T) + p["c"]
        i, f, g, o = (gates[:, index * units : (index + 1) * units] for index in range(4))
        c = reference.sigmoid(f) * c + reference.sigmoid(i) * np.tanh(g)
        h = reference.sigmoid(o) * np.tanh(c)
    return h


WIDTHS = ((64, 768), (1024, 768), (4096, 768), (2048, 4096), (16384, 4096), (65536, 4096))
CLASSES = 50304  # GPT-2's tokens, and some more, so that 128 divides their number


def _normalisation(compute, gradients, *vectors):
    """Sizes are (rows, width). The sum of squares errs by sqrt(width / 3) roundings, since all are positive, and stands under a root."""
    return Operation(
        sizes=WIDTHS,
        inputs=lambda rows, width: _shapes(("h", (rows, width)), *((name, (width,)) for name in vectors)),
        result=lambda rows, width: (rows, width),
        compute=compute,
        mop=lambda rows, width: rows * width / 1e6,
        terms=lambda rows, width: max(rows, width / 12.0),
        factor=3.0,
        gradients=gradients,
        sums=2.0**-24,
        weighted=True,
    )


def _softmax():
    return Operation(
        sizes=WIDTHS,
        inputs=lambda rows, width: _shapes(("scores", (rows, width))),
        result=lambda rows, width: (rows, width),
        compute=rows.softmax,
        mop=lambda rows, width: rows * width / 1e6,
        terms=lambda rows, width: width / 3.0,
        factor=3.0,
        gradients=rows.softmax_gradients,
        sums=2.0**-24,
        weighted=True,
    )


def _cross_entropy():
    """Sizes are (rows, classes). The loss holds the logarithm of the sum, so the sum's relative error is divided by that."""
    return Operation(
        sizes=tuple((count, CLASSES) for count in (8, 64, 512, 4096)),
        inputs=lambda rows, classes: _shapes(("logits", (rows, classes)), ("ids", (rows,))),
        result=lambda rows, classes: (),
        compute=rows.cross_entropy,
        mop=lambda rows, classes: rows * classes / 1e6,
        terms=lambda rows, classes: classes / 3.0 / np.log(classes) ** 2,
        factor=2.0,
        gradients=rows.cross_entropy_gradients,
        sums=2.0**-24,
    )


def _embedding():
    """Sizes are (ids, vocabulary, width). The longest sum is of the id that is drawn most often."""
    return Operation(
        sizes=((256, 512, 64), (1024, CLASSES, 768), (16384, CLASSES, 768), (16384, CLASSES, 4096)),
        inputs=lambda ids, vocabulary, width: _shapes(("table", (vocabulary, width)), ("ids", (ids,))),
        result=lambda ids, vocabulary, width: (ids, width),
        compute=rows.embedding,
        mop=lambda ids, vocabulary, width: ids * width / 1e6,
        terms=lambda ids, vocabulary, width: ids / np.log(vocabulary),
        factor=2.0,
        gradients=rows.embedding_gradients,
        weighted=True,
    )


# Of all sizes with as many heads as fill a GPU, as FlashAttention's papers have it: the longer, the fewer in a batch.
TOKENS, WIDTH = 16384, 1024
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# operation -> (dim of a head, query heads of a key head)
HEADS = collections.OrderedDict(
    [("attention_d64", (64, 1)), ("attention_d128", (128, 1)), ("attention_grouped", (128, 4))]
)
# The end of the operation's name: the framework's own choice, three that a person may ask for, and products and softmax one by one.
BACKENDS = ("", "_flash", "_cudnn", "_efficient", "_written")


def _attention(dim, group):
    """Sizes are (batch, length, query heads, key heads, dim). The first two are for CPUs. Of two key heads a query head reads one."""
    small = tuple((1, length, 2 * group, 2, dim) for length in (256, 512))
    heads = WIDTH // dim
    return Operation(
        sizes=small + tuple((TOKENS // length, length, heads, heads // group, dim) for length in LENGTHS),
        inputs=lambda batch, length, heads, kv_heads, dim: _shapes(
            ("q", (batch, length, heads, dim)),
            ("k", (batch, length, kv_heads, dim)),
            ("v", (batch, length, kv_heads, dim)),
        ),
        result=lambda batch, length, heads, kv_heads, dim: (batch, length, heads, dim),
        compute=attention.result,
        mop=lambda batch, length, heads, kv_heads, dim: 2.0 * batch * heads * length**2 * dim / 1e6,
        terms=lambda batch, length, heads, kv_heads, dim: max(length, dim),
        factor=3.5,
        gradients=attention.gradients,
        sums=2.0**-24,
    )


_SQUARES = (32, 64, 128, 256, 400, 512, 800, 1024, 2048, 4096, 8192, 16384)

OPERATIONS = collections.OrderedDict(
    [
        ("add", _elementwise(lambda a, b: a + b, 1.0)),
        ("mul", _elementwise(lambda a, b: a * b, 3.0)),
        ("div", _elementwise(lambda a, b: a / b, 5.0)),
        ("matmul", _matmul(*[(n, n, n) for n in _SQUARES])),
        ("matmul_flat", _matmul(*[(n, 64, n) for n in (64, 256, 1024, 4096, 16384)])),
        ("matmul_thin", _matmul(*[(64, n, 64) for n in (64, 256, 1024, 4096, 16384, 65536)])),
        ("dense", _dense(1)),
        ("dense_x5", _dense(5)),
        ("conv1d", _convolution(1, (8, 16, 64), (16, 64, 128), (32, 128, 256), (64, 256, 512), (64, 512, 2048))),
        ("conv2d", _convolution(2, (2, 8, 16), (8, 16, 32), (16, 32, 32), (16, 64, 56), (32, 128, 56), (64, 256, 56))),
        (
            "conv2d_transposed",
            _transposed_convolution((2, 8, 16), (8, 32, 16), (16, 64, 28), (32, 128, 56), (64, 256, 56)),
        ),
        ("lstm", _recurrent(4, _lstm)),
        ("lstm_cell", _recurrent(4, _lstm)),  # the same, by a person's own cell in a loop
        ("gru", _recurrent(3, _gru)),
        ("gru_cell", _recurrent(3, _gru)),
        ("layer_norm", _normalisation(rows.layer_norm, rows.layer_norm_gradients, "w", "b")),
        ("rms_norm", _normalisation(rows.rms_norm, rows.rms_norm_gradients, "w")),
        ("softmax", _softmax()),
        ("cross_entropy", _cross_entropy()),
        ("embedding", _embedding()),
    ]
)

# All backends of one shape of heads are the same computation.
ATTENTION = collections.OrderedDict()
for _heads, _shape in HEADS.items():
    _computation = _attention(*_shape)
    ATTENTION.update((_heads + _backend, _computation) for _backend in BACKENDS)
OPERATIONS.update(ATTENTION)

RATE, MOMENTUM, BETA1, BETA2, EPSILON = 0.01, 0.9, 0.9, 0.999, 1e-8


def _optimizer(make, operations):
    """One step of a flat parameter w by a gradient g, from a state of zeros. operations: how many an element."""

    def compute(p):
        parameters = {"w": p["w"]}
        make().update(parameters, {"w": p["g"]}, arithmetic.Exact())
        return parameters["w"]

    return Operation(
        sizes=tuple((1 << power,) for power in (10, 14, 18, 21, 24, 27)),
        inputs=lambda n: _shapes(("w", (n,)), ("g", (n,))),
        result=lambda n: (n,),
        compute=compute,
        mop=lambda n: operations * n / 1e6,
        terms=lambda n: 1,
        factor=None,
    )


OPTIMIZERS = collections.OrderedDict(
    [
        ("sgd", _optimizer(lambda: reference.Momentum(RATE, 0.0), 2)),
        ("momentum", _optimizer(lambda: reference.Momentum(RATE, MOMENTUM), 4)),
        ("adam", _optimizer(lambda: reference.Adam(RATE, BETA1, BETA2, EPSILON), 12)),
    ]
)


def moved_by(name, g, steps):
    """How far so many steps of an optimiser move a parameter against a gradient that is the same in all of them."""
    if name == "adam":
        # Both moments, corrected, are those of one step.
        return steps * RATE * g / (np.abs(g) + EPSILON)
    kept = MOMENTUM if name == "momentum" else 0.0
    return RATE * g / (1.0 - kept) * (steps - kept * (1.0 - kept**steps) / (1.0 - kept))


# arrays of the parameter's size that a step reads or writes at least: parameter twice, gradient, each moment twice
_STEP_ARRAYS = {"sgd": 3, "momentum": 5, "adam": 7}

# (operation, precision) -> why nobody computes it so
UNFIT = {
    (
        "adam",
        "fp16",
    ): "the second moment and epsilon are below the least number of fp16: the parameters of mixed precision are fp32",
}

# Between host and device; the size is in bytes. Pinned memory is locked, so that the device may read it by itself.
COPIES = ("h2d", "h2d_pinned", "d2h", "d2h_pinned")
COPY_SIZES = tuple(1 << power for power in (12, 16, 20, 24, 28))

BUFFER_SIZES = tuple(1 << power for power in (12, 14, 16, 18, 20, 22, 24, 26, 28))  # bytes of each device's buffer

PRODUCTS = ("matmul", "matmul_flat", "matmul_thin")


def directions(name):
    """The directions in which an operation or an optimiser is measured. An embedding alone is a copy of rows: only its gradient is."""
    if name in OPTIMIZERS:
        return (STEP,)
    return (GRADIENT,) if name == "embedding" else (FORWARD, GRADIENT)


# The work of a run. size: tuple; mop: million operations; terms: of its longest sum; bytes: the least traffic.
Point = collections.namedtuple("Point", "operation direction size mop terms bytes")


def point_of(name, direction, size, precision, devices):
    """The point of these names, of any size; None where there is none. size: its numbers, joined by x."""
    try:
        numbers = tuple(int(number) for number in size.split("x"))
        if name in collectives.COLLECTIVES or name in COPIES:
            (count,) = numbers
            due, terms = (COPY, 1) if name in COPIES else (collectives.direction(name), devices)
            return Point(name, due, numbers, 0.0, terms, count) if direction == due else None
        if name in OPTIMIZERS:
            (count,) = numbers
            return _step_point(name, OPTIMIZERS[name], count, precision) if direction == STEP else None
        if name not in OPERATIONS or direction not in directions(name):
            return None
        return _point(name, OPERATIONS[name], direction, numbers, precision)
    except (TypeError, ValueError):
        return None


def points(precision, most_mop, most_bytes=None, most_sizes=None, of_attention=(0, 0)):
    """Every point of one device of at most `most_mop` million operations, and `most_bytes` of traffic where that is limited.

    Operation by operation, each from small to large. At fp8 the products alone. Where `most_sizes` (at least 2) limits their number,
    an operation keeps its smallest, its largest, and others evenly between. of_attention: the least and the most million operations
    forward of attention, which has these limits alone.
    """
    chosen = []
    for name, operation in OPERATIONS.items():
        if name not in ATTENTION and (precision != "fp8" or name in PRODUCTS):
            for direction in directions(name):
                chosen += [_point(name, operation, direction, size, precision) for size in operation.sizes]
    if precision != "fp8":
        for name, operation in OPTIMIZERS.items():
            chosen += [_step_point(name, operation, n, precision) for (n,) in operation.sizes]
        for name in COPIES:
            chosen += [Point(name, COPY, (n,), 0.0, 1, n) for n in COPY_SIZES]
    chosen = [point for point in chosen if point.mop <= most_mop and point.bytes <= (most_bytes or point.bytes)]
    if precision != "fp8":
        chosen += _attention_points(precision, *of_attention)
    return thinned(chosen, most_sizes) if most_sizes else chosen


def _attention_points(precision, least_mop, most_mop):
    """Size by size: all backends, which get the same inputs."""
    return [
        _point(heads + backend, ATTENTION[heads], direction, size, precision)
        for heads in HEADS
        for size in ATTENTION[heads].sizes
        if least_mop <= ATTENTION[heads].mop(*size) <= most_mop
        for backend in BACKENDS
        for direction in (FORWARD, GRADIENT)
    ]


def thinned(points, most_sizes):
    """At most so many points of each operation and direction, its smallest and its largest among them, in their order."""
    curves = collections.OrderedDict()
    for point in points:
        curves.setdefault(point[:2], []).append(point)
    kept = set()
    for curve in curves.values():
        count = min(most_sizes, len(curve))
        kept.update(curve[at * (len(curve) - 1) // max(1, count - 1)] for at in range(count))
    return [point for point in points if point in kept]


def among(devices, precision, most_bytes=None, most_sizes=None):
    """The points of several devices. Their bytes are those of one device's buffer: over the seconds, NCCL's "algorithm bandwidth"."""
    points = []
    for name in collectives.COLLECTIVES:
        for most in BUFFER_SIZES:
            n = collectives.items(name, devices, most // ITEMSIZE[precision]) * ITEMSIZE[precision]
            points.append(Point(name, collectives.direction(name), (n,), 0.0, devices, n))
    points = [point for point in points if point.bytes <= (most_bytes or point.bytes)]
    return thinned(points, most_sizes) if most_sizes else points


def _step_point(name, operation, n, precision):
    return Point(name, STEP, (n,), operation.mop(n), 1, _STEP_ARRAYS[name] * n * ITEMSIZE[precision])


def _point(name, operation, direction, size, precision):
    shapes, written = operation.inputs(*size), _count(operation.result(*size))
    read = sum(_rows_read(*size) if key == "table" else _count(shape) for key, shape in shapes.items())
    if direction == GRADIENT:
        read += written if operation.weighted else 0
        written += sum(_count(shape) for key, shape in shapes.items() if key != "ids") if operation.factor > 1.0 else 0
    mop = operation.mop(*size) * (operation.factor if direction == GRADIENT else 1.0)
    traffic = read * ITEMSIZE[precision] + written * ITEMSIZE["bf16" if precision == "fp8" else precision]
    return Point(name, direction, size, mop, operation.terms(*size), traffic)


def _rows_read(ids, vocabulary, width):
    """The elements of a table that drawn ids (draw_inputs) name, each row once, as expected."""
    often = np.log1p(1.0 / np.arange(1, vocabulary)) / np.log(vocabulary)
    return int(np.sum(1.0 - (1.0 - often) ** ids)) * width


def _count(shape):
    return int(np.prod(shape, dtype=np.int64))


def draw_inputs(operation, size, random, direction=FORWARD):
    """name -> float64 array, of "ids" int64, in the order of operation.inputs; "d" last, where the direction has it.

    Weights are scaled so that results stay near 1, whatever the size; divisors keep away from zero. The scores of attention have the
    deviation 4/3, so that a position attends to some others more than to most. The squares of a hidden state are near EPSILON, so that
    the result shows another one. Ids and the probabilities of logits follow Zipf's law, as words do: some come often.
    """
    arrays, shapes = collections.OrderedDict(), operation.inputs(*size)
    if operation.weighted and direction == GRADIENT:
        shapes["d"] = operation.result(*size)
    for name, shape in shapes.items():
        value = random.uniform(-1.0, 1.0, shape)
        if name[0] in "wu" and len(shape) > 1:
            value /= np.sqrt(max(1.0, np.prod(shape[1:]) / 3.0))
        if operation is OPERATIONS.get("div") and name == "b":
            value = 1.25 + 0.75 * value
        if name in ("q", "scores"):
            value *= 4.0
        if name == "h":
            value = 0.01 * (value + 0.25)
        if name == "d":
            value += 0.5
        if name == "logits":
            value = -np.log(0.5 * (1.0 + value) + 1e-7)
        if name == "ids":
            value = np.floor(size[1] ** (0.5 * (1.0 + value)) - 1.0).astype(np.int64)
        arrays[name] = value
    return arrays


class Pool(object):
    """Random numbers drawn once and handed out again and again, where drawing them would take longer than what is measured of them.

    Their number is odd and no size: no two rows of a matrix are alike.
    """

    COUNT = (1 << 20) + 7

    def __init__(self, random):
        self._drawn, self._at = random.uniform(0.0, 1.0, self.COUNT), 0

    def uniform(self, low, high, shape):
        """An array as RandomState.uniform would make one."""
        count = int(np.prod(shape, dtype=np.int64))
        if self._at + count <= self.COUNT:
            values = self._drawn[self._at : self._at + count].copy()
        else:
            values = np.resize(np.roll(self._drawn, -self._at), count)
        self._at = (self._at + count) % self.COUNT
        values *= high - low
        values += low
        return values.reshape(shape)


def to_fp8(values):
    """Rounded to the nearest number of e4m3fn, ties to even: three bits of fraction, exponents from -6, at most 448."""
    _, exponent = np.frexp(values)
    unit = 2.0 ** (np.maximum(exponent - 1, -6) - 3)
    return np.clip(np.round(values / unit) * unit, -448.0, 448.0)


SLOPE_STEP = 1e-5
SLOPE_ERROR = 1e-7  # of central differences in float64 with that step, relative; measured over all operations (a test)


def slope(operation, p, name, random):
    """(a random direction of input `name`, the derivative along it of the sum of the result), by central differences in float64."""
    direction = random.standard_normal(p[name].shape)
    step = SLOPE_STEP / np.linalg.norm(direction)
    sides = [operation.compute(dict(p, **{name: p[name] + sign * step * direction})).sum() for sign in (1, -1)]
    return direction, (sides[0] - sides[1]) / (2 * step)
