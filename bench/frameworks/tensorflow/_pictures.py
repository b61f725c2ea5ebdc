"""Training of the deep networks on pictures, whose normalisations keep running statistics."""

import numpy as np
import tensorflow as tf

from bench import batch_norm, contract
from bench.frameworks.tensorflow._layouts import canonical, to_own
from bench.frameworks.tensorflow.framework import function

# Each replica updates running statistics of its own. Outside the replicas their mean is read.
RUNNING = {
    "trainable": False,
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.MEAN,
}


class Trained(contract.Training):
    """A subclass has loss(logits, y)."""

    def __init__(self, network, channels_first, optimizer):
        """network: called as network(x, training); `p` is canonical name -> variable, `trained` the names of those with a gradient."""
        self.network, self.channels_first, self.optimizer = network, channels_first, optimizer
        self.variables = [network.p[name] for name in network.trained]
        # Traced at the first call and compiled to a graph, as people run it for speed.
        self.loss_and_gradients, self.train_step = function(self._loss_and_gradients), function(self._train_step)
        self.logits = function(self._logits)

    def load(self, parameters):
        for name, value in parameters.items():
            self.network.p[name].assign(to_own(value))
        self.optimizer.restart()

    def set_rate(self, rate):
        self.optimizer.rate.assign(rate)

    def read(self):
        return {name: canonical(variable.numpy()) for name, variable in self.network.p.items()}

    def inputs(self, x, y):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return (x if self.channels_first else np.ascontiguousarray(x.transpose(0, 2, 3, 1))), y

    def _loss_and_gradients(self, x, y):
        with tf.GradientTape() as tape:
            logits = self.network(x, training=True)
            # A replica's share of the mean over the whole batch.
            loss = self.loss(logits, y) / tf.distribute.get_strategy().num_replicas_in_sync
        return logits, loss, tape.gradient(loss, self.variables)

    def _train_step(self, x, y):
        _, loss, gradients = self._loss_and_gradients(x, y)
        self.optimizer.apply(gradients)
        return loss

    # No gradients in evaluation: they cost memory and time.
    def _logits(self, x):
        return self.network(x, training=False)

    def probe(self, x, y):
        logits, loss, gradients = self.loss_and_gradients(tf.constant(x), tf.constant(y))
        gradients = {name: canonical(value.numpy()) for name, value in zip(self.network.trained, gradients)}
        return logits.numpy(), float(loss), gradients

    def step(self, x, y):
        return self.train_step(tf.constant(x), tf.constant(y))

    def predict(self, x):
        return self.logits(tf.constant(x)).numpy()


class Optimizer(tf.Module):
    """Each variable has some slots, which begin at zero. A subclass has update(variable, gradient, rate, *slots, *more)."""

    def __init__(self, variables, rate, slots):
        super().__init__()
        self.rate, self.variables_ = tf.Variable(rate, False), variables
        self.slots = [[tf.Variable(tf.zeros_like(variable), False) for _ in range(slots)] for variable in variables]

    def restart(self):
        for slots in self.slots:
            for slot in slots:
                slot.assign(tf.zeros_like(slot))

    def apply(self, gradients, *more):
        """Every replica calls it with the gradients of its share of the loss. more: further arguments of update()."""
        tf.distribute.get_replica_context().merge_call(self._apply, args=(gradients,) + more)

    def _apply(self, strategy, gradients, *more):
        sums = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, list(zip(gradients, self.variables_)))
        for gradient, variable, slots in zip(sums, self.variables_, self.slots):
            strategy.extended.update(variable, self.update, args=(gradient, self.rate) + tuple(slots) + more)


def own_variable(spec):
    """The variable of a Parameter; its values are zero until load()."""
    options = RUNNING if spec.kind in batch_norm.STATISTICS else {}
    return tf.Variable(to_own(np.zeros(spec.shape, np.float32)), **options)


def trained(parameters):
    """The names of the parameters with a gradient, in the specification's order. tf.Module would sort them by name."""
    return [spec.name for spec in parameters if spec.kind not in batch_norm.STATISTICS]


def normalised_in_training(x, scale, offset, mean, variance, order):
    """Normalise by the batch's mean and variance, and update the running ones."""
    y, *batch = tf.compat.v1.nn.fused_batch_norm(
        x, scale, offset, epsilon=batch_norm.EPSILON, data_format=order, is_training=True
    )
    for running, current in zip((mean, variance), batch):
        running.assign_sub(batch_norm.STEP * (running - current))
    return y
