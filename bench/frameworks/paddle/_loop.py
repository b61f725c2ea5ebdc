"""The training loop of a Paddle Layer with Adam. cnn_cifar10.py has all of it in one file."""

import paddle
import paddle.nn.functional as F

from bench import contract, powers
from bench.frameworks.paddle.framework import compiled


class Trained(contract.Training):
    """A subclass has new_optimizer(parameters) and NAMES: canonical name -> (Paddle's name, whether Paddle has it transposed)."""

    def __init__(self, setup, network):
        self.network = network
        self.forward = compiled(setup, network)
        self.optimizer = None

    def load(self, parameters):
        state = {}
        for name, (paddle_name, transposed) in self.NAMES.items():
            state[paddle_name] = parameters[name].T if transposed else parameters[name]
        self.network.set_state_dict(state)
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
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        loss = F.cross_entropy(logits, y)
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

    def updates(self):
        # Adam counts no steps. It has beta2^(t + 1) for each parameter, from its first step on.
        state = self.optimizer.state_dict()
        kept = [value.numpy().item() / 0.999 for name, value in state.items() if "beta2_pow_acc" in name]
        return powers.steps(max(kept)) if kept else 0

    # No gradients in evaluation: they cost memory and time.
    @paddle.no_grad()
    def predict(self, x):
        self.network.eval()
        return self.forward(*self.placed(x)).numpy()

    def _read(self, of):
        tensors = dict(self.network.named_parameters())
        arrays = {name: of(tensors[paddle_name]).numpy() for name, (paddle_name, _) in self.NAMES.items()}
        return {name: value.T if self.NAMES[name][1] else value for name, value in arrays.items()}


class Resident(Trained):
    """Training of the two networks on MNIST, with Adam. Their batches lie on the device before the first step."""

    def new_optimizer(self, parameters):
        # Adam's constants are explicit: defaults differ among frameworks. Paddle adds epsilon as the paper's algorithm 1 does.
        return paddle.optimizer.Adam(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, parameters=parameters)

    def inputs(self, x, y):
        return paddle.to_tensor(x), paddle.to_tensor(y.astype("int64"))

    def placed(self, *tensors):
        return tensors
