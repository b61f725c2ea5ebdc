"""ResNet-50's features in tinygrad: classes with a __call__, whose attributes have torchvision's names, loaded by nn.state.

Idiomatic here: tinygrad computes a tensor only when its value is needed, so a forward pass is one schedule of fused kernels. TinyJit
captures the kernels once and replays them. Without TRAINING the normalisations use their running statistics.
"""

from tinygrad import Tensor, nn

from bench import contract
from bench.frameworks.tinygrad.framework import jit


def conv(inputs, outputs, size, stride=1, padding=0):
    return nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)


class Bottleneck:
    def __init__(self, inputs, channels, stride, shortcut):
        outputs = 4 * channels
        self.conv1, self.bn1 = conv(inputs, channels, 1), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = conv(channels, channels, 3, stride, 1), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = conv(channels, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = [conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)] if shortcut else []

    def __call__(self, x):
        h = self.bn1(self.conv1(x)).relu()
        h = self.bn2(self.conv2(h)).relu()
        h = self.bn3(self.conv3(h))
        return (h + x.sequential(self.downsample)).relu()


def group(inputs, blocks, channels, stride):
    first = Bottleneck(inputs, channels, stride, True)
    return [first] + [Bottleneck(4 * channels, channels, 1, False) for _ in range(blocks - 1)]


class Network:
    def __init__(self):
        self.conv1, self.bn1 = conv(3, 64, 7, 2, 3), nn.BatchNorm2d(64)
        self.layer1 = group(64, 3, 64, 1)
        self.layer2 = group(256, 4, 128, 2)
        self.layer3 = group(512, 6, 256, 2)
        self.layer4 = group(1024, 3, 512, 2)

    def __call__(self, x):
        x = self.bn1(self.conv1(x)).relu().max_pool2d((3, 3), 2, padding=1)
        x = x.sequential(self.layer1 + self.layer2 + self.layer3 + self.layer4)
        return x.mean((2, 3))


class Inference(contract.Inference):
    def __init__(self, setup):
        self.setup = setup
        self.network = Network()
        # Batch size -> forward pass: a captured pass takes one shape only.
        self.captured = {}

    def load(self, parameters):
        state = {name: Tensor(value) for name, value in parameters.items()}
        counters = [name for name in nn.state.get_state_dict(self.network) if name.endswith("num_batches_tracked")]
        # Only training uses the counters.
        state.update((name, Tensor(0)) for name in counters)
        nn.state.load_state_dict(self.network, state, verbose=False)
        # A captured pass keeps its buffers: new parameters are captured again.
        self.captured = {}

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        if len(x) not in self.captured:
            self.captured[len(x)] = jit(self.setup, lambda images: self.network(images).realize())
        return self.captured[len(x)](Tensor(x).realize()).numpy()
