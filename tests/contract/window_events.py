"""Prints what PyTorch's windows against CUDA's events are, with a clock in the place of the events: there is no GPU here."""

import json
import sys
import time

import torch

from bench.frameworks.torch import _events


class Event:
    """What CUDA's event is for this test: a moment."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.moment = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        return 1e3 * (end.moment - self.moment)


if __name__ == "__main__":
    torch.cuda.Event = Event  # type: ignore[assignment,misc]
    _events.DEVICE, _events.WINDOWS, _events.WARM_UP_SECONDS = "cpu", 4, 0.5
    print(json.dumps(_events.windows(sys.argv[1], "fp32")))
