"""The mixture of experts on bytes in Keras 3: the model of _llama.py with a router."""

from bench.frameworks.keras import _llama, _stacked


def network():
    return _llama.network(hidden=512, experts=4, chosen=2)


class Training(_stacked.Training):
    network_of = staticmethod(network)
