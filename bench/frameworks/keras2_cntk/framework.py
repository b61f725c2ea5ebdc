"""Keras 2 on CNTK: the backend's switches, and the choice of the backend."""

import os

from bench.frameworks.cntk import framework as backend

NAME = "keras2_cntk"

device = backend.device
device_kinds = backend.device_kinds
synchronize = backend.synchronize


def configure(setup):
    os.environ["KERAS_BACKEND"] = "cntk"
    backend.configure(setup)
    import keras

    keras.backend.set_image_data_format("channels_first")


def versions():
    import keras

    return dict(backend.versions(), framework=keras.__version__, keras=keras.__version__)


def settings():
    return dict(backend.settings(), keras_backend="cntk")
