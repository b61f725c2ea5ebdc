"""How fast an adapter's step is against the same framework's own published example loop: one process, steps in turns.

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/speed_ratio.py lasagne cnn-cifar10 [SECONDS]

The loops are in examples/, a file a framework (Keras: one for all its backends), a function a workload: f(setup, x, y) -> step;
speed_ratio.R hands over those in R. The arrays are put in the layout and the types that the loop wants before the clock starts, as the
adapter's are. Those of the networks on MNIST lie on the device before, in both. In cnn-mnist every loop has the ReLU after the
pooling, where most documents have it before: the values are the same for a quarter of the work, and all adapters do so.

Prints JSON. Its "ratio" is the median over pairs of turns of adapter / example in CPU seconds of the whole process, with one thread to
compute with: a neighbour on the machine takes the clock's time, but not the process's. "wall_ratio" is the same by the clock.

One process proves nothing: where its arrays lie in memory changes the ratio. speed_verdict.py judges the ratios of several processes.
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
UNCOUNTED = 2  # pairs: compilation, memory, caches
LEAST_PAIRS = 5  # however long they take
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


def in_turns(framework, first, second, seconds):
    """Seconds a step of two steps in turns: two arrays of (CPU seconds, seconds), a row a turn; and the steps in a turn."""
    for _ in range(UNCOUNTED):
        fastest = min(turn(framework, step, 1)[0] for step in (first, second))
    count = max(1, math.ceil(STEP_SECONDS / max(fastest, 1e-6)))
    turns = {first: [], second: []}
    end = time.perf_counter() + seconds
    order = [first, second]
    while len(turns[first]) < LEAST_PAIRS or time.perf_counter() < end:
        order.reverse()  # neither always goes first
        for step in order:
            turns[step].append(turn(framework, step, count))
    return (*(np.array(turns[step]) / count for step in (first, second)), count)


def measure(name, workload_name, seconds, example=None):
    """What the module's docstring says, as a dict."""
    framework, adapter, published = prepared(name, workload_name, example)
    of_adapter, of_example, count = in_turns(framework, adapter, published, seconds)
    cpu_ratio, wall_ratio = np.median(of_adapter / of_example, axis=0)
    return {
        "framework": name,
        "version": framework.versions()["framework"],
        "workload": workload_name,
        "pairs": len(of_adapter),
        "steps_per_turn": count,
        "adapter_cpu_seconds": float(np.median(of_adapter[:, 0])),
        "example_cpu_seconds": float(np.median(of_example[:, 0])),
        "ratio": float(cpu_ratio),
        "wall_ratio": float(wall_ratio),
    }


def main(arguments, example=None):
    """Print the ratio of the framework and the workload named, measured for some seconds, against the loops of a module."""
    emitter = Emitter()  # what a framework prints goes to standard error
    name, workload_name, seconds = (*arguments, "4")[:3]
    measured = measure(name, workload_name, float(seconds), example)
    emitter.write(json.dumps(measured).encode("utf-8") + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
