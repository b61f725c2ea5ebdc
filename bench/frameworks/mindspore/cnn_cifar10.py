"""The CIFAR-10 network in MindSpore: a Cell, value_and_grad, Momentum, the step compiled as one graph.

Idiomatic here: value_and_grad differentiates a function; there is no tape. The optimiser is a Cell, which the compiled step calls with
the gradients.
"""

import os

# MindSpore 2.10.0 is built with oneDNN 3.10.1. On CPUs with AVX-512 that computes convolutions in N, C, H, W with its reference code
# (ONEDNN_VERBOSE=1: jit_uni_ncsp:conv+ref:any): a step takes 15.6 s. With AVX2's kernels it takes 0.6 to 0.9 s (measured, two threads).
# oneDNN reads this variable when it makes its first primitive.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import mindspore as ms  # noqa: E402
from mindspore import Tensor, mint, nn  # noqa: E402

from bench import contract  # noqa: E402
from bench.frameworks.mindspore._loss import cross_entropy  # noqa: E402
from bench.frameworks.mindspore.framework import compiled  # noqa: E402

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


# Padding is explicit: defaults differ among frameworks.
def conv(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, pad_mode="pad", padding=1, has_bias=True)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3, self.conv4 = conv(3, 50), conv(50, 50), conv(50, 100), conv(100, 100)
        self.pool, self.relu = nn.MaxPool2d(2, 2), nn.ReLU()
        self.dense1, self.dense2 = nn.Dense(6400, 512), nn.Dense(512, 10)
        self.dropout1, self.dropout2, self.dropout3 = nn.Dropout(p=0.25), nn.Dropout(p=0.25), nn.Dropout(p=0.5)

    def construct(self, x):
        x = self.relu(self.conv1(x))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = self.dropout1(self.relu(self.pool(self.conv2(x))))
        x = self.relu(self.conv3(x))
        x = self.dropout2(self.relu(self.pool(self.conv4(x))))
        # Flattened in C, H, W order.
        x = self.dropout3(self.relu(self.dense1(mint.flatten(x, 1))))
        return self.dense2(x)


class Training(contract.Training):
    def __init__(self, setup):
        ms.set_seed(setup.seed)
        self.setup, self.network = setup, Network()
        # Dropout only in training.
        self.network.set_train(setup.training)
        own = {parameter.name: parameter for parameter in self.network.trainable_params()}
        ends = ((".w", ".weight"), (".b", ".bias"))
        self.parameters = {name + end: own[name + own_end] for name in LAYERS for end, own_end in ends}
        self.gradients = ms.value_and_grad(self._loss, None, list(self.parameters.values()), has_aux=True)
        self.optimizer = self.train_step = None

    def _loss(self, x, y):
        logits = self.network(x)
        return cross_entropy(logits, y), logits

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            # In place: `set_data` gives it other memory, and the gradients that `probe` has traced go on with the old one.
            ms.ops.assign(parameter, Tensor(parameters[name].copy()))
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov.
        optimizer = nn.Momentum(list(self.parameters.values()), learning_rate=0.01, momentum=0.9)
        gradients = self.gradients

        def train_step(x, y):
            (loss, _), changes = gradients(x, y)
            optimizer(changes)
            return loss

        # Compiled, as people run it for speed.
        self.optimizer, self.train_step = optimizer, compiled(self.setup, train_step)

    def read(self):
        return {name: parameter.asnumpy() for name, parameter in self.parameters.items()}

    def probe(self, x, y):
        (loss, logits), gradients = self.gradients(Tensor(x), Tensor(y))
        return logits.asnumpy(), float(loss.asnumpy()), dict(zip(self.parameters, (g.asnumpy() for g in gradients)))

    def step(self, x, y):
        return self.train_step(Tensor(x), Tensor(y))

    def updates(self):
        return int(self.optimizer.global_step.asnumpy()[0])

    def value(self, loss):
        return float(loss.asnumpy())

    def predict(self, x):
        self.network.set_train(False)
        # No gradients in evaluation: they cost memory and time.
        logits = self.network(Tensor(x)).asnumpy()
        self.network.set_train(self.setup.training)
        return logits
