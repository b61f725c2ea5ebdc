"""The GPT on bytes in TensorFlow: Keras' layers (bench/frameworks/keras/gpt_bytes.py), and the training step as one tf.function.

TensorFlow has no fused attention: it is two products and a softmax.
"""

from bench.errors import Unsupported
from bench.frameworks.tensorflow._keras import KERAS_2
from bench.frameworks.tensorflow._trained import Trained


class Training(Trained):
    BETA2 = 0.99

    def __init__(self, setup):
        if KERAS_2:
            raise Unsupported("Keras 2 has no dot_product_attention; Keras 3.7 is the first")
        from bench.frameworks.keras import _stacked

        self.stacked = _stacked
        super().__init__(setup, self.new())

    def new(self):
        from bench.frameworks.keras import gpt_bytes

        return gpt_bytes.network()

    def fill(self, parameters):
        self.stacked.fill(self.network, parameters)

    def canonical(self, values):
        return self.stacked.canonical(self.network, values)
