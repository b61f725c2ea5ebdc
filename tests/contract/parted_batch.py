"""Prints, as JSON, on which device TensorFlow's Mirrored puts each replica's part of a batch, and the part: [[device, values]]."""

import json

import numpy as np

from bench import contract
from bench.frameworks.tensorflow import framework, parallel

setup = contract.Setup("cpu", "fp32", "default", 1, 1, True, 2)
framework.configure(setup)
strategy = parallel.strategy_of(setup)
values = parallel.Mirrored(type("Adapter", (), {})(), strategy).parted(np.arange(4, dtype="float32"))
print(json.dumps([[part.device.rpartition("/")[2], part.numpy().tolist()] for part in values.values]))
