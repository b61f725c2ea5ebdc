"""A small convolution network on MNIST (Knet against Flux, 2018): specification and float64 reference.

Input 1 x 28 x 28 in [0, 1]. conv 1->16 · ReLU · max-pool 2 · conv 16->8 · ReLU · max-pool 2 · flatten (C, H, W order) · dense 10.
Convolutions are 2 x 2, no padding, stride 1, with bias; a pool leaves out an odd last row and column: 28, 27, 13, 12, 6. Mean
softmax cross-entropy; Adam, rate 0.001, 0.9, 0.999, 1e-8. Batches of 1 000 in file order, never shuffled, 60 an epoch; published: 10
epochs on a GPU, and 1 on a CPU, in float64. Here the whole run is 10 epochs of float32 on either, so that the two compare, and Adam keeps
its moments through all of them (Knet's were reset every epoch).

The batches are made once, and lie where the network is computed before the clock starts, as they did there: a step copies nothing.
Parity takes 100 images: the sum over 1 000 is the same sum. They are normal, of both signs: of images in [0, 1) a quarter of the channels
sees nothing, and neighbours under a pool are so near one another that tf32 decides which is the larger.

Expected accuracy: 0.942 and 0.951 are published, of the first batch of the training set. The band is that of the test set.
"""

import collections

from bench import reference
from bench.canonical import bias, weight

BATCH = 1000
PARITY_BATCH = 100
SHUFFLE = False
DROPOUT = False
CLASSES = 10
LEARNING_RATE = 0.001
BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8

# Convolutions (out, in, kh, kw), dense (out, in), its 288 inputs in (C, H, W) order.
PARAMETERS = [
    weight("conv1.w", (16, 1, 2, 2), 4, 16 * 4),
    bias("conv1.b", 16),
    weight("conv2.w", (8, 16, 2, 2), 16 * 4, 8 * 4),
    bias("conv2.b", 8),
    weight("dense.w", (CLASSES, 288), 288, CLASSES),
    bias("dense.b", CLASSES),
]

VARIANTS = {}  # every framework here can compute exactly this


def draw_batch(random):
    """x (100, 1, 28, 28) float32 standard normal, y (100,) int32 uniform over the classes."""
    x = random.standard_normal((PARITY_BATCH, 1, 28, 28)).astype("float32")
    return x, random.randint(0, CLASSES, PARITY_BATCH).astype("int32")


def optimizer():
    return reference.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    h, conv1 = reference.conv2d(x, p["conv1.w"], p["conv1.b"], 0, rounding)
    h, pool1 = reference.max_pool(h)
    relu1 = h > 0  # after the pool it is the same function
    h, conv2 = reference.conv2d(h * relu1, p["conv2.w"], p["conv2.b"], 0, rounding)
    h, pool2 = reference.max_pool(h)
    relu2 = h > 0
    logits, dense = reference.dense((h * relu2).reshape(len(x), -1), p["dense.w"], p["dense.b"], rounding)
    loss, d = reference.softmax_cross_entropy(logits, y, rounding)

    g = collections.OrderedDict()
    d, g["dense.w"], g["dense.b"] = reference.dense_gradient(d, dense, rounding)
    d = reference.max_pool_gradient(d.reshape(relu2.shape) * relu2, pool2)
    d, g["conv2.w"], g["conv2.b"] = reference.conv2d_gradient(d, conv2, rounding)
    d = reference.max_pool_gradient(d * relu1, pool1)
    _, g["conv1.w"], g["conv1.b"] = reference.conv2d_gradient(d, conv1, rounding, need_dx=False)
    return logits, loss, g
