"""Run in JAX's environment: how many compiled functions come from the folder, within `remembered` and after it, as JSON.

The argument is the folder. The parity check is of an adapter that is not measured; then a measured one takes a step.
"""

import json
import sys

import jax

from bench import canonical, contract, parity
from bench.contract import Setup

read = []
jax.monitoring.register_event_listener(lambda event, **_: read.append(event) if event.endswith("/cache_hits") else None)
framework = contract.load_framework(sys.argv[1])
setup = Setup("cpu", "fp32", "default", 2, 1, False)
framework.configure(setup)
adapter = contract.load_adapter(sys.argv[1], "gru-imdb")
checked = adapter(setup)
with framework.remembered(sys.argv[2]):
    results, _ = parity.check_network("gru-imdb", checked, "fp32")
within = len(read)
measured = adapter(setup._replace(training=True))
measured.load(canonical.parity_case(contract.specification("gru-imdb"))[0])
batch = parity.first_batch("gru-imdb", measured)
measured.value(measured.step(*batch))
measured.predict(batch[0])
errors = [result.error for result in results]
print(json.dumps({"within": within, "after": len(read) - within, "errors": errors}))
