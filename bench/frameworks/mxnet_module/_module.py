"""What the workloads do with a Module: bind, load, step, read."""

import mxnet as mx
from mxnet.io import DataBatch, DataDesc

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")

BATCH = 64


class Trained(object):
    """A Symbol of logits under a softmax, trained by a Module.

    A subclass gives NAMES (canonical name -> the Symbol's argument) and OPTIMIZER (its name and its options).
    """

    # what a gradient is divided by after the backward pass
    divisor = BATCH
    NORMALIZATION = "null"  # SoftmaxOutput gives the gradient of the losses' sum; the optimiser divides it by the batch

    def __init__(self, context, logits, shape, dtype):
        self.context, self.dtype = context, dtype
        # Two outputs: the probabilities, whose backward is the cross-entropy's gradient, and the logits, which pass no gradient back.
        loss = mx.sym.SoftmaxOutput(logits, name="softmax", normalization=self.NORMALIZATION)
        both = mx.sym.Group([loss, mx.sym.BlockGrad(logits)])
        self.module = mx.mod.Module(both, ["data"], ["softmax_label"], context=context)
        label = DataDesc("softmax_label", shape[:1])
        self.module.bind([DataDesc("data", shape, dtype)], [label])
        self.labels = None

    def load(self, parameters):
        own = {self.NAMES[name]: mx.nd.array(value) for name, value in parameters.items()}
        self.module.init_params(arg_params=own, force_init=True)
        name, options = self.OPTIMIZER
        self.module.init_optimizer(kvstore=None, optimizer=name, optimizer_params=dict(options), force_init=True)

    def read(self):
        return self.canonical({name: value.asnumpy() for name, value in self.module.get_params()[0].items()})

    def canonical(self, own):
        return {name: own[theirs] for name, theirs in self.NAMES.items()}

    def inputs(self, x, y):
        return x, y

    def _batch(self, x, y):
        label = None if y is None else [mx.nd.array(y, ctx=self.context)]
        return DataBatch([mx.nd.array(x, ctx=self.context, dtype=self.dtype)], label)

    def probe(self, x, y):
        batch = self._batch(x, y)
        self.module.forward_backward(batch)
        probabilities, logits = self.module.get_outputs()
        executors = self.module._exec_group  # Module tells no gradients; its executors hold them, one for each device
        gradients = {
            name: held[0].asnumpy() / self.divisor for name, held in zip(executors.param_names, executors.grad_arrays)
        }
        return logits.asnumpy(), self.value((probabilities, batch.label[0])), self.canonical(gradients)

    def step(self, x, y):
        batch = self._batch(x, y)
        self.module.forward_backward(batch)
        self.module.update()
        return self.module.get_outputs()[0], batch.label[0]

    def value(self, loss):
        """The mean cross-entropy, from the probabilities that the step has left."""
        probabilities, labels = loss
        return float(-mx.nd.log(mx.nd.pick(probabilities, labels)).mean().asscalar())

    def predict(self, x):
        # as many rows as were bound; A21: no gradients
        self.module.forward(self._batch(x, None), is_train=False)
        return self.module.get_outputs()[1].asnumpy()


class Resident(Trained):
    """Batches that lie on the device before the first step, and Adam: the networks on MNIST.

    A Module that is bound to one number of rows binds itself again to another. So the gradient is divided by the rows in the Symbol
    (normalization), and not by the optimiser.
    """

    divisor, NORMALIZATION = 1, "batch"

    # C9: every constant set
    OPTIMIZER = (
        "exactadam",
        {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "rescale_grad": 1.0},
    )

    def inputs(self, x, y):
        return mx.nd.array(x, ctx=self.context), mx.nd.array(y, ctx=self.context)

    def _batch(self, x, y):
        # evaluation has no labels, and a Module that binds itself again wants some
        return DataBatch([x], [mx.nd.zeros(len(x), ctx=self.context) if y is None else y])
