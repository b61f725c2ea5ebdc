"""ResNet-50 trained in Chainer, as the study trained it: the features' network and a Linear, MomentumSGD, WeightDecay as a hook.

Idiomatic here: the configuration "train" decides which statistics a normalisation takes (D6); of several processes each keeps its own,
which ChainerMN averages before an evaluation (its AllreducePersistent); softmax_cross_entropy takes logits and sparse labels (A7, A19).
"""

import chainer
import chainer.functions as F
import chainer.links as L

from bench.frameworks.chainer import resnet50_features
from bench.frameworks.chainer._pictures import Trained


class Network(resnet50_features.Network):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(2048, 1000)

    def forward(self, x):
        return self.fc(super().forward(x))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(Network())

    def fresh(self):
        # A10: v <- 0.9 v - rate (g + 1e-4 w), w <- w + v: the specification's, with v scaled by the rate, which set_rate() heeds
        return chainer.optimizers.MomentumSGD(lr=0.0125, momentum=0.9)

    def load(self, parameters):
        super().load(parameters)
        self.optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))

    def set_rate(self, rate):
        scale, self.optimizer.lr = rate / self.optimizer.lr, rate
        for parameter in self.network.params():
            if parameter.update_rule.state:  # there is none before the first step
                parameter.update_rule.state["v"] *= parameter.dtype.type(scale)

    def own_name(self, name, value):
        """torchvision's fc.weight -> fc/W, and the features' names as they have them."""
        if name.startswith("fc."):
            return {"fc.weight": "fc/W", "fc.bias": "fc/b"}[name]
        return resnet50_features.own_name(name, value)

    def loss(self, logits, y):
        return F.softmax_cross_entropy(logits, y)
