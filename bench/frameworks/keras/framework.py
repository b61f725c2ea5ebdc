"""Versions and settings of Keras, for its three backends."""

import keras


def versions(backend):
    """The backend's versions, with Keras as the framework."""
    return dict(backend, framework=keras.__version__, keras=keras.__version__)


def settings(backend):
    """The backend's settings, with Keras' layout of images."""
    order = keras.config.image_data_format()
    return dict(backend, keras_backend=keras.backend.backend(), layout={"channels_first": "NCHW"}.get(order, "NHWC"))
