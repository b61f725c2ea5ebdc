"""ResNet-50 trained in Chainer, as ChainerMN's study did: the features' network and a Linear, MomentumSGD, WeightDecay as a hook.

Idiomatic here: the configuration "train" decides which statistics a normalisation uses: evaluation uses the running statistics. Every
process keeps its own; they are averaged before an evaluation, as ChainerMN's AllreducePersistent does.
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
        # Momentum: v = 0.9 v + g + 1e-4 w; w = w - rate v, without dampening or Nesterov.
        # Chainer stores -rate v in place of v, so set_rate() scales it.
        return chainer.optimizers.MomentumSGD(lr=0.0125, momentum=0.9)

    def load(self, parameters):
        super().load(parameters)
        self.optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))

    def set_rate(self, rate):
        scale, self.optimizer.lr = rate / self.optimizer.lr, rate
        for parameter in self.network.params():
            # A parameter has no v before the first step.
            if parameter.update_rule.state:
                parameter.update_rule.state["v"] *= parameter.dtype.type(scale)

    def own_name(self, name, value):
        """torchvision's fc.weight -> fc/W. The other names are those of the features' network."""
        if name.startswith("fc."):
            return {"fc.weight": "fc/W", "fc.bias": "fc/b"}[name]
        return resnet50_features.own_name(name, value)

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return F.softmax_cross_entropy(logits, y)
