"""The MNIST convolution network in tinygrad: layers with a weight and a bias, functions on tensors, Adam, batches in file order.

Idiomatic here: nothing is computed before it is asked for, so a step is one schedule of fused kernels; TinyJit captures it and plays it
again (B8). max_pool2d rounds down, so that an odd last row and column are left out.
"""

from tinygrad import nn

from bench.frameworks.tinygrad._loop import Resident


class Training(Resident):
    def __init__(self, setup):
        super().__init__(setup)
        self.layers = {"conv1": nn.Conv2d(1, 16, 2), "conv2": nn.Conv2d(16, 8, 2), "dense": nn.Linear(288, 10)}
        self.parameters = {}
        for name, layer in self.layers.items():
            self.parameters[name + ".w"], self.parameters[name + ".b"] = layer.weight, layer.bias

    def logits(self, x, training):
        n = self.layers
        x = n["conv1"](x).max_pool2d((2, 2), stride=2).relu()  # A11: the same function on a quarter of the data
        x = n["conv2"](x).max_pool2d((2, 2), stride=2).relu()
        return n["dense"](x.flatten(1))  # in C, H, W order
