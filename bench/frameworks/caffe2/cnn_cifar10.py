"""The CIFAR-10 network in Caffe2: operators that read and write blobs of a workspace, added to a net once and run by name.

Idiomatic here: the net is created once (B8), with room for cuDNN's fast algorithms (ws_nbytes_limit) and their search (A3:
exhaustive_search); a mini-batch is fed to two blobs.
"""

import numpy as np
from caffe2.python import brew

from bench.frameworks.caffe2._loop import Trained
from bench.workloads.cnn_cifar10 import PARAMETERS

NAMES = [spec.name for spec in PARAMETERS]


class Training(Trained):
    def __init__(self, setup):
        data, label = ((64, 3, 32, 32), "float32"), ((64,), "int32")
        super(Training, self).__init__(setup, NAMES, (data, label))

    def network(self, model, training):
        add = model.net

        def parameters(name):  # blobs that load() fills
            return [name + ".w", name + ".b"]

        def conv(x, name):
            options = {"kernel": 3, "pad": 1, "order": "NCHW", "exhaustive_search": True}
            return add.Conv([x] + parameters(name), name, **options)

        def pool_relu(x, name):  # A11: ReLU after the pool is the same function on a quarter of the data
            return add.Relu(add.MaxPool(x, name + "_pool", kernel=2, stride=2, order="NCHW"), name + "_relu")

        def dense(x, name):
            return add.FC([x] + parameters(name), name)

        def drop(x, rate):
            return brew.dropout(model, x, str(x) + "_dropped", ratio=rate, is_test=False) if training else x

        x = add.Relu(conv("data", "conv1"), "conv1_relu")
        x = drop(pool_relu(conv(x, "conv2"), "conv2"), 0.25)
        x = add.Relu(conv(x, "conv3"), "conv3_relu")
        x = drop(pool_relu(conv(x, "conv4"), "conv4"), 0.25)
        x = drop(add.Relu(dense(x, "dense1"), "dense1_relu"), 0.5)  # FC flattens, in C, H, W order
        return dense(x, "dense2")

    def update(self, model, gradients):
        """Adds the update to the net. Returns the blobs that it reads: their values at the start."""
        shapes = {spec.name: spec.shape for spec in PARAMETERS}
        state = {"rate": np.array([0.01], "float32")}
        for name in NAMES:
            # A10: v <- 0.9 v + lr g, w <- w - v: the specification's momentum, with v scaled by the constant rate
            both = [gradients[name], name + "_v"]
            model.net.MomentumSGDUpdate(both + ["rate", name], both + [name], momentum=0.9, nesterov=0)
            state[name + "_v"] = np.zeros(shapes[name], "float32")
        return state

    def to_own(self, parameters):
        return parameters  # Caffe2's layouts are the specification's

    canonical = to_own
