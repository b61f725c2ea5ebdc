"""DenseNet-121 in Gluon: HybridBlocks whose attributes have torchvision's names, a Trainer with Adam.

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph and plans its memory once. Inside autograd.record()
the normalisations use the batch's statistics and move the running ones a tenth of the way; outside, evaluation uses the running
statistics. Each of several contexts normalises its own part and keeps its own statistics. The model zoo's densenet121 is the same network
with other names, its dense layers written as nested concatenations.
"""

from mxnet import gluon
from mxnet.gluon import nn

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")
from bench.frameworks.mxnet_gluon._pictures import Trained
from bench.frameworks.mxnet_gluon.resnet50_features import NORMALISATION, conv, norm, relu

LAYERS = (6, 12, 24, 16)
GROWTH = 32


class DenseLayer(gluon.HybridBlock):
    def __init__(self, inputs):
        super().__init__()
        self.norm1, self.conv1 = norm(inputs), conv(inputs, 4 * GROWTH, 1)
        self.norm2, self.conv2 = norm(4 * GROWTH), conv(4 * GROWTH, GROWTH, 3, 1, 1)

    def hybrid_forward(self, F, x):
        new = self.conv1(relu(F, self.norm1(x)))
        new = self.conv2(relu(F, self.norm2(new)))
        return F.concat(x, new, dim=1)


class DenseBlock(gluon.HybridBlock):
    def __init__(self, inputs, count):
        super().__init__()
        self.names = ["denselayer%d" % (index + 1) for index in range(count)]
        for index, name in enumerate(self.names):
            setattr(self, name, DenseLayer(inputs + index * GROWTH))

    def hybrid_forward(self, F, x):
        for name in self.names:
            x = getattr(self, name)(x)
        return x


class Transition(gluon.HybridBlock):
    def __init__(self, inputs):
        super().__init__()
        self.norm, self.conv = norm(inputs), conv(inputs, inputs // 2, 1)
        self.pool = nn.AvgPool2D(2, 2)

    def hybrid_forward(self, F, x):
        return self.pool(self.conv(relu(F, self.norm(x))))


class Features(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv0, self.norm0, self.pool0 = conv(3, 64, 7, 2, 3), norm(64), nn.MaxPool2D(3, 2, 1)
        channels = 64
        for block, count in enumerate(LAYERS, 1):
            setattr(self, "denseblock%d" % block, DenseBlock(channels, count))
            channels += count * GROWTH
            if block < len(LAYERS):
                setattr(self, "transition%d" % block, Transition(channels))
                channels //= 2
        self.norm5, self.pool5 = norm(channels), nn.GlobalAvgPool2D()

    def hybrid_forward(self, F, x):
        x = self.pool0(relu(F, self.norm0(self.conv0(x))))
        x = self.transition1(self.denseblock1(x))
        x = self.transition2(self.denseblock2(x))
        x = self.transition3(self.denseblock3(x))
        return F.flatten(self.pool5(relu(F, self.norm5(self.denseblock4(x)))))


class Network(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.classifier = nn.Dense(14, in_units=1024)

    def hybrid_forward(self, F, x):
        return self.classifier(self.features(x))


class Training(Trained):
    # Adam's constants are explicit: defaults differ among frameworks.
    OPTIMIZER = "exactadam", {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

    def __init__(self, setup):
        # The loss takes logits: there is exactly one sigmoid. An image's loss is the mean over its findings.
        super().__init__(setup, Network(), gluon.loss.SigmoidBinaryCrossEntropyLoss())

    def set_rate(self, rate):
        self.trainer.set_learning_rate(rate)

    def own_name(self, name, value):
        """torchvision's name -> Gluon's. Gluon has other names for the vectors of a normalisation."""
        layer, end = name.rsplit(".", 1)
        return layer + "." + (NORMALISATION.get(end, end) if "norm" in layer.rsplit(".", 1)[-1] else end)
