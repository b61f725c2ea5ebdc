"""Features of ResNet-50 (Deep Learning Framework Examples, 2017): specification and float64 reference of the forward pass.

He et al. 2015 with the stride on the 3 x 3 convolution (v1.5), cut after the global average: 3 x 224 x 224 -> 2 048 numbers.
conv 7 x 7 stride 2, padding 3 · max-pool 3 x 3 stride 2, padding 1 · 3, 4, 6, 3 bottleneck blocks of 64, 128, 256, 512 channels, each
conv 1 x 1 · conv 3 x 3 (stride 2 in the first block of all groups but the first) · conv 1 x 1 to four times the channels, plus the
block's input (through a 1 x 1 convolution of the same stride in each group's first block) · mean over 7 x 7. Convolutions have no
bias; each is followed by a batch normalisation with running statistics (epsilon 1e-5), and by ReLU except before the addition, which
is followed by one. Parameters have the names of the weight files that people have (torchvision's, timm's).
"""

import numpy as np

from bench import batch_norm, reference
from bench.canonical import convolution, normalisation

BATCH = 32
SHAPE = (3, 224, 224)
FEATURES = 2048
EPSILON = batch_norm.EPSILON
# (blocks, channels inside a block, stride of the first block); a block ends with EXPANSION times the channels
GROUPS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
EXPANSION = 4


def blocks(groups=GROUPS):
    """The bottleneck blocks in order: (name, channels inside, stride, whether the shortcut has a convolution)."""
    for group, (count, channels, stride) in enumerate(groups, 1):
        for index in range(count):
            yield "layer%d.%d" % (group, index), channels, stride if index == 0 else 1, index == 0


def parameters(groups=GROUPS):
    """The parameters of a network of such groups; convolutions (out, in, kh, kw)."""
    specifications = convolution("conv1", 3, 64, 7) + normalisation("bn1", 64)
    inputs = 64
    for name, channels, _, shortcut in blocks(groups):
        outputs = EXPANSION * channels
        specifications += convolution(name + ".conv1", inputs, channels, 1) + normalisation(name + ".bn1", channels)
        specifications += convolution(name + ".conv2", channels, channels, 3) + normalisation(name + ".bn2", channels)
        specifications += convolution(name + ".conv3", channels, outputs, 1) + normalisation(name + ".bn3", outputs)
        if shortcut:
            specifications += convolution(name + ".downsample.0", inputs, outputs, 1)
            specifications += normalisation(name + ".downsample.1", outputs)
        inputs = outputs
    return specifications


PARAMETERS = parameters()

VARIANTS = {}  # every framework here can compute exactly this


def draw_batch(random):
    """x (4, 3, 224, 224) float32 uniform on [0, 1), and None, for there is nothing to learn.

    A few images prove what 32 would, and the float64 reference takes minutes rather than an hour.
    """
    return random.uniform(0.0, 1.0, (4,) + SHAPE).astype("float32"), None


def features(p, x, rounding):
    """(N, 2048) float64. p: name -> array; x (N, 3, 224, 224). Image by image: a whole batch's patches take gigabytes."""
    return np.concatenate([_features(p, x[i : i + 1], rounding) for i in range(len(x))])


def _features(p, x, rounding):
    x = np.maximum(_normalised(p, "conv1", "bn1", x, 2, 3, rounding), 0.0)
    x = reference.windows(x, 3, 1, 2, fill=-np.inf).max(axis=(4, 5)).transpose(0, 3, 1, 2)
    for name, _, stride, shortcut in blocks():
        h = np.maximum(_normalised(p, name + ".conv1", name + ".bn1", x, 1, 0, rounding), 0.0)
        h = np.maximum(_normalised(p, name + ".conv2", name + ".bn2", h, stride, 1, rounding), 0.0)
        h = _normalised(p, name + ".conv3", name + ".bn3", h, 1, 0, rounding)
        if shortcut:
            x = _normalised(p, name + ".downsample.0", name + ".downsample.1", x, stride, 0, rounding)
        x = np.maximum(rounding.elementwise(h + x), 0.0)
    return rounding.sum(x, (2, 3)) / (x.shape[2] * x.shape[3])


def _normalised(p, convolution, norm, x, stride, pad, rounding):
    h, _ = reference.conv2d(x, p[convolution + ".weight"], 0.0, pad, rounding, stride)
    return batch_norm.in_evaluation(p, norm, h, rounding)[0]
