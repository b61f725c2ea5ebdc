"""ResNet-50's features in Chainer: Chains whose attributes have torchvision's names, loaded by Chainer's own deserializer.

Idiomatic here: using_config("train", False) and no_backprop_mode, as Chainer's guide says for evaluation. Three of Chainer's defaults are
not the specification's: a pool covers the border (cover_all), a normalisation's epsilon is 2e-5, a convolution has a bias.
links.ResNet50Layers is Caffe's network, which has its stride in another convolution.
"""

import chainer
import chainer.functions as F
import chainer.links as L

from bench import contract
from bench.frameworks.chainer._weights import fill
from bench.frameworks.chainer.framework import place, to_device, to_host

# torchvision's name for a vector of a normalisation -> Chainer's
NORMALISATION = {"weight": "gamma", "bias": "beta", "running_mean": "avg_mean", "running_var": "avg_var"}


def conv(inputs, outputs, size, stride=1, pad=0):
    return L.Convolution2D(inputs, outputs, size, stride, pad, nobias=True)


def norm(channels):
    return L.BatchNormalization(channels, eps=1e-5)


class Stack(chainer.ChainList):
    """Links one after another. Chainer 7.8.1's Sequential puts the links after the second in the wrong order when it is loaded."""

    def forward(self, x):
        for link in self:
            x = link(x)
        return x


class Bottleneck(chainer.Chain):
    def __init__(self, inputs, channels, stride, shortcut):
        super().__init__()
        outputs = 4 * channels
        with self.init_scope():
            self.conv1, self.bn1 = conv(inputs, channels, 1), norm(channels)
            self.conv2, self.bn2 = conv(channels, channels, 3, stride, 1), norm(channels)
            self.conv3, self.bn3 = conv(channels, outputs, 1), norm(outputs)
            self.downsample = Stack(conv(inputs, outputs, 1, stride), norm(outputs)) if shortcut else None

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


def group(inputs, blocks, channels, stride):
    first = Bottleneck(inputs, channels, stride, True)
    return Stack(first, *(Bottleneck(4 * channels, channels, 1, False) for _ in range(blocks - 1)))


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1, self.bn1 = conv(3, 64, 7, 2, 3), norm(64)
            self.layer1 = group(64, 3, 64, 1)
            self.layer2 = group(256, 4, 128, 2)
            self.layer3 = group(512, 6, 256, 2)
            self.layer4 = group(1024, 3, 512, 2)

    def forward(self, x):
        x = F.max_pooling_2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1, cover_all=False)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return F.mean(x, axis=(2, 3))


def own_name(name, value):
    """torchvision's layer1.0.bn1.weight -> layer1/0/bn1/gamma."""
    layer, end = name.rsplit(".", 1)
    return "%s/%s" % (layer.replace(".", "/"), NORMALISATION[end] if value.ndim == 1 else "W")


class Inference(contract.Inference):
    def __init__(self, setup):
        self.network = Network()

    def load(self, parameters):
        own = {own_name(name, value): value for name, value in parameters.items()}
        self.network = place(fill(self.network, own))

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    def predict(self, x):
        # Evaluation uses the running statistics. No gradients in evaluation: they cost memory and time.
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            return to_host(self.network(*to_device(x)).array)
