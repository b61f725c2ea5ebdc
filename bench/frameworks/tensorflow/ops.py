"""Single operations in TensorFlow 2: plain ones run eagerly; modules (dense, recurrent) and optimisers are a tf.function.

Idiomatic here: images are channels last where TensorFlow has no other kernel. tf.GradientTape gives the gradients. The fused recurrent
layers are Keras': cuDNN's on a GPU, a tf.while_loop on a CPU. The optimisers are Keras'. Mode eager runs everything eagerly, mode xla
compiles everything. A tf.function returns all that it computes, and the output's gradient is an input: Grappler and XLA can neither
remove a forward pass whose result nobody reads, nor fold a product with a constant of ones.
"""

import functools

import keras
import numpy as np
import tensorflow as tf

from bench import contract
from bench.errors import Unsupported
from bench.frameworks.tensorflow import framework, parallel
from bench.frameworks.tensorflow._keras import SGD, Adam, with_weights
from bench.frameworks.tensorflow.gru_imdb import swap_gates
from bench.workloads import ops
from bench.workloads.rows import EPSILON

DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}

# operation -> its spatial dimensions
IMAGES = {"conv1d": "W", "conv2d": "HW", "conv2d_transposed": "HW"}
FUSED = ("lstm", "gru")
# The operations that dl_bench runs in a module (its nn_ versions), and those that a transformer has in its tf.function.
TURNED = ("dense", "dense_x5", "lstm", "lstm_cell", "gru", "gru_cell")
MODULES = TURNED + ("layer_norm", "rms_norm", "softmax", "cross_entropy", "embedding")


def dense(x, *parameters):
    for w, b in zip(parameters[::2], parameters[1::2]):
        x = tf.nn.bias_add(tf.matmul(x, w), b)
    return x


def convolution(x, w, b, data_format):
    y = tf.nn.convolution(x, w, padding="SAME", data_format=data_format)
    return tf.nn.bias_add(y, b, "NC..." if data_format.startswith("NC") else "N...C")


def transposed_convolution(x, w, b, data_format):
    first = data_format == "NCHW"
    n, h, side, channels = (x.shape[axis] for axis in ((0, 2, 3, 1) if first else (0, 1, 2, 3)))
    shape = (n, channels, 2 * h, 2 * side) if first else (n, 2 * h, 2 * side, channels)
    y = tf.nn.conv2d_transpose(x, w, shape, 2, "VALID", data_format)
    return tf.nn.bias_add(y, b, data_format)


def lstm_cell(x, w, u, b, c):
    h = state = tf.zeros((x.shape[0], u.shape[0]), x.dtype)
    for x_t in tf.unstack(x, axis=1):
        gates = tf.matmul(x_t, w) + b + tf.matmul(h, u) + c
        i, f, g, o = tf.split(gates, 4, axis=1)
        state = tf.sigmoid(f) * state + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(state)
    return h


def gru_cell(x, w, u, b, c):
    h = tf.zeros((x.shape[0], u.shape[0]), x.dtype)
    for x_t in tf.unstack(x, axis=1):
        r, z, n = tf.split(tf.matmul(x_t, w) + b, 3, axis=1)
        h_r, h_z, h_n = tf.split(tf.matmul(h, u) + c, 3, axis=1)
        r, z = tf.sigmoid(r + h_r), tf.sigmoid(z + h_z)
        n = tf.tanh(n + r * h_n)
        h = (1 - z) * n + z * h
    return h


def layer_norm(h, w, b):
    return of_keras("layer_normalization")(h, w, b, epsilon=EPSILON)


def rms_norm(h, w):
    return of_keras("rms_normalization")(h, w, epsilon=EPSILON)


def of_keras(name):
    """A function of keras.ops: TensorFlow itself has no such function. Raises Unsupported."""
    if not hasattr(getattr(keras, "ops", None), name):
        raise Unsupported("Keras %s has no keras.ops.%s" % (keras.__version__, name))
    return getattr(keras.ops, name)


def cross_entropy(logits, ids):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits))


