"""Several devices in JAX: one process and a mesh of them; the step stays what it is.

Idiomatic here: the batch is laid over the mesh, parameters and the optimiser's state are put on every device, and jit divides the same step
among them: the mean over the batch becomes an all-reduce (JAX's "Distributed arrays and automatic parallelization"; pmap is older).
On a CPU the devices are XLA's virtual ones, which share its threads.
"""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# What an adapter of JAX keeps from step to step, under these names.
KEPT = ("parameters", "statistics", "state", "key")


def build(adapter_class, setup):
    return Spread(adapter_class(setup), setup.devices)


def mesh(devices):
    return Mesh(np.array(jax.devices()[:devices]), ("batch",))


def of_each_part(function, devices, inputs, outputs):
    """function, as each device computes it of its own part of the batch; inside, jax.lax.pmean(_, "batch") is the mean over them.

    inputs, outputs: for each argument and result whether it is of the batch, or the same on every device. For what is not a sum or a mean
    over the batch, which jit would divide among the devices by itself.
    """

    def laid(parted):
        return jax.tree.map(lambda one: PartitionSpec("batch") if one else PartitionSpec(), parted)

    where = {"mesh": mesh(devices), "in_specs": laid(inputs), "out_specs": laid(outputs)}
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, check_vma=False, **where)
    from jax.experimental.shard_map import shard_map  # before JAX 0.6

    return shard_map(function, check_rep=False, **where)


class Spread:
    """An adapter on several devices: whole batches in, and what comes out is of the whole batch."""

    def __init__(self, training, devices):
        all_of_them = mesh(devices)
        self.parted = NamedSharding(all_of_them, PartitionSpec("batch"))
        self.whole = NamedSharding(all_of_them, PartitionSpec())
        self.training = training
        self.read, self.inputs, self.value = training.read, training.inputs, training.value
        if hasattr(training, "set_rate"):
            self.set_rate = training.set_rate

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
