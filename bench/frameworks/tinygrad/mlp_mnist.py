"""The MNIST perceptron in tinygrad: two Linear layers, Adam, the whole set as one batch.

Idiomatic here: nothing is computed before it is asked for, so a step is one schedule of fused kernels; TinyJit captures it and plays it
again (B8).
"""

from tinygrad import nn

from bench.frameworks.tinygrad._loop import Resident


class Training(Resident):
    def __init__(self, setup):
        super().__init__(setup)
        self.dense1, self.dense2 = nn.Linear(784, 32), nn.Linear(32, 10)
        self.parameters = {
            "dense1.w": self.dense1.weight,
            "dense1.b": self.dense1.bias,
            "dense2.w": self.dense2.weight,
            "dense2.b": self.dense2.bias,
        }

    def logits(self, x, training):
        return self.dense2(self.dense1(x.flatten(1)).relu())
