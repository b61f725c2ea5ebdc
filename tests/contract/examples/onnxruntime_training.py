"""ONNX Runtime's published way: "On-Device Training" of its documentation, with training artifacts made from a model in ONNX.

As there: generate_artifacts with CrossEntropyLoss and an optimiser, then in each step module, optimizer.step, lazy_reset_grad. The
optimisers are those that it has: SGD without momentum, which is less work than the benchmark's, and AdamW. Other than there: the model is
written in ONNX's operators, the GRU unrolled since its operator has no gradient, and mini-batches come from NumPy.
"""

import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
from onnx import numpy_helper

from bench.frameworks.onnxruntime_training import cnn_cifar10 as cnn_adapter
from bench.frameworks.onnxruntime_training import gru_imdb as gru_adapter
from bench.frameworks.onnxruntime_training._graph import Graph


def packages():
    """onnxruntime.training's artifacts and api. It imports two more for users of PyTorch, and fails where that is not: they stay out."""
    for name in ("amp", "optim"):
        sys.modules.setdefault("onnxruntime.training." + name, ModuleType(name))
    from onnxruntime.training import api, artifacts

    return artifacts, api


def forward_model(adapter, shape, kind, classes):
    """The adapter's own network, with its parameters as initial values, which is what an exporter would write."""
    graph = Graph()
    graph.input("x", shape, kind)
    graph.add("Identity", adapter.network(adapter, graph, True), name="logits")
    graph.output("logits", (shape[0], classes))
    random = np.random.RandomState(0)
    for name, size in adapter.SHAPES.items():
        graph.constants[name] = numpy_helper.from_array(random.uniform(-0.05, 0.05, size).astype("float32"), name)
    return graph.model()


def loop(setup, adapter, optimizer, classes, x, y):
    artifacts, api = packages()
    y = y.astype("int64")
    model = forward_model(adapter, x.shape, str(x.dtype), classes)
    folder = Path(tempfile.mkdtemp())
    artifacts.generate_artifacts(
        model,
        requires_grad=list(adapter.SHAPES),
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=getattr(artifacts.OptimType, optimizer),
        artifact_directory=str(folder),
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup.threads
    state = api.CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    module = api.Module(
        str(folder / "training_model.onnx"), state, str(folder / "eval_model.onnx"), session_options=options
    )
    stepper = api.Optimizer(str(folder / "optimizer_model.onnx"), module)

    def step():
        module.train()
        loss = module(x, y)
        stepper.step()
        module.lazy_reset_grad()
        return loss

    return step


def cnn_cifar10(setup, x, y):
    return loop(setup, cnn_adapter.Training, "SGD", 10, x, y)


def gru_imdb(setup, x, y):
    return loop(setup, gru_adapter.Training, "AdamW", 2, x.astype("int64"), y)
