"""The operations on rows of which a transformer consists beside its products, in NumPy: normalisations, softmax, loss, embedding.

h, the hidden state, and scores are (rows, width), w and b (width,), logits (rows, classes), ids (rows,) whole numbers: the labels, or the
rows of the table (vocabulary, width). d, in the shape of the result, is the result's gradient. It comes from the layer above: with ones in
its place the gradient of a softmax would be zero. The loss is the mean over the rows, and its own gradient is 1.
"""

import numpy as np

from bench import arithmetic, reference

EPSILON = 1e-5  # of both normalisations, as in GPT-2 and LLaMA

_EXACT = arithmetic.Exact()


def layer_norm(p):
    return reference.layer_norm(p["h"], p["w"], p["b"], EPSILON, _EXACT)[0]


def layer_norm_gradients(p):
    return reference.layer_norm_gradient(
        p["d"], reference.layer_norm(p["h"], p["w"], p["b"], EPSILON, _EXACT)[1], _EXACT
    )


def rms_norm(p):
    return reference.rms_norm(p["h"], p["w"], EPSILON, _EXACT)[0]


def rms_norm_gradients(p):
    return reference.rms_norm_gradient(p["d"], reference.rms_norm(p["h"], p["w"], EPSILON, _EXACT)[1], _EXACT)


def softmax(p):
    return reference.softmax(p["scores"], _EXACT)


def softmax_gradients(p):
    y = softmax(p)
    return [y * (p["d"] - (y * p["d"]).sum(axis=1, keepdims=True))]


def cross_entropy(p):
    return np.asarray(reference.softmax_cross_entropy(p["logits"], p["ids"], _EXACT)[0])


def cross_entropy_gradients(p):
    return [reference.softmax_cross_entropy(p["logits"], p["ids"], _EXACT)[1]]


def embedding(p):
    return p["table"][p["ids"]]


def embedding_gradients(p):
    """Of a row that several ids name the gradients are added up."""
    return [_EXACT.scatter(p["ids"], p["d"], len(p["table"]))]
