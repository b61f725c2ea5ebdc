"""The IMDB network in tinygrad: Embedding, a GRU cell written out, a dense layer, Adam.

Idiomatic here: tinygrad has no recurrent layer, so the cell is a few lines, unrolled over the 150 positions. The input's product is taken
for all positions at once. TinyJit replays the thousands of kernels without scheduling them again.
"""

from tinygrad import Tensor, nn

from bench.frameworks.tinygrad._loop import Trained


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup)
        self.embedding = nn.Embedding(30000, 125)
        shapes = {"gru.w": (300, 125), "gru.b": (300,), "gru.u": (300, 100), "gru.c": (300,)}
        self.dense = nn.Linear(100, 2)
        self.parameters = {"embedding": self.embedding.weight}
        self.parameters.update((name, Tensor.zeros(*shape).contiguous()) for name, shape in shapes.items())
        self.parameters.update({"dense.w": self.dense.weight, "dense.b": self.dense.bias})

    def new_optimizer(self, parameters):
        # Adam's constants are explicit: defaults differ among frameworks.
        return nn.optim.Adam(parameters, lr=0.001, b1=0.9, b2=0.999, eps=1e-8)

    def logits(self, x, training):
        p = self.parameters
        # (150, 64, 300): time first. Each position is then contiguous in memory, and all positions use the same kernels.
        projected = self.embedding(x.T).linear(p["gru.w"].T, p["gru.b"]).contiguous()
        # The first state is zero and not trained.
        h = Tensor.zeros(x.shape[0], 100)
        for position in range(x.shape[1]):
            xr, xz, xn = projected[position].contiguous().chunk(3, dim=1)
            hr, hz, hn = h.linear(p["gru.u"].T, p["gru.c"]).chunk(3, dim=1)
            r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
            # The reset gate after the product, as in cuDNN.
            n = (xn + r * hn).tanh()
            # contiguous() ends a kernel here: kernels fused over positions would compute h again for each of them.
            h = (n + z * (h - n)).contiguous()
        # The output of the last position.
        return self.dense(h)
