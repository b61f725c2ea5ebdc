"""An expert's variant of an adapter: does it pass the gates, and how fast is its step against the adapter's, in turns in one process?

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/expert_pair.py torch gru-imdb foreach_adam [SECONDS]

Prints JSON. "failed" are the checks that the variant did not pass, of the parity check and the proof. "ratio" is the median over pairs of
turns of variant / adapter in CPU seconds of the whole process, with one thread (speed_ratio.py). The batch has the cell's size.
"""

import importlib
import json
import os
import sys

import numpy as np

from bench import canonical, contract, parity, proof, rules
from bench.contract import Setup
from bench.protocol import Emitter
from tests.contract.experts.registry import VARIANTS
from tests.contract.speed_ratio import in_turns

CHECKED, MEASURED = (Setup("cpu", "fp32", "default", 1, 1, training) for training in (False, True))


def failures(workload, build):
    """The checks that an adapter does not pass: [quantity, tensor, bounds]."""
    results = parity.check(workload, build(CHECKED), "fp32") + proof.computes(workload, build(MEASURED), "fp32")
    return [[result.quantity, result.tensor, result.error / result.bound] for result in results if not result.passed]


def batch_of(workload):
    """(x, y) of the cell's size."""
    size, drawn = rules.workload_declaration(workload)["batch"], contract.specification(workload)
    if rules.workload_declaration(workload)["task"] == "decode":
        return drawn.draw_sequence(1, 0, size), None
    return [
        None if array is None else np.concatenate([array] * -(-size // len(array)))[:size]
        for array in drawn.draw_batch(np.random.RandomState(1))
    ]


def step_of(workload, adapter, batch):
    """A function that takes one step on a batch, from first values as a cell has them: of inference one batch, of decoding one token."""
    specification, (x, y) = contract.specification(workload), batch
    trains = isinstance(adapter, contract.Training)
    adapter.load(canonical.draw_parameters(specification, np.random.RandomState(1), not trains))
    if isinstance(adapter, contract.Decoding):
        return tokens_of(adapter, x, specification.PROMPT).__next__
    if not trains:
        taken = adapter.inputs(x)
        return lambda: adapter.predict(taken)
    taken = adapter.inputs(x, y)
    return lambda: adapter.step(*taken)


def tokens_of(decoding, sequence, prompt):
    """Steps of one token of each sequence for ever; each sequence begins with its prompt, whose time counts with its first token."""
    fed = np.ascontiguousarray(sequence[:, prompt:].T)
    while True:
        decoding.prefill(sequence[:, :prompt].copy())
        for tokens in fed:
            yield decoding.step(tokens)


def main(name, workload, variant, seconds="4"):
    emitter = Emitter()  # what a framework prints goes to standard error
    framework = contract.load_framework(name)
    framework.configure(MEASURED)
    module = rules.framework_declaration(name).get("backend") or name
    importlib.import_module("tests.contract.experts." + module)
    make, adapter = VARIANTS[name, workload, variant], contract.load_adapter(name, workload)
    failed = failures(workload, lambda setup: make(adapter, setup))
    builds = {"own": lambda: adapter(MEASURED), "other": lambda: make(adapter, MEASURED)}
    # Memory is laid out as the first one wants it: in half of the processes that is the variant.
    batch = batch_of(workload)
    steps = {which: step_of(workload, builds[which](), batch) for which in sorted(builds, reverse=os.getpid() % 2 == 1)}
    own, other = steps["own"], steps["other"]
    of_own, of_other, _ = in_turns(framework, own, other, float(seconds))
    ratio = float(np.median(of_other[:, 0] / of_own[:, 0]))
    document = {"failed": failed, "ratio": ratio, "pairs": len(of_own), "cpu_seconds": float(np.median(of_own[:, 0]))}
    emitter.write(json.dumps(document).encode("utf-8") + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
