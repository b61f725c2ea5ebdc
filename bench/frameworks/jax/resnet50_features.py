"""ResNet-50's features in JAX: Flax NNX modules under the names of the weight files, the forward pass as one jitted function.

Idiomatic here: the module is split once into its structure and its state, and the forward pass is a pure function of the state and the
images (NNX's functional API), so nothing of Python runs in a batch but the call; without grad there are no gradients (A21). Flax
convolves N, H, W, C; on a GPU XLA chooses the kernels' own layout (A1).
"""

import functools

import jax
import numpy as np
from flax import nnx

from bench.workloads.resnet50_features import EPSILON, EXPANSION, GROUPS


def conv(inputs, outputs, size, stride, pad, rngs):
    # A15: said in numbers, for with stride 2 "SAME" pads one row less before than after, or none
    return nnx.Conv(inputs, outputs, (size, size), stride, padding=[(pad, pad)] * 2, use_bias=False, rngs=rngs)


def norm(channels, running, rngs):
    return nnx.BatchNorm(channels, use_running_average=running, momentum=0.9, epsilon=EPSILON, rngs=rngs)


class Bottleneck(nnx.Module):
    def __init__(self, inputs, channels, stride, shortcut, running, rngs):
        outputs = EXPANSION * channels
        self.conv1, self.bn1 = conv(inputs, channels, 1, 1, 0, rngs), norm(channels, running, rngs)
        self.conv2, self.bn2 = conv(channels, channels, 3, stride, 1, rngs), norm(channels, running, rngs)
        self.conv3, self.bn3 = conv(channels, outputs, 1, 1, 0, rngs), norm(outputs, running, rngs)
        layers = [conv(inputs, outputs, 1, stride, 0, rngs), norm(outputs, running, rngs)] if shortcut else []
        self.downsample = nnx.Sequential(*layers)  # of nothing: the identity

    def __call__(self, x):
        h = nnx.relu(self.bn1(self.conv1(x)))
        h = nnx.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return nnx.relu(h + self.downsample(x))


def group(inputs, blocks, channels, stride, *how):
    first = Bottleneck(inputs, channels, stride, True, *how)
    rest = (Bottleneck(EXPANSION * channels, channels, 1, False, *how) for _ in range(blocks - 1))
    return nnx.Sequential(first, *rest)


class Network(nnx.Module):
    def __init__(self, running, rngs):
        """running: whether to normalise with the running statistics (D6), or with the batch's, which move them."""
        self.conv1, self.bn1 = conv(3, 64, 7, 2, 3, rngs), norm(64, running, rngs)
        inputs = (64,) + tuple(EXPANSION * channels for _, channels, _ in GROUPS)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            group(n, *g, running, rngs) for n, g in zip(inputs, GROUPS)
        )

    def __call__(self, x):
        x = nnx.relu(self.bn1(self.conv1(x)))
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))  # A14; the border is filled with -inf
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((1, 2))


# what a weight file calls the vectors of a normalisation -> what Flax does
ATTRIBUTES = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}


class Inference:
    def __init__(self, setup):
        # Only the shapes: load() brings the values (Flax's guide to checkpoints).
        self.network = nnx.eval_shape(lambda: Network(True, nnx.Rngs(setup.seed)))
        self.structure, self.state = nnx.graphdef(self.network), None

    @functools.partial(jax.jit, static_argnums=0)
    def features(self, state, x):
        return nnx.merge(self.structure, state)(x)

    def load(self, parameters):
        for name, value in parameters.items():
            *path, last = name.split(".")
            module = functools.reduce(child, path, self.network)
            if value.ndim == 4:  # kernels (kh, kw, in, out)
                module.kernel.set_value(jax.numpy.array(value.transpose(2, 3, 1, 0)))
            else:
                getattr(module, ATTRIBUTES[last]).set_value(jax.numpy.array(value))
        self.state = nnx.state(self.network)

    def inputs(self, x):
        # A2: a permutation; exchanging axes 1 and 3 would also transpose the picture
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    def predict(self, x):
        return np.asarray(self.features(self.state, x))


def child(module, name):
    """The part of a module, or the module of a Sequential, that a weight file calls `name`."""
    return module.layers[int(name)] if name.isdigit() else getattr(module, name)
