"""`bench check` by an adapter's code for GPUs, computed on the CPU: gpu_paths.py FRAMEWORK WORKLOAD, in that framework's environment.

On a GPU JAX's steps take the memory of their arguments, and TensorFlow's networks compute channels first. TensorFlow's kernels for a CPU
know channels last only, so XLA compiles these networks. The verdict gets "taken": whether this CPU took the code.
"""

import importlib
import json
import os
import sys
import types

# Before TensorFlow is loaded: TensorFlow 1's sessions give XLA what a CPU has no kernel for.
os.environ["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"

import bench.__main__ as program
from bench import contract


def donate():
    """Every step of JAX donates; returns whether a CPU's arguments are gone then."""
    import jax

    from bench.frameworks.jax import framework

    framework.donated = lambda *numbers: numbers

    def taken():
        given = jax.numpy.ones(3)
        jax.jit(lambda x: x + 1, donate_argnums=0)(given).block_until_ready()
        return given.is_deleted()

    return taken


def channels_first(name):
    """TensorFlow computes channels first; returns whether the framework says so."""
    library = "tensorflow_v1" if name == "tensorflow_v1" else "tensorflow"
    framework = importlib.import_module("bench.frameworks.%s.framework" % library)
    framework.channels_first = lambda: True
    if library == "tensorflow":
        list_a_gpu()
    return lambda: contract.load_framework(name).settings()["layout"] == "NCHW"


def list_a_gpu():
    """A stand-in in TensorFlow's list of devices once it is configured: Keras' loop then lets XLA compile, as on a GPU."""
    import tensorflow as tf

    from bench.frameworks.keras import _loops
    from bench.frameworks.tensorflow import framework

    gpu = types.SimpleNamespace(name="/device:GPU:0", device_type="GPU")
    listed = tf.config.list_logical_devices
    tf.config.list_logical_devices = lambda kind=None: [gpu] if kind == "GPU" else listed(kind)
    framework.synchronize = lambda: None
    # The gradients of the check are computed operation by operation, and a CPU has no such operation.
    _loops._TensorFlow._gradients = tf.function(_loops._TensorFlow._gradients, jit_compile=True)


def main(name, workload):
    taken = donate() if "jax" in name else channels_first(name)
    mode = "xla" if name == "tensorflow" else "default"
    options = program.parser().parse_args(["check", workload, "--framework", name, "--mode", mode])
    verdict = program.check_adapter(options)
    print(json.dumps(dict(verdict, taken=bool(taken()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
