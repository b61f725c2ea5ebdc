"""What the workloads do with a Paddle Layer: load, step, read."""

import paddle
import paddle.nn.functional as F

from bench.frameworks.paddle.framework import compiled


class Trained:
    """A Layer and its optimiser. NAMES of a subclass: canonical name -> (Paddle's name, whether it lies transposed there)."""

    def __init__(self, setup, network):
        self.network = network
        self.forward = compiled(setup, network)
        self.optimizer = None

    def load(self, parameters):
        own = {
            theirs: parameters[name].T if turned else parameters[name] for name, (theirs, turned) in self.NAMES.items()
        }
        self.network.set_state_dict(own)
        self.optimizer = self.new_optimizer(self.network.parameters())

    def read(self):
        return self._read(lambda parameter: parameter)

    def inputs(self, x, y):
        return x, y.astype("int64")

    def placed(self, *arrays):
        return [paddle.to_tensor(array) for array in arrays]

    def _backward(self, x, y):
        x, y = self.placed(x, y)
        logits = self.forward(x)
        loss = F.cross_entropy(logits, y)  # A7, A19: logits, sparse labels
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        self.network.train()
        logits, loss = self._backward(x, y)
        gradients = self._read(lambda parameter: parameter.grad)
        self.optimizer.clear_grad()
        return logits.numpy(), float(loss), gradients

    def step(self, x, y):
        self.network.train()
        _, loss = self._backward(x, y)
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss

    def value(self, loss):
        return float(loss)

    @paddle.no_grad()  # A21
    def predict(self, x):
        self.network.eval()
        return self.forward(*self.placed(x)).numpy()

    def _read(self, of):
        found = dict(self.network.named_parameters())
        arrays = {name: of(found[theirs]).numpy() for name, (theirs, _) in self.NAMES.items()}
        return {name: value.T if self.NAMES[name][1] else value for name, value in arrays.items()}


class Resident(Trained):
    """Batches that lie on the device before the first step, and Adam: the networks on MNIST."""

    def new_optimizer(self, parameters):
        # C9: every constant set; Paddle adds epsilon where the paper's algorithm 1 does
        return paddle.optimizer.Adam(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, parameters=parameters)

    def inputs(self, x, y):
        return paddle.to_tensor(x), paddle.to_tensor(y.astype("int64"))

    def placed(self, *tensors):
        return tensors
