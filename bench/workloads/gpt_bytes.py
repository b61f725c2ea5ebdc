"""Bytes in, bytes out, by GPT-2's network (nanoGPT's size for characters): specification and float64 reference.

256 bytes · vocabulary 256 · 6 blocks of 6 heads of 64, width 384 (bench.transformer) · head tied to the embedding; no dropout.
A window has 257 bytes: x is the first 256, y the last 256. Mean cross-entropy over all positions, in nats; the metric is its bits on the
held-out part. Adam, rate 0.001, 0.9, 0.99, 1e-8, constant rate, no decay, no clipping.

The stand-in's source has an entropy of 1.7263 bits a byte (bench.data.bytes), which is the loss that no model goes below on average.
The band of the full run is 2 % around it.
"""

import numpy as np

from bench import arithmetic, reference, rules
from bench.transformer import Transformer

BATCH = 64
NETWORK = Transformer(vocabulary=256, length=256, layers=6, heads=6, width=384)
SHUFFLE = True
DROPOUT = False
LEARNING_RATE = 0.001
BETA1 = 0.9
BETA2 = 0.99
EPSILON = 1e-8
BUCKETS = 128
COMPARED = 1

PARAMETERS = NETWORK.parameters()
SYMMETRIC = NETWORK.symmetric()


def draw_batch(random):
    """x, y (1, 256) int32 of one window, whose first 256 bytes are a permutation of all bytes.

    So every row of both embeddings has a gradient in every batch: a row that no batch names could stand still unseen.
    """
    window = np.append(random.permutation(256), random.randint(0, 256, 1)).astype("int32")
    return window[None, :-1], window[None, 1:]


def alike(tensor):
    """The tensor's name in every block."""
    block, _, name = tensor.partition(".")
    return name if rules.whole(block[1:]) is not None else tensor


def optimizer():
    return reference.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    return NETWORK.loss_and_gradients(p, x, y, rounding)


def predict(p, x, rounding):
    return NETWORK.logits(p, x, rounding)


def score(labels, logits):
    """Bits a byte. labels (N, 256), logits (N, 256, 256)."""
    flat = np.asarray(logits, dtype=np.float64).reshape(-1, logits.shape[-1])
    loss, _ = reference.softmax_cross_entropy(flat, labels.ravel(), arithmetic.Exact())
    return loss / np.log(2.0)
