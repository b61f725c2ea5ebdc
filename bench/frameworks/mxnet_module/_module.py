"""The training loop of a Module: bind it, load, read, step, probe, predict."""

import mxnet as mx
from mxnet.io import DataBatch, DataDesc

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")
from bench import contract

BATCH = 64


class Trained(contract.Training):
    """A Symbol of logits under a softmax, trained by a Module.

    A subclass has NAMES (canonical name -> the Symbol's argument) and OPTIMIZER (its name and its options).
    """

    # "null": SoftmaxOutput gives the gradient of the losses' sum. The optimiser divides it by the batch, probe() by `divisor`.
    NORMALIZATION, divisor = "null", BATCH

    def __init__(self, context, logits, shape, dtype):
        self.context, self.dtype = context, dtype
        # SoftmaxOutput is softmax and the cross-entropy's gradient in one: there is exactly one softmax. Labels as class numbers.
        # The second output, the logits, passes no gradient back.
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
        return {name: own[argument] for name, argument in self.NAMES.items()}

    def _batch(self, x, y):
        label = None if y is None else [mx.nd.array(y, ctx=self.context)]
        return DataBatch([mx.nd.array(x, ctx=self.context, dtype=self.dtype)], label)

    def probe(self, x, y):
        batch = self._batch(x, y)
        self.module.forward_backward(batch)
        probabilities, logits = self.module.get_outputs()
        # Module has no function for the gradients. Its executors hold them, one array for each device.
        executors = self.module._exec_group
        arrays = dict(zip(executors.param_names, executors.grad_arrays))
        gradients = {name: of_devices[0].asnumpy() / self.divisor for name, of_devices in arrays.items()}
        return logits.asnumpy(), self.value((probabilities, batch.label[0])), self.canonical(gradients)

    def step(self, x, y):
        batch = self._batch(x, y)
        self.module.forward_backward(batch)
        self.module.update()
        return self.module.get_outputs()[0], batch.label[0]

    def updates(self):
        # Module has no function for its optimiser.
        return self.module._optimizer.num_update

    def value(self, loss):
        """The mean cross-entropy, from the probabilities of the step."""
        probabilities, labels = loss
        return float(-mx.nd.log(mx.nd.pick(probabilities, labels)).mean().asscalar())

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        self.module.forward(self._batch(x, None), is_train=False)
        return self.module.get_outputs()[1].asnumpy()


class Resident(Trained):
    """Training of the two networks on MNIST, with Adam. Their batches lie on the device before the first step.

    A Module binds itself again if the number of rows changes. So the Symbol divides the gradient by the rows (NORMALIZATION), and the
    optimiser does not.
    """

    NORMALIZATION, divisor = "batch", 1

    # Adam's constants are explicit: defaults differ among frameworks.
    OPTIMIZER = (
        "exactadam",
        {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "rescale_grad": 1.0},
    )

    def inputs(self, x, y):
        return mx.nd.array(x, ctx=self.context), mx.nd.array(y, ctx=self.context)

    def _batch(self, x, y):
        # Evaluation has no labels, but a Module needs some to bind itself again.
        return DataBatch([x], [mx.nd.zeros(len(x), ctx=self.context) if y is None else y])


def layer_names(*layers):
    """NAMES of layers with a weight and a bias."""
    ends = ((".w", "_weight"), (".b", "_bias"))
    return {layer + canonical: layer + own for layer in layers for canonical, own in ends}
