"""Single operations in TensorFlow 1: for each point a graph, whose inputs are variables, run by a session.

Idiomatic here: a callable fixes once what it runs. It runs operations (tensor.op) and fetches no tensors, so no result is copied back.
tf.gradients gives the gradients. The fused recurrent layers are cuDNN's on a GPU. On a CPU the LSTM is BlockLSTM; the GRU is a
tf.while_loop, since no kernel has the reset gate after the product. The optimisers are tf.train's. The inputs and the output's gradient
are variables: Grappler has no constant to fold, and what a callable names is never removed.
"""

import functools

import numpy as np
import tensorflow.compat.v1 as tf

from bench import contract
from bench.errors import Unsupported
from bench.frameworks.tensorflow_v1 import framework
from bench.frameworks.tensorflow_v1._adam import Adam
from bench.workloads import ops
from bench.workloads.rows import EPSILON

DTYPES = {"fp64": tf.float64, "fp32": tf.float32, "tf32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}

IMAGES = ("conv1d", "conv2d", "conv2d_transposed")
# Operations whose weights are (in, out) in TensorFlow.
TURNED = ("dense", "dense_x5", "lstm_cell", "gru_cell", "gru")


def dense(x, *parameters):
    for w, b in zip(parameters[::2], parameters[1::2]):
        x = tf.nn.bias_add(tf.matmul(x, w), b)
    return x


def conv1d(x, w, b):
    first = framework.channels_first()
    y = tf.nn.conv1d(x, w, 1, "SAME", data_format="NCW" if first else "NWC")
    return tf.nn.bias_add(y, b, "NC..." if first else "N...C")


def conv2d(x, w, b):
    data_format = "NCHW" if framework.channels_first() else "NHWC"
    return tf.nn.bias_add(tf.nn.conv2d(x, w, [1] * 4, "SAME", data_format=data_format), b, data_format)


def conv2d_transposed(x, w, b):
    first = framework.channels_first()
    spatial = (2, 3) if first else (1, 2)
    shape = [2 * side if axis in spatial else side for axis, side in enumerate(x.shape.as_list())]
    strides, data_format = ([1, 1, 2, 2], "NCHW") if first else ([1, 2, 2, 1], "NHWC")
    return tf.nn.bias_add(tf.nn.conv2d_transpose(x, w, shape, strides, "VALID", data_format), b, data_format)


def block_lstm(x, w, b):
    """TensorFlow's kernel of the whole loop. w has the weights of input and state; its gates are i, g, f, o."""
    batch, units = x.shape.as_list()[1], w.shape.as_list()[1] // 4
    start, peephole = tf.zeros((batch, units), x.dtype), tf.zeros((units,), x.dtype)
    steps = tf.constant(x.shape.as_list()[0], tf.int64)
    whole = tf.raw_ops.BlockLSTM(
        seq_len_max=steps, x=x, cs_prev=start, h_prev=start, w=w, wci=peephole, wcf=peephole, wco=peephole, b=b,
        forget_bias=0.0, cell_clip=-1.0,
    )  # fmt: skip
    return whole.h[-1]


def cudnn(mode, x, packed):
    # This module registers the gradient of CudnnRNN. Neither version of TensorFlow imports it by itself.
    from tensorflow.python.ops import cudnn_rnn_grad  # noqa: F401

    _, batch, units = x.shape.as_list()
    start = tf.zeros((1, batch, units), x.dtype)
    states = {"input_h": start, "input_c": start if mode == "lstm" else tf.zeros([0], x.dtype)}
    output = tf.raw_ops.CudnnRNN(input=x, params=packed, rnn_mode=mode, is_training=True, **states)
    return output.output_h[0]


def gru_step(h, of_input, of_state):
    r, z, n = tf.split(of_input, 3, axis=1)
    h_r, h_z, h_n = tf.split(of_state, 3, axis=1)
    r, z = tf.sigmoid(r + h_r), tf.sigmoid(z + h_z)
    return (1 - z) * tf.tanh(n + r * h_n) + z * h


def gru_loop(x, w, u, b, c):
    """The input's product is taken for all positions before the loop."""
    batch, steps, units = x.shape.as_list()
    products = tf.reshape(tf.matmul(tf.reshape(x, (-1, units)), w), (batch, steps, 3 * units)) + b
    products = tf.TensorArray(x.dtype, steps).unstack(tf.transpose(products, (1, 0, 2)))

    def step(position, h):
        return position + 1, gru_step(h, products.read(position), tf.matmul(h, u) + c)

    return tf.while_loop(lambda position, _: position < steps, step, [0, tf.zeros((batch, units), x.dtype)])[1]


def gru_cell(x, w, u, b, c):
    h = tf.zeros((x.shape[0], u.shape[0]), x.dtype)
    for x_t in tf.unstack(x, axis=1):
        h = gru_step(h, tf.matmul(x_t, w) + b, tf.matmul(h, u) + c)
    return h


def lstm_cell(x, w, u, b, c):
    h = state = tf.zeros((x.shape[0], u.shape[0]), x.dtype)
    for x_t in tf.unstack(x, axis=1):
        i, f, g, o = tf.split(tf.matmul(x_t, w) + b + tf.matmul(h, u) + c, 4, axis=1)
        state = tf.sigmoid(f) * state + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(state)
    return h


def layer_norm(h, w, b):
    """TensorFlow 1 has no kernel for it. As in Keras 3, half types are computed in fp32: their squares leave the range of fp16."""
    h, w, b = (exact(value) for value in (h, w, b))
    mean, variance = tf.nn.moments(h, [1], keep_dims=True)
    return tf.nn.batch_normalization(h, mean, variance, b, w, tf.constant(EPSILON, h.dtype))


def rms_norm(h, w):
    h, w = exact(h), exact(w)
    return h * tf.rsqrt(tf.reduce_mean(tf.square(h), 1, keep_dims=True) + tf.constant(EPSILON, h.dtype)) * w


def exact(value):
    return value if value.dtype == tf.float64 else tf.cast(value, tf.float32)


def cross_entropy(logits, ids):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits))


