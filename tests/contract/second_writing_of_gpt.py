"""The workloads of GPT-2's and LLaMA's networks, written a second time as second_writing.py has the others."""

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


def llama_parameters(layers, width, shared, hidden, experts=0):
    def dense(name, units, outputs):
        return written.weight(name, (outputs, units), units, outputs)

    listed = [dense("wte", width, 256)]
    for block in range(layers):
        h = f"h{block}."
        listed += [written.vector(h + "n1", width, "scale"), dense(h + "q", width, width)]
        listed += [dense(h + "k", width, shared), dense(h + "v", width, shared), dense(h + "o", width, width)]
        listed.append(written.vector(h + "n2", width, "scale"))
        listed += [dense(h + "router", width, experts)] if experts else []
        for e in [f"{h}e{expert}." for expert in range(experts)] or [h]:
            listed += [
                dense(e + "gate", width, hidden),
                dense(e + "up", width, hidden),
                dense(e + "down", hidden, width),
            ]
    return [*listed, written.vector("nf", width, "scale"), dense("head", width, 256)]


def llama(layers, heads, experts=0):
    """LLaMA's network: its function of (parameters, ids, ops). With experts each computes all positions, times 0 where it is not chosen.

    The logits have the term of the loss that spreads the work as their attribute `spread`.
    """

    def norm(h, scale):
        return h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale

    def turned(a):
        """Numbers i and i + half of each head as a complex number, times exp(i t 10000^(-i / half)). a (N, T, heads, D)."""
        half = a.shape[-1] // 2
        exponents = torch.arange(half, dtype=torch.float64) / half
        angles = torch.arange(a.shape[1], dtype=torch.float64)[:, None] / 10000**exponents
        product = torch.complex(a[..., :half], a[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat([product.real, product.imag], -1)

    def network(p, x, ops):
        h, spread = p["wte"][x], 0.0
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)

        def fed(a, name):
            gate, up = ops.linear(a, p[name + "gate"], None), ops.linear(a, p[name + "up"], None)
            return ops.linear(gate * ops.sigmoid(gate) * up, p[name + "down"], None)

        for block in range(layers):
            name = f"h{block}."
            a = norm(h, p[name + "n1"])
            q, k, v = (ops.linear(a, p[name + part], None).unflatten(-1, (-1, 64)) for part in "qkv")
            q, k = turned(q), turned(k)
            k, v = (torch.stack([part] * (heads // k.shape[2]), 3).flatten(2, 3) for part in (k, v))
            scores = torch.einsum("nqhd,nkhd->nhqk", q, k) / 8
            weights = scores.masked_fill(later, -math.inf).softmax(-1)
            h = h + ops.linear(torch.einsum("nhqk,nkhd->nqhd", weights, v).flatten(2), p[name + "o"], None)
            a = norm(h, p[name + "n2"])
            if not experts:
                h = h + fed(a, name)
                continue
            numbers = ops.linear(a, p[name + "router"], None)
            chosen = numbers >= numbers.topk(2).values[..., -1:]
            gate = numbers.masked_fill(~chosen, -math.inf).softmax(-1)
            h = h + sum(gate[..., e, None] * fed(a, f"{name}e{e}.") for e in range(experts))
            share = chosen.double().mean((0, 1)) / 2
            spread = spread + 0.01 * experts * (share * numbers.softmax(-1).mean((0, 1))).sum()
        logits = ops.linear(norm(h, p["nf"]), p["head"], None)
        logits.spread = spread
        return logits

    return network


def llama_loss(logits, y):
    return next_token_loss(logits, y) + logits.spread


def sent_by_byte(parameters, batches):
    """The first four numbers of byte b are 2 for both experts of its pair and -2 for the others; the pair goes by b mod 12."""
    pairs = [(0, 1)] * 7 + [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for byte, vector in enumerate(parameters["wte"]):
        vector[:4] = [2.0 if expert in pairs[byte % 12] else -2.0 for expert in range(4)]
    for name, value in parameters.items():
        if name.endswith((".o", ".down")):
            value[:4] *= np.float32(0.02)
        if name.endswith(".n2"):
            value[:4] = 1
        if name.endswith(".router"):
            value *= np.float32(0.1)
            value[range(4), range(4)] += np.float32(2)


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


def decode_batch(random):
    """28 tokens of three rows; after the first 16 of the first row the first id, the last, the end of a text and one that is none."""
    rows = random.randint(0, 50304, (3, 28))
    rows[0, 16:20] = 0, 50303, 50256, 50257
    return rows


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
    "llama-bytes": written.Written(
        lambda: llama_parameters(6, 384, 128, 1024),
        gpt_bytes_batch,
        llama(6, 6),
        lambda: written.Adam(0.99),
        (0.001,) * 3,
        llama_loss,
    ),
    "moe-bytes": written.Written(
        lambda: llama_parameters(6, 384, 128, 512, 4),
        gpt_bytes_batch,
        llama(6, 6, 4),
        lambda: written.Adam(0.99),
        (0.001,) * 3,
        llama_loss,
        adjusted=sent_by_byte,
    ),
}
