"""Several devices in JAX: one process and a mesh of them; the step stays what it is.

Idiomatic here: the batch is laid over the mesh, parameters and the optimiser's state are put on every device, and jit divides the same step
among them: the mean over the batch becomes an all-reduce (JAX's "Distributed arrays and automatic parallelization"; pmap is older).
On a CPU the devices are XLA's virtual ones, which share its threads.
"""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# What an adapter of JAX keeps from step to step, under these names.
KEPT = ("parameters", "state", "key")


def build(adapter_class, setup):
    return Spread(adapter_class(setup), setup.devices)


class Spread:
    """An adapter on several devices: whole batches in, and what comes out is of the whole batch."""

    def __init__(self, training, devices):
        mesh = Mesh(np.array(jax.devices()[:devices]), ("batch",))
        self.parted, self.whole = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
        self.training = training
        self.read, self.inputs, self.value = training.read, training.inputs, training.value

    def load(self, parameters):
        self.training.load(parameters)
        for name in KEPT:
            if getattr(self.training, name, None) is not None:
                setattr(self.training, name, jax.device_put(getattr(self.training, name), self.whole))

    def probe(self, x, y):
        return self.training.probe(*jax.device_put((x, y), self.parted))

    def step(self, x, y):
        return self.training.step(*jax.device_put((x, y), self.parted))

    def predict(self, x):
        return self.training.predict(jax.device_put(x, self.parted))
