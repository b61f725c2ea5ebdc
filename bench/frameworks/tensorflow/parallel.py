"""Several devices in TensorFlow: one process, MirroredStrategy.

Idiomatic here: variables are made in the strategy's scope. Each replica computes its part of the batch inside strategy.run. There Keras 3
divides a replica's loss by the number of replicas, and its optimisers add up the gradients (Keras' scale_loss_for_distribution).
On a CPU the devices are logical: they share the threads.
"""

import tensorflow as tf

from bench import contract
from bench.errors import Unsupported

# number of devices -> its only strategy: two strategies would give their all-reduces the same numbers
_strategies = {}


def build(adapter_class, setup):
    strategy = strategy_of(setup)
    with strategy.scope():
        training = adapter_class(setup)
    return Mirrored(training, strategy)


def strategy_of(setup):
    """The MirroredStrategy of this cell's devices. Raises Unsupported."""
    if setup.mode != "default":
        raise Unsupported("mode %r uses one device here: XLA does not compile a MirroredStrategy's steps" % setup.mode)
    if setup.devices not in _strategies:
        kind = "GPU" if setup.device == "cuda" else "CPU"
        names = ["/%s:%d" % (kind, index) for index in range(setup.devices)]
        _strategies[setup.devices] = tf.distribute.MirroredStrategy(names)
    return _strategies[setup.devices]


class Mirrored(contract.Wrapper):
    """An adapter on several devices: it takes whole batches and returns the results of whole batches."""

    def __init__(self, training, strategy):
        super().__init__(training)
        self.strategy = strategy
        # The adapter's probe() calls this one.
        training.loss_and_gradients = self.loss_and_gradients
        self.train_step, self.logits = tf.function(self._train_step), tf.function(self._logits)
        self.replicas_gradients = tf.function(self._replicas_gradients)

    def load(self, parameters):
        with self.strategy.scope():
            self.training.load(parameters)

    def step(self, x, y):
        return self.train_step(self.parted(x), self.parted(y))

    def predict(self, x):
        return self.logits(self.parted(x)).numpy()

    def loss_and_gradients(self, x, y):
        return self.replicas_gradients(self.parted(x), self.parted(y))

    def parted(self, batch):
        """Each replica's part of the batch, copied to its device."""
        size = len(batch) // self.strategy.num_replicas_in_sync

        def part(replica):
            index = replica.replica_id_in_sync_group
            # The function runs in no replica's scope: without this every part would go to the first GPU, and from there to the others.
            with tf.device(self.strategy.extended.worker_devices[index]):
                return tf.constant(batch[index * size : (index + 1) * size])

        return self.strategy.experimental_distribute_values_from_function(part)

    def added(self, values):
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)

    def _train_step(self, x, y):
        return self.added(self.strategy.run(self.training._train_step, (x, y)))

    def _replicas_gradients(self, x, y):
        def replica(x, y):
            logits, loss, gradients = self.training._loss_and_gradients(x, y)
            return logits, loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

        logits, loss, gradients = self.strategy.run(replica, (x, y))
        return self.strategy.gather(logits, axis=0), self.added(loss), [self.added(gradient) for gradient in gradients]

    def _logits(self, x):
        return self.strategy.gather(self.strategy.run(self.training._logits, (x,)), axis=0)
