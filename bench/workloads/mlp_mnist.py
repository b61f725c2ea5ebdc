"""A perceptron with one hidden layer on MNIST, by Adam over the whole set at once (Knet against Flux, 2018): specification and reference.

Input 28 x 28 in [0, 1], flattened · dense 784->32 · ReLU · dense 10. Mean softmax cross-entropy; Adam, rate 0.001, 0.9, 0.999, 1e-8.
One batch, the 60 000 training images in file order, so that a step is an epoch; published: 200 steps on a GPU, and 10 on a CPU, in float64.
Here the whole run is 200 steps of float32 on either, so that the two compare.

The data lie where the network is computed before the clock starts, as they did there: a step copies nothing. Parity takes 1 000
images: the sum over 60 000 is the same sum.

Expected accuracy: 0.921 and 0.923 are published, of the training set. The band is that of the test set, which such a network finds as easy.
"""

import collections

import numpy as np

from bench import reference
from bench.canonical import bias, weight

BATCH = 60000
PARITY_BATCH = 1000
SHUFFLE = False
DROPOUT = False
CLASSES = 10
LEARNING_RATE = 0.001
BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8

# Dense (out, in).
PARAMETERS = [
    weight("dense1.w", (32, 784), 784, 32),
    bias("dense1.b", 32),
    weight("dense2.w", (CLASSES, 32), 32, CLASSES),
    bias("dense2.b", CLASSES),
]

VARIANTS = {}  # every framework here can compute exactly this


def draw_batch(random):
    """x (1000, 1, 28, 28) float32 uniform on [0, 1), y (1000,) int32 uniform over the classes."""
    x = random.uniform(0.0, 1.0, (PARITY_BATCH, 1, 28, 28)).astype("float32")
    return x, random.randint(0, CLASSES, PARITY_BATCH).astype("int32")


def adjust_parity(parameters, batches):
    """Dim the last batch's images to a fiftieth: the first layer's last gradient is so small that its mean square falls.

    Then a variant of Adam that divides by the largest mean square so far (AMSGrad) takes another step.
    """
    x, y = batches[-1]
    batches[-1] = x * np.float32(0.02), y


def curve_batches(random):
    """Batches for ever for bench.curve: ten prototypes of 7 x 7 blocks under noise, half the labels drawn anew."""
    prototypes = random.uniform(0.0, 1.0, (CLASSES, 1, 7, 7)).repeat(4, axis=2).repeat(4, axis=3)
    while True:
        y = random.randint(0, CLASSES, PARITY_BATCH)
        x = 0.65 * prototypes[y] + 0.35 * random.uniform(0.0, 1.0, (PARITY_BATCH, 1, 28, 28))
        labels = np.where(random.uniform(size=PARITY_BATCH) < 0.5, random.randint(0, CLASSES, PARITY_BATCH), y)
        yield x.astype("float32"), labels.astype("int32")


def optimizer():
    return reference.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)


def loss_and_gradients(p, x, y, rounding, variant=""):
    """(logits, loss, name -> gradient) in float64. p: name -> array; x, y as draw_batch gives them."""
    h, dense1 = reference.dense(x.reshape(len(x), -1), p["dense1.w"], p["dense1.b"], rounding)
    relu = h > 0
    logits, dense2 = reference.dense(h * relu, p["dense2.w"], p["dense2.b"], rounding)
    loss, d = reference.softmax_cross_entropy(logits, y, rounding)

    g = collections.OrderedDict()
    d, g["dense2.w"], g["dense2.b"] = reference.dense_gradient(d, dense2, rounding)
    _, g["dense1.w"], g["dense1.b"] = reference.dense_gradient(d * relu, dense1, rounding)
    return logits, loss, g
