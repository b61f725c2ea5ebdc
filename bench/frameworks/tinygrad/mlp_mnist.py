"""The MNIST perceptron in tinygrad: two Linear layers, Adam, the whole set as one batch.

Idiomatic here: tinygrad computes a tensor only when its value is needed, so a step is one schedule of fused kernels. TinyJit captures the
kernels once and replays them.
"""

from tinygrad import nn

from bench.frameworks.tinygrad._loop import Resident, of_layers


class Training(Resident):
    def __init__(self, setup):
        super().__init__(setup)
        self.layers = {"dense1": nn.Linear(784, 32), "dense2": nn.Linear(32, 10)}
        self.parameters = of_layers(self.layers)

    def logits(self, x, training):
        n = self.layers
        return n["dense2"](n["dense1"](x.flatten(1)).relu())
