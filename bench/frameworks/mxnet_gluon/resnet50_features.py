"""ResNet-50's features in Gluon: HybridBlocks whose attributes have torchvision's names.

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph and plans its memory once. On a CPU its backend
MKLDNN fuses a convolution with the operators after it; Module does that by itself. Outside autograd.record() nothing is recorded, and
the normalisations use their running statistics. The model zoo's resnet50_v1 is another network: its stride is in the 1 x 1
convolution, and those have biases.
"""

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

from bench import contract
from bench.frameworks.mxnet.framework import context

# torchvision's name for a vector of a normalisation -> Gluon's
NORMALISATION = {"weight": "gamma", "bias": "beta"}


def conv(inputs, outputs, size, stride=1, padding=0):
    return nn.Conv2D(outputs, size, stride, padding, use_bias=False, in_channels=inputs)


def norm(channels):
    return nn.BatchNorm(momentum=0.9, epsilon=1e-5, in_channels=channels)


def relu(F, x):
    # Activation computes in the layout that oneDNN's layers hand on. F.relu would have it converted, there and back.
    return F.Activation(x, act_type="relu")


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
        h = relu(F, self.bn1(self.conv1(x)))
        h = relu(F, self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return relu(F, h + (x if self.downsample is None else self.downsample(x)))


def group(inputs, blocks, channels, stride):
    layers = nn.HybridSequential()
    layers.add(Bottleneck(inputs, channels, stride, True))
    layers.add(*(Bottleneck(4 * channels, channels, 1, False) for _ in range(blocks - 1)))
    return layers


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
        x = self.maxpool(relu(F, self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return F.flatten(self.avgpool(x))


def own_name(name, value):
    """torchvision's name -> Gluon's. Gluon has other names for some vectors of a normalisation."""
    layer, end = name.rsplit(".", 1)
    return layer + "." + (NORMALISATION.get(end, end) if value.ndim == 1 else end)


class Inference(contract.Inference):
    def __init__(self, setup):
        self.context = context(setup)
        self.network = Network()
        # load() sets the values.
        self.network.initialize(mx.init.Zero(), ctx=self.context)

    def load(self, parameters):
        # The names are those of the attributes, as in load_parameters(file).
        own = self.network._collect_params_with_prefix()
        for name, value in parameters.items():
            own[own_name(name, value)].set_data(value)
        backend = "MKLDNN" if self.context.device_type == "cpu" else None
        # After the values are set: the fused operators contain them.
        self.network.hybridize(backend=backend, static_alloc=True, static_shape=True)

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    # No gradients in evaluation: they cost memory and time. Evaluation uses the running statistics.
    def predict(self, x):
        return self.network(mx.nd.array(x, ctx=self.context)).asnumpy()
