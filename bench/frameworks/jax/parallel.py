"""Several devices in JAX: one process, a mesh of devices, and the same step.

Idiomatic here: the batch is divided over the mesh; the parameters and the optimiser's state lie on every device. jit divides the step
among the devices: the mean over the batch becomes an all-reduce (JAX's "Distributed arrays and automatic parallelization"; pmap is
older). On a CPU the devices are XLA's virtual ones, which share its threads.
"""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bench import contract

# The attributes in which an adapter keeps values from step to step.
KEPT = ("parameters", "statistics", "state", "key")


def build(adapter_class, setup):
    return Spread(adapter_class(setup), setup.devices)


def mesh(devices):
    return Mesh(np.array(jax.devices()[:devices]), ("batch",))


def of_each_part(function, devices, inputs, outputs):
    """The function, computed by every device for its own part of the batch. Inside, jax.lax.pmean(_, "batch") is the mean over devices.

    inputs, outputs: for every argument and result, whether it is divided with the batch; else it is the same on every device. jit alone
    divides sums and means over the batch; this is for everything else.
    """

    def specifications(divided):
        return jax.tree.map(lambda is_divided: PartitionSpec("batch") if is_divided else PartitionSpec(), divided)

    where = {"mesh": mesh(devices), "in_specs": specifications(inputs), "out_specs": specifications(outputs)}
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, check_vma=False, **where)
    # JAX before 0.6
    from jax.experimental.shard_map import shard_map

    return shard_map(function, check_rep=False, **where)


class Spread(contract.Wrapper):
    """An adapter on several devices. Its batches and results are those of the whole batch."""

    def __init__(self, training, devices):
        super().__init__(training)
        all_of_them = mesh(devices)
        self.parted = NamedSharding(all_of_them, PartitionSpec("batch"))
        self.whole = NamedSharding(all_of_them, PartitionSpec())

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
