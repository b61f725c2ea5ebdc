"""What both networks on MNIST share: Adam, the loss, and batches that lie on the device before the first step."""

import mxnet as mx

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")
from bench.frameworks.mxnet._loss import SoftmaxCrossEntropy
from bench.frameworks.mxnet_gluon import _loop


class Trained(_loop.Trained):
    """layers: canonical name -> layer of the network."""

    # Adam's constants are explicit: defaults differ among frameworks.
    OPTIMIZER = "exactadam", {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

    def __init__(self, setup, network, layers):
        super().__init__(setup, network, SoftmaxCrossEntropy())
        for name, layer in layers.items():
            self.parameters.update({name + ".w": layer.weight, name + ".b": layer.bias})

    def inputs(self, x, y):
        return mx.nd.array(x, ctx=self.context), mx.nd.array(y, ctx=self.context)

    def placed(self, array):
        # An array that is already there is not copied.
        return array.as_in_context(self.context)
