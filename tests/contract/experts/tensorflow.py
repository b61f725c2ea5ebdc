"""TensorFlow 2, and Keras on it."""

from unittest import mock

from bench.frameworks.keras import _decoders
from bench.frameworks.tensorflow import framework, gpt2_decode
from tests.contract.experts.registry import variant


@variant("tensorflow", "cnn-cifar10", "mlp-mnist", "cnn-mnist", "gpt-bytes", "llama-bytes", "moe-bytes")
def xla(adapter, setup):
    """XLA compiles the step: the mode xla."""
    with mock.patch.object(framework, "_xla", True):
        return adapter(setup)


@variant("tensorflow", "gru-imdb")
def graph(adapter, setup):
    """tf.function without XLA."""
    with mock.patch.object(framework, "by_xla", return_value=False):
        return adapter(setup)


@variant("tensorflow", "gpt2-decode")
def graph_of_a_step(adapter, setup):
    """tf.function without XLA, which writes the cache by the assignment of a slice."""

    class ByGraph(adapter):
        def __init__(self, setup):
            with mock.patch.object(gpt2_decode, "FASTER_BY_XLA", False):
                super().__init__(setup)

        def take(self, x):
            with mock.patch.object(gpt2_decode, "FASTER_BY_XLA", False):
                return super().take(x)

    return ByGraph(setup)


@variant("keras_tensorflow", "gpt2-decode")
def keras_graph_of_a_step(adapter, setup):
    """tf.function without XLA."""
    with mock.patch.object(_decoders._TensorFlow, "xla", False):
        return adapter(setup)


@variant("keras_tensorflow", "mlp-mnist", "cnn-mnist", "gpt-bytes", "llama-bytes", "moe-bytes")
def keras_xla(adapter, setup):
    """XLA compiles the step."""
    return type("ByXla", (adapter,), {"FASTER_BY_XLA": True})(setup)


@variant("keras_tensorflow", "gru-imdb")
def keras_graph(adapter, setup):
    """tf.function without XLA."""
    return type("ByGraph", (adapter,), {"FASTER_BY_XLA": False})(setup)
