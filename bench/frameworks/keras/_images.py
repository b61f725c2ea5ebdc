"""Images in Keras, in the layout in which its backend computes."""

import keras
import numpy as np

# Of PyTorch, which sees (N, C, H, W) in any case: True if pictures are to lie (N, H, W, C) in memory, which configure(setup) says; and
# True once some do.
last_in_memory = handed_last = False


def channels_first():
    return keras.config.image_data_format() == "channels_first"


def contiguous(x):
    """x (N, C, H, W), contiguous in the cell's layout.

    PyTorch's kernels take (N, H, W, C) in memory, seen as (N, C, H, W), without reordering (its channels-last tutorial).
    """
    global handed_last
    if channels_first() and not last_in_memory:
        return x
    # A permutation: exchanging axes 1 and 3 would also transpose the picture.
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    handed_last = last_in_memory
    return x.transpose(0, 3, 1, 2) if last_in_memory else x
