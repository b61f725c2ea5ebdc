"""The workloads of GPT-2's network, written a second time as second_writing.py has the others."""

import math

import numpy as np
import second_writing as written
import torch
import torch.nn.functional as F


def gpt_parameters(vocabulary, length, layers, width):
    def scaled(name):
        return [written.vector(name + ".g", width, "scale"), written.vector(name + ".b", width)]

    listed = [
        written.weight("wte", (vocabulary, width), vocabulary, width),
        written.weight("wpe", (length, width), length, width),
    ]
    for block in range(layers):
        h = f"h{block}."
        listed += scaled(h + "ln1") + [entry for part in "qkv" for entry in written.connected(h + part, width, width)]
        listed += written.connected(h + "proj", width, width) + scaled(h + "ln2")
        listed += written.connected(h + "fc", width, 4 * width) + written.connected(h + "out", 4 * width, width)
    return listed + scaled("lnf")


def gpt(layers, heads):
    """GPT-2's network: its function of (parameters, ids, ops)."""

    def norm(p, name, h):
        centred = h - h.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * p[name + ".g"] + p[name + ".b"]

    def network(p, x, ops):
        h = p["wte"][x] + p["wpe"][: x.shape[1]]
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        for block in range(layers):

            def layer(part, a, name=f"h{block}."):
                return ops.linear(a, p[f"{name}{part}.w"], p[f"{name}{part}.b"])

            a = norm(p, f"h{block}.ln1", h)
            q, k, v = (layer(part, a).unflatten(-1, (heads, -1)) for part in "qkv")
            scores = torch.einsum("nqhd,nkhd->nhqk", q, k) / math.sqrt(q.shape[-1])
            weights = scores.masked_fill(later, -math.inf).softmax(-1)
            h = h + layer("proj", torch.einsum("nhqk,nkhd->nqhd", weights, v).flatten(2))
            a = layer("fc", norm(p, f"h{block}.ln2", h))
            a = a / 2 * (1 + ops.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a * a * a)))
            h = h + layer("out", a)
        return ops.linear(norm(p, "lnf", h), p["wte"], None)

    return network


def next_token_loss(logits, y):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def gpt_bytes_batch(random):
    """257 bytes: all 256 in some order, and one more."""
    window = np.concatenate([random.permutation(256), random.randint(0, 256, 1)])
    return window[None, :-1], window[None, 1:]


def gpt2_batch(random):
    """257 tokens, among them the first, the last, the end of a text and the first that is none."""
    window = random.randint(0, 50304, 257)
    window[3], window[50], window[101], window[200] = 0, 50303, 50256, 50257
    return window[None, :-1], window[None, 1:]


GPT = {
    "gpt-bytes": written.Written(
        lambda: gpt_parameters(256, 256, 6, 384),
        gpt_bytes_batch,
        gpt(6, 6),
        lambda: written.Adam(0.99),
        (0.001,) * 3,
        next_token_loss,
    ),
    "gpt2-124m": written.Written(
        lambda: gpt_parameters(50304, 1024, 12, 768),
        gpt2_batch,
        gpt(12, 12),
        lambda: written.Adam(0.95, 0.1),
        (0.0006,) * 3,
        next_token_loss,
    ),
}
