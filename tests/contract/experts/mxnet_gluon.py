"""MXNet's Gluon."""

from unittest import mock

from mxnet import gluon
from mxnet.gluon import nn, rnn

from bench.frameworks.mxnet_gluon import gru_imdb
from tests.contract.experts.registry import variant


class TimeFirst(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(30000, 125)
            self.gru = rnn.GRU(100, layout="TNC", input_size=125)
            self.dense = nn.Dense(2, in_units=100)

    def hybrid_forward(self, F, x):  # noqa: N803
        states = self.gru(self.embedding(F.transpose(x)))
        return self.dense(F.slice_axis(states, axis=0, begin=-1, end=None).reshape((-3, 0)))


@variant("mxnet_gluon", "gru-imdb")
def time_first(adapter, setup):
    """The GRU takes the positions before the reviews (TNC)."""
    with mock.patch.object(gru_imdb, "Network", TimeFirst):
        return adapter(setup)


@variant("mxnet_gluon", "cnn-cifar10", "gru-imdb")
def planned_anew(adapter, setup):
    """The graph plans its memory anew in each call: hybridize() with its defaults."""
    training = adapter(setup)
    training.network.hybridize()
    training.loss.hybridize()
    return training
