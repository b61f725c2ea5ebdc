"""Keras on PyTorch: the backend's switches, and the layout of images in which it computes."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras  # noqa: E402

from bench.frameworks.keras import _images, _mixed  # noqa: E402
from bench.frameworks.keras import framework as shared  # noqa: E402
from bench.frameworks.pictures import layouts  # noqa: E402
from bench.frameworks.torch import framework as backend  # noqa: E402

NAME = "keras_torch"

device = backend.device
device_kinds = backend.device_kinds
synchronize = backend.synchronize
device_peak_bytes = backend.device_peak_bytes
forget_device_peak = backend.forget_device_peak
is_out_of_memory = backend.is_out_of_memory


def configure(setup):
    """The backend's precision, threads, memory and layout of pictures.

    The order of Keras' axes is PyTorch's own: Keras would permute the other one around each layer.
    """
    backend.configure(setup)
    _mixed.configure(setup)
    keras.config.set_image_data_format("channels_first")
    _images.last_in_memory = backend.layout(setup) == layouts.LAST


def versions():
    return shared.versions(backend.versions())


def settings():
    # In memory, of the pictures that were handed over.
    return dict(shared.settings(backend.settings()), layout="NHWC" if _images.handed_last else "NCHW")
