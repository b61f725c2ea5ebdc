"""ResNet-50's features in PyTorch: the modules of torchvision's network under the same names, without its classifier.

Idiomatic here: eval() makes the normalisations use their running statistics. Pictures lie in memory as the device's convolutions want
them (memory_format).
"""

import torch
from torch import nn

from bench import contract
from bench.frameworks.torch.framework import compiled, memory_format, to_device, torch_device


class Bottleneck(nn.Module):
    def __init__(self, inputs, channels, stride, shortcut):
        super().__init__()
        outputs = 4 * channels
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if shortcut:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return self.relu(h + (x if self.downsample is None else self.downsample(x)))


def group(inputs, blocks, channels, stride):
    first = Bottleneck(inputs, channels, stride, True)
    return nn.Sequential(first, *(Bottleneck(4 * channels, channels, 1, False) for _ in range(blocks - 1)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = group(64, 3, 64, 1)
        self.layer2 = group(256, 4, 128, 2)
        self.layer3 = group(512, 6, 256, 2)
        self.layer4 = group(1024, 3, 512, 2)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


class Inference(contract.Inference):
    def __init__(self, setup):
        self.device, self.format = torch_device(setup), memory_format(setup)
        self.network = Network().eval().to(self.device, memory_format=self.format)
        self.compiled = compiled(setup, self.network)

    def load(self, parameters):
        state = {name: torch.from_numpy(value) for name, value in parameters.items()}
        counters = [name for name in self.network.state_dict() if name.endswith("num_batches_tracked")]
        # Only training uses the counters.
        state.update((name, torch.tensor(0)) for name in counters)
        self.network.load_state_dict(state)

    def inputs(self, x):
        # Seen as (N, C, H, W), however it lies in memory.
        return torch.from_numpy(x).to(memory_format=self.format).numpy()

    # No gradients in evaluation: they cost memory and time.
    @torch.inference_mode()
    def predict(self, x):
        (x,) = to_device(self.device, x)
        return self.compiled(x).cpu().numpy()
