"""Single operations in Chainer: functions on Variables, which hold NumPy's arrays on a CPU and CuPy's on a GPU.

Idiomatic here: no_backprop_mode runs a function without its gradient. chainer.grad returns gradients and changes no parameter.
n_step_lstm and n_step_gru are cuDNN's fused kernels on a GPU and a loop of functions on a CPU. An optimiser updates a link.
"""

import functools

import chainer
import chainer.functions as F
import numpy as np

from bench import contract
from bench.errors import Unsupported
from bench.frameworks.chainer._adam import Adam
from bench.frameworks.chainer.framework import all_reduced, place, to_device, to_host
from bench.workloads import ops
from bench.workloads.rows import EPSILON

DTYPES = {"fp64": np.float64, "fp32": np.float32, "tf32": np.float32, "fp16": np.float16}

GATES = {"lstm": 4, "gru": 3}


def dense(x, *parameters):
    for w, b in zip(parameters[::2], parameters[1::2]):
        x = F.linear(x, w, b)
    return x


def lstm(x, *matrices):
    start, (ws, bs) = zeros(x, 1), halves(matrices)
    return F.n_step_lstm(1, 0.0, start, start, [ws], [bs], list(x))[0][0]


def gru(x, *matrices):
    ws, bs = halves(matrices)
    return F.n_step_gru(1, 0.0, zeros(x, 1), [ws], [bs], list(x))[0][0]


def zeros(x, *leading):
    """The first state, zero. `x` is a list of positions, each (batch, units)."""
    return chainer.Variable(x[0].xp.zeros(leading + x[0].shape, x[0].dtype))


