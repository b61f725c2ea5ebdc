"""Every backend of attention in one framework at one precision on the CPU, against the float64 reference.

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/attention_backends.py FRAMEWORK PRECISION

Prints JSON: "attention_d64_flash forward" -> [the error by its bound, the kernel that was taken], or the reason why there is none.
"""

import json
import sys

from bench import operators
from bench.contract import Setup, load_adapter, load_framework
from bench.errors import Unsupported
from bench.workloads import ops


def held(framework, precision):
    setup = Setup("cpu", precision, "default", 1, 1, True)
    load_framework(framework).configure(setup)
    adapter = load_adapter(framework, "ops")(setup)
    found = {}
    for name, operation in ops.ATTENTION.items():
        for direction in (ops.FORWARD, ops.GRADIENT):
            try:
                error, bound = operators.error_of(adapter, name, operation, direction, precision)
                found["%s %s" % (name, direction)] = [error / bound, adapter.kernel]
            except Unsupported as refusal:
                found["%s %s" % (name, direction)] = str(refusal)
    return found


print(json.dumps(held(*sys.argv[1:])))
