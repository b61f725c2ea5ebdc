"""Whether the clock of the windows agrees with CUDA's own events: `python -m bench.frameworks.torch._events WORKLOAD PRECISION`.

Prints {"windows": [{"steps": ..., "clock_seconds": ..., "event_seconds": ...}]}. A window's event_seconds lie between two events on the
device's stream, recorded where the loop synchronises.
"""

import itertools
import json
import sys

import torch

from bench import canonical, contract, environment, parity, timing
from bench.frameworks.torch import framework
from bench.protocol import Emitter

DEVICE = "cuda"
WINDOWS = 20
WARM_UP_SECONDS = 5.0


def windows(workload, precision):
    """The windows of training steps as a cell measures them, each by both clocks."""
    setup = contract.Setup(DEVICE, precision, "default", environment.cpu_count(), 1, True)
    framework.configure(setup)
    adapter_class = contract.load_adapter(framework.NAME, workload)
    adapter = adapter_class(setup)
    variant = parity.variant_of(adapter_class, workload)
    adapter.load(canonical.parity_case(contract.specification(workload), variant)[0])
    batch = parity.first_batch(workload, adapter)
    events = []

    def synchronize():
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
        framework.synchronize()

    loop = timing.Loop(adapter.step, itertools.repeat(batch), synchronize, lambda sample, handle: None)
    steps = timing.steps_per_window(loop.warm_up(WARM_UP_SECONDS, timing.WARMUP_SECONDS[DEVICE]))
    del events[:]
    first = len(loop.samples)
    for _ in range(WINDOWS):
        loop.window("steady", steps)
    # The loop synchronises on both sides of a window.
    pairs = zip(loop.samples[first:], events[::2], events[1::2])
    return [
        {"steps": sample.steps, "clock_seconds": sample.seconds, "event_seconds": begin.elapsed_time(end) / 1e3}
        for sample, begin, end in pairs
    ]


if __name__ == "__main__":
    emitter = Emitter()
    emitter.write(json.dumps({"windows": windows(*sys.argv[1:3])}).encode("utf-8") + b"\n")
