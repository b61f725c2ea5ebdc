"""Collectives: operations that the devices of a cell do together, each measured alone, as nccl-tests measures them.

Each device has a buffer of S bytes before. Where blocks are exchanged the buffer is as many blocks as there are devices. The bus bandwidth
is S over the seconds times `bus`: what the link of each device must carry, whatever their number ("Performance reported by NCCL tests").
For all-gather, S is the size of the gathered result; each device gives its own block of its buffer.
"""

import collections

# The directions of their curves. The all-reduce was measured alone at first, and its curves keep their name.
REDUCE, COLLECTIVE = "reduce", "collective"

# The directions in which the bytes go to another device or the host: no device's memory bounds them.
BETWEEN = ("copy", REDUCE, COLLECTIVE)

# result: (x of shape (devices, items): a row for each device's buffer; the device's number) -> what that device has afterwards, flat.
# sums: numbers are added up. blocks: the buffer is a block for each device. bus: devices -> factor.
Collective = collections.namedtuple("Collective", "result sums blocks bus")


def _blocks(x):
    """(devices, devices, items of a block): the first axis is the device that has it."""
    return x.reshape(len(x), len(x), -1)


COLLECTIVES = collections.OrderedDict(
    [
        ("all_reduce", Collective(lambda x, at: x.sum(axis=0), True, False, lambda n: 2.0 * (n - 1) / n)),
        (
            "reduce_scatter",
            Collective(lambda x, at: _blocks(x)[:, at].sum(axis=0), True, True, lambda n: (n - 1.0) / n),
        ),
        (
            "all_gather",
            Collective(lambda x, at: _blocks(x).diagonal().T.reshape(-1), False, True, lambda n: (n - 1.0) / n),
        ),
        ("all_to_all", Collective(lambda x, at: _blocks(x)[:, at].reshape(-1), False, True, lambda n: (n - 1.0) / n)),
        ("broadcast", Collective(lambda x, at: x[0], False, False, lambda n: 1.0)),
        # Each sends to the next and receives from the one before: the pairs of nccl-tests' sendrecv.
        ("send_receive", Collective(lambda x, at: x[at - 1], False, False, lambda n: 1.0)),
    ]
)


def direction(name):
    return REDUCE if name == "all_reduce" else COLLECTIVE


def items(name, devices, most):
    """The numbers in a buffer of at most `most`: as many in each block."""
    return most // devices * devices if COLLECTIVES[name].blocks else most
