"""Does a device compute the same bits each time? Prints one JSON object: `python -m bench.same_bits FRAMEWORK DEVICE SECONDS`.

A product of two matrices is computed again and again, and all its results are looked at: the bits of each are a whole number, and these
are added up in BLOCKS x BLOCKS blocks on the device. One bit that is flipped changes the sum of its block. Python 3.6 syntax.
"""

import collections
import importlib
import json
import os
import sys
import time

import numpy as np

# Along each side of a result.
BLOCKS = 32
# Of a product's runs, and of the blocks that are named.
LEAST_RUNS, MOST_NAMED = 3, 20


def watch(sums, seconds, clock=time.monotonic):
    """The facts of a product's runs. sums(): compute it once; the (BLOCKS, BLOCKS) sums of the bits of the result, modulo 2^32."""
    counts, first, runs, end = collections.Counter(), collections.OrderedDict(), 0, clock() + seconds
    while clock() < end or runs < LEAST_RUNS:
        found = np.asarray(sums()).astype("<u4").tobytes()
        # A device that is wrong each time in another way must not fill the memory.
        if found in counts or len(counts) < MOST_NAMED:
            counts[found] += 1
            first.setdefault(found, runs)
        runs += 1
    usual, count = counts.most_common(1)[0]
    odd = [
        [run, int(block) // BLOCKS, int(block) % BLOCKS]
        for found, run in first.items()
        for block in np.flatnonzero(np.frombuffer(found, "<u4") != np.frombuffer(usual, "<u4"))
    ]
    return {"runs": runs, "alike": count, "odd": odd[:MOST_NAMED], "sums": usual.hex()}


def main(name, device, seconds):
    printed = os.dup(1)
    os.dup2(2, 1)  # what a framework prints must not break the JSON
    from bench import contract, environment, rules

    framework = contract.load_framework(name)
    framework.configure(contract.Setup(device, "fp32", "default", environment.cpu_count(), 1, True))
    # A file that no cell runs: the identity of a cell does not change with it.
    path = rules.adapter_module(name, "_bits")
    every = importlib.import_module(path).bits_of_products(device) if path else []
    found = [
        dict(watch(sums, float(seconds) / len(every)), name=product, fixed=fixed) for product, fixed, sums in every
    ]
    os.write(printed, json.dumps({"products": found}).encode("utf-8") + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