def halves(values):
    return values[: len(values) // 2], values[len(values) // 2 :]


def lstm_cell(x, w, u, b, c):
    x = F.separate(x, axis=1)
    h = state = zeros(x)
    for x_t in x:
        i, f, g, o = F.split_axis(F.linear(x_t, w, b) + F.linear(h, u, c), 4, axis=1)
        state = F.sigmoid(f) * state + F.sigmoid(i) * F.tanh(g)
        h = F.sigmoid(o) * F.tanh(state)
    return h


def gru_cell(x, w, u, b, c):
    x = F.separate(x, axis=1)
    h = zeros(x)
    for x_t in x:
        r, z, n = F.split_axis(F.linear(x_t, w, b), 3, axis=1)
        h_r, h_z, h_n = F.split_axis(F.linear(h, u, c), 3, axis=1)
        r, z = F.sigmoid(r + h_r), F.sigmoid(z + h_z)
        n = F.tanh(n + r * h_n)
        h = (1 - z) * n + z * h
    return h


def rms_norm(h, w):
    raise Unsupported("Chainer has no RMS normalisation")


FUNCTIONS = {
    "add": F.add,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "matmul": F.matmul,
    "matmul_flat": F.matmul,
    "matmul_thin": F.matmul,
    "dense": dense,
    "dense_x5": dense,
    "conv1d": functools.partial(F.convolution_1d, pad=1),
    "conv2d": functools.partial(F.convolution_2d, pad=1),
    "conv2d_transposed": functools.partial(F.deconvolution_2d, stride=2),
    "lstm": lstm,
    "lstm_cell": lstm_cell,
    "gru": gru,
    "gru_cell": gru_cell,
    "layer_norm": functools.partial(F.layer_normalization, eps=EPSILON),
    "rms_norm": rms_norm,
    "softmax": F.softmax,
    "cross_entropy": F.softmax_cross_entropy,
    "embedding": lambda table, ids: F.embed_id(ids, table),
}

OPTIMIZERS = {
    "sgd": functools.partial(chainer.optimizers.SGD, lr=ops.RATE),
    "momentum": functools.partial(chainer.optimizers.MomentumSGD, lr=ops.RATE, momentum=ops.MOMENTUM),
    "adam": functools.partial(Adam, alpha=ops.RATE, beta1=ops.BETA1, beta2=ops.BETA2, eps=ops.EPSILON),
}


class Operators(contract.Operators):
    def __init__(self, setup):
        self.setup = setup
        if setup.precision not in DTYPES:
            raise Unsupported("Chainer computes in NumPy's and CuPy's types, and they have no %s" % setup.precision)
        self.dtype = DTYPES[setup.precision]

    def runs(self, operation, direction, buffers):
        """A callable without arguments for each of `buffers` (input name -> float64 array). Raises Unsupported."""
        if direction == ops.COPY:
            return [self._copy(operation, buffer["x"].astype("float32")) for buffer in buffers]
        if direction == ops.REDUCE:
            return [self._all_reduce(buffer["x"][self.setup.rank]) for buffer in buffers]
        if direction == ops.STEP:
            return [self._step(OPTIMIZERS[operation](), p["w"], p["g"]) for p in buffers]
        if (operation, direction, self.dtype) == ("layer_norm", ops.GRADIENT, np.float16):
            raise Unsupported(
                "Chainer divides by the variance in fp16: where that is small the quotient leaves the type's range"
            )
        inputs = [[chainer.Variable(array) for array in self._arrays(own(operation, p))] for p in buffers]
        function = FUNCTIONS[operation]
        if operation in GATES:
            steps = buffers[0]["x"].shape[1]
            function = functools.partial(positions_first, function, steps)
        if direction == ops.FORWARD:
            return [forward(function, variables) for variables in inputs]
        given = [[variables.pop()] if "d" in p else [] for p, variables in zip(buffers, inputs)]
        return [gradient(function, variables, d) for variables, d in zip(inputs, given)]

    def values(self, operation, direction, result):
        """The result, or the gradients in the order of the inputs, as float64 arrays in the specification's layouts."""
        if direction == ops.REDUCE:
            return [result.astype("float64")]
        if direction != ops.GRADIENT:
            return [to_host(result.array).astype("float64")]
        values = [to_host(value.array).astype("float64") for value in result]
        return canonical(operation, values) if operation in GATES else values

    def _arrays(self, values):
        types = [self.dtype if value.dtype.kind == "f" else np.int32 for value in values]
        return to_device(*map(np.ascontiguousarray, values, types))

    def _step(self, optimizer, w, g):
        link = chainer.Link()
        with link.init_scope():
            # A copy, since the update is in place.
            link.w = chainer.Parameter(np.array(w, self.dtype))
        link = place(link)
        optimizer.setup(link)
        (link.w.grad,) = self._arrays([g])

        def run():
            optimizer.update()
            return link.w

        return run

    def _all_reduce(self, own):
        if self.setup.device == "cuda":
            raise Unsupported("ChainerMN adds arrays up through MPI, and this MPI cannot read a GPU's memory")
        if self.dtype == np.float16:
            raise Unsupported("MPI cannot add fp16 numbers")
        return functools.partial(all_reduced, np.ascontiguousarray(own, self.dtype))

    def _copy(self, operation, x):
        if self.setup.device == "cpu":
            raise Unsupported("the host's memory is the device's: there is nothing to copy")
        cupy = chainer.backends.cuda.cupy
        device, host = cupy.asarray(x), x
        if operation.endswith("_pinned"):
            host = np.frombuffer(cupy.cuda.alloc_pinned_memory(x.nbytes), np.float32, x.size)
            host[...] = x
        # A copy from or to pinned memory is queued. A copy of other memory is waited for.
        stream = cupy.cuda.Stream.null if operation.endswith("_pinned") else None
        if operation.startswith("h2d"):
            return lambda: device.set(host, stream=stream)
        return lambda: device.get(stream=stream, out=host)


def forward(function, variables):
    def run():
        with chainer.no_backprop_mode():
            return function(*variables)

    return run


def gradient(function, variables, d):
    """d: a list of the result's gradient, or an empty one where that is ones."""
    wanted = [variable for variable in variables if variable.dtype.kind == "f"]

    def run():
        y = function(*variables)
        if not d:
            d.append(chainer.Variable(y.xp.ones_like(y.array)))
        return chainer.grad([y], wanted, grad_outputs=d)

    return run


def positions_first(function, steps, *variables):
    """The fused layers take a list of positions. Each position is an input of its own, so that the loop does not slice an array."""
    return function(variables[:steps], *variables[steps:])


def own(operation, p):
    """The inputs in Chainer's order. For a fused layer: the positions, then the gates' matrices w and u, then their biases."""
    if operation not in GATES:
        return list(p.values())
    gates = GATES[operation]
    parts = [part for name in "wubc" for part in np.split(p[name], gates)]
    return list(p["x"].transpose(1, 0, 2)) + parts


def canonical(operation, values):
    """Gradients of a fused layer's inputs -> gradients of the specification's inputs, in its order."""
    gates = GATES[operation]
    x, parts = values[: -4 * gates], values[-4 * gates :]
    return [np.stack(x, axis=1)] + [np.concatenate(parts[at * gates : (at + 1) * gates]) for at in range(4)]
