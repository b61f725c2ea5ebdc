"""Single operations in JAX: every operation is a pure function under jit, its gradients come from jax.vjp, optimisers from Optax.

Idiomatic here: normalisations are Flax's, the cross-entropy is Optax's, and a recurrent layer is a scan. The fused form takes the products
with the inputs of all positions before the scan, as one product (JAX's own fused kernel, jax.experimental.rnn, is cuDNN's LSTM only). The
cell form computes them inside the scan. A gradient run also returns the result, and the result's own gradient is an argument: otherwise XLA
would remove a product whose result is not read, and would simplify a product with constant ones.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen
from jax import lax, nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

try:
    from jax import shard_map
except ImportError:
    # JAX 0.4
    from jax.experimental.shard_map import shard_map

from bench import contract
from bench.errors import Unsupported
from bench.frameworks.jax import _attention
from bench.frameworks.jax.framework import started
from bench.workloads import ops
from bench.workloads.rows import EPSILON

DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
}


def dense(x, *parameters):
    for w, b in zip(parameters[::2], parameters[1::2]):
        x = x @ w.T + b
    return x


def convolution(x, w, b):
    spatial = "HW"[: x.ndim - 2]
    numbers = ("NC" + spatial, "OI" + spatial, "NC" + spatial)
    y = lax.conv_general_dilated(x, w, (1,) * len(spatial), [(1, 1)] * len(spatial), dimension_numbers=numbers)
    return y + b.reshape((-1,) + (1,) * len(spatial))


def transposed_convolution(x, w, b):
    # This is the gradient of a convolution, and w is that convolution's kernel. transpose_kernel swaps its channels and flips it.
    numbers = ("NCHW", "OIHW", "NCHW")
    y = lax.conv_transpose(x, w, (2, 2), "VALID", dimension_numbers=numbers, transpose_kernel=True)
    return y + b[:, None, None]


def lstm_step(state, gates):
    h, c = state
    i, f, g, o = jnp.split(gates, 4, axis=1)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
    return nn.sigmoid(o) * jnp.tanh(c), c


def lstm(x, w, u, b, c):
    start = jnp.zeros((len(x), u.shape[1]), x.dtype)
    products = (x @ w.T + b + c).swapaxes(0, 1)
    return lax.scan(lambda state, p: (lstm_step(state, p + state[0] @ u.T), None), (start, start), products)[0][0]


def lstm_cell(x, w, u, b, c):
    start = jnp.zeros((len(x), u.shape[1]), x.dtype)

    def cell(state, x_t):
        return lstm_step(state, x_t @ w.T + b + state[0] @ u.T + c), None

    return lax.scan(cell, (start, start), x.swapaxes(0, 1))[0][0]


def gru_step(h, of_input, of_state):
    r, z, n = jnp.split(of_input, 3, axis=1)
    h_r, h_z, h_n = jnp.split(of_state, 3, axis=1)
    r, z = nn.sigmoid(r + h_r), nn.sigmoid(z + h_z)
    return (1 - z) * jnp.tanh(n + r * h_n) + z * h


def gru(x, w, u, b, c):
    start = jnp.zeros((len(x), u.shape[1]), x.dtype)
    products = (x @ w.T + b).swapaxes(0, 1)
    return lax.scan(lambda h, p: (gru_step(h, p, h @ u.T + c), None), start, products)[0]


def gru_cell(x, w, u, b, c):
    start = jnp.zeros((len(x), u.shape[1]), x.dtype)
    return lax.scan(lambda h, x_t: (gru_step(h, x_t @ w.T + b, h @ u.T + c), None), start, x.swapaxes(0, 1))[0]


def layer_norm(h, w, b):
    return linen.LayerNorm(EPSILON).apply({"params": {"scale": w, "bias": b}}, h)


def rms_norm(h, w):
    return linen.RMSNorm(EPSILON).apply({"params": {"scale": w}}, h)


def cross_entropy(logits, ids):
    return optax.softmax_cross_entropy_with_integer_labels(logits, ids).mean()


FUNCTIONS = {
    "add": jnp.add,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "matmul": jnp.matmul,
    "matmul_flat": jnp.matmul,
    "matmul_thin": jnp.matmul,
    "dense": dense,
    "dense_x5": dense,
    "conv1d": convolution,
    "conv2d": convolution,
    "conv2d_transposed": transposed_convolution,
    "lstm": lstm,
    "lstm_cell": lstm_cell,
    "gru": gru,
    "gru_cell": gru_cell,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "softmax": nn.softmax,
    "cross_entropy": cross_entropy,
    "embedding": lambda table, ids: jnp.take(table, ids, axis=0),
}


def fp8_product(a, b, over=((1,), (0,))):
    """A product with sums in fp32, as jax_default_matmul_precision sets, and a result in bf16."""
    return lax.dot_general(a, b, (over, ((), ())), preferred_element_type=jnp.bfloat16)


def fp8_product_with_gradients(d, a, b):
    """with_gradients() of a product. The result's gradient is in e5m2, which has a larger range. jax.vjp would keep e4m3."""
    return fp8_product(a, b), fp8_product(d, b, ((1,), (1,))), fp8_product(a, d, ((0,), (0,)))


