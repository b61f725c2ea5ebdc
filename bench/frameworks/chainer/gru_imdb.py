"""The IMDB network in Chainer: EmbedID, n_step_gru, Linear, Adam.

Idiomatic here: n_step_gru is cuDNN's fused GRU on a GPU and a loop of functions on a CPU. Its gates are r, z, n with two biases, as in
the specification.
"""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from bench.frameworks.chainer._adam import Adam
from bench.frameworks.chainer._loop import Trained
from bench.frameworks.chainer.framework import place, seed, set_up, to_host


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embedding = L.EmbedID(30000, 125)
            self.gru = L.NStepGRU(1, 125, 100, 0.0)
            self.dense = L.Linear(100, 2)

    def forward(self, x):
        # Time comes first: the ids are transposed, not the embedded words. 150 positions of (64, 125).
        positions = F.separate(self.embedding(x.T), axis=0)
        # The first state is zero and not trained.
        start = self.gru.init_hx(positions[0])
        # The link self.gru would sort the sequences by length and transpose them. Here all have one length and the order is right.
        last, _ = F.n_step_gru(1, 0.0, start, self.gru.ws, self.gru.bs, positions)
        # The output of the last position.
        return self.dense(last[0])


class Training(Trained):
    def __init__(self, setup):
        super().__init__(Network())
        seed(setup.seed)

    def fresh(self):
        # Adam's constants are explicit: defaults differ among frameworks.
        return Adam(alpha=0.001, beta1=0.9, beta2=0.999, eps=1e-8)

    def load(self, parameters):
        self.network = self.network.to_cpu()
        for (weight, bias, rows), w, b in self._gru_parts():
            w.array, b.array = parameters["gru." + weight][rows].copy(), parameters["gru." + bias][rows].copy()
        self.network.embedding.W.array = parameters["embedding"].copy()
        self.network.dense.W.array = parameters["dense.w"].copy()
        self.network.dense.b.array = parameters["dense.b"].copy()
        self.network = place(self.network)
        self.optimizer = set_up(self.fresh(), self.network)

    def _gru_parts(self):
        """((canonical weight, canonical bias, rows), w, b) of the six products: three of the input, three of the state."""
        layer = self.network.gru[0]
        for index in range(6):
            rows = slice(index % 3 * 100, (index % 3 + 1) * 100)
            names = ("w", "b", rows) if index < 3 else ("u", "c", rows)
            yield names, getattr(layer, "w%d" % index), getattr(layer, "b%d" % index)

    def read(self):
        return self._read(lambda parameter: parameter.array)

    def gradients(self):
        return self._read(lambda parameter: parameter.grad)

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return F.softmax_cross_entropy(logits, y)

    def _read(self, of):
        network = self.network
        arrays = {
            "embedding": to_host(of(network.embedding.W)),
            "dense.w": to_host(of(network.dense.W)),
            "dense.b": to_host(of(network.dense.b)),
        }
        parts = [(names, to_host(of(w)), to_host(of(b))) for names, w, b in self._gru_parts()]
        for group in (parts[:3], parts[3:]):
            w, b, _ = group[0][0]
            arrays["gru." + w] = np.concatenate([part[1] for part in group])
            arrays["gru." + b] = np.concatenate([part[2] for part in group])
        return arrays
