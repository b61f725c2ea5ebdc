"""A small VGG-like network on CIFAR-10 (Deep Learning Framework Examples, 2017): specification and float64 reference.

Input 3 x 32 x 32 in [0, 1]. conv 3->50 · ReLU · conv 50->50 · max-pool 2 · ReLU · dropout 0.25 · conv 50->100 · ReLU ·
conv 100->100 · max-pool 2 · ReLU · dropout 0.25 · flatten (C, H, W order) · dense 512 · ReLU · dropout 0.5 · dense 10.
Convolutions are 3 x 3, padding 1, stride 1, with bias. Mean softmax cross-entropy; SGD with momentum 0.9, rate 0.01.
"""

import collections

import numpy as np

from bench import reference
from bench.canonical import bias, weight

BATCH = 64
CLASSES = 10
LEARNING_RATE = 0.01
MOMENTUM = 0.9
SHUFFLE = True
DROPOUT = True
# The share of units that is left out after pool 1, pool 2 and dense 1. Those that stay are divided by 1 - share.
DROPOUT_SHARES = (0.25, 0.25, 0.5)
DROPOUT_SHAPES = ((50, 16, 16), (100, 8, 8), (512,))


def _convolution(name, inputs, outputs):
    return [weight(name + ".w", (outputs, inputs, 3, 3), inputs * 9, outputs * 9), bias(name + ".b", outputs)]


def _dense(name, inputs, outputs):
    return [weight(name + ".w", (outputs, inputs), inputs, outputs), bias(name + ".b", outputs)]


# Convolutions (out, in, kh, kw), dense (out, in); the dense layer's 6 400 inputs are in (C, H, W) order.
PARAMETERS = (
    _convolution("conv1", 3, 50)
    + _convolution("conv2", 50, 50)
    + _convolution("conv3", 50, 100)
    + _convolution("conv4", 100, 100)
    + _dense("dense1", 6400, 512)
    + _dense("dense2", 512, CLASSES)
)


VARIANTS = {}  # every framework here can compute exactly this


def draw_batch(random):
    """x (64, 3, 32, 32) float32 uniform on [0, 1), y (64,) int32 uniform over the classes."""
    x = random.uniform(0.0, 1.0, (BATCH, 3, 32, 32)).astype("float32")
    return x, random.randint(0, CLASSES, BATCH).astype("int32")


def curve_batches(random):
    """Batches for ever for bench.curve: ten prototypes of 8 x 8 blocks under noise, half the labels drawn anew."""
    prototypes = random.uniform(0.0, 1.0, (CLASSES, 3, 4, 4)).repeat(8, axis=2).repeat(8, axis=3)
    while True:
        y = random.randint(0, CLASSES, BATCH)
        x = 0.65 * prototypes[y] + 0.35 * random.uniform(0.0, 1.0, (BATCH, 3, 32, 32))
        labels = np.where(random.uniform(size=BATCH) < 0.5, random.randint(0, CLASSES, BATCH), y)
        yield x.astype("float32"), labels.astype("int32")


def optimizer():
    return reference.Momentum(LEARNING_RATE, MOMENTUM)


def adjust_dropout(parameters, batches):
    """The case of bench.dropout. The last layer begins at zero, so that the first step's loss depends on no mask.

    The inputs of the last layer are made larger, so that the norm of the gradients is about 2, where norms are clipped at 1. The first two
    batches have the same labels: masks that repeat then add up.
    """
    for tensor, factor in (("dense1.w", 4.0), ("dense1.b", 4.0), ("dense2.w", 0.0), ("dense2.b", 0.0)):
        parameters[tensor] *= np.float32(factor)
    batches[1] = batches[1][0], batches[0][1]


def draw_masks(random, items):
    """The three masks of dropout for a batch of so many items, (items,) + each of DROPOUT_SHAPES: 0, or 1 / (1 - share)."""
    return [
        (random.random_sample((items,) + shape) >= share) / (1.0 - share)
        for share, shape in zip(DROPOUT_SHARES, DROPOUT_SHAPES)
    ]


def loss_and_gradients(p, x, y, rounding, variant="", masks=None):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them; masks of draw_masks: dropout.

    Without masks dropout is off.
    """
    mask1, mask2, mask3 = masks or (1.0, 1.0, 1.0)
    h, conv1 = reference.conv2d(x, p["conv1.w"], p["conv1.b"], 1, rounding)
    relu1 = h > 0
    h, conv2 = reference.conv2d(h * relu1, p["conv2.w"], p["conv2.b"], 1, rounding)
    h, pool1 = reference.max_pool(h)
    relu2 = (h > 0) * mask1
    h, conv3 = reference.conv2d(h * relu2, p["conv3.w"], p["conv3.b"], 1, rounding)
    relu3 = h > 0
    h, conv4 = reference.conv2d(h * relu3, p["conv4.w"], p["conv4.b"], 1, rounding)
    h, pool2 = reference.max_pool(h)
    relu4 = (h > 0) * mask2
    h, dense1 = reference.dense((h * relu4).reshape(len(x), -1), p["dense1.w"], p["dense1.b"], rounding)
    relu5 = (h > 0) * mask3
    logits, dense2 = reference.dense(h * relu5, p["dense2.w"], p["dense2.b"], rounding)
    loss, d = reference.softmax_cross_entropy(logits, y, rounding)

    g = collections.OrderedDict()
    d, g["dense2.w"], g["dense2.b"] = reference.dense_gradient(d, dense2, rounding)
    d, g["dense1.w"], g["dense1.b"] = reference.dense_gradient(d * relu5, dense1, rounding)
    d = reference.max_pool_gradient(d.reshape(relu4.shape) * relu4, pool2)
    d, g["conv4.w"], g["conv4.b"] = reference.conv2d_gradient(d, conv4, rounding)
    d, g["conv3.w"], g["conv3.b"] = reference.conv2d_gradient(d * relu3, conv3, rounding)
    d = reference.max_pool_gradient(d * relu2, pool1)
    d, g["conv2.w"], g["conv2.b"] = reference.conv2d_gradient(d, conv2, rounding)
    _, g["conv1.w"], g["conv1.b"] = reference.conv2d_gradient(d * relu1, conv1, rounding, need_dx=False)
    return logits, loss, g
