"""What both training workloads do with Caffe2's nets: create them once, feed blobs, run, fetch."""

import numpy as np
from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace
from caffe2.python.model_helper import ModelHelper

from bench import contract
from bench.frameworks.caffe2.framework import scope


class Trained(contract.Training):
    """The training loop of a network. A subclass gives these methods:

    network(model, training) adds the operators from blob "data" to the logits, and returns the logits' blob.
    update(model, gradients) adds the optimiser's operators, and returns its blobs with their first values.
    prepare(step) runs before every step.
    to_own(parameters) and canonical(values) go between the canonical names and layouts and Caffe2's.
    """

    def __init__(self, setup, names, shapes):
        """names: the parameters' blobs. shapes: shape and dtype of the blobs "data" and "label"."""
        self.names = names
        workspace.ResetWorkspace()
        with scope():
            self.train = ModelHelper("train", arg_scope={"order": "NCHW"})
            logits = self.network(self.train, setup.training)
            # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
            softmax, loss = self.train.net.SoftmaxWithLoss([logits, "label"], ["softmax", "loss"])
            gradients = self.train.AddGradientOperators([loss])
            self.gradients = {name: self._dense(gradients[name], name) for name in names}
            self.backward = core.Net("backward")
            self.backward.Proto().CopyFrom(self.train.net.Proto())
            self.backward.Proto().name = "backward"
            self.state = self.update(self.train, self.gradients)
            # The number of times that the net with the optimiser ran, as Caffe2's own optimisers keep it.
            with core.DeviceScope(core.DeviceOption(caffe2_pb2.CPU)):
                self.train.net.Iter("iteration", "iteration")
            self.forward = ModelHelper("forward", arg_scope={"order": "NCHW"})
            self.logits = str(self.network(self.forward, False))
        self.shapes = shapes
        self.created = False
        self.steps = 0

    def _dense(self, gradient, name):
        """The gradient as a dense blob: an embedding's is sparse, and Adam's moments are dense."""
        if not isinstance(gradient, core.GradientSlice):
            return gradient
        return self.train.net.SparseToDense([gradient.indices, gradient.values, name], name + "_dense_grad")

    def prepare(self, step):
        """A subclass may do something before a step."""

    def load(self, parameters):
        for name, value in self.to_own(parameters).items():
            self._feed(name, np.ascontiguousarray(value))
        for blob, value in self.state.items():
            self._feed(blob, value)
        workspace.FeedBlob("iteration", np.zeros(1, "int64"))
        self.steps = 0
        if not self.created:
            data, label = self.shapes
            self._feed("data", np.zeros(*data))
            self._feed("label", np.zeros(*label))
            for net in (self.train.net, self.backward, self.forward.net):
                workspace.CreateNet(net)
            self.created = True

    def read(self):
        return self.canonical({name: workspace.FetchBlob(name) for name in self.names})

    def probe(self, x, y):
        self._feed("data", x)
        self._feed("label", y)
        workspace.RunNet(self.backward)
        gradients = {name: workspace.FetchBlob(str(blob)) for name, blob in self.gradients.items()}
        return workspace.FetchBlob(self.logits), float(workspace.FetchBlob("loss")), self.canonical(gradients)

    def step(self, x, y):
        self._feed("data", x)
        self._feed("label", y)
        self.steps += 1
        self.prepare(self.steps)
        workspace.RunNet(self.train.net)
        # The loss stays on the device, in its blob. No value goes back to the host inside the loop.
        return "loss"

    def updates(self):
        return int(workspace.FetchBlob("iteration")[0])

    def value(self, loss):
        return float(workspace.FetchBlob(loss))

    def predict(self, x):
        self._feed("data", x)
        # No gradients in evaluation: they cost memory and time. This net has no dropout either.
        workspace.RunNet(self.forward.net)
        return workspace.FetchBlob(self.logits)

    @staticmethod
    def _feed(blob, value):
        with scope():
            workspace.FeedBlob(blob, value)
