"""Several devices in Chainer: ChainerMN, with one process for each device, over MPI.

Idiomatic here: create_multi_node_optimizer wraps the adapter's own optimiser. The communicators are those of ChainerMN's documentation:
pure_nccl on GPUs, naive on CPUs.
"""

from bench.errors import Unsupported
from bench.frameworks.chainer import framework


class Link(object):
    """This process among the others. mpiexec has started all of them. MPI has no time limit: mpiexec ends all when one fails."""

    def __init__(self, setup, meeting, patience_seconds):
        try:
            import chainermn

            self._communicator = chainermn.create_communicator("pure_nccl" if setup.device == "cuda" else "naive")
        except (ImportError, RuntimeError) as error:
            raise Unsupported("ChainerMN needs mpi4py and an MPI library, and on GPUs NCCL: %s" % error)
        framework.join(self._communicator)

    def gather(self, value):
        """The values of all processes, in their order. A value is anything that can be pickled."""
        return self._communicator.mpi_comm.allgather(value)

    def leave(self):
        self._communicator.mpi_comm.Barrier()
