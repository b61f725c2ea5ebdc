"""Bytes in, bytes out, by LLaMA's network: specification and float64 reference.

The windows, the optimiser and the metric of gpt_bytes · 6 blocks of 6 heads of 64 with 2 heads of keys and values, width 384, 1 024 hidden
units (bench.llama) · a head of its own; no biases, no dropout.
"""

from bench.llama import Llama
from bench.workloads.gpt_bytes import (
    BATCH,
    BETA1,
    BETA2,
    BUCKETS,
    COMPARED,
    DROPOUT,
    LEARNING_RATE,
    SHUFFLE,
    alike,
    draw_batch,
    optimizer,
    score,
)

__all__ = ["BATCH", "BETA1", "BETA2", "BUCKETS", "COMPARED", "DROPOUT", "LEARNING_RATE", "SHUFFLE"]
__all__ += ["alike", "draw_batch", "optimizer", "score"]

NETWORK = Llama(vocabulary=256, length=256, layers=6, heads=6, groups=2, width=384, hidden=1024)
PARAMETERS = NETWORK.parameters()


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    return NETWORK.loss_and_gradients(p, x, y, rounding)


def predict(p, x, rounding):
    return NETWORK.logits(p, x, rounding)
