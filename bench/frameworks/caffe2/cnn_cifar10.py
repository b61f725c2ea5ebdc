"""The CIFAR-10 network in Caffe2: operators read and write blobs of a workspace; a net of operators is run by name.

Idiomatic here: the net is created once and run in every step, as people run it for speed. ws_nbytes_limit gives cuDNN's fast algorithms
room. A mini-batch is fed to two blobs.
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

        # The blobs that load() fills.
        def parameters(name):
            return [name + ".w", name + ".b"]

        # Channels first, the layout that cuDNN computes in.
        # cuDNN searches for its fastest algorithm: the pictures' size is fixed.
        # Padding is explicit: defaults differ among frameworks.
        def conv(x, name):
            options = {"kernel": 3, "pad": 1, "order": "NCHW", "exhaustive_search": True, "ws_nbytes_limit": 2**30}
            return add.Conv([x] + parameters(name), name, **options)

        # ReLU after the pooling: the same values, a quarter of the work.
        def pool_relu(x, name):
            return add.Relu(add.MaxPool(x, name + "_pool", kernel=2, stride=2, order="NCHW"), name + "_relu")

        def dense(x, name):
            return add.FC([x] + parameters(name), name)

        # Dropout only in training.
        def drop(x, rate):
            return brew.dropout(model, x, str(x) + "_dropped", ratio=rate, is_test=False) if training else x

        x = add.Relu(conv("data", "conv1"), "conv1_relu")
        x = drop(pool_relu(conv(x, "conv2"), "conv2"), 0.25)
        x = add.Relu(conv(x, "conv3"), "conv3_relu")
        x = drop(pool_relu(conv(x, "conv4"), "conv4"), 0.25)
        # FC flattens its input, in C, H, W order.
        x = drop(add.Relu(dense(x, "dense1"), "dense1_relu"), 0.5)
        return dense(x, "dense2")

    def update(self, model, gradients):
        """Adds the update to the net. Returns the optimiser's blobs with their first values."""
        shapes = {spec.name: spec.shape for spec in PARAMETERS}
        state = {"rate": np.array([0.01], "float32")}
        for name in NAMES:
            # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Caffe2 stores rate v in place of v.
            both = [gradients[name], name + "_v"]
            model.net.MomentumSGDUpdate(both + ["rate", name], both + [name], momentum=0.9, nesterov=0)
            state[name + "_v"] = np.zeros(shapes[name], "float32")
        return state

    def to_own(self, parameters):
        # Caffe2 has the specification's layouts.
        return parameters

    canonical = to_own
