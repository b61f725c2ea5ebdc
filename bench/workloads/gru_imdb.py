"""Sentiment of IMDB reviews by a GRU (Deep Learning Framework Examples, 2017): specification and float64 reference.

150 token ids · embedding 30 000 -> 125 · GRU of 100 units (reset gate after the recurrent product, as cuDNN computes it) ·
its state after the last position, padding included · dense 2. Mean softmax cross-entropy; Adam, rate 0.001, 0.9, 0.999, 1e-8.
"""

import collections

import numpy as np

from bench import reference
from bench.canonical import Variant, bias, weight

BATCH = 64
CLASSES = 2
VOCABULARY = 30000
LENGTH = 150
EMBEDDED = 125
UNITS = 100
LEARNING_RATE = 0.001
SHUFFLE = True
DROPOUT = False
BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8

# The GRU's gates are stacked r, z, n: w (300, 125) with bias b, u (300, 100) with the recurrent bias c. Dense (out, in).
PARAMETERS = [
    weight("embedding", (VOCABULARY, EMBEDDED), VOCABULARY, EMBEDDED),
    weight("gru.w", (3 * UNITS, EMBEDDED), EMBEDDED, UNITS, stacked=3),
    bias("gru.b", 3 * UNITS),
    weight("gru.u", (3 * UNITS, UNITS), UNITS, UNITS, stacked=3),
    bias("gru.c", 3 * UNITS),
    weight("dense.w", (CLASSES, UNITS), UNITS, CLASSES),
    bias("dense.b", CLASSES),
]


# What some frameworks' own layers compute instead. An adapter declares it (VARIANT), and is held against that variant's reference.
VARIANTS = {
    "one-bias": Variant("the GRU has no recurrent bias: gru.c does not exist", ("gru.c",)),
    "reset-before": Variant(
        "the reset gate is applied to the state before the recurrent product, with one bias: gru.c does not exist",
        ("gru.c",),
    ),
}


def draw_batch(random):
    """x (64, 150) int32 token ids uniform over the vocabulary, y (64,) int32 uniform over the classes."""
    x = random.randint(0, VOCABULARY, (BATCH, LENGTH)).astype("int32")
    return x, random.randint(0, CLASSES, BATCH).astype("int32")


def optimizer():
    return reference.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    embedded = p["embedding"][x.T]  # (150, 64, 125): time first
    if variant == "reset-before":
        h, cell = reference.gru_reset_before(embedded, p["gru.w"], p["gru.b"], p["gru.u"], rounding)
    else:
        recurrent_bias = np.zeros(3 * UNITS) if variant == "one-bias" else p["gru.c"]
        h, cell = reference.gru(embedded, p["gru.w"], p["gru.b"], p["gru.u"], recurrent_bias, rounding)
    logits, dense = reference.dense(h, p["dense.w"], p["dense.b"], rounding)
    loss, d = reference.softmax_cross_entropy(logits, y, rounding)

    g = collections.OrderedDict()
    d, g["dense.w"], g["dense.b"] = reference.dense_gradient(d, dense, rounding)
    if variant == "reset-before":
        d, g["gru.w"], g["gru.b"], g["gru.u"] = reference.gru_reset_before_gradient(d, cell, rounding)
    else:
        d, g["gru.w"], g["gru.b"], g["gru.u"], g["gru.c"] = reference.gru_gradient(d, cell, rounding)
    if variant == "one-bias":
        del g["gru.c"]
    g["embedding"] = np.zeros(p["embedding"].shape)
    np.add.at(g["embedding"], x.T, d)
    return logits, loss, g