# The gradient of their bias is a sum over a picture.
SUMS_A_BIAS = ("conv1d", "conv2d", "conv2d_transposed")

# (devices, a device's row) -> its row afterwards.
COLLECTIVES = {
    "all_reduce": lambda count, x: lax.psum(x, "device"),
    "reduce_scatter": lambda count, x: lax.psum_scatter(x.reshape(count, -1), "device")[None],
    "all_gather": lambda count, x: lax.all_gather(x, "device").reshape(1, -1),
    # pbroadcast takes the name of an axis for a sequence of them.
    "broadcast": lambda count, x: lax.pbroadcast(x, ("device",), 0),
    "all_to_all": lambda count, x: lax.all_to_all(x.reshape(count, -1), "device", 0, 0).reshape(1, -1),
    "send_receive": lambda count, x: lax.ppermute(x, "device", [(at, (at + 1) % count) for at in range(count)]),
}

OPTIMIZERS = {
    "sgd": optax.sgd(ops.RATE),
    "momentum": optax.sgd(ops.RATE, momentum=ops.MOMENTUM),
    "adam": optax.adam(ops.RATE, ops.BETA1, ops.BETA2, ops.EPSILON),
}


def with_gradients(function):
    """(output's gradient, *inputs) -> (output, *gradients by the inputs)."""

    def run(d, *inputs):
        y, back = jax.vjp(function, *inputs)
        # Whole numbers have no gradient.
        return (y,) + tuple(gradient for gradient in back(d) if gradient.dtype != jax.dtypes.float0)

    return run


