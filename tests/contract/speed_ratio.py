"""How fast an adapter's step is against the same framework's own published example loop: one process, steps in turns.

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/speed_ratio.py lasagne cnn-cifar10 [SECONDS]

The loops are in examples/, a file a framework (Keras: one for all its backends), a function a workload: f(setup, x, y) -> step;
speed_ratio.R hands over those in R. The arrays are put in the layout and the types that the loop wants before the clock starts, as the
adapter's are.

Prints JSON. Its "ratio", which must not exceed 1.05, is the median over pairs of steps of adapter / example in CPU seconds of the
whole process, with one thread to compute with: a neighbour on the machine takes the clock's time, but not the process's.
"ratio_interval" is that median's 95 % interval, "wall_ratio" the same by the clock.
"""

import importlib.util
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from bench import canonical, contract, parity
from bench.contract import Setup, load_adapter, load_framework
from bench.protocol import Emitter

FOLDER = Path(__file__).parent / "examples"
UNCOUNTED = 3  # pairs: compilation, memory, caches
LEAST = 11  # pairs, however long they take
STEP_SECONDS = 0.05  # a turn is as many steps as take this long: long against the process's clock


def load_example(name):
    """The module examples/torch.py for torch, examples/keras.py for keras_jax, under a name that hides neither framework."""
    own, shared = (FOLDER / (part + ".py") for part in (name, name.split("_")[0]))
    spec = importlib.util.spec_from_file_location("published_example", str(own if own.exists() else shared))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # MindSpore looks a function's module up
    spec.loader.exec_module(module)
    return module


def prepared(name, workload_name, example=None):
    """(framework's module, the adapter's step, the example's step), both on one canonical batch."""
    setup = Setup("cpu", "fp32", "default", 1, 1, True)
    framework = load_framework(name)
    framework.configure(
        setup
    )  # before the example imports anything: it chooses Keras' backend, and gives Theano's flags
    workload = contract.specification(workload_name)
    random = np.random.RandomState(1)
    training_class = load_adapter(name, workload_name)
    training = training_class(setup)
    variant = parity.variant_of(training_class, workload_name)
    training.load(canonical.draw_parameters(workload, random, False, variant))
    x, y = workload.draw_batch(random)
    own = training.inputs(x, y)
    build = getattr(example or load_example(name), workload_name.replace("-", "_"))
    return framework, lambda: training.step(*own), build(setup, x, y)


def turn(framework, step, count):
    """(CPU seconds, seconds) of so many steps, up to the device's last."""
    framework.synchronize()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(count):
        step()
    framework.synchronize()
    return time.process_time() - cpu, time.perf_counter() - wall


def interval(values):
    """Of the median, 95 %, between order statistics: ranks n/2 -+ 0.98 sqrt(n) (Conover, Practical Nonparametric Statistics, 3.2)."""
    reach = 0.98 * math.sqrt(len(values))
    low, high = int(len(values) / 2.0 - reach), math.ceil(len(values) / 2.0 + reach)
    ordered = sorted(values)
    return [float(ordered[max(low, 0)]), float(ordered[min(high, len(values) - 1)])]


def measure(name, workload_name, seconds, example=None):
    framework, adapter, published = prepared(name, workload_name, example)
    for _ in range(UNCOUNTED):
        slowest = max(turn(framework, step, 1)[1] for step in (adapter, published))
    count = max(1, math.ceil(STEP_SECONDS / slowest))
    found = {adapter: [], published: []}
    end = time.perf_counter() + seconds
    order = [adapter, published]
    while len(found[adapter]) < LEAST or time.perf_counter() < end:
        order.reverse()  # neither always goes first
        for step in order:
            found[step].append(turn(framework, step, count))
    of_adapter, of_example = (np.array(found[step]) / count for step in (adapter, published))
    ratios = of_adapter / of_example
    return {
        "framework": name,
        "version": framework.versions()["framework"],
        "workload": workload_name,
        "pairs": len(ratios),
        "steps_per_turn": count,
        "adapter_cpu_seconds": float(np.median(of_adapter[:, 0])),
        "example_cpu_seconds": float(np.median(of_example[:, 0])),
        "ratio": float(np.median(ratios[:, 0])),
        "ratio_interval": interval(ratios[:, 0]),
        "wall_ratio": float(np.median(ratios[:, 1])),
    }


def main(arguments, example=None):
    """Print the ratio of the framework and the workload named, measured for some seconds, against the loops of a module."""
    emitter = Emitter()  # what a framework prints goes to standard error
    name, workload_name, seconds = (*arguments, "30")[:3]
    measured = measure(name, workload_name, float(seconds), example)
    emitter.write(json.dumps(measured).encode("utf-8") + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
