"""The mixture of experts on bytes in TensorFlow: Keras' layers (bench/frameworks/keras/moe_bytes.py), and the step of gpt_bytes.py."""

from bench.frameworks.tensorflow import gpt_bytes


class Training(gpt_bytes.Training):
    def new(self):
        from bench.frameworks.keras import moe_bytes

        return moe_bytes.network()