FUNCTIONS = {
    "add": tf.add,
    "mul": tf.multiply,
    "div": tf.divide,
    "matmul": tf.matmul,
    "matmul_flat": tf.matmul,
    "matmul_thin": tf.matmul,
    "dense": dense,
    "dense_x5": dense,
    "conv1d": convolution,
    "conv2d": convolution,
    "conv2d_transposed": transposed_convolution,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "softmax": tf.nn.softmax,
    "cross_entropy": cross_entropy,
    "embedding": tf.nn.embedding_lookup,
}

OPTIMIZERS = {
    "sgd": functools.partial(SGD, ops.RATE),
    "momentum": functools.partial(SGD, ops.RATE, momentum=ops.MOMENTUM),
    "adam": functools.partial(Adam, ops.RATE, ops.BETA1, ops.BETA2, ops.EPSILON),
}

# Keras' LSTM stacks the gates in our order, i, f, g, o; it calls g c. Its GRU stacks z, r, n.
LAYERS = {"lstm": keras.layers.LSTM, "gru": functools.partial(keras.layers.GRU, reset_after=True)}


class Operators(contract.Operators):
    def __init__(self, setup):
        self.setup = setup
        if setup.precision not in DTYPES:
            raise Unsupported("TensorFlow can store %s, but has no kernel that multiplies it" % setup.precision)
        self.dtype = DTYPES[setup.precision]
        # An optimiser keeps its rate in this type.
        keras.backend.set_floatx("float64" if setup.precision == "fp64" else "float32")
        self.channels_first = framework.channels_first()

    def runs(self, operation, direction, buffers):
        """For each of `buffers` (input name -> float64 array) a callable without arguments. Raises Unsupported."""
        if direction == ops.COPY:
            return [self._copy(operation, buffer["x"].astype("float32")) for buffer in buffers]
        if direction == ops.REDUCE:
            return [self._all_reduce(buffer["x"]) for buffer in buffers]
        if direction == ops.STEP:
            return [self._step(OPTIMIZERS[operation], **self._tensors(p.items())) for p in buffers]
        if (operation in IMAGES, direction, self.dtype, self.setup.device) == (True, ops.GRADIENT, "bfloat16", "cpu"):
            raise Unsupported("TensorFlow sums a bias' gradient in bfloat16 on a CPU; 256 + 1 is 256 there")
        inputs = [list(self._tensors(self._own(operation, p)).values()) for p in buffers]
        function = self._function(operation, inputs[0])
        if direction == ops.FORWARD:
            function = self._compiled(operation, function)
            runs = [functools.partial(function, *tensors) for tensors in inputs]
        else:
            if "d" in buffers[0]:
                given = [tensors.pop() for tensors in inputs]
            else:
                given = [tf.ones_like(self._try(functools.partial(function, *inputs[0])))] * len(inputs)
            function = self._compiled(operation, with_gradients(function))
            runs = [functools.partial(function, d, *tensors) for d, tensors in zip(given, inputs)]
        self._try(runs[0])
        return runs

    def values(self, operation, direction, result):
        """The result, or the gradients in the order of the inputs, as float64 arrays in the specification's layouts."""
        if direction == ops.GRADIENT:
            return self._canonical(operation, [tf.cast(value, "float64").numpy() for value in result[1:]])
        if direction == ops.REDUCE:
            # One value for each device.
            return [tf.cast(value, "float64").numpy() for value in result.values]
        value = tf.cast(result, "float64").numpy()
        return [self._first(value) if operation in IMAGES else value]

    def _function(self, operation, tensors):
        if operation in FUSED:
            return self._layer(operation, tensors)
        if operation not in IMAGES:
            return FUNCTIONS[operation]
        spatial = IMAGES[operation]
        data_format = "NC" + spatial if self.channels_first else "N" + spatial + "C"
        return functools.partial(FUNCTIONS[operation], data_format=data_format)

    def _layer(self, operation, tensors):
        """Keras' layer as a function, so that its weights are inputs too."""
        units = tensors[2].shape[0]
        # The layer's own weights are never used. Keras' usual initialiser, a QR decomposition, does not exist at bf16.
        layer = LAYERS[operation](units, dtype=self.dtype, recurrent_initializer="zeros")
        layer.build(tensors[0].shape)
        return with_weights(layer)

    def _compiled(self, operation, function):
        if operation in MODULES or self.setup.mode == "xla":
            return framework.function(function)
        return function

    def _try(self, run):
        """Run it once and return its result: TensorFlow raises an error if it has no kernel at this precision."""
        try:
            return run()
        # TypeError: TensorFlow 2.10 has no bias_add at bfloat16.
        except (
            tf.errors.UnimplementedError,
            tf.errors.InvalidArgumentError,
            tf.errors.NotFoundError,
            TypeError,
        ) as error:
            if self.setup.precision == "fp32":
                raise
            raise Unsupported("TensorFlow at %s: %s" % (self.setup.precision, str(error).strip().splitlines()[0][:200]))

    def _tensors(self, pairs):
        # TensorFlow rounds: NumPy has no bfloat16.
        return {
            name: tf.cast(tf.constant(value), self.dtype if value.dtype.kind == "f" else "int32")
            for name, value in pairs
        }

    def _own(self, operation, p):
        """The inputs in TensorFlow's layouts and order: weights (in, out), images N..C, kernels (..., in, out)."""
        if operation in IMAGES:
            # A transposed convolution has its two channel axes the other way round, in TensorFlow too.
            w = np.moveaxis(p["w"], (0, 1), (-1, -2))
            return [("x", self._last(p["x"])), ("w", w), ("b", p["b"])]
        # Keras' LSTM has one bias.
        if operation == "lstm":
            return [("x", p["x"]), ("w", p["w"].T), ("u", p["u"].T), ("b", p["b"] + p["c"])]
        if operation == "gru":
            w, u, b, c = (swap_gates(p[name]) for name in "wubc")
            return [("x", p["x"]), ("w", w.T), ("u", u.T), ("b", np.stack([b, c]))]
        # Only modules have weights. The factors of a product stay as they are.
        turned = operation in TURNED
        return [(name, value.T if turned and name[0] in "wu" else value) for name, value in p.items()]

    def _canonical(self, operation, values):
        """Gradients of TensorFlow's inputs as those of the specification's inputs, in its order."""
        if operation in IMAGES:
            x, w, b = values
            return [self._first(x), np.moveaxis(w, (-1, -2), (0, 1)), b]
        if operation == "lstm":
            x, w, u, b = values
            return [x, w.T, u.T, b, b]
        if operation == "gru":
            x, w, u, b = values
            return [x] + [swap_gates(value) for value in (w.T, u.T, b[0], b[1])]
        return [value.T if operation in TURNED and at > 0 else value for at, value in enumerate(values)]

    def _last(self, x):
        return x if self.channels_first else np.moveaxis(x, 1, -1)

    def _first(self, x):
        return x if self.channels_first else np.moveaxis(x, -1, 1)

    def _step(self, make, w, g):
        w = tf.Variable(w)
        optimizer = make()
        optimizer.build([w])
        step = framework.function(lambda: optimizer.apply([g], [w]))

        def run():
            step()
            return w

        return run

    def _all_reduce(self, x):
        """The sum as an optimiser under MirroredStrategy takes it: NCCL on GPUs; on a CPU one device adds up."""
        strategy = parallel.strategy_of(self.setup)
        parts = strategy.experimental_distribute_values_from_function(
            lambda replica: tf.cast(tf.constant(x[replica.replica_id_in_sync_group]), self.dtype)
        )

        def add(part):
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, part)

        function = tf.function(lambda parts: strategy.run(add, (parts,)))
        return lambda: function(parts)

    def _copy(self, operation, x):
        if self.setup.device == "cpu":
            raise Unsupported("the host's memory is the device's: there is nothing to copy")
        if operation.endswith("_pinned"):
            raise Unsupported("TensorFlow copies through pinned memory of its own; this cannot be chosen")
        with tf.device("/CPU:0"):
            host = tf.constant(x)
        with tf.device("/GPU:0"):
            device = tf.identity(host)

        def to_device():
            with tf.device("/GPU:0"):
                return tf.identity(host)

        return to_device if operation == "h2d" else device.numpy


def with_gradients(function):
    """A function from the output's gradient and the inputs to the output and the gradients of the inputs."""

    def run(d, *inputs):
        wanted = [tensor for tensor in inputs if tensor.dtype.is_floating]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(wanted)
            y = function(*inputs)
        # An embedding's gradient is a list of rows, which an optimiser adds up. As a tensor it is added up, as in the other frameworks.
        return (y,) + tuple(map(tf.convert_to_tensor, tape.gradient(y, wanted, d)))

    return run
