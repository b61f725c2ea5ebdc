"""The IMDB network in PaddlePaddle: Embedding, GRU, Linear, Adam.

Idiomatic here: on a GPU nn.GRU is cuDNN's fused kernel. Its gates are stacked r, z, n with two biases, the specification's own form: the
reset gate is applied after the product. Paddle's Adam adds epsilon to the corrected root of the second moment, as the paper's algorithm 1.
"""

import paddle
from paddle import nn

from bench.frameworks.paddle._loop import Trained


class Network(nn.Layer):
    def __init__(self):
        super().__init__()
        # The embedding's gradient is dense.
        self.embedding = nn.Embedding(30000, 125)
        self.gru = nn.GRU(125, 100)
        self.dense = nn.Linear(100, 2)

    def forward(self, x):
        # The first state is zero and not trained.
        _, last = self.gru(self.embedding(x))
        # The output of the last position, padding included.
        return self.dense(last[0])


class Training(Trained):
    NAMES = {
        "embedding": ("embedding.weight", False),
        "gru.w": ("gru.weight_ih_l0", False),
        "gru.b": ("gru.bias_ih_l0", False),
        "gru.u": ("gru.weight_hh_l0", False),
        "gru.c": ("gru.bias_hh_l0", False),
        "dense.w": ("dense.weight", True),
        "dense.b": ("dense.bias", False),
    }

    def __init__(self, setup):
        paddle.seed(setup.seed)
        super().__init__(setup, Network())

    def new_optimizer(self, parameters):
        # Adam's constants are explicit: defaults differ among frameworks.
        return paddle.optimizer.Adam(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, parameters=parameters)
