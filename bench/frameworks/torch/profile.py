"""PyTorch's profiler: ATen's operators on the CPU, kernels on the GPU."""

import json
import os
import tempfile

import torch
from torch.profiler import ProfilerActivity

from bench.profiling import Operation, kernels_of_trace


def operations(run, device):
    """[Operation] of `run()`. On a GPU only its kernels and copies: the CPU's part is launching them."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.profiler.profile(activities=activities) as profiler:
        run()
    events = profiler.key_averages()
    if device == "cpu":
        return [Operation(event.key, "cpu", event.count, event.self_cpu_time_total / 1e6) for event in events]
    # What PyTorch or the user names, such as the optimiser's step, is also an event of the GPU, around its kernels.
    launched = [
        event
        for event in events
        if event.device_type == torch.autograd.DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
    ]
    return [Operation(event.key, "cuda", event.count, _own_time(event) / 1e6) for event in launched]


def _own_time(event):
    """Microseconds. PyTorch 2.4 renamed self_cuda_time_total."""
    return event.self_device_time_total if hasattr(event, "self_device_time_total") else event.self_cuda_time_total


def kernels(run):
    """[Span] of the GPU's kernels during `run()`."""
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            return kernels_of_trace(json.load(file))
