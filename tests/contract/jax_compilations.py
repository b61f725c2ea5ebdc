"""Run in JAX's environment: how often each of the adapter's functions is compiled for the parity check, as JSON. None is compiled twice."""

import json

from bench import parity
from bench.contract import Setup, load_adapter, load_framework

SETUP = Setup("cpu", "fp32", "default", 2, 1, False)

load_framework("jax").configure(SETUP)
adapter = load_adapter("jax", "cnn-cifar10")(SETUP)
results = parity.check("cnn-cifar10", adapter, "fp32")
functions = {name: getattr(type(adapter), name) for name in ("gradients", "update", "train_step", "logits")}
compiled = {name: function._cache_size() for name, function in functions.items()}
print(json.dumps({"passed": all(result.passed for result in results), "rows": len(results), "compiled": compiled}))
