"""The GPT on bytes in PaddlePaddle: Layers, scaled_dot_product_attention, Adam.

Idiomatic here: one Linear gives q, k and v, with its weight as (in, out); the heads stay behind the positions. The embedding's weight is
the head's, too.
"""

import paddle
import paddle.nn.functional as F
from paddle import nn

from bench import powers, stacked
from bench.frameworks.paddle import _loop

BETA2 = 0.99
# canonical name -> Paddle's, of a block; q, k and v are the thirds of one layer.
PARTS = {"ln1": "ln1", "q": "qkv", "k": "qkv", "v": "qkv", "proj": "proj", "ln2": "ln2", "fc": "fc", "out": "out"}
ENDS = {"w": "weight", "g": "weight", "b": "bias"}


class Block(nn.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = (nn.LayerNorm(width, epsilon=1e-5) for _ in range(2))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        parts = paddle.split(self.qkv(x), 3, axis=-1)
        q, k, v = (part.reshape([0, 0, self.heads, -1]) for part in parts)
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).flatten(2))

    def forward(self, h):
        h = h + self.attend(self.ln1(h))
        # Paddle's GELU is the exact one unless it is told.
        return h + self.out(F.gelu(self.fc(self.ln2(h)), approximate=True))


class Network(nn.Layer):
    def __init__(self, vocabulary, length, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.LayerList([Block(width, heads) for _ in range(layers)])
        self.lnf = nn.LayerNorm(width, epsilon=1e-5)

    def forward(self, x):
        h = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return paddle.matmul(self.lnf(h), self.wte.weight, transpose_y=True)


def own_name(name):
    block, _, rest = name.rpartition(".")[0].partition(".")
    if name in ("wte", "wpe"):
        return name + ".weight"
    end = "." + ENDS[name[-1]]
    return "lnf" + end if block == "lnf" else "blocks.%s.%s" % (block[1:], PARTS[rest] + end)


class Training(_loop.Trained):
    def __init__(self, setup):
        paddle.seed(setup.seed)
        super().__init__(setup, Network(vocabulary=256, length=256, layers=6, heads=6, width=384))

    def load(self, parameters):
        self.parts = {}
        for name in parameters:
            self.parts.setdefault(own_name(name), []).append(name)
        self.rows = {name: len(value) for name, value in parameters.items()}
        own = dict(self.network.named_parameters())
        shapes = {name: own[name].shape if self.turned(name) else None for name in self.parts}
        self.network.set_state_dict(
            {name: stacked.joined(parameters, names, shapes[name]) for name, names in self.parts.items()}
        )
        # Adam's constants are explicit: defaults differ among frameworks. Paddle adds epsilon as the paper's algorithm 1 does.
        self.optimizer = paddle.optimizer.Adam(0.001, 0.9, BETA2, 1e-8, parameters=self.network.parameters())

    def turned(self, name):
        return self.parts[name][0].endswith(".w")

    def _read(self, of):
        found = {}
        for name, parameter in self.network.named_parameters():
            found.update(stacked.parts(of(parameter).numpy(), self.parts[name], self.rows, self.turned(name)))
        return found

    def inputs(self, x, y):
        return x.astype("int64"), y.astype("int64")

    def updates(self):
        # Adam counts no steps. It has beta2^(t + 1) for each parameter, from its first step on.
        state = self.optimizer.state_dict()
        kept = [value.numpy().item() / BETA2 for name, value in state.items() if "beta2_pow_acc" in name]
        return powers.steps(max(kept), BETA2) if kept else 0
