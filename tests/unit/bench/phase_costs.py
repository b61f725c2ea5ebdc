"""CPU seconds of each phase of a short toy cell, its steps, its parity events, and its data made anew, as JSON.

`python phase_costs.py WORKLOAD TEST_ITEMS`.

It runs in a copy of the project that has the toy framework. All threads of the process count, and the tests start it with one.
"""

import json
import os
import sys
import tempfile
import time
from types import SimpleNamespace

from bench.training import TrainingCell

BETWEEN = "between phases"


class Emitter:
    def __init__(self) -> None:
        self.zero = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.checks: list[tuple[str, str, str]] = []
        self.phase, self.since = BETWEEN, time.process_time()

    def emit(self, event: str, **fields: object) -> None:
        now = time.process_time()
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self.since
        if event == "phase":
            self.phase = str(fields["name"]) if fields["state"] == "begin" else BETWEEN
        if event == "parity":
            assert fields["passed"], fields
            self.checks.append((self.phase, str(fields["quantity"]), str(fields["tensor"])))
        self.since = time.process_time()


def main() -> None:
    options = SimpleNamespace(
        workload=sys.argv[1],
        framework="toy",
        preset="quick",
        data=None,
        seed=1,
        threads=1,
        device="cpu",
        devices=1,
        scaling="weak",
        precision="fp32",
        mode="default",
        profile=False,
        proved_at=None,
    )
    emitter = Emitter()
    cell = TrainingCell(options, emitter)
    cell.preset = {**cell.preset, "seconds": 0.5, "windows": 3, "test_items": int(sys.argv[2])}
    cell.run()
    seconds = dict(emitter.seconds)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["DLBENCH_CACHE"] = cache
        began = time.process_time()
        cell.load_data()
        once = time.process_time() - began
    print(json.dumps({"seconds": seconds, "steps": cell.steps, "checks": emitter.checks, "data_once": once}))


if __name__ == "__main__":
    main()
