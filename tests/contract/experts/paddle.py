"""PaddlePaddle."""

from paddle import nn

from tests.contract.experts.registry import variant


@variant("paddle", "cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist", "gpt-bytes")
def to_static(adapter, setup):
    """The forward pass as a graph: the mode to-static."""
    return adapter(setup._replace(mode="to-static"))


@variant("paddle", "gru-imdb")
def time_first(adapter, setup):
    """The GRU takes the positions before the reviews (time_major)."""
    training = adapter(setup)
    network = training.network
    network.gru = nn.GRU(125, 100, time_major=True)
    network.forward = lambda x: network.dense(network.gru(network.embedding(x.t()))[1][0])
    return training
