"""TensorFlow 2, and Keras on it."""

from unittest import mock

from bench.frameworks.tensorflow import framework
from tests.contract.experts.registry import variant


@variant("tensorflow", "cnn-cifar10", "mlp-mnist", "cnn-mnist")
def xla(adapter, setup):
    """XLA compiles the step: the mode xla."""
    with mock.patch.object(framework, "_xla", True):
        return adapter(setup)


@variant("tensorflow", "gru-imdb")
def graph(adapter, setup):
    """tf.function without XLA."""
    with mock.patch.object(framework, "by_xla", return_value=False):
        return adapter(setup)


@variant("keras_tensorflow", "mlp-mnist", "cnn-mnist")
def keras_xla(adapter, setup):
    """XLA compiles the step."""
    return type("ByXla", (adapter,), {"FASTER_BY_XLA": True})(setup)


@variant("keras_tensorflow", "gru-imdb")
def keras_graph(adapter, setup):
    """tf.function without XLA."""
    return type("ByGraph", (adapter,), {"FASTER_BY_XLA": False})(setup)
