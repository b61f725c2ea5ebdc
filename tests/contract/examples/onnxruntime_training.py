"""ONNX Runtime's published way: "On-Device Training" of its documentation, with training artifacts made from a model in ONNX.

As there: generate_artifacts with CrossEntropyLoss and an optimiser, then in each step module, optimizer.step, lazy_reset_grad. The
optimisers are those that it has: SGD without momentum, which is less work than the benchmark's, and AdamW. Other than there: the model is
written with onnx.helper, where the documentation exports it from PyTorch, the GRU unrolled since its operator has no gradient for float32,
and mini-batches come from NumPy.
"""

import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


class Model:
    """Nodes in the order of their addition, and initial values; what an exporter would write."""

    def __init__(self):
        self.nodes, self.values = [], {}
        self.random = np.random.RandomState(0)

    def parameter(self, name, *shape):
        return self.constant(self.random.uniform(-0.05, 0.05, shape).astype("float32"), name)

    def constant(self, value, name=None):
        name = name or f"constant{len(self.values)}"
        self.values[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def add(self, operator, *inputs, outputs=1, **attributes):
        names = [f"{operator}{len(self.nodes)}.{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def proto(self, x, output, classes):
        kind = TensorProto.FLOAT if x.dtype == np.float32 else TensorProto.INT64
        self.nodes.append(helper.make_node("Identity", [output], ["output"]))
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info("input", kind, x.shape)],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, (len(x), classes))],
            list(self.values.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def cnn(x):
    model = Model()

    def conv(x, name, inputs, outputs):
        weight, bias = (
            model.parameter(name + ".weight", outputs, inputs, 3, 3),
            model.parameter(name + ".bias", outputs),
        )
        return model.add("Relu", model.add("Conv", x, weight, bias, kernel_shape=(3, 3), pads=(1, 1, 1, 1)))

    def linear(x, name, inputs, outputs):
        weight, bias = model.parameter(name + ".weight", outputs, inputs), model.parameter(name + ".bias", outputs)
        return model.add("Gemm", x, weight, bias, transB=1)

    # The gradient needs the second output, the mask.
    def dropout(x, rate):
        training = model.constant(np.array(True))
        return model.add("Dropout", x, model.constant(np.float32(rate)), training, outputs=2)[0]

    def pool(x):
        return dropout(model.add("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2)), 0.25)

    h = pool(conv(conv("input", "conv1", 3, 50), "conv2", 50, 50))
    h = pool(conv(conv(h, "conv3", 50, 100), "conv4", 100, 100))
    h = model.add("Reshape", h, model.constant(np.array([len(x), 6400])))
    h = dropout(model.add("Relu", linear(h, "fc1", 6400, 512)), 0.5)
    return model.proto(x, linear(h, "fc2", 512, 10), 10)


def sentiment(x):
    model = Model()
    add = model.add
    words = add("Gather", model.parameter("embedding", 30000, 125), add("Transpose", "input", perm=(1, 0)))
    inputs, biases = model.parameter("weight_ih", 125, 300), model.parameter("bias_ih", 300)
    recurrent, recurrent_bias = model.parameter("weight_hh", 100, 300), model.parameter("bias_hh", 300)
    positions = add("Split", add("Add", add("MatMul", words, inputs), biases), axis=0, outputs=x.shape[1])
    h, first = model.constant(np.zeros((len(x), 100), "float32")), model.constant(np.array([0]))
    for position in positions:
        x_r, x_z, x_n = add("Split", add("Squeeze", position, first), axis=1, outputs=3)
        h_r, h_z, h_n = add("Split", add("Gemm", h, recurrent, recurrent_bias), axis=1, outputs=3)
        r, z = add("Sigmoid", add("Add", x_r, h_r)), add("Sigmoid", add("Add", x_z, h_z))
        n = add("Tanh", add("Add", x_n, add("Mul", r, h_n)))
        h = add("Add", n, add("Mul", z, add("Sub", h, n)))
    logits = add("Gemm", h, model.parameter("fc.weight", 2, 100), model.parameter("fc.bias", 2), transB=1)
    return model.proto(x, logits, 2)


def packages():
    """onnxruntime.training's artifacts and api. It imports two more for users of PyTorch, and fails where that is not: they stay out."""
    for name in ("amp", "optim"):
        sys.modules.setdefault("onnxruntime.training." + name, ModuleType(name))
    from onnxruntime.training import api, artifacts

    return artifacts, api


def loop(setup, model, optimizer, x, y):
    artifacts, api = packages()
    y = y.astype("int64")
    folder = Path(tempfile.mkdtemp())
    artifacts.generate_artifacts(
        model,
        requires_grad=[value.name for value in model.graph.initializer if not value.name.startswith("constant")],
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
    return loop(setup, cnn(x), "SGD", x, y)


def gru_imdb(setup, x, y):
    x = x.astype("int64")
    return loop(setup, sentiment(x), "AdamW", x, y)
