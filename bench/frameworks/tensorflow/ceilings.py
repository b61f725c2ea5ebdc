"""The fastest that TensorFlow can be: a matrix product, a copy in memory, its smallest operation."""

import tensorflow

from bench.ceilings import COPY_BYTES, SIDE


def calls(device):
    """Three functions without arguments, on device "cpu" or "cuda"; their results are not used."""
    with tensorflow.device("/GPU:0" if device == "cuda" else "/CPU:0"):
        a = tensorflow.random.uniform((SIDE, SIDE))
        source, small = tensorflow.ones(COPY_BYTES // 4), tensorflow.ones(8)
    return lambda: tensorflow.matmul(a, a), lambda: source + 1, lambda: small + small
