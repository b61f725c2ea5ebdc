"""The IMDB network in Gluon: Embedding, rnn.GRU, Dense, a Trainer with Adam.

Idiomatic here: rnn.GRU is one fused operator, cuDNN's on a GPU. Its gates are stacked r, z, n with two biases, the specification's own
form: the reset gate is applied after the product. Layout NTC keeps the data's order; time first (TNC) would be slightly faster, and is
not compared. The network is one HybridBlock, so that all of it is one graph.
"""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")
from bench import contract
from bench.frameworks.mxnet._loss import SoftmaxCrossEntropy
from bench.frameworks.mxnet.framework import contexts, kvstore


class Network(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            # The embedding's gradient is dense.
            self.embedding = nn.Embedding(30000, 125)
            self.gru = rnn.GRU(100, layout="NTC", input_size=125)
            self.dense = nn.Dense(2, in_units=100)

    def hybrid_forward(self, F, x):
        # The first state is zero and not trained.
        states = self.gru(self.embedding(x))
        # The output of the last position.
        return self.dense(F.slice_axis(states, axis=1, begin=-1, end=None))


class Training(contract.Training):
    def __init__(self, setup):
        mx.random.seed(setup.seed)
        self.contexts = contexts(setup)
        self.context = self.contexts[0]
        self.network = Network()
        # load() sets the values.
        self.network.initialize(mx.init.Zero(), ctx=self.contexts)
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss = SoftmaxCrossEntropy()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        gru = self.network.gru
        self.parameters = {
            "embedding": self.network.embedding.weight,
            "gru.w": gru.l0_i2h_weight,
            "gru.b": gru.l0_i2h_bias,
            "gru.u": gru.l0_h2h_weight,
            "gru.c": gru.l0_h2h_bias,
            "dense.w": self.network.dense.weight,
            "dense.b": self.network.dense.bias,
        }
        self.trainer = None

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            parameter.set_data(parameters[name])
        # Adam's constants are explicit: defaults differ among frameworks.
        adam = {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
        self.trainer = gluon.Trainer(self.network.collect_params(), "exactadam", adam, kvstore=kvstore(self.contexts))

    def read(self):
        return {name: parameter.data(self.context).asnumpy() for name, parameter in self.parameters.items()}

    def _backward(self, x, y):
        x, y = mx.nd.array(x, ctx=self.context, dtype="int32"), mx.nd.array(y, ctx=self.context)
        with autograd.record():
            logits = self.network(x)
            loss = self.loss(logits, y)
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        # backward() of a vector of losses gives the gradient of their sum.
        gradients = {name: p.grad(self.context).asnumpy() / len(x) for name, p in self.parameters.items()}
        return logits.asnumpy(), float(loss.mean().asscalar()), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        # step() divides the gradient by the batch.
        self.trainer.step(len(x))
        return loss

    def updates(self):
        return self.trainer.optimizer.num_update

    def value(self, loss):
        return float(loss.mean().asscalar())

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        return self.network(mx.nd.array(x, ctx=self.context, dtype="int32")).asnumpy()
