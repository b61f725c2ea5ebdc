"""The IMDB network in tinygrad: Embedding, a GRU cell written out, a dense layer, Adam.

Idiomatic here: tinygrad has no recurrent layer, so the cell is a few lines, unrolled over the 150 positions; the input's product is
taken for all positions at once. TinyJit plays the thousands of kernels back without scheduling them again (B8).
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
        # C9: every constant set
        return nn.optim.Adam(parameters, lr=0.001, b1=0.9, b2=0.999, eps=1e-8)

    def logits(self, x, training):
        p = self.parameters
        # (150, 64, 300): time first (C3), so that every position is a piece of memory, and its kernels are those of all others
        projected = self.embedding(x.T).linear(p["gru.w"].T, p["gru.b"]).contiguous()
        h = Tensor.zeros(x.shape[0], 100)  # C6
        for position in range(x.shape[1]):
            xr, xz, xn = projected[position].contiguous().chunk(3, dim=1)
            hr, hz, hn = h.linear(p["gru.u"].T, p["gru.c"]).chunk(3, dim=1)
            r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
            n = (xn + r * hn).tanh()  # C8: the reset gate after the product, as cuDNN has it
            h = (
                n + z * (h - n)
            ).contiguous()  # a kernel ends here: fused over positions, it would be computed again and again
        return self.dense(h)  # C5: the state at position 150
