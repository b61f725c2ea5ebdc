"""Images in Keras, in the layout in which its backend computes."""

import keras
import numpy as np


def channels_first():
    return keras.config.image_data_format() == "channels_first"


def contiguous(x):
    """x (N, C, H, W), contiguous in the backend's layout.

    PyTorch's kernels take (N, H, W, C) in memory, seen as (N, C, H, W), without reordering (its channels-last tutorial).
    """
    torch = keras.backend.backend() == "torch"
    if channels_first() and not torch:
        return x
    # A permutation: exchanging axes 1 and 3 would also transpose the picture.
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    return x.transpose(0, 3, 1, 2) if torch else x
