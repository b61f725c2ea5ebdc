"""ONNX Runtime for inference: the sessions of the training package's adapter, and CUDA where NVIDIA's wheels have it."""

import onnxruntime

from bench.frameworks.onnxruntime_training import framework as shared

NAME = "onnxruntime"

versions = shared.versions
device = shared.device
device_kinds = shared.device_kinds
settings = shared.settings
is_out_of_memory = shared.is_out_of_memory


def configure(setup):
    """ONNX Runtime loads CUDA from NVIDIA's wheels: since 1.21 by this call (its page on the CUDA provider), before 1.21 by itself."""
    if setup.device == "cuda" and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    shared.start(setup)
