"""Run in an image's environment: how one of its frameworks computes what this file asks about, as JSON."""

import json
import sys

import numpy as np

from bench import cuda
from bench.contract import Setup, load_adapter, load_framework


def setup():
    return Setup("cpu", "fp32", "default", 1, 1, False)


def compiled_by_xla():
    """Workload -> whether Keras on TensorFlow compiles its step by XLA, once it is told that there is a GPU."""
    import tensorflow as tf

    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    tf.config.list_physical_devices = tf.config.list_logical_devices = lambda kind=None: [gpu]
    return {name: load_adapter("keras_tensorflow", name)(setup()).loop.xla for name in ("gru-imdb", "mlp-mnist")}


def compiled_on_a_cpu():
    """Workload -> whether XLA compiles the step of TensorFlow's own adapter, or of Keras', in the default mode on a CPU."""
    adapters = {name: load_adapter(sys.argv[1], name)(setup()) for name in ("gru-imdb", "mlp-mnist", "cnn-cifar10")}
    compiled = {
        name: bool(getattr(adapter, "loop", adapter).train_step._jit_compile) for name, adapter in adapters.items()
    }
    # The cell reports what is so.
    framework = load_framework(sys.argv[1])
    assert compiled == {name: framework.settings_of(adapter)["xla"] for name, adapter in adapters.items()}
    return compiled


def fused_adam():
    """Workload and precision -> whether PyTorch's Adam is one fused kernel."""
    cells = [(name, "fp32") for name in ("gru-imdb", "mlp-mnist", "cnn-mnist", "densenet121-chestxray")]
    cells += [("gru-imdb", "amp-bf16"), ("gru-imdb", "amp-fp16")]
    return {
        "%s %s" % cell: bool(
            load_adapter("torch", cell[0])(setup()._replace(precision=cell[1])).optimizer.defaults["fused"]
        )
        for cell in cells
    }


def time_first():
    """Whether PyTorch's GRU takes the positions before the reviews."""
    return not load_adapter("torch", "gru-imdb")(setup()).network.gru.batch_first


def calls_of_torch():
    """Optimiser -> how many operations of PyTorch it runs in a step, of 2 and of 20 variables."""
    import keras
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from bench.frameworks.keras._adam import Adam
    from bench.frameworks.keras._momentum import Momentum

    class Counted(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            self.calls += 1
            return function(*arguments, **(options or {}))

    def calls(optimizer, count):
        variables = [keras.Variable(np.ones((3, 3), "float32")) for _ in range(count)]
        optimizer.build(variables)
        gradients = [torch.ones(3, 3) for _ in variables]
        with torch.no_grad(), Counted() as counted:
            optimizer.apply(gradients, variables)
        return counted.calls

    made = {
        "Adam": lambda: Adam(learning_rate=0.001),
        "Momentum": lambda: Momentum(learning_rate=0.1, decay=1e-4, momentum=0.9),
    }
    return {name: [calls(make(), count) for count in (2, 20)] for name, make in made.items()}


def kernels_of_tensorflow():
    """How many of the variables TensorFlow's own kernel for Adam updates, and how many there are."""
    import tensorflow as tf

    adapter = load_adapter(sys.argv[1], "mlp-mnist")(setup())
    step = adapter.loop.train_step if hasattr(adapter, "loop") else adapter.train_step
    x, y = adapter.inputs(*batch())
    graph = step.get_concrete_function(tf.convert_to_tensor(x), tf.convert_to_tensor(y)).graph
    updated = [operation for operation in graph.get_operations() if operation.type == "ResourceApplyAdam"]
    return [len(updated), len(adapter.network.trainable_variables)]


def bytes_fed():
    """How many bytes a step of TensorFlow 1 takes from host memory, by workload."""
    fed = {}
    for name in ("mlp-mnist", "cnn-mnist"):
        adapter = load_adapter("tensorflow_v1", name)(setup())
        fed[name] = sum(np.asarray(value).nbytes for value in adapter.inputs(*batch()))
    return fed


def channels_last():
    """Whether the images of cnn-cifar10 lie channels last in memory, seen as N, C, H, W."""
    adapter = load_adapter(sys.argv[1], "cnn-cifar10")(setup())
    x = np.arange(2 * 3 * 32 * 32, dtype="float32").reshape(2, 3, 32, 32)
    seen = adapter.inputs(x, np.zeros(2, "int32"))[0]
    # A mini-batch is picked from them.
    picked = np.asarray(seen)[np.array([1, 0])]
    return bool((picked == x[::-1]).all()) and picked.transpose(0, 2, 3, 1).flags.c_contiguous


def layouts_on_a_gpu():
    """Precision -> the order of pictures in memory that the framework is configured for, on a stand-in of an H200."""
    framework, orders = load_framework(sys.argv[1]), {}
    # A build for the CPU says that it is one.
    cuda.require_gpus = lambda *words: None
    if "torch" in sys.argv[1]:
        import torch

        torch.cuda.get_device_capability = lambda index: (9, 0)
        torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 1)
        torch.cuda.set_device = lambda device: None
    else:
        import tensorflow as tf

        gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
        tf.config.list_physical_devices = lambda kind=None: [gpu]
        tf.config.experimental.get_device_details = lambda device: {"compute_capability": (9, 0)}
        tf.config.experimental.set_memory_growth = lambda *words: None
    for precision in ("fp32", "tf32", "amp-bf16"):
        on_gpu = setup()._replace(device="cuda", precision=precision)
        framework.configure(on_gpu)
        if sys.argv[1] == "torch":
            orders[precision] = str(framework.memory_format(on_gpu)).replace("torch.", "")
        elif sys.argv[1] == "keras_torch":
            from bench.frameworks.keras import _images

            x = _images.contiguous(np.zeros((2, 3, 4, 4), "float32"))
            orders[precision] = "contiguous_format" if x.flags.c_contiguous else "channels_last"
        else:
            orders[precision] = "contiguous_format" if framework.channels_first() else "channels_last"
    return orders


def strides_of_mnist():
    """The strides of an image of cnn-mnist on the device, in elements: of its channel, a row and a column."""
    return load_adapter(sys.argv[1], "cnn-mnist")(setup()).inputs(*batch())[0].stride()[1:]


def batch():
    return np.ones((4, 1, 28, 28), "float32"), np.zeros(4, "int32")


load_framework(sys.argv[1]).configure(setup())
print(json.dumps(globals()[sys.argv[2]]()))
