"""Run in JAX's environment: in each phase of a short cell, how many compiled functions come from the folder, as JSON.

The arguments are a framework and the folder, which is the project's cache. Also the errors of the parity check.
"""

import collections
import json
import os
import sys

import jax

from bench.__main__ import parser
from tests.contract.mutants.run import Collected, short_cell

emitter, read = Collected(), collections.Counter()
jax.monitoring.register_event_listener(
    lambda event, **_: read.update([emitter.phase] if event.endswith("/cache_hits") else [])
)
os.environ["DLBENCH_CACHE"] = sys.argv[2]
words = ["run", "gru-imdb", "--framework", sys.argv[1], "--threads", "1"]
short_cell(parser().parse_args(words), emitter, 0).run()
errors = [row["error"] for row in emitter.rows if row["phase"] == "parity"]
print(json.dumps({"read": read, "errors": errors, "refused": [row for row in emitter.rows if not row["passed"]]}))
