"""How fast an adapter's step is against the same framework's own published example loop: one process, steps in turns.

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/speed_ratio.py lasagne [PAIRS]

The loops are in examples/, one function build(setup) -> step(x, y) a framework, on the network of cnn-cifar10. Prints JSON: the median of
each in seconds, and the median over the pairs of adapter / example, which must not exceed 1.05.
"""

import json
import os
import runpy
import sys
import time
from pathlib import Path

import numpy as np

from bench import canonical, workloads
from bench.adapters import load_adapter, load_framework
from bench.protocol import Emitter
from bench.setup import Setup

FOLDER = Path(__file__).parent / "examples"
UNCOUNTED = 3  # pairs: compilation, memory, caches


def measure(name, pairs):
    setup = Setup("cpu", "fp32", "default", len(os.sched_getaffinity(0)), 1, True)
    framework = load_framework(name)
    framework.configure(setup)
    example = runpy.run_path(str(FOLDER / (name + ".py")))["build"](setup)
    workload = workloads.module("cnn-cifar10")
    random = np.random.RandomState(1)
    training = load_adapter(name, "cnn-cifar10")(setup)
    training.load(canonical.draw_parameters(workload, random, False))
    x, y = workload.draw_batch(random)
    own = training.inputs(x, y)
    steps = {"adapter": lambda: training.step(*own), "example": lambda: example(x, y)}
    seconds = {"adapter": [], "example": []}
    for pair in range(UNCOUNTED + pairs):
        order = ["adapter", "example"] if pair % 2 else ["example", "adapter"]  # neither always goes first
        for which in order:
            framework.synchronize()
            begin = time.perf_counter()
            steps[which]()
            framework.synchronize()
            if pair >= UNCOUNTED:
                seconds[which].append(time.perf_counter() - begin)
    ratios = np.array(seconds["adapter"]) / np.array(seconds["example"])
    return {
        "framework": name,
        "version": framework.versions()["framework"],
        "pairs": pairs,
        "adapter_seconds": float(np.median(seconds["adapter"])),
        "example_seconds": float(np.median(seconds["example"])),
        "ratio": float(np.median(ratios)),
    }


if __name__ == "__main__":
    emitter = Emitter()  # what a framework prints goes to standard error
    found = measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30)
    emitter.write(json.dumps(found).encode("utf-8") + b"\n")
