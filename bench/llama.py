"""LLaMA's network (Touvron et al. 2023) of any size, and with several experts a block (Jiang et al. 2024): float64 in NumPy.

    h = wte[x]
    block: h += o(attend(q(a), k(a), v(a))), a = n1(h);  h += ffn(n2(h))
    logits = head(nf(h))
    ffn(a) = down(silu(gate(a)) up(a)), of several experts the sum of those that are chosen, each times its weight

No biases, no dropout. Norms divide by the root of the mean square. q and k are rotated by their position, number i of a head with number
i + size / 2. A head of keys and values serves `heads` / `groups` heads of queries that are neighbours. Dense weights are (out, in).

The router gives each position a number for each expert. The `chosen` largest are chosen, and the softmax over these alone is their weights.
The loss has a term that spreads the work (Fedus et al. 2021): BALANCE times the sum over the blocks of E sum(f P). f is the share of the
choices that an expert has, which has no gradient, and P the mean over all positions of its softmax over all experts.
"""

import collections

import numpy as np

from bench import reference
from bench.canonical import vector, weight

EPSILON = 1e-5  # of the normalisations
BASE = 10000.0  # of the rotation
BALANCE = 0.01


class Llama(object):
    """The sizes of a network, and its reference. experts: 0 of a network without a router; hidden: of the one network or of each expert."""

    def __init__(self, vocabulary, length, layers, heads, groups, width, hidden, experts=0, chosen=0):
        self.vocabulary, self.length, self.layers, self.width, self.hidden = vocabulary, length, layers, width, hidden
        self.heads, self.groups, self.size, self.experts, self.chosen = heads, groups, width // heads, experts, chosen

    def parameters(self):
        """[canonical.Parameter] in the order in which they are drawn."""
        width, shared = self.width, self.groups * self.size
        listed = [weight("wte", (self.vocabulary, width), self.vocabulary, width)]
        for block in range(self.layers):
            name = "h%d." % block
            listed += [vector(name + "n1", width, "scale"), _dense(name + "q", width, width)]
            listed += [_dense(name + part, width, shared) for part in "kv"]
            listed += [_dense(name + "o", width, width), vector(name + "n2", width, "scale")]
            if self.experts:
                listed.append(_dense(name + "router", width, self.experts))
            for expert in self.names(name):
                listed += [_dense(expert + part, width, self.hidden) for part in ("gate", "up")]
                listed.append(_dense(expert + "down", self.hidden, width))
        return listed + [vector("nf", width, "scale"), _dense("head", width, self.vocabulary)]

    def names(self, block):
        """The beginnings of the names of a block's experts; without a router that of its one network."""
        return ["%se%d." % (block, expert) for expert in range(self.experts)] or [block]

    def logits(self, p, x, rounding):
        """Logits (N, T, vocabulary) of ids x (N, T)."""
        return self._forward(p, x, rounding)[0].reshape(x.shape + (self.vocabulary,))

    def loss_and_gradients(self, p, x, y, rounding):
        """(logits, loss, name -> gradient): the mean cross-entropy in nats over all positions, and the balance. x, y (N, T) int."""
        logits, balance, last, blocks = self._forward(p, x, rounding)
        loss, d = reference.softmax_cross_entropy(logits, y.ravel(), rounding)
        g, (norm, head), table = collections.OrderedDict(), last, blocks.pop()
        d = self._into(g, "head", d, head, rounding)
        d, g["nf"] = reference.rms_norm_gradient(d, norm, rounding)
        for block in reversed(range(self.layers)):
            d = self._block_gradient(d, blocks[block], g, "h%d." % block, x.shape, table, rounding)
        g["wte"] = rounding.scatter(x.ravel(), d, self.vocabulary)
        return logits.reshape(x.shape + (self.vocabulary,)), loss + BALANCE * balance, g

    def _forward(self, p, x, rounding):
        """(logits (N T, vocabulary), the blocks' balance, what the gradient of the last layers needs, that of each block and the table)."""
        h, blocks, balance = p["wte"][x].reshape(-1, self.width), [], 0.0
        table = [part.astype(h.dtype) for part in reference.rotation(x.shape[1], self.size, BASE, rounding)]
        for block in range(self.layers):
            name = "h%d." % block
            added, attended = self._attention(h, p, name, x.shape, table, rounding)
            h = rounding.elementwise(h + added)
            added, spread, fed = self._feed_forward(h, p, name, rounding)
            h, balance = rounding.elementwise(h + added), balance + spread
            blocks.append((attended, fed))
        z, norm = reference.rms_norm(h, p["nf"], EPSILON, rounding)
        logits, head = reference.dense(z, p["head"], 0.0, rounding)
        return logits, balance, (norm, head), blocks + [table]

    def _attention(self, h, p, name, shape, table, rounding):
        a, norm = reference.rms_norm(h, p[name + "n1"], EPSILON, rounding)
        (q, k, v), parts = zip(*(reference.dense(a, p[name + part], 0.0, rounding) for part in "qkv"))
        attended, heads = np.empty_like(q), []
        for own, shared in self._places(shape):
            turned = [reference.rotate(part, table[0], table[1], rounding) for part in (q[own], k[shared])]
            attended[own], cache = reference.causal_attention(turned[0], turned[1], v[shared], rounding)
            heads.append(cache)
        added, o = reference.dense(attended, p[name + "o"], 0.0, rounding)
        return added, (norm, parts, heads, o)

    def _feed_forward(self, h, p, name, rounding):
        """(what the experts add, their balance, what the gradient needs)."""
        a, norm = reference.rms_norm(h, p[name + "n2"], EPSILON, rounding)
        if not self.experts:
            added, cache = self._expert(a, p, name, rounding)
            return added, 0.0, (norm, cache)
        numbers, router = reference.dense(a, p[name + "router"], 0.0, rounding)
        places = rounding.largest(numbers, self.chosen)
        weights = reference.softmax(np.take_along_axis(numbers, places, 1), rounding)
        every = reference.softmax(numbers, rounding)
        shares = (np.bincount(places.ravel(), minlength=self.experts) / float(places.size)).astype(every.dtype)
        added, caches = np.zeros_like(h), []
        for expert, begin in enumerate(self.names(name)):
            rows, order = np.nonzero(places == expert)
            value, cache = self._expert(a[rows], p, begin, rounding)
            weighed = rounding.elementwise(value * weights[rows, order][:, None])
            added[rows] = rounding.elementwise(added[rows] + weighed)
            caches.append((rows, order, value, cache))
        spread = self.experts * float((shares * rounding.sum(every, (0,))).sum()) / len(h)
        return added, spread, (norm, (router, places, weights, shares, every, caches))

    def _expert(self, a, p, name, rounding):
        gate, cache_of_gate = reference.dense(a, p[name + "gate"], 0.0, rounding)
        up, cache_of_up = reference.dense(a, p[name + "up"], 0.0, rounding)
        hidden, curve = reference.swiglu(gate, up, rounding)
        value, down = reference.dense(hidden, p[name + "down"], 0.0, rounding)
        return value, (cache_of_gate, cache_of_up, curve, down)

    def _block_gradient(self, d, caches, g, name, shape, table, rounding):
        """The gradient of a block's input; those of its parameters go into g."""
        (norm1, parts, heads, o), (norm2, fed) = caches
        of_input = self._routed_gradient if self.experts else self._expert_gradient
        u, g[name + "n2"] = reference.rms_norm_gradient(of_input(d, fed, g, name, rounding), norm2, rounding)
        d = rounding.elementwise(d + u)
        u = self._into(g, name + "o", d, o, rounding)
        gradients = [np.zeros((len(d), cache[1].shape[0]), d.dtype) for cache in parts]
        for (own, shared), head in zip(self._places(shape), heads):
            dq, dk, dv = reference.causal_attention_gradient(u[own], head, rounding)
            dq, dk = (reference.rotate(part, table[0], -table[1], rounding) for part in (dq, dk))
            for total, place, part in zip(gradients, (own, shared, shared), (dq, dk, dv)):
                total[place] = rounding.half(rounding.elementwise(total[place] + part))
        u = 0.0
        for part, value, cache in zip("qkv", gradients, parts):
            u = rounding.elementwise(u + self._into(g, name + part, value, cache, rounding))
        u, g[name + "n1"] = reference.rms_norm_gradient(u, norm1, rounding)
        return rounding.elementwise(d + u)

    def _expert_gradient(self, d, cache, g, name, rounding):
        cache_of_gate, cache_of_up, curve, down = cache
        dgate, dup = reference.swiglu_gradient(self._into(g, name + "down", d, down, rounding), curve, rounding)
        u = self._into(g, name + "gate", dgate, cache_of_gate, rounding)
        return rounding.elementwise(u + self._into(g, name + "up", dup, cache_of_up, rounding))

    def _routed_gradient(self, d, cache, g, name, rounding):
        router, places, weights, shares, every, caches = cache
        u, dweights = np.zeros_like(d), np.zeros_like(weights)
        for begin, (rows, order, value, of_expert) in zip(self.names(name), caches):
            into = rounding.elementwise(d[rows] * weights[rows, order][:, None])
            dweights[rows, order] = rounding.sum(d[rows] * value, (1,))
            u[rows] = rounding.elementwise(u[rows] + self._expert_gradient(into, of_expert, g, begin, rounding))
        of_chosen = weights * (dweights - rounding.sum(weights * dweights, (1,))[:, None])
        shared = BALANCE * self.experts / len(d) * rounding.scale
        dnumbers = shared * every * (shares - rounding.sum(every * shares, (1,))[:, None])
        chosen = np.take_along_axis(dnumbers, places, 1) + of_chosen
        np.put_along_axis(dnumbers, places, chosen, 1)
        dnumbers = rounding.elementwise(dnumbers)
        return rounding.elementwise(u + self._into(g, name + "router", dnumbers, router, rounding))

    @staticmethod
    def _into(g, name, d, cache, rounding):
        """The gradient of a dense layer's input; that of its weight goes into g."""
        u, g[name], _ = reference.dense_gradient(d, cache, rounding)
        return u

    def _places(self, shape):
        """(of the queries, of the keys and values): the rows and columns of each head of each window in (N T, columns)."""
        many, length, size = shape[0], shape[1], self.size
        for window in range(many):
            rows = slice(window * length, (window + 1) * length)
            for head in range(self.heads):
                group = head * self.groups // self.heads
                yield (rows, slice(head * size, (head + 1) * size)), (rows, slice(group * size, (group + 1) * size))


def _dense(name, inputs, outputs):
    return weight(name, (outputs, inputs), inputs, outputs)
