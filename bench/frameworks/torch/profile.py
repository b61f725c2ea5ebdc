"""PyTorch's profiler: ATen's operators on the CPU, kernels on the GPU."""

import torch
from torch.profiler import ProfilerActivity

from bench.profiling import Operation


def operations(run, device):
    """[Operation] of `run()`. On a GPU only its kernels and copies: the CPU's part is launching them."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.profiler.profile(activities=activities) as profiler:
        run()
    events = profiler.key_averages()
    if device == "cpu":
        return [Operation(event.key, "cpu", event.count, event.self_cpu_time_total / 1e6) for event in events]
    kernels = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    # PyTorch 2.4 renamed self_cuda_time_total.
    own_time = "self_device_time_total" if hasattr(kernels[0], "self_device_time_total") else "self_cuda_time_total"
    return [Operation(kernel.key, "cuda", kernel.count, getattr(kernel, own_time) / 1e6) for kernel in kernels]
