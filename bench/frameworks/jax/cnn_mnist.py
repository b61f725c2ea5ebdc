"""The MNIST convolution network in JAX: a Flax NNX module, Optax's Adam, batches in file order, the training step as one jitted function.

Idiomatic here: Flax convolves N, H, W, C. With one channel an image is the same in N, C, H, W. The dense layer's weights are permuted
instead of its input.
"""

from flax import nnx

from bench.frameworks.jax import _mixed
from bench.frameworks.jax._mnist import Trained


class Network(nnx.Module):
    def __init__(self, rngs, dtype):
        # Flax's default padding, "SAME", would pad.
        def conv(inputs, outputs):
            return nnx.Conv(inputs, outputs, kernel_size=(2, 2), padding="VALID", dtype=dtype, rngs=rngs)

        self.conv1, self.conv2 = conv(1, 16), conv(16, 8)
        self.dense = nnx.Linear(288, 10, dtype=dtype, dot_general=_mixed.logits_product, rngs=rngs)

    def __call__(self, x):
        # ReLU after the pooling: the same values, a quarter of the work.
        x = nnx.relu(half(self.conv1(x)))
        x = nnx.relu(half(self.conv2(x)))
        return self.dense(x.reshape(len(x), -1))


def half(x):
    # Flax's default stride is 1. The pooling leaves out an odd last row and column.
    return nnx.max_pool(x, (2, 2), strides=(2, 2))


class Training(Trained):
    LAYERS = ("conv1", "conv2", "dense")

    def __init__(self, setup):
        super().__init__(setup, lambda: Network(nnx.Rngs(setup.seed), _mixed.dtype(setup)))

    def inputs(self, x, y):
        return super().inputs(x.reshape(len(x), 28, 28, 1), y)

    def to_flax(self, name, w):
        """Canonical weights -> Flax's: kernels (kh, kw, in, out); dense (in, out), its inputs in H, W, C order."""
        if name != "dense":
            return w.transpose(2, 3, 1, 0)
        return w.reshape(10, 8, 6, 6).transpose(0, 2, 3, 1).reshape(10, 288).T

    def from_flax(self, name, w):
        if name != "dense":
            return w.transpose(3, 2, 0, 1)
        return w.T.reshape(10, 6, 6, 8).transpose(0, 3, 1, 2).reshape(10, 288)
