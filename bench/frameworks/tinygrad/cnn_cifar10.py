"""The CIFAR-10 network in tinygrad: layers with a weight and a bias, functions on tensors, SGD.

Idiomatic here: nothing is computed before it is asked for, so a step is one schedule of fused kernels; TinyJit captures it and plays it
again (B8). The loss is the only thing that comes back, and it is not waited for (B6).
"""

from tinygrad import nn

from bench.frameworks.tinygrad._loop import Trained


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup)
        self.layers = {
            "conv1": nn.Conv2d(3, 50, 3, padding=1),
            "conv2": nn.Conv2d(50, 50, 3, padding=1),
            "conv3": nn.Conv2d(50, 100, 3, padding=1),
            "conv4": nn.Conv2d(100, 100, 3, padding=1),
            "dense1": nn.Linear(6400, 512),
            "dense2": nn.Linear(512, 10),
        }
        self.parameters = {}
        for name, layer in self.layers.items():
            self.parameters[name + ".w"], self.parameters[name + ".b"] = layer.weight, layer.bias

    def new_optimizer(self, parameters):
        # A10: not "classic": v <- 0.9 v + g, w <- w - lr v, the specification's own form
        return nn.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def logits(self, x, training):
        n = self.layers
        x = n["conv1"](x).relu()
        x = n["conv2"](x).max_pool2d((2, 2), stride=2).relu()  # A11: the same function on a quarter of the data
        x = x.dropout(0.25) if training else x
        x = n["conv3"](x).relu()
        x = n["conv4"](x).max_pool2d((2, 2), stride=2).relu()
        x = x.dropout(0.25) if training else x
        x = n["dense1"](x.flatten(1)).relu()  # in C, H, W order
        x = x.dropout(0.5) if training else x
        return n["dense2"](x)
