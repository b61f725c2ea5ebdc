"""The CIFAR-10 network in tinygrad: layers with a weight and a bias, functions on tensors, SGD.

Idiomatic here: tinygrad computes a tensor only when its value is needed, so a step is one schedule of fused kernels. TinyJit captures the
kernels once and replays them. No value goes back to the host inside the loop.
"""

from tinygrad import nn

from bench.frameworks.tinygrad._loop import Trained, of_layers


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup)
        # Stride and padding are explicit: defaults differ among frameworks.
        self.layers = {
            "conv1": nn.Conv2d(3, 50, 3, padding=1),
            "conv2": nn.Conv2d(50, 50, 3, padding=1),
            "conv3": nn.Conv2d(50, 100, 3, padding=1),
            "conv4": nn.Conv2d(100, 100, 3, padding=1),
            "dense1": nn.Linear(6400, 512),
            "dense2": nn.Linear(512, 10),
        }
        self.parameters = of_layers(self.layers)

    def new_optimizer(self, parameters):
        # Momentum: v = m v + g; w = w - rate v, without dampening or Nesterov. The option "classic" would put the rate inside v.
        return nn.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def logits(self, x, training):
        n = self.layers
        x = n["conv1"](x).relu()
        # ReLU after the pooling: the same values, a quarter of the work.
        x = n["conv2"](x).max_pool2d((2, 2), stride=2).relu()
        x = x.dropout(0.25) if training else x
        x = n["conv3"](x).relu()
        x = n["conv4"](x).max_pool2d((2, 2), stride=2).relu()
        x = x.dropout(0.25) if training else x
        # The inputs of dense1 are in C, H, W order.
        x = n["dense1"](x.flatten(1)).relu()
        x = x.dropout(0.5) if training else x
        return n["dense2"](x)
