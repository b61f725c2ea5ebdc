"""The IMDB network in MindSpore: Embedding, GRU, Dense, Adam, the step compiled as one graph.

Idiomatic here: nn.GRU is cuDNN's fused GRU on a GPU and a loop in the graph on a CPU. Its gates are stacked r, z, n with two biases, as
in the specification.
"""

import mindspore as ms
from mindspore import Parameter, Tensor, mint, nn

from bench import contract, powers
from bench.frameworks.mindspore._loss import cross_entropy
from bench.frameworks.mindspore.framework import compiled

# canonical name -> MindSpore's
NAMES = {
    "embedding": "embedding.embedding_table",
    "gru.w": "gru.weight_ih_l0",
    "gru.b": "gru.bias_ih_l0",
    "gru.u": "gru.weight_hh_l0",
    "gru.c": "gru.bias_hh_l0",
    "dense.w": "dense.weight",
    "dense.b": "dense.bias",
}


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30000, 125)
        self.gru = nn.GRU(125, 100, batch_first=True)
        self.dense = nn.Dense(100, 2)

    def construct(self, x):
        # The first state is zero and not trained.
        _, last = self.gru(self.embedding(x))
        # The output of the last position, which may be padding.
        return self.dense(last[0])


class Training(contract.Training):
    def __init__(self, setup):
        ms.set_seed(setup.seed)
        self.setup, self.network = setup, Network()
        own = {parameter.name: parameter for parameter in self.network.trainable_params()}
        self.parameters = {name: own[NAMES[name]] for name in NAMES}
        self.gradients = ms.value_and_grad(self._loss, None, list(self.parameters.values()), has_aux=True)
        self.optimizer = self.train_step = None

    def _loss(self, x, y):
        logits = self.network(x)
        return cross_entropy(logits, y), logits

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            # In place: `set_data` gives it other memory, and the gradients that `probe` has traced go on with the old one.
            ms.ops.assign(parameter, Tensor(parameters[name].copy()))
        # Adam's constants are explicit: defaults differ among frameworks.
        optimizer = Adam(list(self.parameters.values()), 0.001, 0.9, 0.999, 1e-8)
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
        # The Adam below counts no steps. It has beta2^t.
        return powers.steps(self.optimizer.power2.asnumpy())

    def value(self, loss):
        return float(loss.asnumpy())

    def predict(self, x):
        # No gradients in evaluation: they cost memory and time.
        return self.network(Tensor(x)).asnumpy()


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
