"""ResNet-50 trained on ImageNet (the ChainerMN study, February 2017): specification and float64 reference.

The network of resnet50-features (v1.5) and a classifier, dense 2 048->1 000. Mean softmax cross-entropy; momentum SGD, 0.9, with weight
decay 1e-4 of every trained parameter: v <- 0.9 v + g + 1e-4 w; w <- w - rate v. The rate is 0.1 at a batch of 256 and proportional to
the batch of all devices (the study's text gives none), a tenth of it after 30 epochs, again after 60 and 90; 100 epochs.
Images are stored at 256 x 256, in training a random crop of 224 x 224 and turned left to right by a coin, in validation the centre crop;
no change of colour or scale.

Several devices: each normalises its own part of the batch (bench.batch_norm), as the study and data-parallel training elsewhere do;
gradients are averaged in every step, running statistics before an evaluation. The canonical batch has PARTS parts for the check of
several devices: half of them take the first, the others the second.
"""

import collections

from bench import batch_norm, reference
from bench.canonical import bias, weight
from bench.data.imagenet import CLASSES
from bench.workloads import resnet50_features

BATCH = 32  # of one device
SHAPE = (3, 224, 224)
RATE, RATE_BATCH = 0.1, 256  # the rate belongs to a batch of so many
DROP_EPOCHS, DROP = 30, 0.1
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
# The parity check holds the decay of these, one by one.
DECAYED = ("layer4.2.conv3.weight", "layer4.2.bn3.weight", "layer4.2.bn3.bias", "fc.weight", "fc.bias")
DROPOUT = False
PARTS = 2
# 693 tensors are compared: 128 sums of each tell a difference's norm to 6 % (bench.parity.sketch) and keep the file small
BUCKETS = 128

VARIANTS = {}  # every framework here can compute exactly this


def parameters(groups=resnet50_features.GROUPS):
    """The parameters of a network of such groups; convolutions (out, in, kh, kw), dense (out, in)."""
    features = resnet50_features.EXPANSION * groups[-1][1]
    specifications = resnet50_features.parameters(groups)
    return specifications + [weight("fc.weight", (CLASSES, features), features, CLASSES), bias("fc.bias", CLASSES)]


PARAMETERS = parameters()


def draw_batch(random):
    """x (8, 3, 64, 64) float32 uniform on [0, 1), y (8,) int32 uniform over the classes.

    The network takes any side that 32 divides. Eight small images prove what 32 whole ones would: every statistic is of 16 values or more
    in each of the two parts.
    """
    x = random.uniform(0.0, 1.0, (8, 3, 64, 64)).astype("float32")
    return x, random.randint(0, CLASSES, 8).astype("int32")


def rate(epoch, batch, alone):
    """The learning rate in an epoch, counted from 0, at a batch of so many on all devices together, whatever one alone has."""
    return RATE * batch / RATE_BATCH * DROP ** (epoch // DROP_EPOCHS)


# Of the steps that parity compares. At the rate of training the first one would move conv1 by ten times its own size, as its gradient is
# large before anything is learned, and rounding errors with it. So two small steps gather momentum, and the last one, which no forward
# pass follows, is as in training: momentum shows, and that a change of the rate leaves the momentum as it is.
PARITY_RATES = (1e-7, 1e-7, rate(0, BATCH, BATCH))


def optimizer():
    return reference.Momentum(PARITY_RATES[0], MOMENTUM, WEIGHT_DECAY)


def loss_and_gradients(p, x, y, rounding, variant="", parts=1, groups=resnet50_features.GROUPS):
    """(logits, loss, name -> gradient) of a training step in float64; the running statistics in p move as the step moves them.

    p: name -> array, which gains what bench.batch_norm says; x, y as draw_batch gives them; parts: devices that share the batch.
    """

    def norm(p, name, x, rounding):
        return batch_norm.in_training(p, name, x, rounding, parts)

    logits, tape = _forward(p, x, rounding, norm, groups)
    loss, d = reference.softmax_cross_entropy(logits, y, rounding)
    return logits, loss, _backward(d, tape, rounding, groups)


def predict(p, x, rounding, groups=resnet50_features.GROUPS):
    """Logits (N, 1000) in evaluation: normalised with the running statistics."""
    return _forward(p, x, rounding, batch_norm.in_evaluation, groups)[0]


def _forward(p, x, rounding, norm, groups):
    """(logits, what the gradients need, in order)."""
    tape = []

    def unit(x, conv, bn, stride=1, pad=0):
        h, cache = reference.conv2d(x, p[conv + ".weight"], 0.0, pad, rounding, stride)
        h, statistics = norm(p, bn, h, rounding)
        tape.append((conv, bn, cache, statistics))
        return h

    def relu(x):
        tape.append(x > 0)
        return x * tape[-1]

    h, pool = reference.max_pool_overlapping(relu(unit(x, "conv1", "bn1", 2, 3)))
    tape.append(pool)
    for name, _, stride, shortcut in resnet50_features.blocks(groups):
        through = relu(unit(h, name + ".conv1", name + ".bn1"))
        through = relu(unit(through, name + ".conv2", name + ".bn2", stride, 1))
        through = unit(through, name + ".conv3", name + ".bn3")
        if shortcut:
            h = unit(h, name + ".downsample.0", name + ".downsample.1", stride)
        h = relu(rounding.elementwise(through + h))
    pooled = rounding.sum(h, (2, 3)) / (h.shape[2] * h.shape[3])
    logits, dense = reference.dense(pooled, p["fc.weight"], p["fc.bias"], rounding)
    tape.append((h.shape[2:], dense))
    return logits, tape


def _backward(d, tape, rounding, groups):
    """name -> gradient, from that of the logits. The tape is used up: what it holds is gigabytes."""
    g = collections.OrderedDict()

    def unit(d, need_dx=True):
        conv, bn, cache, statistics = tape.pop()
        d, g[bn + ".weight"], g[bn + ".bias"] = batch_norm.in_training_gradient(d, statistics, rounding)
        d, g[conv + ".weight"], _ = reference.conv2d_gradient(d, cache, rounding, need_dx)
        return d

    (height, width), dense = tape.pop()
    d, g["fc.weight"], g["fc.bias"] = reference.dense_gradient(d, dense, rounding)
    d = (d / (height * width))[:, :, None, None]
    for _, _, _, shortcut in reversed(list(resnet50_features.blocks(groups))):
        d = d * tape.pop()
        straight = unit(d) if shortcut else d
        through = unit(d)
        through = unit(through * tape.pop())
        d = straight + unit(through * tape.pop())
    d = reference.max_pool_overlapping_gradient(d, tape.pop())
    unit(d * tape.pop(), need_dx=False)
    return g
