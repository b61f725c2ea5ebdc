"""GPT-2 of 124 million parameters (Radford et al. 2019), trained on random tokens: specification and float64 reference.

1 024 tokens · vocabulary 50 304, GPT-2's 50 257 made a multiple of 64 · 12 blocks of 12 heads of 64, width 768 (bench.transformer) · head
tied to the embedding; no dropout. Mean cross-entropy over all positions. AdamW: rate 0.0006, 0.9, 0.95, 1e-8, a decay of 0.1 of tensors of
two axes; constant rate, no clipping.

For speed on GPUs: nothing is learned from random tokens. 16 windows are 16 384 tokens a step, 14 TFLOP, as nanoGPT's batch of 12 on one
GPU: every product has thousands of rows, so that kernels and not their launches take the time.
"""

import numpy as np

from bench import reference, rules
from bench.transformer import Transformer

BATCH = 16
LENGTH = 1024
VOCABULARY = 50304
NETWORK = Transformer(VOCABULARY, LENGTH, layers=12, heads=12, width=768)
PARITY_LENGTH = 256
DROPOUT = False
LEARNING_RATE = 0.0006
BETA1 = 0.9
BETA2 = 0.95
EPSILON = 1e-8
DECAY = 0.1
BUCKETS = 64
MOST_RUNS = 4

PARAMETERS = NETWORK.parameters()
SYMMETRIC = NETWORK.symmetric()


def draw_batch(random):
    """x, y (1, 256) int32 of one window: the same network on fewer tokens, as its reference takes minutes.

    The first and the last id, that of the end of a text and the first of padding are among the tokens.
    """
    window = random.randint(0, VOCABULARY, PARITY_LENGTH + 1).astype("int32")
    window[[3, 50, 101, 200]] = 0, VOCABULARY - 1, 50256, 50257
    return window[None, :-1], window[None, 1:]


def draw_items(random, items):
    """(x, y) of random windows, (items, 1024) int32: y is x one token later."""
    windows = random.randint(0, VOCABULARY, (items, LENGTH + 1)).astype(np.int32)
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def alike(tensor):
    """The tensor's name in every block."""
    block, _, name = tensor.partition(".")
    return name if rules.whole(block[1:]) is not None else tensor


def optimizer():
    return reference.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON, DECAY)


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    return NETWORK.loss_and_gradients(p, x, y, rounding)
