"""The CIFAR-10 network in PaddlePaddle: a Layer, cross_entropy on logits, Momentum.

Idiomatic here: paddle.nn's Linear keeps its weight as (in, out). No value goes back to the host inside the loop.
"""

import paddle
import paddle.nn.functional as F
from paddle import nn

from bench import contract
from bench.frameworks.paddle.framework import compiled

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


class Network(nn.Layer):
    def __init__(self, dropout):
        super().__init__()
        # Dropout only in training.
        rates = (0.25, 0.25, 0.5) if dropout else (0.0, 0.0, 0.0)
        self.conv1, self.conv2 = nn.Conv2D(3, 50, 3, padding=1), nn.Conv2D(50, 50, 3, padding=1)
        self.conv3, self.conv4 = nn.Conv2D(50, 100, 3, padding=1), nn.Conv2D(100, 100, 3, padding=1)
        self.dense1, self.dense2 = nn.Linear(6400, 512), nn.Linear(512, 10)
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(rate) for rate in rates)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = self.dropout1(F.relu(F.max_pool2d(self.conv2(x), 2)))
        x = F.relu(self.conv3(x))
        x = self.dropout2(F.relu(F.max_pool2d(self.conv4(x), 2)))
        # The inputs of dense1 are in C, H, W order.
        x = self.dropout3(F.relu(self.dense1(paddle.flatten(x, 1))))
        return self.dense2(x)


class Training(contract.Training):
    def __init__(self, setup):
        paddle.seed(setup.seed)
        self.network = Network(setup.training)
        self.forward = compiled(setup, self.network)
        self.optimizer = None

    def load(self, parameters):
        self.network.set_state_dict({paddle_name(name): turned(name, value) for name, value in parameters.items()})
        # Momentum: v = m v + g; w = w - rate v, without dampening or Nesterov. It counts no steps.
        trained = self.network.parameters()
        self.optimizer = paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9, parameters=trained)

    def read(self):
        return self._read(lambda parameter: parameter)

    def inputs(self, x, y):
        return x, y.astype("int64")

    def _backward(self, x, y):
        self.network.train()
        logits = self.forward(paddle.to_tensor(x))
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        loss = F.cross_entropy(logits, paddle.to_tensor(y))
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        gradients = self._read(lambda parameter: parameter.grad)
        self.optimizer.clear_grad()
        return logits.numpy(), float(loss), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss

    # No gradients in evaluation: they cost memory and time.
    @paddle.no_grad()
    def predict(self, x):
        self.network.eval()
        return self.forward(paddle.to_tensor(x)).numpy()

    def _read(self, of):
        tensors = dict(self.network.named_parameters())
        names = [layer + end for layer in LAYERS for end in (".w", ".b")]
        return {name: turned(name, of(tensors[paddle_name(name)]).numpy()) for name in names}


def paddle_name(name):
    return name.replace(".w", ".weight").replace(".b", ".bias")


def turned(name, value):
    """Dense weights are (in, out) in Paddle, (out, in) in the specification."""
    return value.T if name in ("dense1.w", "dense2.w") else value
