"""DenseNet-121 on NIH ChestX-ray14 (Deep Learning Framework Examples, 2018): specification and float64 reference.

Huang et al. 2017, table 1, growth 32: 3 x 224 x 224 · conv 7 x 7 stride 2, padding 3, 64 maps · norm · ReLU · max-pool 3 x 3 stride 2,
padding 1 · dense blocks of 6, 12, 24 and 16 layers, between them transitions (norm · ReLU · conv 1 x 1 to half the maps · mean-pool
2 x 2) · norm · ReLU · mean over 7 x 7 · dense 1 024->14. A dense layer sees all maps of its block before it and adds 32: norm · ReLU ·
conv 1 x 1 to 128 · norm · ReLU · conv 3 x 3, padding 1, to 32. Convolutions have no bias. Sigmoid and binary cross-entropy fused from
logits, mean over images and findings; Adam, rate 1e-4 at the batch of one device, 0.9, 0.999, 1e-8.

Normalisation (epsilon 1e-5): in training with the mean and the biased variance of the batch; every training step moves the running
statistics a tenth of the way to the batch's. Whether the running variance takes the biased or the unbiased estimate is open, as the
frameworks' own layers differ: parity accepts exactly these two. Evaluation normalises with the running statistics.
Parameters have the names of the weight files that people have (torchvision's, timm's).

Several devices: each normalises its own part of the batch (bench.batch_norm); gradients are averaged in every step, running statistics
before an evaluation. The canonical batch has PARTS parts for the check of several devices: half of them take the first, the others the
second.
"""

import collections

import numpy as np

from bench import batch_norm, reference
from bench.canonical import bias, convolution, normalisation, weight
from bench.data.chestxray import FINDINGS

BATCH = 64
SHAPE = (3, 224, 224)
CLASSES = len(FINDINGS)
LAYERS = (6, 12, 24, 16)  # of each dense block
GROWTH = 32
BOTTLENECK = 4 * GROWTH
STEM = 64
LEARNING_RATE = 1e-4
BETA1 = 0.9
BETA2 = 0.999
ADAM_EPSILON = 1e-8
DROPOUT = False
PARTS = 2
# 970 tensors are compared: 128 sums of each tell a difference's norm to 6 % (bench.parity.sketch) and keep the file at 2 MB
BUCKETS = 128

VARIANTS = {}  # every framework here can compute exactly this


def dense_layers(block, layers=LAYERS):
    """The dense layers of block 1 to 4 in order: (name, how many maps it sees)."""
    channels = STEM
    for count in layers[: block - 1]:
        channels = (channels + count * GROWTH) // 2
    for index in range(layers[block - 1]):
        yield "features.denseblock%d.denselayer%d" % (block, index + 1), channels + index * GROWTH


def width(block, layers=LAYERS):
    """How many maps block 1 to 4 ends with."""
    return list(dense_layers(block, layers))[-1][1] + GROWTH


def parameters(layers=LAYERS):
    """The parameters of a network of so many layers a block; convolutions (out, in, kh, kw), dense (out, in)."""
    specifications = convolution("features.conv0", 3, STEM, 7) + normalisation("features.norm0", STEM)
    for block in range(1, len(layers) + 1):
        for name, channels in dense_layers(block, layers):
            specifications += normalisation(name + ".norm1", channels) + convolution(
                name + ".conv1", channels, BOTTLENECK, 1
            )
            specifications += normalisation(name + ".norm2", BOTTLENECK) + convolution(
                name + ".conv2", BOTTLENECK, GROWTH, 3
            )
        channels = width(block, layers)
        if block < len(layers):
            name = "features.transition%d" % block
            specifications += normalisation(name + ".norm", channels) + convolution(
                name + ".conv", channels, channels // 2, 1
            )
    specifications += normalisation("features.norm5", channels)
    return specifications + [
        weight("classifier.weight", (CLASSES, channels), channels, CLASSES),
        bias("classifier.bias", CLASSES),
    ]


PARAMETERS = parameters()


def draw_batch(random):
    """x (4, 3, 64, 64) float32 uniform on [0, 1), y (4, 14) float32, 0 or 1.

    The network takes any side that 32 divides. Four small images prove what 64 whole ones would: every statistic is of 16 values or more,
    of 8 or more in each of the two parts.
    """
    x = random.uniform(0.0, 1.0, (4, 3, 64, 64)).astype("float32")
    return x, random.randint(0, 2, (4, CLASSES)).astype("float32")


