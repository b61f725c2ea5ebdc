"""Several devices in Chainer: ChainerMN, a process a device over MPI.

Idiomatic here: create_multi_node_optimizer around the adapter's own optimiser, and the communicator that ChainerMN's documentation names:
pure_nccl on GPUs, naive on CPUs.
"""

from bench.errors import Unsupported
from bench.frameworks.chainer import framework


class Link(object):
    """This process's place among the others; mpiexec has brought them together. MPI knows no patience: mpiexec ends all when one fails."""

    def __init__(self, setup, meeting, patience_seconds):
        try:
            import chainermn

            self._communicator = chainermn.create_communicator("pure_nccl" if setup.device == "cuda" else "naive")
        except (ImportError, RuntimeError) as error:
            raise Unsupported("ChainerMN needs mpi4py and an MPI library, and on GPUs NCCL: %s" % error)
        framework.join(self._communicator)

    def gather(self, value):
        """The value that each process gives, in their order. Values are whatever can be pickled."""
        return self._communicator.mpi_comm.allgather(value)

    def leave(self):
        self._communicator.mpi_comm.Barrier()
