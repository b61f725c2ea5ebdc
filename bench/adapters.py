"""Finding the code of a framework and of a workload in it, by name."""

import importlib

from bench import frameworks, mixed, workloads
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


def check_precision(name, workload, precision, device, devices=1):
    """Raises Unsupported for a precision that the workload has not, or that the framework does not compute on "cpu" or on "cuda"."""
    if precision not in workloads.declaration(workload)["precisions"]:
        raise Unsupported("%s has no precision %s" % (workload, precision))
    if mixed.half(precision) is None:
        return
    declared = frameworks.declaration(name).get("amp", {})
    if precision not in declared:
        raise Unsupported("%s does not compute %s here" % (name, precision))
    for where in (device, workload):
        if where in declared[precision]:
            raise Unsupported("%s does not compute %s on %s: %s" % (name, precision, where, declared[precision][where]))
    if devices > 1:
        raise Unsupported("%s is measured on one device: loss scaling was not proved on several" % precision)


def load_adapter(framework, workload):
    """The adapter class of a workload in a framework: as the workload's task is, Training, Inference or Operators."""
    path = "bench.frameworks.%s.%s" % (framework, workloads.computed(workload).replace("-", "_"))
    try:
        return getattr(importlib.import_module(path), CLASSES[workloads.declaration(workload)["task"]])
    except ImportError as error:
        raise Unsupported("%s has no adapter for %s: %s" % (framework, workload, error))
