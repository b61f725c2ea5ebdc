"""ResNet-50's features in Caffe2: operators read and write blobs of a workspace; a net of operators is run by name.

Idiomatic here: normalisations, ReLUs and sums are computed in place, as in Caffe2's own modeling/resnet.py. The net is created once and
run for every batch, as people run it for speed. ws_nbytes_limit gives cuDNN's fast algorithms room. On a CPU it runs on the IDEEP device,
with oneDNN's operators and blocked layouts: they take half the time of Caffe2's own (measured with 1.8.1).
"""

import numpy as np
from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace
from caffe2.python.model_helper import ModelHelper

from bench import contract
from bench.workloads.resnet50_features import EPSILON, SHAPE, blocks

STATISTICS = ("weight", "bias", "running_mean", "running_var")


def device(setup):
    if setup.device == "cuda":
        return core.DeviceOption(caffe2_pb2.CUDA, 0)
    return core.DeviceOption(caffe2_pb2.IDEEP if workspace.C.use_mkldnn else caffe2_pb2.CPU)


def network(add):
    """Adds the operators from blob "data", (N, 3, 224, 224), and returns the blob of features, (N, 2048)."""

    # cuDNN searches for its fastest algorithm: the pictures' size is fixed.
    # Stride and padding are explicit: defaults differ among frameworks.
    def conv(x, name, size, stride=1, pad=0):
        options = {"kernel": size, "stride": stride, "pad": pad, "order": "NCHW"}
        options.update(exhaustive_search=True, ws_nbytes_limit=2**30)
        return add.Conv([x, name + ".weight"], name, **options)

    # Evaluation uses the running statistics.
    def norm(x, name):
        own = ["%s.%s" % (name, end) for end in STATISTICS]
        return add.SpatialBN([x] + own, x, is_test=1, epsilon=EPSILON, order="NCHW")

    def relu(x):
        return add.Relu(x, x)

    x = relu(norm(conv("data", "conv1", 7, 2, 3), "bn1"))
    x = add.MaxPool(x, "pool1", kernel=3, stride=2, pad=1, order="NCHW")
    for name, _, stride, shortcut in blocks():
        h = relu(norm(conv(x, name + ".conv1", 1), name + ".bn1"))
        h = relu(norm(conv(h, name + ".conv2", 3, stride, 1), name + ".bn2"))
        h = norm(conv(h, name + ".conv3", 1), name + ".bn3")
        if shortcut:
            x = norm(conv(x, name + ".downsample.0", 1, stride), name + ".downsample.1")
        x = relu(add.Sum([h, x], h))
    return add.Flatten(add.AveragePool(x, "pool5", global_pooling=1, order="NCHW"), "features")


class Inference(contract.Inference):
    def __init__(self, setup):
        workspace.ResetWorkspace()
        self.device = device(setup)
        self.model = ModelHelper("inference", arg_scope={"order": "NCHW"})
        # No gradients in evaluation: they cost memory and time.
        with core.DeviceScope(self.device):
            self.features = str(network(self.model.net))
        self.created = False

    def load(self, parameters):
        for name, value in parameters.items():
            workspace.FeedBlob(name, value, self.device)
        if not self.created:
            workspace.FeedBlob("data", np.zeros((1,) + SHAPE, "float32"), self.device)
            workspace.CreateNet(self.model.net)
            self.created = True

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    def predict(self, x):
        workspace.FeedBlob("data", x, self.device)
        workspace.RunNet(self.model.net)
        return workspace.FetchBlob(self.features)
