"""What the three backends of Keras have in common: versions and settings."""

import keras


def versions(backend):
    """The backend's versions, with Keras as the framework."""
    return dict(backend, framework=keras.__version__, keras=keras.__version__)


def settings(backend):
    """The backend's settings, with the layout of images that Keras is told to use."""
    order = keras.config.image_data_format()
    return dict(backend, keras_backend=keras.backend.backend(), layout={"channels_first": "NCHW"}.get(order, "NHWC"))
