"""The CIFAR-10 network in ONNX operators, trained by ONNX Runtime: Conv, Relu, MaxPool, Dropout, Gemm.

Idiomatic here: a graph is written once and optimised by the session (B8); parameters stay in bound memory (OrtValue), so a step copies
the mini-batch and nothing else.
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

        def conv(x, name):
            return add("Conv", x, name + ".w", name + ".b", kernel_shape=(3, 3), pads=(1, 1, 1, 1))

        def pool(x):  # A14: the stride is said
            return add("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))

        def dense(x, name):
            return add("Gemm", x, name + ".w", name + ".b", transB=1)

        def drop(x, rate):
            if not training:
                return x
            # its gradient needs the second output, the mask
            return add("Dropout", x, graph.constant(np.float32(rate)), graph.constant(np.array(True)), outputs=2)[0]

        x = add("Relu", conv("x", "conv1"))
        x = drop(
            add("Relu", pool(conv(x, "conv2"))), 0.25
        )  # A11: after the pool it is the same on a quarter of the data
        x = add("Relu", conv(x, "conv3"))
        x = drop(add("Relu", pool(conv(x, "conv4"))), 0.25)
        x = add("Reshape", x, graph.constant(np.array([64, 6400])))  # in C, H, W order
        x = drop(add("Relu", dense(x, "dense1")), 0.5)
        return dense(x, "dense2")

    def update(self, graph, name, shape):
        # A10: v <- 0.9 v + g, w <- w - lr v: the specification's own form
        kept = graph.add("Mul", name + "/v", graph.constant(np.float32(0.9)))
        velocity = graph.add("Add", kept, name + "_grad", name=name + "/v_new")
        change = graph.add("Mul", velocity, graph.constant(np.float32(0.01)))
        return {name + "/v": velocity, name: graph.add("Sub", name, change, name=name + "_new")}

    def to_own(self, parameters):
        return parameters  # ONNX's layouts are the specification's

    canonical = to_own
