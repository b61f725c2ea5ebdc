"""Single operations in MXNet: plain ones imperatively, modules (dense, recurrent) as Gluon's hybridised blocks.

Idiomatic here: autograd records only where a gradient is computed. A hybridised block is one cached graph with memory of its own. nd.RNN is
the fused kernel: its parameters are one vector, its gates are in cuDNN's order. The optimisers are mxnet.optimizer's, whose update is one
kernel. MXNet's engine computes asynchronously: a window ends when the engine has finished everything (waitall).
"""

import functools

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from bench import contract
from bench.errors import Unsupported, says_out_of_memory
from bench.frameworks.mxnet._adam import ExactAdam
from bench.frameworks.mxnet.framework import context, contexts, kvstore
from bench.workloads import ops
from bench.workloads.rows import EPSILON

DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16"}

FUSED = ("lstm", "gru")
GATES = {"lstm": 4, "gru": 3}


class Module(gluon.HybridBlock):
    """A function (F, *inputs) as one graph. Its weights are inputs too."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.hybridize(static_alloc=True, static_shape=True)

    def hybrid_forward(self, F, x, *inputs):
        return self.function(F, x, *inputs)


def dense(F, x, *parameters, units):
    for w, b in zip(parameters[::2], parameters[1::2]):
        x = F.FullyConnected(x, w, b, num_hidden=units, flatten=False)
    return x


def fused(F, x, packed, *states, mode, units):
    # The states are no outputs of the kernel: the last output is the state at the last position.
    y = F.RNN(x, packed, *states, mode=mode, state_size=units, num_layers=1)
    return F.squeeze(F.slice_axis(y, axis=0, begin=-1, end=None), axis=0)


def lstm_cell(F, x, w, u, b, c, h, steps, units):
    state = h
    for x_t in F.split(x, steps, axis=1, squeeze_axis=True):
        gates = F.FullyConnected(x_t, w, b, num_hidden=4 * units) + F.FullyConnected(h, u, c, num_hidden=4 * units)
        i, f, g, o = F.split(gates, 4, axis=1)
        state = F.sigmoid(f) * state + F.sigmoid(i) * F.tanh(g)
        h = F.sigmoid(o) * F.tanh(state)
    return h


def gru_cell(F, x, w, u, b, c, h, steps, units):
    for x_t in F.split(x, steps, axis=1, squeeze_axis=True):
        r, z, n = F.split(F.FullyConnected(x_t, w, b, num_hidden=3 * units), 3, axis=1)
        h_r, h_z, h_n = F.split(F.FullyConnected(h, u, c, num_hidden=3 * units), 3, axis=1)
        r, z = F.sigmoid(r + h_r), F.sigmoid(z + h_z)
        n = F.tanh(n + r * h_n)
        h = (1 - z) * n + z * h
    return h


def convolution(x, w, b):
    dimensions = x.ndim - 2
    return nd.Convolution(x, w, b, kernel=(3,) * dimensions, pad=(1,) * dimensions, num_filter=w.shape[0])


def transposed_convolution(x, w, b):
    return nd.Deconvolution(x, w, b, kernel=(2, 2), stride=(2, 2), num_filter=w.shape[1], no_bias=False)


def rms_norm(h, w):
    raise Unsupported("MXNet has no RMS normalisation")


def cross_entropy(logits, ids):
    return nd.mean(nd.negative(nd.pick(nd.log_softmax(logits), ids)))


def embedding(table, ids):
    return nd.Embedding(ids, table, input_dim=table.shape[0], output_dim=table.shape[1], dtype=table.dtype)


FUNCTIONS = {
    "add": nd.elemwise_add,
    "mul": nd.elemwise_mul,
    "div": nd.elemwise_div,
    "matmul": nd.dot,
    "matmul_flat": nd.dot,
    "matmul_thin": nd.dot,
    "conv1d": convolution,
    "conv2d": convolution,
    "conv2d_transposed": transposed_convolution,
    "layer_norm": functools.partial(nd.LayerNorm, eps=EPSILON),
    "rms_norm": rms_norm,
    "softmax": nd.softmax,
    "cross_entropy": cross_entropy,
    "embedding": embedding,
}

# (operation, type) -> why its result is not that of the type. Measured: 2e-9 of the normalisation, 1e-2 and 6e-2 of the others.
INEXACT = {
    ("layer_norm", "float64"): "MXNet holds a normalisation's epsilon in float32, so its float64 errs as float32 does",
    ("softmax", "float16"): "MXNet sums a softmax in float16",
    ("cross_entropy", "float16"): "MXNet sums a softmax in float16",
}

OPTIMIZERS = {
    "sgd": functools.partial(mx.optimizer.SGD, learning_rate=ops.RATE, wd=0.0),
    "momentum": functools.partial(mx.optimizer.SGD, learning_rate=ops.RATE, momentum=ops.MOMENTUM, wd=0.0),
    "adam": functools.partial(
        ExactAdam, learning_rate=ops.RATE, beta1=ops.BETA1, beta2=ops.BETA2, epsilon=ops.EPSILON, wd=0.0
    ),
}


class Operators(contract.Operators):
    def __init__(self, setup):
        self.setup = setup
        self.context = context(setup)
        if setup.precision not in DTYPES:
            raise Unsupported("MXNet has no %s arrays" % setup.precision)
        self.dtype = DTYPES[setup.precision]

    def runs(self, operation, direction, buffers):
        """For each of `buffers` (input name -> float64 array) a callable without arguments. Raises Unsupported."""
        if direction == ops.COPY:
            return [self._copy(operation, buffer["x"].astype("float32")) for buffer in buffers]
        if direction == ops.REDUCE:
            return self._all_reduces([buffer["x"] for buffer in buffers])
        if direction == ops.STEP:
            if self.dtype == "float64":
                # Measured: 2e-10 of sgd and momentum, 1e-7 of Adam.
                raise Unsupported(
                    "MXNet's optimisers hold their rates in float32, so a step of float64 errs as float32 does"
                )
            return [self._step(OPTIMIZERS[operation], *self._arrays(p.values())) for p in buffers]
        if (operation, self.dtype) in INEXACT:
            raise Unsupported(INEXACT[operation, self.dtype])
        inputs = [self._arrays(own(operation, p)) for p in buffers]
        rest = self._states(operation, buffers[0])
        function = self._function(operation, buffers[0])
        if direction == ops.GRADIENT:
            given = [[arrays.pop()] if "d" in p else [] for p, arrays in zip(buffers, inputs)]
            runs = [self._gradient(function, arrays, rest, d) for arrays, d in zip(inputs, given)]
        else:
            runs = [functools.partial(function, *(arrays + rest)) for arrays in inputs]
        self._try(runs[0])
        return runs

    def values(self, operation, direction, result):
        """The result, or the gradients in the order of the inputs, as float64 arrays in the specification's layouts."""
        if direction == ops.REDUCE:
            # One value for each device.
            return [value.asnumpy().astype("float64") for value in result]
        if direction != ops.GRADIENT:
            return [result.asnumpy().astype("float64")]
        values = [value.asnumpy().astype("float64") for value in result]
        return canonical(operation, values) if operation in FUSED else values

    def _function(self, operation, p):
        if operation in FUNCTIONS:
            return FUNCTIONS[operation]
        if operation in ("dense", "dense_x5"):
            return Module(functools.partial(dense, units=len(p["b0"])))
        _, steps, units = p["x"].shape
        if operation in FUSED:
            return Module(functools.partial(fused, mode=operation, units=units))
        return Module(functools.partial(lstm_cell if operation == "lstm_cell" else gru_cell, steps=steps, units=units))

    def _states(self, operation, p):
        """The first states of a recurrent layer: inputs without a gradient."""
        if operation.split("_")[0] not in FUSED:
            return []
        batch, _, units = p["x"].shape
        shape = (1, batch, units) if operation in FUSED else (batch, units)
        start = nd.zeros(shape, self.context, self.dtype)
        return [start, start] if operation == "lstm" else [start]

    def _gradient(self, function, arrays, rest, d):
        """d: a list of the result's gradient, or an empty one where that is ones."""
        wanted = [array for array in arrays if np.dtype(array.dtype).kind == "f"]
        for array in wanted:
            array.attach_grad()

        def run():
            with autograd.record():
                y = function(*(arrays + rest))
            if not d:
                d.append(nd.ones_like(y))
            y.backward(d[0])
            return [array.grad for array in wanted]

        return run

    def _step(self, make, w, g):
        optimizer = make()
        state = optimizer.create_state(0, w)

        def run():
            optimizer.update(0, w, g, state)
            return w

        return run

    def _try(self, run):
        """Run it once and wait: MXNet raises an error if it has no kernel at this precision."""
        try:
            run()
            nd.waitall()
        except mx.MXNetError as error:
            if self.setup.precision == "fp32" or says_out_of_memory(error):
                raise
            message = [line for line in str(error).strip().splitlines() if line.strip()][-1]
            raise Unsupported("MXNet at %s: %s" % (self.setup.precision, message.strip()[:200]))

    def _arrays(self, values):
        types = [self.dtype if value.dtype.kind == "f" else "int32" for value in values]
        return [nd.array(value, self.context, dtype) for value, dtype in zip(values, types)]

    def _all_reduces(self, buffers):
        """The kvstore adds up what is pushed and gives the sum to all contexts, as it does with a Trainer's gradients."""
        places = contexts(self.setup)
        store = mx.kv.create(kvstore(places))
        runs = []
        for key, x in enumerate(buffers):
            parts = [nd.array(row, place, self.dtype) for row, place in zip(x, places)]
            sums = [nd.empty(part.shape, place, self.dtype) for part, place in zip(parts, places)]
            store.init(key, parts[0])
            runs.append(functools.partial(push_and_pull, store, key, parts, sums))
        self._try(runs[0])
        return runs

    def _copy(self, operation, x):
        if self.setup.device == "cpu":
            raise Unsupported("the host's memory is the device's: there is nothing to copy")
        host = nd.array(x, mx.cpu_pinned() if operation.endswith("_pinned") else mx.cpu(), "float32")
        device = host.copyto(self.context)
        if operation.startswith("h2d"):
            return lambda: host.copyto(device)
        return lambda: device.copyto(host)


def push_and_pull(store, key, parts, sums):
    store.pushpull(key, parts, out=sums)
    return sums


def own(operation, p):
    """The inputs in MXNet's form. For a fused layer: time first, the parameters as one vector in cuDNN's order."""
    if operation not in FUSED:
        return list(p.values())
    return [p["x"].transpose(1, 0, 2), np.concatenate([p[name].ravel() for name in "wubc"])]


def canonical(operation, values):
    """Gradients of a fused layer's two inputs as those of the specification's inputs, in its order."""
    x, packed = values
    units = x.shape[2]
    size = GATES[operation] * units
    w, u, b, c = np.split(packed, [size * units, 2 * size * units, 2 * size * units + size])
    return [x.transpose(1, 0, 2), w.reshape(size, units), u.reshape(size, units), b, c]
