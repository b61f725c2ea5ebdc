"""GPT-2's network (Radford et al. 2019) of any size: its parameters, and its float64 logits, loss and gradients in NumPy.

    h = wte[x] + wpe[0..T)
    block: h += proj(attend(q(a), k(a), v(a))), a = ln1(h);  h += out(gelu(fc(ln2(h))))
    logits = lnf(h) wte'

No dropout. Dense weights are (out, in). Adapters stack q, k and v as they like. Here they are three tensors, so that each is compared by
itself. The gradient of wte is the sum of both its uses.

The bias of the keys has no gradient: it adds the same number to all scores of a position, and softmax does not see it. What a framework
computes in its place is rounding, and Adam divides rounding by itself. So neither its gradient nor its movement is compared (`symmetric`).
"""

import collections

import numpy as np

from bench import reference
from bench.canonical import bias, vector, weight

EPSILON = 1e-5  # of the normalisations


class Transformer(object):
    """The sizes of a network, and its reference."""

    def __init__(self, vocabulary, length, layers, heads, width):
        self.vocabulary, self.length, self.layers, self.heads, self.width = vocabulary, length, layers, heads, width

    def parameters(self):
        """[canonical.Parameter] in the order in which they are drawn."""
        width = self.width
        listed = [weight("wte", (self.vocabulary, width), self.vocabulary, width)]
        listed.append(weight("wpe", (self.length, width), self.length, width))
        for block in range(self.layers):
            name = "h%d." % block
            listed += _norm(name + "ln1", width)
            for part in ("q", "k", "v", "proj"):
                listed += _dense(name + part, width, width)
            listed += _norm(name + "ln2", width)
            listed += _dense(name + "fc", width, 4 * width) + _dense(name + "out", 4 * width, width)
        return listed + _norm("lnf", width)

    def symmetric(self):
        """The names of the parameters that have no gradient, whatever the input."""
        return tuple("h%d.k.b" % block for block in range(self.layers))

    def logits(self, p, x, rounding):
        """Logits (N, T, vocabulary) of ids x (N, T)."""
        return self._forward(p, x, rounding)[0].reshape(x.shape + (self.vocabulary,))

    def loss_and_gradients(self, p, x, y, rounding):
        """(logits, loss, name -> gradient): the mean cross-entropy in nats over all positions. x, y (N, T) int."""
        logits, last, blocks = self._forward(p, x, rounding)
        loss, d = reference.softmax_cross_entropy(logits, y.ravel(), rounding)
        g = collections.OrderedDict()
        d = rounding.operand(d)
        z, wte, cache = last
        g["wte"] = rounding.product(d.T, z)
        d = rounding.product(d, wte)
        d, g["lnf.g"], g["lnf.b"] = reference.layer_norm_gradient(d, cache, rounding)
        for block in reversed(range(self.layers)):
            d = self._block_gradient(d, blocks.pop(), g, "h%d." % block, x.shape, rounding)
        g["wte"] = g["wte"] + rounding.scatter(x.ravel(), d, self.vocabulary)
        g["wpe"] = np.zeros_like(p["wpe"])
        g["wpe"][: x.shape[1]] = rounding.sum(d.reshape(x.shape + (self.width,)), (0,))
        return logits.reshape(x.shape + (self.vocabulary,)), loss, g

    def _forward(self, p, x, rounding):
        """(logits (N T, vocabulary), what their gradient needs, that of each block)."""
        h = rounding.carried(p["wte"][x] + p["wpe"][: x.shape[1]]).reshape(-1, self.width)
        blocks = []
        for block in range(self.layers):
            h, cache = self._block(h, p, "h%d." % block, x.shape, rounding)
            blocks.append(cache)
        z, cache = reference.layer_norm(h, p["lnf.g"], p["lnf.b"], EPSILON, rounding)
        z, wte = rounding.operand(z), rounding.operand(p["wte"])
        return rounding.product(z, wte.T), (z, wte, cache), blocks

    def _block(self, h, p, name, shape, rounding):
        a, norm1 = reference.layer_norm(h, p[name + "ln1.g"], p[name + "ln1.b"], EPSILON, rounding)
        parts = [reference.dense(a, p[name + part + ".w"], p[name + part + ".b"], rounding) for part in "qkv"]
        attended, heads = np.empty_like(h), []
        for place in self._places(shape):
            attended[place], cache = reference.causal_attention(*[part[place] for part, _ in parts], rounding=rounding)
            heads.append(cache)
        added, proj = reference.dense(attended, p[name + "proj.w"], p[name + "proj.b"], rounding)
        h = rounding.carried(h + added)
        a, norm2 = reference.layer_norm(h, p[name + "ln2.g"], p[name + "ln2.b"], EPSILON, rounding)
        a, fc = reference.dense(a, p[name + "fc.w"], p[name + "fc.b"], rounding)
        a, curve = reference.gelu(a, rounding)
        added, out = reference.dense(a, p[name + "out.w"], p[name + "out.b"], rounding)
        cache = norm1, [dense for _, dense in parts], heads, proj, norm2, fc, curve, out
        return rounding.carried(h + added), cache

    def _block_gradient(self, d, cache, g, name, shape, rounding):
        """The gradient of a block's input; those of its parameters go into g."""
        norm1, parts, heads, proj, norm2, fc, curve, out = cache

        def into(part, value):
            u, g[name + part + ".w"], g[name + part + ".b"] = value
            return u

        def norm(part, value):
            u, g[name + part + ".g"], g[name + part + ".b"] = value
            return u

        u = into("out", reference.dense_gradient(d, out, rounding))
        u = into("fc", reference.dense_gradient(reference.gelu_gradient(u, curve, rounding), fc, rounding))
        d = rounding.elementwise(d + norm("ln2", reference.layer_norm_gradient(u, norm2, rounding)))
        u = into("proj", reference.dense_gradient(d, proj, rounding))
        dq, dk, dv = np.empty((3,) + u.shape, u.dtype)
        for place, head in zip(self._places(shape), heads):
            dq[place], dk[place], dv[place] = reference.causal_attention_gradient(u[place], head, rounding)
        u = 0.0
        for part, value, dense in zip("qkv", (dq, dk, dv), parts):
            u = rounding.elementwise(u + into(part, reference.dense_gradient(value, dense, rounding)))
        return rounding.elementwise(d + norm("ln1", reference.layer_norm_gradient(u, norm1, rounding)))

    def _places(self, shape):
        """The rows and columns of each head of each window in (N T, width): a head is neighbours."""
        many, length, size = shape[0], shape[1], self.width // self.heads
        for window in range(many):
            for head in range(self.heads):
                yield slice(window * length, (window + 1) * length), slice(head * size, (head + 1) * size)


def _dense(name, inputs, outputs):
    return [weight(name + ".w", (outputs, inputs), inputs, outputs), bias(name + ".b", outputs)]


def _norm(name, width):
    return [vector(name + ".g", width, "scale"), bias(name + ".b", width)]
