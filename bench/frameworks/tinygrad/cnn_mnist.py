"""The MNIST convolution network in tinygrad: layers with a weight and a bias, functions on tensors, Adam, batches in file order.

Idiomatic here: tinygrad computes a tensor only when its value is needed, so a step is one schedule of fused kernels. TinyJit captures the
kernels once and replays them. max_pool2d leaves out an odd last row and column.
"""

from tinygrad import nn

from bench.frameworks.tinygrad._loop import Resident, of_layers


class Training(Resident):
    def __init__(self, setup):
        super().__init__(setup)
        self.layers = {"conv1": nn.Conv2d(1, 16, 2), "conv2": nn.Conv2d(16, 8, 2), "dense": nn.Linear(288, 10)}
        self.parameters = of_layers(self.layers)

    def logits(self, x, training):
        n = self.layers
        # ReLU after the pooling: the same values, a quarter of the work.
        x = n["conv1"](x).max_pool2d((2, 2), stride=2).relu()
        x = n["conv2"](x).max_pool2d((2, 2), stride=2).relu()
        # The inputs of the dense layer are in C, H, W order.
        return n["dense"](x.flatten(1))
