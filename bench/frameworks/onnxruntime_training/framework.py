"""ONNX Runtime's switches, versions and device, for every workload.

The session synchronises the device at the end of every run: there is no synchronize() here.
"""

import onnxruntime
from onnxruntime.capi import _pybind_state

from bench import cuda, environment
from bench.errors import Unsupported

NAME = "onnxruntime_training"

_setup = None


def configure(setup):
    if not hasattr(_pybind_state, "GradientGraphBuilder"):
        raise Unsupported(
            "onnxruntime %s cannot train: it has no GradientGraphBuilder, which is in the package onnxruntime-training"
            % onnxruntime.__version__
        )
    start(setup)


def start(setup):
    """What inference needs as well, for which any build serves."""
    global _setup
    if setup.device == "cuda":
        # ONNX Runtime does not count GPUs.
        _require_gpu("", 0 if cuda.why_none() else 1)
    onnxruntime.set_default_logger_severity(3)
    _setup = setup


def _built():
    """CUDA's version where it has the provider for GPUs; None without one."""
    provided = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return getattr(onnxruntime, "cuda_version", "") if provided else None


def _require_gpu(fault, count):
    cuda.require_gpus("onnxruntime %s%s" % (onnxruntime.__version__, fault), _built(), count)


def session(model, whole=True):
    """An InferenceSession for a serialised model, with the cell's threads and precision. Raises NoDevice where it is not on the GPU.

    whole: on a GPU every node must be there too. ONNX Runtime computes the shapes in a graph of gradients on the CPU.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _setup.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if whole and _setup.device == "cuda":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    made = onnxruntime.InferenceSession(model, options, providers=providers())
    # Without it a run that fails on the GPU is repeated on the CPU, with a line on standard output.
    made.disable_fallback()
    # Where it cannot load CUDA or cuDNN, ONNX Runtime makes a session of the CPU, with a warning in the log.
    if _setup.device == "cuda" and made.get_providers()[:1] != ["CUDAExecutionProvider"]:
        _require_gpu(", whose session has %s," % ", ".join(made.get_providers()), 0)
    return made


def providers():
    if _setup.device == "cpu":
        return ["CPUExecutionProvider"]
    # cuDNN searches for its fastest algorithm: the pictures' size is fixed.
    settings = {"cudnn_conv_algo_search": "EXHAUSTIVE", "use_tf32": "1" if _setup.precision == "tf32" else "0"}
    return [("CUDAExecutionProvider", settings)]


def place(array):
    """An array as an OrtValue on the cell's device."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array, _setup.device, 0)


def where():
    return _setup.device


def versions():
    numbers = {"framework": onnxruntime.__version__, "onnxruntime": onnxruntime.__version__}
    if _setup.device == "cuda":
        numbers.update(cuda.package_versions())
        numbers.update(cuda.driver_version())
    return numbers


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    # ONNX Runtime does not describe the GPU.
    return environment.cpu_device() if setup.device == "cpu" else cuda.device()


def settings():
    return {
        "provider": onnxruntime.get_available_providers()[-1] if _setup.device == "cpu" else "CUDAExecutionProvider",
        "threads": _setup.threads,
        "tf32": _setup.precision == "tf32",
        "cudnn_exhaustive_search": _setup.device == "cuda",
        "layout": "NCHW",
    }


def is_out_of_memory(error):
    return "memory" in str(error).lower() and "alloc" in str(error).lower()
