"""The training loop of a MindSpore Cell: gradients of a function, one compiled step."""

import mindspore as ms
from mindspore import Parameter, Tensor, mint, nn

from bench import contract
from bench.frameworks.mindspore.framework import compiled


def cross_entropy(logits, labels):
    """(N, C), (N,) -> the mean cross-entropy. The loss takes logits: there is exactly one softmax. Labels are class numbers.

    It is written out, in float64, which costs nothing for so few numbers. mint.nn.functional.cross_entropy calls oneDNN on a CPU, whose
    approximate exponential is wrong by 4e-6 (measured with 2.10.0), ten times float32's own error.
    """
    shifted = (logits - mint.max(logits, 1, True)[0]).astype(ms.float64)
    chosen = mint.gather(shifted, 1, mint.unsqueeze(labels, 1).astype(ms.int64))
    return mint.mean(mint.log(mint.sum(mint.exp(shifted), 1)) - mint.squeeze(chosen, 1))


class Trained(contract.Training):
    """A Cell and its optimiser. A subclass gives NAMES (canonical name -> MindSpore's) and new_optimizer(parameters)."""

    def __init__(self, setup, network):
        ms.set_seed(setup.seed)
        self.network, self.setup = network, setup
        # Dropout only in training.
        network.set_train(setup.training)
        by_name = {parameter.name: parameter for parameter in network.trainable_params()}
        self.parameters = {name: by_name[own] for name, own in self.NAMES.items()}
        self.optimizer = self.train_step = None

        def loss_of(x, y):
            logits = network(x)
            return cross_entropy(logits, y), logits

        self.gradients = ms.value_and_grad(loss_of, None, list(self.parameters.values()), has_aux=True)

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            parameter.set_data(Tensor(parameters[name].copy()))
        optimizer, gradients = self.new_optimizer(list(self.parameters.values())), self.gradients

        def train_step(x, y):
            (loss, _), changes = gradients(x, y)
            optimizer(changes)
            return loss

        # Compiled, as people run it for speed.
        self.train_step = compiled(self.setup, train_step)

    def read(self):
        return {name: parameter.asnumpy() for name, parameter in self.parameters.items()}

    def inputs(self, x, y):
        return x, y

    def probe(self, x, y):
        (loss, logits), gradients = self.gradients(Tensor(x), Tensor(y))
        return logits.asnumpy(), float(loss.asnumpy()), dict(zip(self.parameters, (g.asnumpy() for g in gradients)))

    def step(self, x, y):
        return self.train_step(Tensor(x), Tensor(y))

    def value(self, loss):
        return float(loss.asnumpy())

    def predict(self, x):
        self.network.set_train(False)
        # No gradients in evaluation: they cost memory and time.
        logits = self.network(Tensor(x)).asnumpy()
        self.network.set_train(self.setup.training)
        return logits


class Adam(nn.Cell):
    """Adam as in the paper's algorithm 1.

    MindSpore's kernel adds epsilon to the uncorrected root of the second moment ("epsilon hat"). construct() gives the kernel an epsilon
    that makes both equal.
    """

    def __init__(self, parameters, rate, beta1, beta2, epsilon):
        super().__init__()
        self.parameters = ms.ParameterTuple(parameters)
        self.m = self.parameters.clone("m", init="zeros")
        self.v = self.parameters.clone("v", init="zeros")
        self.power1, self.power2 = (Parameter(Tensor(1.0, ms.float32), name="power%d" % n) for n in (1, 2))
        self.rate, self.beta1, self.beta2, self.epsilon = rate, beta1, beta2, epsilon
        self.kernel = ms.ops.Adam()

    def construct(self, gradients):
        self.power1 *= self.beta1
        self.power2 *= self.beta2
        epsilon = self.epsilon * mint.sqrt(1 - self.power2)
        for index in range(len(self.parameters)):
            self.kernel(
                *(self.parameters[index], self.m[index], self.v[index], self.power1, self.power2),
                *(self.rate, self.beta1, self.beta2, epsilon, gradients[index]),
            )
        return self.power1
