"""The training loop of a network of tensors."""

import numpy as np
from tinygrad import Context, Tensor, nn

from bench import contract, powers
from bench.frameworks.tinygrad.framework import jit


class Trained(contract.Training):
    """A subclass has parameters (canonical name -> Tensor), logits(x, training) and new_optimizer(parameters)."""

    def __init__(self, setup):
        Tensor.manual_seed(setup.seed)
        self.dropout = setup.training
        self.setup = setup
        self.optimizer = self.forward = None
        self.train_steps = {}

    def load(self, parameters):
        for name, tensor in self.parameters.items():
            tensor.replace(Tensor(parameters[name]).is_param_(True)).realize()
        self.optimizer = self.new_optimizer(list(self.parameters.values()))
        # A captured step keeps its buffers: new parameters are captured again.
        self.train_steps = {}
        self.forward = jit(self.setup, lambda x: self.logits(x, False).realize())

    def read(self):
        return {name: tensor.numpy() for name, tensor in self.parameters.items()}

    def placed(self, *arrays):
        """Tensors with memory of their own: the captured step takes only such inputs."""
        return [Tensor(array).realize() for array in arrays]

    def _loss(self, x, y):
        # Dropout only in training.
        logits = self.logits(x, self.dropout)
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return logits, logits.sparse_categorical_crossentropy(y)

    @Context(TRAINING=1)
    def _train_step(self, x, y):
        self.optimizer.zero_grad()
        _, loss = self._loss(x, y)
        loss.backward()
        # One schedule for the loss and the update.
        return loss.realize(*self.optimizer.schedule_step())

    def probe(self, x, y):
        with Context(TRAINING=1):
            self.optimizer.zero_grad()
            logits, loss = self._loss(*self.placed(x, y))
            loss.backward()
            gradients = {name: tensor.grad.numpy() for name, tensor in self.parameters.items()}
            return logits.numpy(), float(loss.item()), gradients

    def step(self, x, y):
        placed = self.placed(x, y)
        # A captured step takes the shapes that it was captured with.
        if placed[0].shape not in self.train_steps:
            self.train_steps[placed[0].shape] = jit(self.setup, self._train_step)
        return self.train_steps[placed[0].shape](*placed)

    def updates(self):
        # SGD counts no steps. Adam has beta2^t.
        power = getattr(self.optimizer, "b2_t", None)
        return None if power is None else powers.steps(power.item())

    def value(self, loss):
        return float(np.asarray(loss.numpy()))

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        return self.forward(*self.placed(x)).numpy()


class Resident(Trained):
    """Training of the two networks on MNIST, with Adam. Their batches lie on the device before the first step."""

    def new_optimizer(self, parameters):
        # Adam's constants are explicit: defaults differ among frameworks.
        return nn.optim.Adam(parameters, lr=0.001, b1=0.9, b2=0.999, eps=1e-8)

    def inputs(self, x, y):
        return Tensor(x).realize(), Tensor(y).realize()

    def placed(self, *tensors):
        return tensors


def of_layers(layers):
    """Layer name -> layer with a weight and a bias; canonical name -> Tensor."""
    parameters = {}
    for name, layer in layers.items():
        parameters[name + ".w"], parameters[name + ".b"] = layer.weight, layer.bias
    return parameters
