"""ResNet-50's features in PaddlePaddle: Layers whose attributes have torchvision's names, as in paddle.vision.

Idiomatic here: eval() makes the normalisations use their running statistics. no_grad() records nothing.
"""

import paddle
import paddle.nn.functional as F
from paddle import nn

from bench import contract
from bench.frameworks.paddle.framework import compiled

# torchvision's name for a running statistic -> Paddle's
STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}


def conv(inputs, outputs, size, stride=1, padding=0):
    return nn.Conv2D(inputs, outputs, size, stride, padding, bias_attr=False)


class Bottleneck(nn.Layer):
    def __init__(self, inputs, channels, stride, shortcut):
        super().__init__()
        outputs = 4 * channels
        self.conv1, self.bn1 = conv(inputs, channels, 1), nn.BatchNorm2D(channels)
        self.conv2, self.bn2 = conv(channels, channels, 3, stride, 1), nn.BatchNorm2D(channels)
        self.conv3, self.bn3 = conv(channels, outputs, 1), nn.BatchNorm2D(outputs)
        self.downsample = None
        if shortcut:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2D(outputs))

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


def group(inputs, blocks, channels, stride):
    first = Bottleneck(inputs, channels, stride, True)
    return nn.Sequential(first, *(Bottleneck(4 * channels, channels, 1, False) for _ in range(blocks - 1)))


class Network(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2, 3), nn.BatchNorm2D(64)
        self.maxpool = nn.MaxPool2D(3, 2, 1)
        self.layer1 = group(64, 3, 64, 1)
        self.layer2 = group(256, 4, 128, 2)
        self.layer3 = group(512, 6, 256, 2)
        self.layer4 = group(1024, 3, 512, 2)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


def own_name(name):
    layer, end = name.rsplit(".", 1)
    return layer + "." + STATISTICS.get(end, end)


class Inference(contract.Inference):
    def __init__(self, setup):
        self.network = Network()
        # Evaluation uses the running statistics.
        self.network.eval()
        self.forward = compiled(setup, self.network)

    def load(self, parameters):
        self.network.set_state_dict({own_name(name): value for name, value in parameters.items()})

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    # No gradients in evaluation: they cost memory and time.
    @paddle.no_grad()
    def predict(self, x):
        return self.forward(paddle.to_tensor(x)).numpy()
