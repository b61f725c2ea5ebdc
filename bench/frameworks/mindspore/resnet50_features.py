"""ResNet-50's features in MindSpore: Cells whose attributes have torchvision's names, run as one graph or eagerly, by the mode.

Idiomatic here: set_train(False) makes the normalisations use their running statistics (D6), and no gradient is asked for (A21). A
padding is only taken with pad_mode "pad": MindSpore's default pads by "same", on one side more than on the other (A15).
"""

from mindspore import Tensor, mint, nn

from bench.frameworks.mindspore.framework import compiled

# torchvision's word for a vector of a normalisation -> MindSpore's
NORMALISATION = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def conv(inputs, outputs, size, stride=1, padding=0):
    return nn.Conv2d(inputs, outputs, size, stride, pad_mode="pad", padding=padding, has_bias=False)


def norm(channels):
    return nn.BatchNorm2d(channels, eps=1e-5)


class Bottleneck(nn.Cell):
    def __init__(self, inputs, channels, stride, shortcut):
        super().__init__()
        outputs = 4 * channels
        self.conv1, self.bn1 = conv(inputs, channels, 1), norm(channels)
        self.conv2, self.bn2 = conv(channels, channels, 3, stride, 1), norm(channels)
        self.conv3, self.bn3 = conv(channels, outputs, 1), norm(outputs)
        self.relu = nn.ReLU()
        self.downsample = None
        if shortcut:
            self.downsample = nn.SequentialCell(conv(inputs, outputs, 1, stride), norm(outputs))

    def construct(self, x):
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return self.relu(h + (x if self.downsample is None else self.downsample(x)))


def group(inputs, blocks, channels, stride):
    first = Bottleneck(inputs, channels, stride, True)
    return nn.SequentialCell(first, *(Bottleneck(4 * channels, channels, 1, False) for _ in range(blocks - 1)))


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.relu = conv(3, 64, 7, 2, 3), norm(64), nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)
        self.layer1 = group(64, 3, 64, 1)
        self.layer2 = group(256, 4, 128, 2)
        self.layer3 = group(512, 6, 256, 2)
        self.layer4 = group(1024, 3, 512, 2)

    def construct(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return mint.mean(x, (2, 3))


def own_name(name, value):
    layer, end = name.rsplit(".", 1)
    return layer + "." + (NORMALISATION[end] if value.ndim == 1 else end)


class Inference:
    def __init__(self, setup):
        self.network = Network()
        self.network.set_train(False)
        self.forward = compiled(setup, self.network.construct)

    def load(self, parameters):
        own = dict(self.network.parameters_and_names())
        for name, value in parameters.items():
            own[own_name(name, value)].set_data(Tensor(value))

    def inputs(self, x):
        return x  # (N, C, H, W) and contiguous as it comes (A1, B10)

    def predict(self, x):
        return self.forward(Tensor(x)).asnumpy()
