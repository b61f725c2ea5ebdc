"""Keras on PyTorch: the backend's switches, and the layout of images in which it computes."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras  # noqa: E402

from bench.frameworks.keras import _mixed  # noqa: E402
from bench.frameworks.keras import framework as shared  # noqa: E402
from bench.frameworks.torch import framework as backend  # noqa: E402

NAME = "keras_torch"

device = backend.device
device_kinds = backend.device_kinds
synchronize = backend.synchronize
device_peak_bytes = backend.device_peak_bytes
forget_device_peak = backend.forget_device_peak
is_out_of_memory = backend.is_out_of_memory


def configure(setup):
    """The backend's precision, threads and memory. Channels first is PyTorch's own layout: it would transpose the other one."""
    backend.configure(setup)
    _mixed.configure(setup)
    keras.config.set_image_data_format("channels_first")


def versions():
    return shared.versions(backend.versions())


def settings():
    return shared.settings(backend.settings())
