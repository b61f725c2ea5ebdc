"""Keras on TensorFlow: the backend's switches, and the layout of images in which it computes."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: E402

from bench.frameworks.keras import _mixed  # noqa: E402
from bench.frameworks.keras import framework as shared  # noqa: E402
from bench.frameworks.tensorflow import framework as backend  # noqa: E402

NAME = "keras_tensorflow"

device = backend.device
device_kinds = backend.device_kinds
synchronize = backend.synchronize
device_peak_bytes = backend.device_peak_bytes
forget_device_peak = backend.forget_device_peak
is_out_of_memory = backend.is_out_of_memory


def configure(setup):
    """The backend's precision, threads, memory and layout of pictures."""
    backend.configure(setup)
    _mixed.configure(setup)
    keras.config.set_image_data_format("channels_first" if backend.channels_first() else "channels_last")


def versions():
    return shared.versions(backend.versions())


def settings():
    return shared.settings(backend.settings())


def settings_of(adapter):
    """The setting xla: True if XLA compiles the step of a built adapter, or its prediction."""
    made = getattr(adapter, "loop", None) or getattr(adapter, "decoder", None)
    return {"xla": bool(made.xla if made else adapter.network.jit_compile)}
