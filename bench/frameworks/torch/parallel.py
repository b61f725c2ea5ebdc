"""Several devices in PyTorch: a process a device, DistributedDataParallel (bench.frameworks.torch.framework.compiled).

Idiomatic here: PyTorch's documentation advises a process a device, not DataParallel's threads. DistributedDataParallel reduces its buckets
of gradients while backward() still computes: NCCL on GPUs, gloo on CPUs. Everything else between the processes goes over gloo.
"""

import datetime
import os

import torch.distributed as distributed


class Link(object):
    """This process's connection to the others. `meeting` is the path of a file that does not exist yet, the same for all."""

    def __init__(self, setup, meeting, patience_seconds):
        # All processes run on this machine, and our containers have no other network.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        patience = datetime.timedelta(seconds=patience_seconds)
        distributed.init_process_group(
            "nccl" if setup.device == "cuda" else "gloo",
            init_method="file://" + meeting,
            rank=setup.rank,
            world_size=setup.devices,
            timeout=patience,
        )
        self._words = distributed.new_group(backend="gloo", timeout=patience)
        self._count = setup.devices

    def gather(self, value):
        """The values of all processes, in the order of their ranks. A value is anything that can be pickled."""
        values = [None] * self._count
        distributed.all_gather_object(values, value, group=self._words)
        return values

    def leave(self):
        distributed.destroy_process_group()
