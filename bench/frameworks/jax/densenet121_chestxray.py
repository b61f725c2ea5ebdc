"""DenseNet-121 in JAX: Flax NNX modules under the names of the weight files, Optax's Adam, the training step as one jitted function.

Idiomatic here: the module is split once into its structure, its parameters and its running statistics. The step is a pure function of the
parameters, the statistics and the optimiser's state (NNX's functional API), and returns the moved statistics. With momentum 0.9 a
normalisation moves them a tenth of the way, the variance biased. Flax convolves N, H, W, C; on a GPU XLA chooses the kernels' own layout.
"""

import jax
import optax
from flax import nnx

from bench.frameworks.jax._pictures import Trained

LAYERS = (6, 12, 24, 16)
GROWTH = 32


def conv(inputs, outputs, size, stride, pad, rngs):
    # Stride and padding are explicit: with stride 2, "SAME" pads one row less before than after, or none.
    return nnx.Conv(inputs, outputs, (size, size), stride, padding=[(pad, pad)] * 2, use_bias=False, rngs=rngs)


def norm(channels, running, rngs):
    return nnx.BatchNorm(channels, use_running_average=running, momentum=0.9, epsilon=1e-5, rngs=rngs)


class DenseLayer(nnx.Module):
    def __init__(self, inputs, running, rngs):
        self.norm1, self.conv1 = norm(inputs, running, rngs), conv(inputs, 4 * GROWTH, 1, 1, 0, rngs)
        self.norm2, self.conv2 = norm(4 * GROWTH, running, rngs), conv(4 * GROWTH, GROWTH, 3, 1, 1, rngs)

    def __call__(self, x):
        new = self.conv1(nnx.relu(self.norm1(x)))
        new = self.conv2(nnx.relu(self.norm2(new)))
        return jax.numpy.concatenate([x, new], axis=-1)


class DenseBlock(nnx.Module):
    def __init__(self, inputs, count, running, rngs):
        self.count = count
        for index in range(count):
            setattr(self, "denselayer%d" % (index + 1), DenseLayer(inputs + index * GROWTH, running, rngs))

    def __call__(self, x):
        for index in range(self.count):
            x = getattr(self, "denselayer%d" % (index + 1))(x)
        return x


class Transition(nnx.Module):
    def __init__(self, inputs, running, rngs):
        self.norm, self.conv = norm(inputs, running, rngs), conv(inputs, inputs // 2, 1, 1, 0, rngs)

    def __call__(self, x):
        x = self.conv(nnx.relu(self.norm(x)))
        return nnx.avg_pool(x, (2, 2), strides=(2, 2))


class Features(nnx.Module):
    def __init__(self, running, rngs):
        self.conv0, self.norm0 = conv(3, 64, 7, 2, 3, rngs), norm(64, running, rngs)
        channels = 64
        for block, count in enumerate(LAYERS, 1):
            setattr(self, "denseblock%d" % block, DenseBlock(channels, count, running, rngs))
            channels += count * GROWTH
            if block < len(LAYERS):
                setattr(self, "transition%d" % block, Transition(channels, running, rngs))
                channels //= 2
        self.norm5 = norm(channels, running, rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm0(self.conv0(x)))
        # The stride is explicit: Flax's default is 1. The border is filled with -inf.
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        x = self.transition1(self.denseblock1(x))
        x = self.transition2(self.denseblock2(x))
        x = self.transition3(self.denseblock3(x))
        x = nnx.relu(self.norm5(self.denseblock4(x)))
        return x.mean((1, 2))


class Network(nnx.Module):
    def __init__(self, running, rngs):
        """running: evaluation uses the running statistics. Training uses the batch's, and moves the running ones."""
        self.features = Features(running, rngs)
        self.classifier = nnx.Linear(1024, 14, rngs=rngs)

    def __call__(self, x):
        return self.classifier(self.features(x))


# torchvision's name for a vector of a normalisation -> Flax's
ATTRIBUTES = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}


class Training(Trained):
    def __init__(self, setup):
        # Adam's constants are explicit: defaults differ among frameworks. eps is outside the square root. The step is -rate times this.
        super().__init__(setup, Network, optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8), 1e-4)

    def updates(self):
        return int(self.state.count)

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one sigmoid.
        return optax.sigmoid_binary_cross_entropy(logits, y).mean()

    def own_path(self, name, dimensions):
        """torchvision's features.norm0.weight -> ("features", "norm0", "scale")."""
        *path, end = name.split(".")
        vector = ATTRIBUTES[end] if path[-1] != "classifier" else end
        return tuple(path) + ("kernel" if dimensions > 1 else vector,)
