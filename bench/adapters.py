"""Finding the code of a framework and of a workload in it, by name."""

import importlib

from bench import frameworks, workloads
from bench.errors import Unsupported

# a workload's task -> the class that its adapter has
CLASSES = {"train": "Training", "infer": "Inference", "operators": "Operators"}


def load_framework(name):
    """bench.frameworks.<name>.framework; importing it imports the framework itself."""
    try:
        return importlib.import_module("bench.frameworks.%s.framework" % name)
    except ImportError as error:
        raise Unsupported("this interpreter cannot import the framework %r: %s" % (name, error))


def check_mode(name, mode):
    """Raises Unsupported for a mode that the framework does not declare."""
    declared = frameworks.declaration(name)["modes"]
    if mode not in declared:
        has = ", ".join("%s (%s)" % pair for pair in sorted(declared.items()))
        raise Unsupported("%s has no mode %r; it has: %s" % (name, mode, has))


def load_adapter(framework, workload):
    """The adapter class of a workload in a framework: as the workload's task is, Training, Inference or Operators."""
    path = "bench.frameworks.%s.%s" % (framework, workloads.computed(workload).replace("-", "_"))
    try:
        return getattr(importlib.import_module(path), CLASSES[workloads.declaration(workload)["task"]])
    except ImportError as error:
        raise Unsupported("%s has no adapter for %s: %s" % (framework, workload, error))
