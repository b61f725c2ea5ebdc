"""The GPT on bytes in Gluon: HybridBlocks of Dense and LayerNorm, a Trainer with Adam.

Idiomatic here: one Dense gives q, k and v, and the heads are a part of the batch of batch_dot. MXNet 1.9 has no fused attention with a
mask of its own: softmax takes the length of each row, which is what a position sees. The embedding's weight is the head's, too.
"""

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")
from bench import stacked
from bench.frameworks.mxnet._loss import SoftmaxCrossEntropy
from bench.frameworks.mxnet_gluon import _loop

VOCABULARY, LENGTH, LAYERS, HEADS, WIDTH = 256, 256, 6, 6, 384
# The layers of a block -> their names in the specification; q, k and v are the thirds of one.
PARTS = {"ln1": ["ln1"], "qkv": ["q", "k", "v"], "proj": ["proj"], "ln2": ["ln2"], "fc": ["fc"], "out": ["out"]}


def dense(units, inputs):
    return nn.Dense(units, flatten=False, in_units=inputs)


def gelu(F, x):
    # MXNet's GELU is the exact one.
    return 0.5 * x * (1.0 + F.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


class Block(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.ln1, self.ln2 = (nn.LayerNorm(epsilon=1e-5, in_channels=WIDTH) for _ in range(2))
            self.qkv, self.proj = dense(3 * WIDTH, WIDTH), dense(WIDTH, WIDTH)
            self.fc, self.out = dense(4 * WIDTH, WIDTH), dense(WIDTH, 4 * WIDTH)

    def heads(self, F, x):
        """(N, T, C) -> (N heads, T, C / heads)"""
        parts = F.transpose(F.reshape(x, shape=(0, 0, HEADS, -1)), axes=(0, 2, 1, 3))
        return F.reshape(parts, shape=(-3, 0, 0))

    def attend(self, F, x, seen):
        q, k, v = (self.heads(F, part) for part in F.split(self.qkv(x), 3, axis=2))
        scores = F.batch_dot(q * (WIDTH // HEADS) ** -0.5, k, transpose_b=True)
        # Of each row the first places, of which there are as many as it has positions to see.
        seen = F.broadcast_like(
            seen, F.slice_axis(scores, axis=2, begin=0, end=1).squeeze(axis=2), lhs_axes=0, rhs_axes=0
        )
        y = F.batch_dot(F.softmax(scores, seen, use_length=True), v)
        y = F.transpose(F.reshape(y, shape=(-4, -1, HEADS, 0, 0)), axes=(0, 2, 1, 3))
        return self.proj(F.reshape(y, shape=(0, 0, -3)))

    def hybrid_forward(self, F, h, seen):
        h = h + self.attend(F, self.ln1(h), seen)
        return h + self.out(gelu(F, self.fc(self.ln2(h))))


class Network(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.wte = self.params.get("wte", shape=(VOCABULARY, WIDTH))
            self.wpe = self.params.get("wpe", shape=(LENGTH, WIDTH))
            self.blocks = [Block() for _ in range(LAYERS)]
            for block in self.blocks:
                self.register_child(block)
            self.lnf = nn.LayerNorm(epsilon=1e-5, in_channels=WIDTH)

    def hybrid_forward(self, F, x, wte, wpe):
        embedded = F.Embedding(x, wte, input_dim=VOCABULARY, output_dim=WIDTH)
        h = F.broadcast_add(embedded, F.expand_dims(wpe, axis=0))
        seen = F.expand_dims(F.arange(1, LENGTH + 1, dtype="int32"), axis=0)
        for block in self.blocks:
            h = block(h, seen)
        return F.FullyConnected(self.lnf(h), wte, no_bias=True, num_hidden=VOCABULARY, flatten=False)


class MeanOfPositions(SoftmaxCrossEntropy):
    """The mean over the positions of each window."""

    def hybrid_forward(self, F, logits, labels):
        return F.mean(super().hybrid_forward(F, logits, labels), axis=1)


class Training(_loop.Trained):
    # Adam's constants are explicit: defaults differ among frameworks.
    OPTIMIZER = "exactadam", {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}

    def __init__(self, setup):
        network = Network()
        super().__init__(setup, network, MeanOfPositions())
        # Gluon's parameter -> its canonical names, one below another.
        self.names = {"wte": ["wte"], "wpe": ["wpe"]}
        self.parameters = {"wte": network.wte, "wpe": network.wpe}
        layers = {"h%d." % at: block for at, block in enumerate(network.blocks)}
        named = [("lnf", ["lnf"], network.lnf)]
        for prefix, block in layers.items():
            named += [
                (prefix + part, [prefix + own for own in names], getattr(block, part)) for part, names in PARTS.items()
            ]
        for name, names, layer in named:
            norm = isinstance(layer, nn.LayerNorm)
            for end, parameter in (
                (("g", layer.gamma), ("b", layer.beta)) if norm else (("w", layer.weight), ("b", layer.bias))
            ):
                self.names["%s.%s" % (name, end)] = ["%s.%s" % (own, end) for own in names]
                self.parameters["%s.%s" % (name, end)] = parameter

    def load(self, parameters):
        self.rows = {name: len(value) for name, value in parameters.items()}
        super().load({own: stacked.joined(parameters, names) for own, names in self.names.items()})

    def canonical(self, arrays):
        found = {}
        for own, array in arrays.items():
            found.update(stacked.parts(array, self.names[own], self.rows, False))
        return found

    def read(self):
        return self.canonical(super().read())

    def probe(self, x, y):
        logits, loss, gradients = super().probe(x, y)
        return logits, loss, self.canonical(gradients)

    def inputs(self, x, y):
        return x, y

    def placed(self, array):
        return mx.nd.array(array, ctx=self.context, dtype="int32")
