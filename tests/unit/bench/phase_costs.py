"""CPU seconds of each phase of a short toy cell, its steps, and its parity events, as JSON: `python phase_costs.py WORKLOAD TEST_ITEMS`.

It runs in a copy of the project that has the toy framework. All threads of the process count, and the tests start it with one.
"""

import json
import sys
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
    print(json.dumps({"seconds": emitter.seconds, "steps": cell.steps, "checks": emitter.checks}))


if __name__ == "__main__":
    main()
