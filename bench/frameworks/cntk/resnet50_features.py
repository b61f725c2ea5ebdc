"""ResNet-50's features in CNTK: functions composed into a graph, evaluated.

Idiomatic here: eval() of a function computes no gradients, and its normalisations use the running statistics. The graph is compiled at
its first evaluation, as people run it for speed. Automatic padding puts a window's centre on every stride-th pixel from the first one:
for an odd window that is the specification's symmetric padding.
"""

from collections import OrderedDict

import cntk as C
import numpy as np

from bench import contract
from bench.workloads.resnet50_features import EPSILON, PARAMETERS, SHAPE, blocks

STATISTICS = ("weight", "bias", "running_mean", "running_var")


class Inference(contract.Inference):
    def __init__(self, setup):
        self.on_gpu = setup.device == "cuda"
        self.parameters = OrderedDict((spec.name, C.constant(0, spec.shape)) for spec in PARAMETERS)
        self.x = C.input_variable(SHAPE)
        self.features = self.network(self.x)

    def network(self, x):
        """Images (3, 224, 224) -> features (2048,), of every sample."""
        p = self.parameters

        # Height and width are padded, channels are not.
        def conv(x, name, stride=1):
            return C.convolution(p[name + ".weight"], x, (1, stride, stride), auto_padding=[False, True, True])

        # Evaluation uses the running statistics.
        def norm(x, name):
            own = [p["%s.%s" % (name, end)] for end in STATISTICS]
            options = {"spatial": True, "epsilon": EPSILON, "use_cudnn_engine": self.on_gpu}
            return C.batch_normalization(x, *own, running_count=C.constant(0), **options)

        x = C.relu(norm(conv(x, "conv1", 2), "bn1"))
        x = C.pooling(x, C.MAX_POOLING, (3, 3), (2, 2), auto_padding=[False, True, True])
        for name, _, stride, shortcut in blocks():
            h = C.relu(norm(conv(x, name + ".conv1"), name + ".bn1"))
            h = C.relu(norm(conv(h, name + ".conv2", stride), name + ".bn2"))
            h = norm(conv(h, name + ".conv3"), name + ".bn3")
            if shortcut:
                x = norm(conv(x, name + ".downsample.0", stride), name + ".downsample.1")
            x = C.relu(h + x)
        return C.reshape(C.pooling(x, C.AVG_POOLING, (7, 7)), (2048,))

    def load(self, parameters):
        for name, constant in self.parameters.items():
            constant.value = parameters[name]

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        return np.asarray(self.features.eval({self.x: x}))
