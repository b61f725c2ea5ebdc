"""Causal attention in NumPy (Vaswani et al. 2017, "Attention is all you need"), with grouped heads (Ainslie et al. 2023, "GQA").

q is (batch, length, heads, dim), as a network's projections leave it. k and v are (batch, length, kv_heads, dim): query head h reads
key head h // (heads // kv_heads). Position t attends to the positions 0 to t. The scores' factor is 1 / sqrt(dim).
"""

import numpy as np


def _heads_first(x, group=1):
    """(batch, length, kv_heads, dim) -> (batch, kv_heads * group, length, dim)."""
    return np.repeat(x.transpose(0, 2, 1, 3), group, axis=1)


def _weights(q, k):
    """softmax(q k' / sqrt(dim)) over the positions that each may see: (batch, heads, length, length)."""
    length = q.shape[2]
    scores = np.matmul(q, k.transpose(0, 1, 3, 2)) / np.sqrt(q.shape[3])
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return weights / weights.sum(axis=3, keepdims=True)


def result(p):
    """(batch, length, heads, dim) of p["q"], p["k"], p["v"]."""
    group = p["q"].shape[2] // p["k"].shape[2]
    weights = _weights(_heads_first(p["q"]), _heads_first(p["k"], group))
    return np.matmul(weights, _heads_first(p["v"], group)).transpose(0, 2, 1, 3)


def gradients(p):
    """The gradients of the sum of the result by q, k and v."""
    group, kv_heads = p["q"].shape[2] // p["k"].shape[2], p["k"].shape[2]
    q, k, v = _heads_first(p["q"]), _heads_first(p["k"], group), _heads_first(p["v"], group)
    weights = _weights(q, k)
    d_weights = v.sum(axis=3)[:, :, None, :]
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=3, keepdims=True)) / np.sqrt(q.shape[3])
    d_v = np.broadcast_to(weights.sum(axis=2)[:, :, :, None], v.shape)

    def of_group(d):
        batch, _, length, dim = d.shape
        return d.reshape(batch, kv_heads, group, length, dim).sum(axis=2).transpose(0, 2, 1, 3)

    d_q = np.matmul(d_scores, k).transpose(0, 2, 1, 3)
    return [d_q, of_group(np.matmul(d_scores.transpose(0, 1, 3, 2), q)), of_group(d_v)]
