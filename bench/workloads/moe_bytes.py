"""Bytes in, bytes out, by a mixture of experts: specification and float64 reference.

The network of llama_bytes, in each of whose blocks a router chooses 2 of 4 experts of 512 hidden units for each byte (bench.llama): a byte
meets as many of them as there. The loss has the term that spreads the work over the experts.
"""

import itertools

import numpy as np

from bench.llama import Llama
from bench.workloads.gpt_bytes import (
    BATCH,
    BETA1,
    BETA2,
    BUCKETS,
    DROPOUT,
    LEARNING_RATE,
    SHUFFLE,
    alike,
    draw_batch,
    optimizer,
    score,
)

__all__ = ["BATCH", "BETA1", "BETA2", "BUCKETS", "DROPOUT", "LEARNING_RATE", "SHUFFLE"]
__all__ += ["alike", "draw_batch", "optimizer", "score"]

NETWORK = Llama(256, 256, layers=6, heads=6, groups=2, width=384, hidden=512, experts=4, chosen=2)
CHOOSES = True
# Of each the positions before the first choice that rounding might turn (bench.items).
COMPARED = 2
PARAMETERS = NETWORK.parameters()
# Of the canonical case: the numbers that name a byte's experts, what they weigh in a router, the share of a router's other weights that is
# left, and that of the weights by which a block writes to these numbers. Adam's steps move them by some tenths together.
NAMED, ROUTED, OTHERS, WRITTEN = 2.0, 2.0, 0.1, 0.02


def adjust_parity(parameters, batches):
    """Let each byte choose its experts by far, as one that two experts suit alike is sent to either by rounding.

    The first numbers of a byte's vector name its two experts. The blocks hardly write there, and the routers read there first. Half of the
    bytes have the first two experts, so that one that drops what is more than its share shows.
    """
    pairs = list(itertools.combinations(range(NETWORK.experts), NETWORK.chosen))
    pairs = np.array(pairs[:1] * len(pairs) + pairs)
    named = np.full((NETWORK.vocabulary, NETWORK.experts), -NAMED, np.float32)
    np.put_along_axis(named, pairs[np.arange(NETWORK.vocabulary) % len(pairs)], NAMED, axis=1)
    parameters["wte"][:, : NETWORK.experts] = named
    for name, value in parameters.items():
        last = name.rpartition(".")[2]
        if last in ("o", "down"):
            value[: NETWORK.experts] *= WRITTEN
        elif last == "router":
            value *= OTHERS
            value[:, : NETWORK.experts] += ROUTED * np.eye(NETWORK.experts)
        elif last == "n2":
            value[: NETWORK.experts] = 1.0


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    return NETWORK.loss_and_gradients(p, x, y, rounding)


def predict(p, x, rounding):
    return NETWORK.logits(p, x, rounding)
