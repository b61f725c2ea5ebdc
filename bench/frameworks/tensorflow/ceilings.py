"""The fastest that TensorFlow can be: a matrix product, a copy in memory, its smallest operation."""

import tensorflow

from bench.ceilings import COPY_BYTES, SIDES


def calls(device):
    """Three functions without arguments, on device "cpu" or "cuda"; their results are not used."""
    with tensorflow.device("/GPU:0" if device == "cuda" else "/CPU:0"):
        a = tensorflow.random.uniform((SIDES[device], SIDES[device]))
        source, small = tensorflow.random.uniform((COPY_BYTES[device] // 4,)), tensorflow.random.uniform((8,))
    return lambda: tensorflow.matmul(a, a), lambda: source + 1, lambda: small + small
