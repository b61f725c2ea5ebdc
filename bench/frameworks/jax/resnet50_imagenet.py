"""ResNet-50 trained in JAX: the features' network and a Linear, Optax's transformations in a chain, the step as one jitted function.

Idiomatic here: the module is split once into its structure, its parameters and its running statistics. The step is a pure function of the
parameters, the statistics and the optimiser's state (NNX's functional API). With momentum 0.9 a normalisation moves the statistics a
tenth of the way, the variance biased. The learning rate is an argument of the step, so a new rate compiles nothing. Flax convolves N, H,
W, C; on a GPU XLA chooses the kernels' own layout.
"""

import optax
from flax import nnx

from bench.frameworks.jax import resnet50_features
from bench.frameworks.jax._pictures import Trained
from bench.frameworks.jax.resnet50_features import ATTRIBUTES


class Network(resnet50_features.Network):
    def __init__(self, running, rngs):
        super().__init__(running, rngs)
        self.fc = nnx.Linear(2048, 1000, rngs=rngs)

    def __call__(self, x):
        return self.fc(super().__call__(x))


class Training(Trained):
    def __init__(self, setup):
        # Momentum: v = 0.9 v + g + 1e-4 w; w = w - rate v, without dampening or Nesterov.
        momentum = optax.chain(optax.add_decayed_weights(1e-4), optax.trace(decay=0.9))
        super().__init__(setup, Network, momentum, 0.0125)

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def own_path(self, name, dimensions):
        """torchvision's layer1.0.bn1.weight -> ("layer1", "layers", 0, "bn1", "scale"): a Sequential keeps a list."""
        path = []
        for part in name.split(".")[:-1]:
            path += ["layers", int(part)] if part.isdigit() else [part]
        return tuple(path) + (attribute(name, dimensions),)


def attribute(name, dimensions):
    """Flax's name for the parameter of a module."""
    end = name.rsplit(".", 1)[1]
    if dimensions > 1:
        return "kernel"
    return end if name.startswith("fc.") else ATTRIBUTES[end]
