"""What is computed: one framework-free specification a file, with its float64 reference.

The numbers that a planner needs lie in the .json beside it.
"""

import importlib
import io
import json
import os

FOLDER = os.path.dirname(os.path.abspath(__file__))


def names():
    """The workloads there are."""
    return sorted(name[:-5] for name in os.listdir(FOLDER) if name.endswith(".json"))


def declaration(name):
    """The .json of a workload as a dict: presets, batch, precisions, metric."""
    with io.open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def computed(name):
    """The workload whose specification, reference and adapters this one uses: itself, unless its .json names another."""
    return declaration(name).get("computes") or name


def module(name):
    """The specification of a workload: PARAMETERS, draw_batch, loss_and_gradients, optimizer."""
    return importlib.import_module("bench.workloads." + computed(name).replace("-", "_"))
