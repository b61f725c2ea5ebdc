"""Plants one mistake at a time in what two processes of PyTorch tell each other and prints, as JSON, what the parity gate says of each.

Run without arguments in an interpreter that has torch, it starts itself once a process; test_parity_gate.py reads what the first prints.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import parallel, parity
from bench.contract import Setup

WORKLOAD, DEVICES = "densenet121-chestxray", 2


def mistakes():
    """The adapter itself, which must pass, and others that differ from it in one thing."""
    from bench.frameworks.torch import densenet121_chestxray

    class Shared(densenet121_chestxray.Training):
        pass

    class StatisticsKept(Shared):
        """Each process evaluates with the running statistics of its own part."""

        def share_statistics(self):
            pass

    class GradientsSummed(Shared):
        def _backward(self, x, y):
            found = super()._backward(x, y)
            for parameter in self.network.parameters():
                parameter.grad *= DEVICES
            return found

    return Shared, StatisticsKept, GradientsSummed


def verdict(group, results):
    results = parallel.worst(group, results)
    return {
        "failed": ["%s %s" % (r.quantity, r.tensor) for r in results if not r.passed],
        "worst": max(r.error / r.bound for r in results),
    }


def one_process():
    from bench.frameworks.torch import framework

    setup = Setup("cpu", "fp32", "default", 1, 1, False, DEVICES, parallel.rank())
    framework.configure(setup)
    group = parallel.join("torch", setup)
    found = {}
    for mistake in mistakes():
        training = group.whole(group.build(mistake, setup))
        found[mistake.__name__] = verdict(group, parity.check(WORKLOAD, training, "fp32", DEVICES))
    if group.rank == 0:
        json.dump(found, sys.stdout)
    group.leave()


def main():
    with tempfile.TemporaryDirectory() as folder:
        own = dict(os.environ, **{parallel.MEETING: str(Path(folder) / "meeting")})
        processes = [
            subprocess.Popen([sys.executable, __file__], env=dict(own, **{parallel.RANK: str(rank)}))
            for rank in range(DEVICES)
        ]
        return max(process.wait() for process in processes)


if parallel.RANK in os.environ:
    one_process()
else:
    sys.exit(main())
