"""What a tracker costs without any agent: `python -m tests.unit.runner.nodes.tracked JOBS NODES` prints seconds of CPU and bytes."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import deque

from runner.nodes.tracker import Assignment, Tracker, Verdict
from runner.run.dispatch import Place, blocks
from tests.fixtures.plans import make_cell

GPUS = 8
REPEATS = 3


def tracked(jobs: int, nodes: int) -> tuple[float, int]:
    """Seconds of CPU and bytes that these jobs take, on nodes of eight GPUs, from the plan to the last row."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cells = [
        make_cell(image=f"image-{at}", device_kind="cuda", device_model="H200", device_uuid="")
        for at in range(-(-jobs // REPEATS))
    ]
    begin = time.process_time()
    every = blocks(cells, REPEATS, 1)[:jobs]
    tracker = Tracker(every, lambda _: 60.0, "0123abcd")
    mine = frozenset(cells)
    for node in range(nodes):
        uuids = [f"GPU-{node}-{at}" for at in range(GPUS)]
        tracker.join(f"n{node}", [Place(uuid, uuid, "cuda", "H200") for uuid in uuids], mine, 0.0)
    running: deque[Assignment] = deque()
    rows = 0
    while (assignment := tracker.next(0.0)) is not None or running:
        if assignment is not None:
            running.append(assignment)
            continue
        ended = running.popleft()
        tracker.heard(ended.node, 0.0)
        assert tracker.verdict(ended.attempt) is Verdict.ROW
        tracker.came(ended.attempt)
        tracker.ended(ended.attempt)
        rows += 1
    assert rows == len(every)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return time.process_time() - begin, more * 1024


if __name__ == "__main__":
    print(json.dumps(tracked(int(sys.argv[1]), int(sys.argv[2]))))
