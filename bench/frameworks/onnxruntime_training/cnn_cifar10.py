"""The CIFAR-10 network in ONNX operators, trained by ONNX Runtime: Conv, Relu, MaxPool, Dropout, Gemm.

Idiomatic here: the graph is written once and optimised by the session. The parameters stay in bound memory (OrtValue), so a step copies
only the mini-batch.
"""

import numpy as np

from bench.frameworks.onnxruntime_training._graph import Trained
from bench.workloads.cnn_cifar10 import PARAMETERS


class Training(Trained):
    SHAPES = {spec.name: spec.shape for spec in PARAMETERS}

    def __init__(self, setup):
        super(Training, self).__init__(setup, (64, 3, 32, 32), "float32", 10)

    def network(self, graph, training):
        add = graph.add

        # Stride and padding are explicit: defaults differ among frameworks.
        def conv(x, name):
            return add("Conv", x, name + ".w", name + ".b", kernel_shape=(3, 3), pads=(1, 1, 1, 1))

        def pool(x):
            return add("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))

        def dense(x, name):
            return add("Gemm", x, name + ".w", name + ".b", transB=1)

        def drop(x, rate):
            # Dropout only in training.
            if not training:
                return x
            # The gradient needs the second output, the mask.
            return add("Dropout", x, graph.constant(np.float32(rate)), graph.constant(np.array(True)), outputs=2)[0]

        x = add("Relu", conv("x", "conv1"))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = drop(add("Relu", pool(conv(x, "conv2"))), 0.25)
        x = add("Relu", conv(x, "conv3"))
        x = drop(add("Relu", pool(conv(x, "conv4"))), 0.25)
        # The inputs of dense1 are in C, H, W order.
        x = add("Reshape", x, graph.constant(np.array([64, 6400])))
        x = drop(add("Relu", dense(x, "dense1")), 0.5)
        return dense(x, "dense2")

    def update(self, graph, name, shape):
        # Momentum: v = m v + g; w = w - rate v, without dampening or Nesterov.
        product = graph.add("Mul", name + "/v", graph.constant(np.float32(0.9)))
        velocity = graph.add("Add", product, name + "_grad", name=name + "/v_new")
        change = graph.add("Mul", velocity, graph.constant(np.float32(0.01)))
        return {name + "/v": velocity, name: graph.add("Sub", name, change, name=name + "_new")}

    def to_own(self, parameters):
        # ONNX's layouts are the specification's.
        return parameters

    canonical = to_own
