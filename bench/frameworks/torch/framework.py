"""PyTorch's switches, versions and device, for every workload."""

import re
import shutil

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from bench import cuda, environment, mixed
from bench.errors import Unsupported
from bench.frameworks.pictures import layouts

NAME = "torch"

_device = None
_replays = False


def configure(setup):
    """Threads and precision, before anything is built."""
    global _device, _replays
    _replays = setup.mode == "graph"
    if setup.mode == "compile" and not hasattr(torch, "compile"):
        raise Unsupported("PyTorch %s has no torch.compile; PyTorch 2.0 is the first" % torch.__version__)
    if setup.mode == "compile" and shutil.which("g++") is None:
        raise Unsupported(
            "torch.compile needs a C++ compiler, and there is no g++ on PATH; install g++ or omit the mode"
        )
    torch.set_num_threads(setup.threads)
    # By default cuDNN's convolutions use tf32 on Ampere and later. settings() reads both values back.
    tf32 = setup.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    # cuDNN searches for its fastest algorithm: the pictures' size is fixed. This halved PyTorch's time on a K80.
    torch.backends.cudnn.benchmark = True
    _device = torch_device(setup)
    if _device.type == "cuda":
        torch.cuda.set_device(_device)


def torch_device(setup):
    """The torch.device to compute on."""
    if setup.device == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda.require_gpus("torch %s" % torch.__version__, torch.version.cuda, count, setup.devices)
    return torch.device("cuda", setup.rank)


def layout(setup):
    """How pictures and the convolutions' weights lie in memory (bench.frameworks.pictures.layouts)."""
    capability = torch.cuda.get_device_capability(setup.rank) if setup.device == "cuda" else ()
    return layouts.layout_of(NAME, setup, capability)


def memory_format(setup):
    """The same as PyTorch's memory format. Whatever it is, a tensor is seen as (N, C, H, W)."""
    return torch.channels_last if layout(setup) == layouts.LAST else torch.contiguous_format


def adam(setup, network, rate, betas=(0.9, 0.999), decay=0.0):
    """Adam with the specification's constants: defaults differ among frameworks. With a decay AdamW: tensors of one axis do not decay.

    One fused kernel updates all parameters. PyTorch has it for GPUs from 2.0 on, and for CPUs from 2.4 on. With float16's loss scale it is
    not used: it would decide inside the kernel which steps are skipped, and the bench counts these.
    """
    since = (2, 4) if setup.device == "cpu" else (2, 0)
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    kernel = {"fused": True} if version >= since and mixed.half(setup.precision) != "float16" else {}
    if setup.mode == "graph":
        # The count of steps lies on the GPU, where a replay raises it.
        kernel["capturable"] = True
    if not decay:
        return torch.optim.Adam(network.parameters(), lr=rate, betas=betas, eps=1e-8, **kernel)
    groups = [{"params": [p for p in network.parameters() if p.dim() > 1], "weight_decay": decay}]
    groups.append({"params": [p for p in network.parameters() if p.dim() < 2], "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=1e-8, **kernel)


def compiled(setup, network, **options):
    """The network in the cell's mode: itself, or compiled by TorchDynamo and Inductor at its first call.

    If several devices train it, DistributedDataParallel wraps it: backward() leaves the mean of all their gradients. It gets the options.
    """
    if setup.devices > 1:
        devices = [setup.rank] if setup.device == "cuda" else None
        network = DistributedDataParallel(network, device_ids=devices, **options)
    return torch.compile(network) if setup.mode == "compile" else network


def random_state(device):
    """The state of the generator that dropout draws from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device, state):
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def to_device(device, *arrays):
    """NumPy arrays as tensors on the device."""
    return [torch.from_numpy(array).to(device) for array in arrays]


def versions():
    numbers = {"framework": torch.__version__, "torch": torch.__version__}
    if torch.version.cuda:
        numbers["cuda"] = torch.version.cuda
        numbers["cudnn"] = _cudnn(torch.backends.cudnn.version())
        if torch.distributed.is_available() and torch.cuda.is_available():
            numbers["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return numbers


def _cudnn(number):
    """91002 -> 9.10.2 (cuDNN 9 counts major * 10000), 8902 -> 8.9.2 (before: major * 1000)."""
    if number is None:
        return "none"
    major = number // 10000 if number >= 90000 else number // 1000
    rest = number - major * (10000 if number >= 90000 else 1000)
    return "%d.%d.%d" % (major, rest // 100, rest % 100)


def device_kinds():
    return cuda.kinds(torch.version.cuda)


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device(distributed.get_world_size() if setup.devices > 1 else 1)
    gpu = torch.cuda.get_device_properties(0)
    capability = "%d.%d" % (gpu.major, gpu.minor)
    device = cuda.device(gpu.name, torch.cuda.device_count(), capability, gpu.total_memory)
    return dict(device, uuids=cuda.uuids(setup.devices))


def _mkldnn_enabled():
    return bool(getattr(torch._C, "_get_mkldnn_enabled", lambda: True)())


def _built_with(pattern):
    """What the build or the running machine has, by PyTorch's own words; None where these lack it."""
    found = re.search(pattern, torch.__config__.show())
    return found.group(1) if found else None


def settings():
    return {
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "threads": torch.get_num_threads(),
        "mkldnn": torch.backends.mkldnn.is_available() and _mkldnn_enabled(),
        "cpu_capability": _built_with(r"CPU capability usage: (\S+)"),
        "blas_built_with": _built_with(r"BLAS_INFO=(\w+)"),
        "build_type": _built_with(r"BUILD_TYPE=(\w+)"),
        "default_dtype": str(torch.get_default_dtype()),
        "deterministic": bool(getattr(torch, "are_deterministic_algorithms_enabled", bool)()),
        "anomaly_detection": torch.is_anomaly_enabled(),
        # In memory. Networks on pictures say by settings_of where they have another.
        "layout": "NCHW",
    }


def settings_of(adapter):
    """The setting layout: the order in which a built adapter's pictures lie in memory."""
    return {"layout": "NHWC"} if getattr(adapter, "format", None) == torch.channels_last else {}


def synchronize():
    """The device is synchronised before the clock is read."""
    if _device is not None and _device.type == "cuda":
        torch.cuda.synchronize(_device)


def device_peak_bytes():
    if _device is None or _device.type != "cuda":
        return None
    # A replay allocates nothing: its memory is what the allocator keeps for the recording.
    return torch.cuda.max_memory_reserved(_device) if _replays else torch.cuda.max_memory_allocated(_device)


def forget_device_peak():
    torch.cuda.reset_peak_memory_stats(_device)
    return True


def is_out_of_memory(error):
    kind = getattr(torch.cuda, "OutOfMemoryError", None)
    return (kind is not None and isinstance(error, kind)) or "out of memory" in str(error).lower()
