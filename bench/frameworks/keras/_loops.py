"""The training step on each backend, as in Keras' guides "Writing a training loop from scratch".

step(x, y) updates the weights and returns the loss without waiting for it. probe(x, y) returns logits, loss and the gradients, in the
order of trainable_variables, as NumPy arrays. logits(x) is without dropout. skipped() is the number of steps that a loss scale skipped,
updates() that of the steps that the optimiser took. start() comes before the first step. finish() brings Keras' variables up to date.
"""

import keras

from bench.frameworks.keras import _mixed


def make(network, loss, optimizer, dropout, faster_by_xla):
    """The loop of the backend on which Keras runs.

    `dropout`: whether layers behave as in training; `faster_by_xla`: whether XLA makes TensorFlow's step faster on a CPU.
    """
    if keras.backend.backend() == "tensorflow":
        return _TensorFlow(network, loss, optimizer, dropout, faster_by_xla)
    loop = {"jax": _Jax, "torch": _Torch}[keras.backend.backend()]
    return loop(network, loss, optimizer, dropout)


class _InPlace:
    """A backend that keeps weights, moments and counts in Keras' variables themselves."""

    def set_rate(self, rate):
        self.optimizer.learning_rate = rate

    def start(self):
        self.steps.restart()

    def finish(self):
        pass

    def skipped(self):
        return self.steps.count()

    def updates(self):
        return int(self.optimizer.iterations)


class _TensorFlow(_InPlace):
    """The step is traced once and runs as a graph. On a GPU XLA compiles it, where Keras' own "auto" would: not with cuDNN's GRU.

    On a CPU XLA compiles it where that is faster.
    """

    def __init__(self, network, loss, optimizer, dropout, faster_by_xla):
        import tensorflow as tf

        self.tf, self.network, self.loss, self.optimizer, self.dropout = tf, network, loss, optimizer, dropout
        self.steps = _mixed.Skipped(optimizer)
        # Keras asks whether the machine has a GPU; the cell may be one of its CPU.
        gpu = bool(tf.config.list_logical_devices("GPU"))
        self.xla = bool(network.jit_compile) if gpu else faster_by_xla
        # Compiled, as people run it for speed.
        self.train_step = tf.function(self._train_step, jit_compile=self.xla)
        # No gradients in evaluation: they cost memory and time.
        self.forward = tf.function(lambda x: tf.cast(network(x, training=False), "float32"), jit_compile=self.xla)

    def _gradients(self, x, y):
        with self.tf.GradientTape() as tape:
            logits = self.network(x, training=self.dropout)
            # Layers may have added terms of their own; sum() of none is 0.
            loss = self.loss(y, logits) + sum(self.network.losses)
            # Without a loss scale this is the loss itself.
            scaled = self.optimizer.scale_loss(loss)
        # The gradient of an embedding is sparse, Adam's moments are dense.
        gradients = [self.tf.convert_to_tensor(g) for g in tape.gradient(scaled, self.network.trainable_variables)]
        return logits, loss, gradients

    def _train_step(self, x, y):
        _, loss, gradients = self._gradients(x, y)
        self.optimizer.apply(gradients, self.network.trainable_variables)
        return loss

    def step(self, x, y):
        self.steps.add()
        return self.train_step(self.tf.constant(x), self.tf.constant(y))

    def probe(self, x, y):
        logits, loss, gradients = self._gradients(self.tf.constant(x), self.tf.constant(y))
        gradients = _mixed.unscaled(self.optimizer, [value.numpy() for value in gradients])
        return self.tf.cast(logits, "float32").numpy(), float(loss), gradients

    def logits(self, x):
        return self.forward(self.tf.constant(x)).numpy()


