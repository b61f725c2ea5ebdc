"""What `ops` reads for a matrix product in PyTorch against what PyTorch's own benchmark utility reads: one process, in turns.

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/utility_ratio.py [SIDE] [PAIRS]

Prints JSON. "ratio" is the median over pairs of turns of ours / torch.utils.benchmark.Timer's, in CPU seconds of the process with one
thread to compute with: a neighbour on the machine takes the clock's time, but not the process's.
"""

import json
import statistics
import sys
import time

import numpy as np
import torch
from torch.utils.benchmark import Timer

from bench import operators
from bench.contract import Setup, load_adapter, load_framework
from bench.workloads import ops

TURN_SECONDS = 0.05  # long against the process's clock


def measure(side, pairs):
    setup = Setup("cpu", "fp32", "default", 1, 1, True)
    framework = load_framework("torch")
    framework.configure(setup)
    adapter = load_adapter("torch", "ops")(setup)
    random = np.random.RandomState(1)
    size = (side, side, side)
    p = ops.draw_inputs(ops.OPERATIONS["matmul"], size, random)
    turns = operators.Turns(framework.synchronize, adapter.runs("matmul", ops.FORWARD, [p]), clock=time.process_time)
    tensors = {name: torch.from_numpy(value).float() for name, value in p.items()}
    timer = Timer("torch.matmul(a, b)", globals=dict(tensors, torch=torch), timer=time.process_time, num_threads=1)
    count = max(5, int(TURN_SECONDS / turns.warm_up(1.0)))
    timer.timeit(count)
    found = []
    for index in range(pairs):
        times = {}
        for name in ("ours", "theirs") if index % 2 else ("theirs", "ours"):  # neither always goes first
            times[name] = turns.window(count) / count if name == "ours" else timer.timeit(count).mean
        found.append((times["ours"], times["theirs"]))
    ratios = [ours / theirs for ours, theirs in found]
    mop = ops.OPERATIONS["matmul"].mop(*size)
    rates = [mop / 1e3 / statistics.median(column) for column in zip(*found, strict=True)]
    return {"ratio": statistics.median(ratios), "runs": count, "ours_gflops": rates[0], "utility_gflops": rates[1]}


if __name__ == "__main__":
    print(json.dumps(measure(*[int(word) for word in sys.argv[1:] or ("512", "21")])))
