"""What both networks on MNIST share: Adam, the loss, and batches that lie on the device before the first step."""

import chainer.functions as F

from bench.frameworks.chainer import _loop
from bench.frameworks.chainer._adam import Adam
from bench.frameworks.chainer.framework import seed, to_device


class Trained(_loop.Trained):
    """The Chain's links have the specification's names."""

    def __init__(self, setup, network):
        super().__init__(network)
        seed(setup.seed)

    def fresh(self):
        # Adam's constants are explicit: defaults differ among frameworks.
        return Adam(alpha=0.001, beta1=0.9, beta2=0.999, eps=1e-8)

    def own_name(self, name, value):
        layer, kind = name.split(".")
        return "%s/%s" % (layer, {"w": "W", "b": "b"}[kind])

    def inputs(self, x, y):
        return tuple(to_device(x, y))

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return F.softmax_cross_entropy(logits, y)
