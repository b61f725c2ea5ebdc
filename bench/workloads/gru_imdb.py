"""Sentiment of IMDB reviews by a GRU (Deep Learning Framework Examples, 2017): specification and float64 reference.

150 token ids · embedding 30 000 -> 125 · GRU of 100 units (reset gate after the recurrent product, as cuDNN computes it) ·
its state after the last position, padding included · dense 2. Mean softmax cross-entropy; Adam, rate 0.001, 0.9, 0.999, 1e-8.
"""

import collections

import numpy as np

from bench import arithmetic, reference
from bench.canonical import Variant, bias, weight

BATCH = 64
CLASSES = 2
VOCABULARY = 30000
LENGTH = 150
SHORTEST = 90  # review of the parity check
# Ids with a meaning of their own in some vocabulary: start, end, out of vocabulary, mask; and the last one.
SPECIAL = tuple(range(1, 10)) + (VOCABULARY - 1,)
# 30 000 ids do not fit into three batches.
PARITY_RATES = (None,) * 4
EMBEDDED = 125
UNITS = 100
LEARNING_RATE = 0.001
SHUFFLE = True
DROPOUT = False
BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8
ERRS_ALIKE = True
# The margin, how often it is run, and the model (bench.parity.ROUNDINGS).
ROUNDINGS = {"fp32": [(3.0, 4, lambda random: arithmetic.ApproximateTanh(random, 2.0**-24, 0.0))]}

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
}


def draw_batch(random):
    """x (64, 150) int32 token ids uniform over the vocabulary, y (64,) int32 uniform over the classes.

    As in the data, id 0 pads a review on the right: here reviews have 90 to 150 tokens, so that 20 % is padding.
    """
    x = random.randint(1, VOCABULARY, (BATCH, LENGTH)).astype("int32")
    lengths = random.randint(SHORTEST, LENGTH + 1, BATCH)
    x[np.arange(LENGTH) >= lengths[:, None]] = 0
    return x, random.randint(0, CLASSES, BATCH).astype("int32")


def adjust_parity(parameters, batches):
    """Raise the update gate's bias by 3, and give the tokens other ids, so that the batches together name every row of the embedding.

    The gate is then about 0.95, and the state remembers. At 0.5, as drawn, the state would forget a position within some forty, and an
    adapter that leaves out the first hundred would pass.

    A row that no batch names has no gradient, so nobody would see that it is not trained. Ids drawn at random would leave a third of them
    out. Here each batch has a slice of one permutation, and the SPECIAL ids.
    """
    parameters["gru.b"][UNITS : 2 * UNITS] += 3.0
    random = np.random.RandomState(VOCABULARY)
    others = random.permutation(np.setdiff1d(np.arange(1, VOCABULARY), SPECIAL))
    for x, _ in batches:
        tokens = x != 0
        own = np.concatenate([SPECIAL, others[: tokens.sum() - len(SPECIAL)]])
        others = np.roll(others, len(SPECIAL) - len(own))
        x[tokens] = random.permutation(own)


def curve_batches(random):
    """Batches for ever for bench.curve: reviews of forty words, whose last ten are of their class seven times in ten; a fifth of the
    labels is the other class.

    Ten positions carry the gradient, so that a rounding error is not doubled over 150.
    """
    while True:
        y = random.randint(0, CLASSES, BATCH)
        x = random.randint(1, 41, (BATCH, LENGTH))
        told = np.where(random.uniform(size=(BATCH, 10)) < 0.7, y[:, None], 1 - y[:, None])
        x[:, -10:] = 20 * told + random.randint(1, 21, (BATCH, 10))
        labels = np.where(random.uniform(size=BATCH) < 0.2, 1 - y, y)
        yield x.astype("int32"), labels.astype("int32")


def named(x):
    """tensor -> the rows that a batch selects: no other one has a gradient."""
    return {"embedding": np.unique(x)}


def optimizer():
    return reference.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    embedded = p["embedding"][x.T]  # (150, 64, 125): time first
    recurrent_bias = np.zeros(3 * UNITS, embedded.dtype) if variant == "one-bias" else p["gru.c"]
    h, cell = reference.gru(embedded, p["gru.w"], p["gru.b"], p["gru.u"], recurrent_bias, rounding)
    logits, dense = reference.dense(h, p["dense.w"], p["dense.b"], rounding)
    loss, d = reference.softmax_cross_entropy(logits, y, rounding)

    g = collections.OrderedDict()
    d, g["dense.w"], g["dense.b"] = reference.dense_gradient(d, dense, rounding)
    d, g["gru.w"], g["gru.b"], g["gru.u"], g["gru.c"] = reference.gru_gradient(d, cell, rounding)
    if variant == "one-bias":
        del g["gru.c"]
    g["embedding"] = rounding.scatter(x.T, d, VOCABULARY)
    return logits, loss, g
