"""Run in TensorFlow's environment: which networks XLA compiles where TensorFlow lists a GPU, as JSON. The GPU is a stand-in in that list.

Nothing is computed: networks and their loops are built, and what they decided is read.
"""

import json
import types

import tensorflow as tf

from bench.contract import Setup, load_adapter, load_framework
from bench.frameworks.tensorflow import framework as tensorflow

SETUP = Setup("cpu", "fp32", "default", 1, 1, True)
GPU = types.SimpleNamespace(name="/physical_device:GPU:0", device_type="GPU")


def with_gpu(listed):
    """The list of devices, with a GPU in it."""
    return lambda kind=None: [GPU] if kind == "GPU" else [*listed(kind), *([] if kind else [GPU])]


found = {}
load_framework("keras_tensorflow").configure(SETUP)
tf.config.list_physical_devices = with_gpu(tf.config.list_physical_devices)
tf.config.list_logical_devices = with_gpu(tf.config.list_logical_devices)
for workload in ("gru-imdb", "mlp-mnist", "cnn-cifar10"):
    found["keras_tensorflow " + workload] = load_adapter("keras_tensorflow", workload)(SETUP).loop.xla
for mode in ("default", "xla"):
    tensorflow._xla = mode == "xla"
    (gru,) = [
        each for each in load_adapter("tensorflow", "gru-imdb")(SETUP).network.layers if hasattr(each, "use_cudnn")
    ]
    found["tensorflow gru-imdb %s: cuDNN" % mode] = gru.use_cudnn
print(json.dumps(found))
