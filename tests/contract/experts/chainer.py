"""Chainer."""

import chainer
import chainer.functions as F

from bench.frameworks.chainer import gru_imdb
from tests.contract.experts.registry import variant


@variant("chainer", "cnn-cifar10", "gru-imdb")
def lazy_sums(adapter, setup):
    """Gradients that meet are added up at once (lazy_grad_sum)."""
    chainer.config.lazy_grad_sum = True
    return adapter(setup)


class ByLink(gru_imdb.Network):
    def forward(self, x):
        last, _ = self.gru(None, list(self.embedding(x)))
        return self.dense(last[0])


@variant("chainer", "gru-imdb")
def by_the_link(adapter, setup):
    """The link NStepGRU takes a list of the reviews, as Chainer's own example does."""
    training = adapter(setup)
    training.network = ByLink()
    return training


@variant("chainer", "gru-imdb")
def stacked_products(adapter, setup):
    """The products of the three gates as one, position by position, from functions."""
    training = adapter(setup)
    training.network = Stacked()
    return training


class Stacked(gru_imdb.Network):
    def forward(self, x):
        w, b = self.gru.ws[0], self.gru.bs[0]
        of_input, of_state = (F.concat([w[at] for at in part], axis=0) for part in (range(3), range(3, 6)))
        first, second = (F.concat([b[at] for at in part], axis=0) for part in (range(3), range(3, 6)))
        words = F.reshape(self.embedding(x.T), (-1, 125))
        positions = F.separate(F.reshape(F.linear(words, of_input, first), (*x.T.shape, 300)), axis=0)
        h = self.xp.zeros((len(x), 100), "float32")
        for position in positions:
            r, z, n = F.split_axis(position, 3, axis=1)
            h_r, h_z, h_n = F.split_axis(F.linear(h, of_state, second), 3, axis=1)
            z = F.sigmoid(z + h_z)
            n = F.tanh(n + F.sigmoid(r + h_r) * h_n)
            h = n + z * (h - n)
        return self.dense(h)
