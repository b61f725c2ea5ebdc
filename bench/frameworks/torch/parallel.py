"""Several devices in PyTorch: a process a device, DistributedDataParallel (bench.frameworks.torch.framework.compiled).

Idiomatic here: one process a device rather than DataParallel's threads, as PyTorch's documentation advises; its buckets are reduced while
backward() still computes. NCCL reduces on GPUs, gloo on CPUs; what the processes tell each other beside gradients goes over gloo.
"""

import datetime
import os

import torch.distributed as distributed


class Link(object):
    """This process's place among the others. `meeting` is a path that all of them know and none has made."""

    def __init__(self, setup, meeting, patience_seconds):
        # All processes are of this machine, and a container of ours has no other network.
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
        """The value that each process gives, in their order. Values are whatever can be pickled."""
        found = [None] * self._count
        distributed.all_gather_object(found, value, group=self._words)
        return found

    def leave(self):
        distributed.destroy_process_group()
