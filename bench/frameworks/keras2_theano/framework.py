"""Keras 2 on Theano: the backend's switches, and the choice of the backend."""

import os

from bench.frameworks.theano import framework as backend

NAME = "keras2_theano"

device = backend.device


def configure(setup):
    os.environ["KERAS_BACKEND"] = "theano"
    backend.configure(setup)
    import keras

    keras.backend.set_image_data_format("channels_first")


def versions():
    import keras

    return dict(backend.versions(), framework=keras.__version__, keras=keras.__version__)


def settings():
    return dict(backend.settings(), keras_backend="theano")
