"""ResNet-50's features in Gluon: HybridBlocks whose attributes have torchvision's names.

Idiomatic here: hybridize(static_alloc, static_shape), as the original of 2018 did, turns the blocks into one graph with its memory planned
once (B8); on a CPU its backend MKLDNN, which Module takes by itself, fuses a convolution with what follows it. Outside
autograd.record() nothing is recorded (A21) and the normalisations use their running statistics (D6). The model zoo's resnet50_v1 is
another network: its stride is in the 1 x 1 convolution, and those have biases.
"""

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

from bench.frameworks.mxnet.framework import context

# torchvision's word for a normalisation's factor and shift -> Gluon's
NORMALISATION = {"weight": "gamma", "bias": "beta"}


def conv(inputs, outputs, size, stride=1, padding=0):
    return nn.Conv2D(outputs, size, stride, padding, use_bias=False, in_channels=inputs)


def norm(channels):
    return nn.BatchNorm(epsilon=1e-5, in_channels=channels)


class Bottleneck(gluon.HybridBlock):
    def __init__(self, inputs, channels, stride, shortcut):
        super().__init__()
        outputs = 4 * channels
        self.conv1, self.bn1 = conv(inputs, channels, 1), norm(channels)
        self.conv2, self.bn2 = conv(channels, channels, 3, stride, 1), norm(channels)
        self.conv3, self.bn3 = conv(channels, outputs, 1), norm(outputs)
        self.downsample = None
        if shortcut:
            self.downsample = nn.HybridSequential()
            self.downsample.add(conv(inputs, outputs, 1, stride), norm(outputs))

    def hybrid_forward(self, F, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


def group(inputs, blocks, channels, stride):
    found = nn.HybridSequential()
    found.add(Bottleneck(inputs, channels, stride, True))
    found.add(*(Bottleneck(4 * channels, channels, 1, False) for _ in range(blocks - 1)))
    return found


class Network(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2, 3), norm(64)
        self.maxpool = nn.MaxPool2D(3, 2, 1)
        self.layer1 = group(64, 3, 64, 1)
        self.layer2 = group(256, 4, 128, 2)
        self.layer3 = group(512, 6, 256, 2)
        self.layer4 = group(1024, 3, 512, 2)
        self.avgpool = nn.GlobalAvgPool2D()

    def hybrid_forward(self, F, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return F.flatten(self.avgpool(x))


def own_name(name, value):
    """torchvision's name -> Gluon's: a vector of a normalisation may be called otherwise."""
    layer, end = name.rsplit(".", 1)
    return layer + "." + (NORMALISATION.get(end, end) if value.ndim == 1 else end)


class Inference:
    def __init__(self, setup):
        self.context = context(setup)
        self.network = Network()
        self.network.initialize(mx.init.Zero(), ctx=self.context)  # load() brings the real values

    def load(self, parameters):
        own = self.network._collect_params_with_prefix()  # by attribute, as load_parameters(file) names them
        for name, value in parameters.items():
            own[own_name(name, value)].set_data(value)
        backend = "MKLDNN" if self.context.device_type == "cpu" else None
        # here, since what is fused holds the parameters' values
        self.network.hybridize(backend=backend, static_alloc=True, static_shape=True)

    def inputs(self, x):
        return x  # (N, C, H, W) and contiguous as it comes (A1, B10)

    def predict(self, x):
        return self.network(mx.nd.array(x, ctx=self.context)).asnumpy()