class _Jax:
    """The values of Keras' variables are a state, which the jitted step takes and returns. On a GPU its memory is donated."""

    def __init__(self, network, loss, optimizer, dropout):
        import jax

        from bench.frameworks.jax.framework import donated

        self.network, self.loss, self.optimizer, self.dropout = network, loss, optimizer, dropout
        self.steps = _mixed.Skipped(optimizer)
        self.value_and_gradients = jax.value_and_grad(self._loss, has_aux=True)
        # Compiled, as people run it for speed.
        self.train_step = jax.jit(self._train_step, donate_argnums=donated(0))
        # No gradients in evaluation: they cost memory and time.
        self.forward = jax.jit(
            lambda weights, rest, x: network.stateless_call(weights, rest, x, training=False)[0].astype("float32")
        )
        self.state = None

    def _loss(self, weights, rest, moments, x, y):
        training = {"training": self.dropout, "return_losses": True}
        logits, rest, more = self.network.stateless_call(weights, rest, x, **training)
        loss = self.loss(y, logits) + sum(more)
        with keras.StatelessScope(state_mapping=list(zip(self.optimizer.variables, moments))):
            # Without a loss scale this is the loss itself.
            scaled = self.optimizer.scale_loss(loss)
        return scaled, (loss, logits.astype("float32"), rest)

    def _train_step(self, state, x, y):
        weights, rest, moments = state
        (_, (loss, _, rest)), gradients = self.value_and_gradients(weights, rest, moments, x, y)
        weights, moments = self.optimizer.stateless_apply(moments, gradients, weights)
        return (weights, rest, moments), loss

    def set_rate(self, rate):
        """The learning rate is one of the optimiser's variables, so its value is in the state."""
        self.optimizer.learning_rate = rate
        weights, rest, moments = self.state
        pairs = zip(self.optimizer.variables, moments)
        moments = [v.value if v.path.endswith("learning_rate") else value for v, value in pairs]
        self.state = weights, rest, moments

    def start(self):
        """Take the state out of Keras' variables. These are copies: the step uses the memory of its arguments again."""
        groups = (self.network.trainable_variables, self.network.non_trainable_variables, self.optimizer.variables)
        self.state = tuple([variable.value.copy() for variable in group] for group in groups)
        self.steps.restart()

    def skipped(self):
        return self.steps.count(self.updates())

    def updates(self):
        index = [variable is self.optimizer.iterations for variable in self.optimizer.variables].index(True)
        return int(self.state[2][index])

    def finish(self):
        """Put the weights and the running statistics back into Keras' variables."""
        groups = (self.network.trainable_variables, self.network.non_trainable_variables)
        for group, values in zip(groups, self.state):
            for variable, value in zip(group, values):
                variable.assign(value)

    def step(self, x, y):
        from bench.frameworks.jax.framework import started

        self.steps.add()
        self.state, loss = self.train_step(self.state, x, y)
        return started(loss)

    def probe(self, x, y):
        import numpy as np

        (_, (loss, logits, _)), gradients = self.value_and_gradients(*self.state, x, y)
        gradients = _mixed.unscaled(self.optimizer, [np.asarray(value) for value in gradients])
        return np.asarray(logits), float(loss), gradients

    def logits(self, x):
        import numpy as np

        return np.asarray(self.forward(self.state[0], self.state[1], x))


class _Torch(_InPlace):
    """A Keras model on this backend is a torch Module: backward() fills the gradients of its parameters."""

    def __init__(self, network, loss, optimizer, dropout):
        import torch

        from bench.frameworks.torch.framework import to_device

        self.torch, self.to_device = torch, to_device
        self.network, self.loss, self.optimizer, self.dropout = network, loss, optimizer, dropout
        self.steps = _mixed.Skipped(optimizer)
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")

    def _placed(self, *arrays):
        """Arrays as tensors on the device. Tensors lie there already."""
        return arrays if isinstance(arrays[0], self.torch.Tensor) else self.to_device(self.device, *arrays)

    def _backward(self, x, y):
        x, y = self._placed(x, y)
        logits = self.network(x, training=self.dropout)
        loss = self.loss(y, logits) + sum(self.network.losses)
        self.network.zero_grad()
        # Without a loss scale this is the loss itself.
        self.optimizer.scale_loss(loss).backward()
        return logits, loss, [variable.value.grad for variable in self.network.trainable_variables]

    def step(self, x, y):
        self.steps.add()
        _, loss, gradients = self._backward(x, y)
        with self.torch.no_grad():
            self.optimizer.apply(gradients, self.network.trainable_variables)
        return loss

    def probe(self, x, y):
        logits, loss, gradients = self._backward(x, y)
        gradients = _mixed.unscaled(self.optimizer, [value.cpu().numpy() for value in gradients])
        return logits.detach().float().cpu().numpy(), loss.item(), gradients

    def logits(self, x):
        # No gradients in evaluation: they cost memory and time.
        with self.torch.no_grad():
            return self.network(*self._placed(x), training=False).float().cpu().numpy()
