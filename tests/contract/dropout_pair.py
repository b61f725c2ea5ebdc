"""How long does an adapter's step take without dropout against its step with dropout, in turns in one process?

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/dropout_pair.py torch cnn-cifar10 [SECONDS] [half]

Prints JSON. "ratio" is the median over pairs of turns of without / with in CPU seconds of the whole process, with one thread
(speed_ratio.py). The batch has the cell's size; "half" plants a mistake: with dropout a step takes half of it.
"""

import json
import os
import sys

import numpy as np

from bench import contract
from bench.protocol import Emitter
from tests.contract.expert_pair import CHECKED, MEASURED, batch_of, step_of
from tests.contract.speed_ratio import in_turns


def main(name, workload, seconds="4", planted=""):
    emitter = Emitter()  # what a framework prints goes to standard error
    framework = contract.load_framework(name)
    framework.configure(MEASURED)
    adapter, (x, y) = contract.load_adapter(name, workload), batch_of(workload)
    sizes = {MEASURED: len(x) // 2 if planted == "half" else len(x), CHECKED: len(x)}
    # Memory is laid out as the first one wants it: in half of the processes that is the one without dropout.
    order = (CHECKED, MEASURED) if os.getpid() % 2 else (MEASURED, CHECKED)
    steps = {setup: step_of(workload, adapter(setup), (x[: sizes[setup]], y[: sizes[setup]])) for setup in order}
    with_dropout, without, _ = in_turns(framework, steps[MEASURED], steps[CHECKED], float(seconds))
    ratio = float(np.median(without[:, 0] / with_dropout[:, 0]))
    document = {"ratio": ratio, "pairs": len(without), "cpu_seconds": float(np.median(with_dropout[:, 0]))}
    emitter.write(json.dumps(document).encode("utf-8") + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