class Operators(contract.Operators):
    ATTENTION = True
    COLLECTIVES = tuple(COLLECTIVES)
    # (buffers, their arrays) of the last attention.
    _kept = (None, None)

    def __init__(self, setup):
        self.dtype = DTYPES[setup.precision]
        self.devices = jax.devices()[: setup.devices]
        # On a CPU a call returns before its work is done, and independent calls may run at the same time.
        self.wait = jax.block_until_ready if setup.device == "cpu" else started

    def runs(self, operation, direction, buffers):
        """A callable without arguments for each of `buffers` (input name -> float64 array). Raises Unsupported."""
        self.kernel = None
        if operation in ops.ATTENTION:
            return self._attention(operation, direction, buffers)
        self._kept = None, None
        if direction == ops.COPY:
            return [self._copy(operation, buffer["x"].astype("float32")) for buffer in buffers]
        if operation in COLLECTIVES:
            return [self._collective(operation, jnp.asarray(buffer["x"], self.dtype)) for buffer in buffers]
        inputs = [[self._array(value) for value in p.values()] for p in buffers]
        if direction == ops.STEP:
            return [self._step(OPTIMIZERS[operation], *arrays) for arrays in inputs]
        if self.dtype == "float8_e4m3fn":
            return self._fp8(direction, inputs)
        function = FUNCTIONS[operation]
        if direction == ops.GRADIENT:
            if operation in SUMS_A_BIAS and self.dtype == "bfloat16" and jax.default_backend() == "cpu":
                raise Unsupported(
                    "XLA sums a bias's gradient in bfloat16 on a CPU, where 256 + 1 is 256: the sum is wrong"
                )
            if "d" in buffers[0]:
                inputs = [arrays[-1:] + arrays[:-1] for arrays in inputs]
            else:
                y = jax.eval_shape(function, *inputs[0])
                inputs = [[jnp.ones(y.shape, y.dtype)] + arrays for arrays in inputs]
            function = with_gradients(function)
        function = jax.jit(function)
        return [lambda arrays=arrays: self.wait(function(*arrays)) for arrays in inputs]

    def _array(self, value):
        return jnp.asarray(value, self.dtype if value.dtype.kind == "f" else "int32")

    def values(self, operation, direction, result):
        """The result, or the gradients in the order of the inputs, as float64 arrays in the specification's layouts."""
        values = result[1:] if direction == ops.GRADIENT else [result]
        if operation in COLLECTIVES:
            # Those of every device, in their order.
            values = [
                shard.data for shard in sorted(result.addressable_shards, key=lambda shard: shard.index[0].start or 0)
            ]
        return [jax.device_get(value).astype("float64") for value in values]

    def _attention(self, operation, direction, buffers):
        """One set of inputs goes through all backends, one after the other: it is copied to the device once."""
        function = _attention.function(operation, self.dtype)
        if self._kept[0] is not buffers:
            self._kept = None, None
            self._kept = buffers, [[jnp.asarray(value, self.dtype) for value in p.values()] for p in buffers]
        inputs = self._kept[1]
        if direction == ops.GRADIENT:
            # The result has the shape of q.
            inputs = [[jnp.ones_like(arrays[0])] + arrays for arrays in inputs]
            function = with_gradients(function)
        function = jax.jit(function)
        self.kernel = _attention.kernel(operation, function, inputs[0])
        return [lambda arrays=arrays: self.wait(function(*arrays)) for arrays in inputs]

    def _fp8(self, direction, inputs):
        function = jax.jit(fp8_product_with_gradients if direction == ops.GRADIENT else fp8_product)
        if direction == ops.GRADIENT:
            inputs = [[jnp.ones((len(a), b.shape[1]), "float8_e5m2"), a, b] for a, b in inputs]
        return [lambda arrays=arrays: self.wait(function(*arrays)) for arrays in inputs]

    def _collective(self, operation, x):
        """Every device has a row before, and a row or a part of one after."""
        if operation == "broadcast" and (jax.default_backend() == "cpu" or not hasattr(lax, "pbroadcast")):
            raise Unsupported("JAX broadcasts from one device on GPUs only, by lax.pbroadcast of its newer releases")
        mesh, count = Mesh(np.array(self.devices), ("device",)), len(self.devices)
        if operation == "all_gather":
            # Each gives its own block.
            x = x.reshape(count, count, -1)[jnp.arange(count), jnp.arange(count)]
        x = jax.device_put(x, NamedSharding(mesh, PartitionSpec("device")))
        among = functools.partial(COLLECTIVES[operation], count)
        among = jax.jit(
            shard_map(among, mesh=mesh, in_specs=PartitionSpec("device"), out_specs=PartitionSpec("device"))
        )
        return lambda: self.wait(among(x))

    def _step(self, optimizer, w, g):
        state = optimizer.init(w)

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def update(w, state, g):
            updates, state = optimizer.update(g, state, w)
            return optax.apply_updates(w, updates), state

        def run():
            nonlocal w, state
            w, state = update(w, state, g)
            return self.wait(w)

        return run

    def _copy(self, operation, x):
        device = jax.devices()[0]
        if device.platform == "cpu":
            raise Unsupported("the host's memory is the device's: there is nothing to copy")
        if operation == "h2d":
            return lambda: self.wait(jax.device_put(x, device))
        if operation == "d2h":
            raise Unsupported("a JAX array keeps its copy on the host: the second copy to the host copies nothing")
        raise Unsupported("JAX pins memory by itself and has no switch for it")
