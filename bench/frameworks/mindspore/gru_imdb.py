"""The IMDB network in MindSpore: Embedding, GRU, Dense, Adam, the step compiled as one graph.

Idiomatic here: nn.GRU is cuDNN's fused GRU on a GPU and a loop in the graph on a CPU. Its gates are stacked r, z, n with two biases, as
in the specification.
"""

from mindspore import nn

from bench.frameworks.mindspore._loop import Adam, Trained


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30000, 125)
        self.gru = nn.GRU(125, 100, batch_first=True)
        self.dense = nn.Dense(100, 2)

    def construct(self, x):
        # The first state is zero and not trained.
        _, last = self.gru(self.embedding(x))
        # The output of the last position, which may be padding.
        return self.dense(last[0])


class Training(Trained):
    NAMES = {
        "embedding": "embedding.embedding_table",
        "gru.w": "gru.weight_ih_l0",
        "gru.b": "gru.bias_ih_l0",
        "gru.u": "gru.weight_hh_l0",
        "gru.c": "gru.bias_hh_l0",
        "dense.w": "dense.weight",
        "dense.b": "dense.bias",
    }

    def __init__(self, setup):
        super().__init__(setup, Network())

    def new_optimizer(self, parameters):
        # Adam's constants are explicit: defaults differ among frameworks.
        return Adam(parameters, 0.001, 0.9, 0.999, 1e-8)
