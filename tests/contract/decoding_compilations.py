"""Run in an image's environment: how often XLA compiles something while one of its frameworks computes token by token, as JSON.

"first": until the second token of a sequence is there; "later": in the steps and prompts after it. The network has one block.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
# XLA writes a file for each program that it compiles.
os.environ["XLA_FLAGS"] = "--xla_dump_to=%s" % folder

import numpy as np  # noqa: E402

from bench import canonical  # noqa: E402
from bench.contract import Setup, load_adapter, load_framework, specification  # noqa: E402


def compiled():
    return len(list(folder.glob("*before_optimizations.txt")))


setup = Setup("cpu", "fp32", "default", 1, 1, False)
framework = load_framework(sys.argv[1])
framework.configure(setup)
adapter_class = load_adapter(sys.argv[1], "gpt2-decode")
sys.modules[adapter_class.__module__].LAYERS = 1
adapter = adapter_class(setup)
workload = specification("gpt2-decode")
parameters = canonical.draw_parameters(workload, np.random.RandomState(0), True, "")
adapter.load({name: value for name, value in parameters.items() if not name.startswith("h") or name.startswith("h0.")})
first = 0
for _ in range(2):
    adapter.prefill(np.zeros((2, 16), np.int32))
    for _ in range(5):
        adapter.step(np.zeros(2, np.int32))
        first = first or compiled()
print(json.dumps({"first": first, "later": compiled() - first, "settings": framework.settings_of(adapter)}))
