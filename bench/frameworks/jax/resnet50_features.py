"""ResNet-50's features in JAX: Flax NNX modules under the names of the weight files, the forward pass as one jitted function.

Idiomatic here: the module is split once into its structure and its state. The forward pass is a pure function of the state and the images
(NNX's functional API), so Python only makes one call for each batch. Flax convolves N, H, W, C; on a GPU XLA chooses the kernels' own
layout.
"""

import functools

import jax
import numpy as np
from flax import nnx

from bench import contract
from bench.frameworks.jax._flax import set_value
from bench.workloads.resnet50_features import EPSILON, EXPANSION, GROUPS


def conv(inputs, outputs, size, stride, pad, rngs):
    # Stride and padding are explicit: with stride 2, "SAME" pads one row less before than after, or none.
    return nnx.Conv(inputs, outputs, (size, size), stride, padding=[(pad, pad)] * 2, use_bias=False, rngs=rngs)


def norm(channels, running, rngs):
    return nnx.BatchNorm(channels, use_running_average=running, momentum=0.9, epsilon=EPSILON, rngs=rngs)


def identity(x):
    return x


class Bottleneck(nnx.Module):
    def __init__(self, inputs, channels, stride, shortcut, running, rngs):
        outputs = EXPANSION * channels
        self.conv1, self.bn1 = conv(inputs, channels, 1, 1, 0, rngs), norm(channels, running, rngs)
        self.conv2, self.bn2 = conv(channels, channels, 3, stride, 1, rngs), norm(channels, running, rngs)
        self.conv3, self.bn3 = conv(channels, outputs, 1, 1, 0, rngs), norm(outputs, running, rngs)
        # Flax 0.8's empty Sequential is not the identity.
        layers = [conv(inputs, outputs, 1, stride, 0, rngs), norm(outputs, running, rngs)] if shortcut else []
        self.downsample = nnx.Sequential(*layers) if layers else identity

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
        """running: evaluation uses the running statistics. Training uses the batch's, and moves the running ones."""
        self.conv1, self.bn1 = conv(3, 64, 7, 2, 3, rngs), norm(64, running, rngs)
        inputs = (64,) + tuple(EXPANSION * channels for _, channels, _ in GROUPS)
        groups = [group(before, *sizes, running, rngs) for before, sizes in zip(inputs, GROUPS)]
        self.layer1, self.layer2, self.layer3, self.layer4 = groups

    def __call__(self, x):
        x = nnx.relu(self.bn1(self.conv1(x)))
        # The stride is explicit: Flax's default is 1. The border is filled with -inf.
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((1, 2))


# torchvision's name for a vector of a normalisation -> Flax's
ATTRIBUTES = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}


class Inference(contract.Inference):
    def __init__(self, setup):
        # Shapes only: load() brings the values (Flax's guide to checkpoints).
        self.network = nnx.eval_shape(lambda: Network(True, nnx.Rngs(setup.seed)))
        self.structure, self.state = nnx.graphdef(self.network), None

    # Compiled, as people run it for speed. No gradients in evaluation: they cost memory and time.
    @functools.partial(jax.jit, static_argnums=0)
    def features(self, state, x):
        return nnx.merge(self.structure, state)(x)

    def load(self, parameters):
        for name, value in parameters.items():
            *path, last = name.split(".")
            module = functools.reduce(child, path, self.network)
            # Flax's kernels are (kh, kw, in, out).
            if value.ndim == 4:
                set_value(module.kernel, jax.numpy.array(value.transpose(2, 3, 1, 0)))
            else:
                set_value(getattr(module, ATTRIBUTES[last]), jax.numpy.array(value))
        self.state = nnx.state(self.network)

    def inputs(self, x):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    def predict(self, x):
        return np.asarray(self.features(self.state, x))


def child(module, name):
    """The child that a weight file calls `name`: an attribute of a module, or an item of a Sequential."""
    return module.layers[int(name)] if name.isdigit() else getattr(module, name)