FUNCTIONS = {
    "add": tf.add,
    "mul": tf.multiply,
    "div": tf.divide,
    "matmul": tf.matmul,
    "matmul_flat": tf.matmul,
    "matmul_thin": tf.matmul,
    "dense": dense,
    "dense_x5": dense,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv2d_transposed": conv2d_transposed,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "softmax": tf.nn.softmax,
    "cross_entropy": cross_entropy,
    "embedding": tf.nn.embedding_lookup,
}

# The constants have the type of the parameter. A Python number would become a float32 first.
OPTIMIZERS = {
    "sgd": lambda dtype: tf.train.GradientDescentOptimizer(tf.constant(ops.RATE, dtype)),
    "momentum": lambda dtype: tf.train.MomentumOptimizer(
        tf.constant(ops.RATE, dtype), tf.constant(ops.MOMENTUM, dtype)
    ),
    "adam": lambda dtype: Adam(ops.RATE, ops.BETA1, ops.BETA2, ops.EPSILON),
}


class Operators(contract.Operators):
    def __init__(self, setup):
        self.setup = setup
        if setup.precision not in DTYPES:
            raise Unsupported("TensorFlow can store %s, but has no kernel that multiplies it" % setup.precision)
        self.dtype = DTYPES[setup.precision]
        # The session of the newest graph.
        self.session = None

    def runs(self, operation, direction, buffers):
        """For each of `buffers` (input name -> float64 array) a callable without arguments. Raises Unsupported."""
        if direction == ops.COPY:
            return self._copies(operation, [buffer["x"].astype("float32") for buffer in buffers])
        if operation == "lstm" and not framework.on_gpu() and self.dtype not in (tf.float32, tf.float16):
            raise Unsupported("BlockLSTM, TensorFlow's fused kernel on a CPU, has no %s" % self.setup.precision)
        if operation == "adam" and self.dtype != tf.float32:
            raise Unsupported("tf.train.AdamOptimizer keeps the powers of its betas in fp32 at every precision")
        if operation in IMAGES and direction == ops.GRADIENT and self.dtype == tf.bfloat16 and not framework.on_gpu():
            raise Unsupported("TensorFlow sums a bias' gradient in bfloat16 on a CPU; 256 + 1 is 256 there")
        if (operation, direction, self.dtype) == ("softmax", ops.GRADIENT, tf.bfloat16) and not framework.on_gpu():
            raise Unsupported("TensorFlow sums a softmax's gradient in bfloat16 on a CPU: it errs by 4 %")
        if self.session is not None:
            # Its variables are freed with it.
            self.session.close()
        inputs = [p if direction == ops.STEP else self._own(operation, p) for p in buffers]
        with tf.Graph().as_default() as graph:
            source = tf.placeholder(tf.float64)
            variables, loads = [], []
            for index, p in enumerate(inputs):
                own = [self._variable("%s_%d" % (name, index), value) for name, value in p.items()]
                variables.append(own)
                # TensorFlow rounds: NumPy has no bfloat16.
                loads.append([tf.assign(v, tf.cast(tf.reshape(source, v.shape), v.dtype.base_dtype)).op for v in own])
            given = "d" in buffers[0]
            steps, results = zip(*[self._computed(operation, direction, own, given) for own in variables])
            others = tf.variables_initializer([v for v in tf.global_variables() if v not in sum(variables, [])])
            self.read = [[tf.cast(tensor, tf.float64) for tensor in tensors] for tensors in results]
            self.session = framework.session(graph)
        calls = [self.session.make_callable(step) for step in steps]
        runs = [functools.partial(self._run, call, index) for index, call in enumerate(calls)]

        def start():
            self.session.run(others)
            for p, assignments in zip(inputs, loads):
                for value, assignment in zip(p.values(), assignments):
                    self.session.run(assignment, {source: value})

        self._try(start)
        self._try(runs[0])
        if direction == ops.STEP:
            start()
        return runs

    def values(self, operation, direction, result):
        """The result, or the gradients in the order of the inputs, as float64 arrays in the specification's layouts."""
        values = self.session.run(self.read[result])
        if direction == ops.GRADIENT:
            return self._canonical(operation, values[1:])
        return [self._first(values[0]) if operation in IMAGES else values[0]]

    def _run(self, call, index):
        """The results stay in the session: values() reads them by the index."""
        call()
        return index

    def _variable(self, name, value):
        whole = value.dtype.kind != "f"
        # The usual initialiser draws no whole numbers.
        return tf.get_variable(
            name, value.shape, tf.int32 if whole else self.dtype, tf.zeros_initializer() if whole else None
        )

    def _computed(self, operation, direction, variables, given):
        """(the operations that a callable runs, the tensors that values() reads). given: the last variable is the result's gradient."""
        if direction == ops.STEP:
            w, g = variables
            return [OPTIMIZERS[operation](self.dtype).apply_gradients([(tf.identity(g), w)])], [w]
        inputs = [tf.identity(v) for v in (variables[:-1] if given else variables)]
        y = tf.cast(self._function(operation)(*inputs), self.dtype)
        if direction == ops.FORWARD:
            return [y.op], [y]
        if given:
            d = variables[-1]
        else:
            d = tf.get_variable(y.op.name.replace("/", "_") + "_d", y.shape, self.dtype, tf.ones_initializer())
        wanted = [tensor for tensor in inputs if tensor.dtype.is_floating]
        # An embedding's gradient is a list of rows, which an optimiser adds up. As a tensor it is added up, as in the other frameworks.
        outputs = [y] + [tf.convert_to_tensor(gradient) for gradient in tf.gradients(y, wanted, d)]
        return [output.op for output in outputs], outputs

    def _function(self, operation):
        if operation in ("lstm", "gru") and framework.on_gpu():
            return functools.partial(cudnn, operation)
        return {"lstm": block_lstm, "gru": gru_loop}.get(operation) or FUNCTIONS[operation]

    def _try(self, run):
        """Run it once: TensorFlow raises an error if it has no kernel at this precision."""
        try:
            run()
        except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
            if self.setup.precision == "fp32":
                raise
            raise Unsupported("TensorFlow at %s: %s" % (self.setup.precision, str(error).strip().splitlines()[0][:200]))

    def _own(self, operation, p):
        """The inputs in TensorFlow's layouts: weights (in, out), images N..C, kernels (..., in, out), a fused layer's as one array."""
        if operation in IMAGES:
            # A transposed convolution has its two channel axes the other way round, in TensorFlow too.
            w = np.moveaxis(p["w"], (0, 1), (-1, -2))
            return dict(p, x=self._last(p["x"]), w=w)
        if operation in ("lstm", "gru") and framework.on_gpu():
            # The parameters and the gates are in cuDNN's order.
            packed = np.concatenate([p[name].ravel() for name in "wubc"])
            return {"x": p["x"].transpose(1, 0, 2), "packed": packed}
        if operation == "lstm":
            w = np.concatenate([p["w"].T, p["u"].T])
            return {"x": p["x"].transpose(1, 0, 2), "w": swap_gates(w), "b": swap_gates(p["b"] + p["c"])}
        if operation in TURNED:
            return type(p)((name, value.T if name[0] in "wu" else value) for name, value in p.items())
        return p

    def _canonical(self, operation, values):
        """Gradients of TensorFlow's inputs as those of the specification's inputs, in its order."""
        if operation in IMAGES:
            x, w, b = values
            return [self._first(x), np.moveaxis(w, (-1, -2), (0, 1)), b]
        if operation in ("lstm", "gru") and framework.on_gpu():
            x, packed = values
            gates, units = 4 if operation == "lstm" else 3, x.shape[2]
            size = gates * units
            w, u, b, c = np.split(packed, [size * units, 2 * size * units, 2 * size * units + size])
            return [x.transpose(1, 0, 2), w.reshape(size, units), u.reshape(size, units), b, c]
        if operation == "lstm":
            x, w, b = values
            w, b = swap_gates(w), swap_gates(b)
            units = x.shape[2]
            return [x.transpose(1, 0, 2), w[:units].T, w[units:].T, b, b]
        if operation in TURNED:
            return [value.T if at > 0 else value for at, value in enumerate(values)]
        return values

    def _last(self, x):
        return x if framework.channels_first() else np.moveaxis(x, 1, -1)

    def _first(self, x):
        return x if framework.channels_first() else np.moveaxis(x, -1, 1)

    def _copies(self, operation, arrays):
        if self.setup.device == "cpu":
            raise Unsupported("the host's memory is the device's: there is nothing to copy")
        if operation.endswith("_pinned"):
            raise Unsupported("TensorFlow copies through pinned memory of its own; this cannot be chosen")
        with tf.Graph().as_default() as graph, tf.device("/GPU:0"):
            fed = tf.placeholder(tf.float32, arrays[0].shape)
            source = tf.get_variable("source", arrays[0].shape, tf.float32, tf.zeros_initializer())
            fresh, copied = tf.global_variables_initializer(), tf.identity(fed)
            session = framework.session(graph)
        session.run(fresh)
        if operation == "h2d":
            run = session.make_callable([copied.op], [fed])
            return [functools.partial(run, array) for array in arrays]
        return [session.make_callable(source)] * len(arrays)


def swap_gates(w):
    """Exchange the gates f and g along the last axis: canonical order i, f, g, o; BlockLSTM's order i, g, f, o."""
    i, f, g, o = np.split(w, 4, axis=-1)
    return np.concatenate([i, g, f, o], axis=-1)
