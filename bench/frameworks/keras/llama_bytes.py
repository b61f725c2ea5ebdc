"""The LLaMA on bytes in Keras 3: the model of _llama.py."""

from bench.frameworks.keras import _llama, _stacked


def network():
    return _llama.network(hidden=1024)


class Training(_stacked.Training):
    network_of = staticmethod(network)
