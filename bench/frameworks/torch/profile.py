"""PyTorch's profiler: operators of ATen on the CPU, kernels on the GPU."""

import torch
from torch.profiler import ProfilerActivity

from bench.profiling import Operation


def operations(run, device):
    """[Operation] of what `run()` computes. On a GPU its kernels and copies only: the CPU's part is launching them."""
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    ) as found:
        run()
    if device == "cuda":
        kernels = [each for each in found.key_averages() if each.device_type == torch.autograd.DeviceType.CUDA]
        # renamed from self_cuda_time_total in PyTorch 2.4
        microseconds = (
            "self_device_time_total" if hasattr(kernels[0], "self_device_time_total") else "self_cuda_time_total"
        )
        return [Operation(each.key, "cuda", each.count, getattr(each, microseconds) / 1e6) for each in kernels]
    return [Operation(each.key, "cpu", each.count, each.self_cpu_time_total / 1e6) for each in found.key_averages()]
