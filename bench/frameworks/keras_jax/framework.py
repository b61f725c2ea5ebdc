"""Keras on JAX: the backend's switches, and the layout of images in which it computes."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras  # noqa: E402

from bench.frameworks.jax import framework as backend  # noqa: E402
from bench.frameworks.keras import _mixed  # noqa: E402
from bench.frameworks.keras import framework as shared  # noqa: E402

NAME = "keras_jax"

device = backend.device
device_kinds = backend.device_kinds
synchronize = backend.synchronize
remembered = backend.remembered
device_peak_bytes = backend.device_peak_bytes
is_out_of_memory = backend.is_out_of_memory


def configure(setup):
    """The backend's precision, threads and memory. XLA chooses its own layout for the kernels; JAX's documents use channels last."""
    backend.configure(setup)
    _mixed.configure(setup)
    keras.config.set_image_data_format("channels_last")


def versions():
    return shared.versions(backend.versions())


def settings():
    return shared.settings(backend.settings())