def draw_items(random, items):
    """(x, y) of the synthetic run: both float32, uniform on [0, 1)."""
    x = random.random_sample((items,) + SHAPE).astype(np.float32)
    return x, random.random_sample((items, CLASSES)).astype(np.float32)


def rate(epoch, batch, alone):
    """The learning rate in an epoch, all alike, at a batch of so many on all devices together, where one device alone has `alone`."""
    return LEARNING_RATE * batch / alone


# Of the steps that parity compares: the last one's is that of two devices, so that a change of the rate shows.
PARITY_RATES = (LEARNING_RATE, LEARNING_RATE, rate(0, 2 * BATCH, BATCH))


def optimizer():
    return reference.Adam(LEARNING_RATE, BETA1, BETA2, ADAM_EPSILON)


def loss_and_gradients(p, x, y, rounding, variant="", parts=1, layers=LAYERS):
    """(logits, loss, name -> gradient) of a training step in float64; the running statistics in p move as the step moves them.

    p: name -> array, which gains what bench.batch_norm says; x, y as draw_batch gives them; parts: devices that share the batch.
    """

    def norm(p, name, x, rounding):
        return batch_norm.in_training(p, name, x, rounding, parts)

    logits, tape = _forward(p, x, rounding, norm, layers)
    loss, d = reference.sigmoid_cross_entropy(logits, y, rounding)
    return logits, loss, _backward(d, tape, rounding, layers)


def predict(p, x, rounding, layers=LAYERS):
    """Logits (N, 14) in evaluation: normalised with the running statistics."""
    return _forward(p, x, rounding, batch_norm.in_evaluation, layers)[0]


def _forward(p, x, rounding, norm, layers):
    """(logits, what the gradients need, in order)."""
    tape = []

    def unit(x, normalisation, convolution, pad):
        h, statistics = norm(p, normalisation, x, rounding)
        on = h > 0
        y, cache = reference.conv2d(h * on, p[convolution + ".weight"], 0.0, pad, rounding)
        tape.append((normalisation, convolution, statistics, on, cache))
        return y

    h, conv = reference.conv2d(x, p["features.conv0.weight"], 0.0, 3, rounding, 2)
    h, statistics = norm(p, "features.norm0", h, rounding)
    on = h > 0
    h, pool = reference.max_pool_overlapping(h * on)
    tape.append((conv, statistics, on, pool))
    for block in range(1, len(layers) + 1):
        for name, _ in dense_layers(block, layers):
            new = unit(unit(h, name + ".norm1", name + ".conv1", 0), name + ".norm2", name + ".conv2", 1)
            h = np.concatenate([h, new], axis=1)
        if block < len(layers):
            name = "features.transition%d" % block
            h = rounding.elementwise(reference.mean_pool(unit(h, name + ".norm", name + ".conv", 0)))
    h, statistics = norm(p, "features.norm5", h, rounding)
    on = h > 0
    pooled = rounding.sum(h * on, (2, 3)) / (h.shape[2] * h.shape[3])
    logits, dense = reference.dense(pooled, p["classifier.weight"], p["classifier.bias"], rounding)
    tape.append((statistics, on, dense))
    return logits, tape


def _backward(d, tape, rounding, layers):
    """name -> gradient, from that of the logits. The tape is used up: what it holds is gigabytes."""
    g = collections.OrderedDict()

    def unit(d):
        normalisation, convolution, statistics, on, cache = tape.pop()
        d, g[convolution + ".weight"], _ = reference.conv2d_gradient(d, cache, rounding)
        return norm(d * on, normalisation, statistics)

    def norm(d, name, statistics):
        d, g[name + ".weight"], g[name + ".bias"] = batch_norm.in_training_gradient(d, statistics, rounding)
        return d

    statistics, on, dense = tape.pop()
    d, g["classifier.weight"], g["classifier.bias"] = reference.dense_gradient(d, dense, rounding)
    d = norm(on * d[:, :, None, None] / on[0, 0].size, "features.norm5", statistics)
    for block in range(len(layers), 0, -1):
        if block < len(layers):
            d = unit(reference.mean_pool_gradient(d))
        for _ in range(layers[block - 1]):
            d, new = d[:, :-GROWTH], d[:, -GROWTH:]
            d = d + unit(unit(new))
    conv, statistics, on, pool = tape.pop()
    d = norm(reference.max_pool_overlapping_gradient(d, pool) * on, "features.norm0", statistics)
    g["features.conv0.weight"] = reference.conv2d_gradient(d, conv, rounding, need_dx=False)[1]
    return g
