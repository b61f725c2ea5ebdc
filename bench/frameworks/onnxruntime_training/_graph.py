"""Writing an ONNX graph by hand, and training one.

ONNX Runtime's on-device training has only SGD without momentum and an AdamW with "epsilon hat". The gradient builder below it makes a
plain ONNX graph. The optimiser is added to that graph, so the whole step is one graph and one run.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench import contract
from bench.frameworks.onnxruntime_training.framework import place, session, where

KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


class Graph(object):
    """Nodes and constants in the order of their addition. add() returns the name of the node's output."""

    def __init__(self, prefix=""):
        # The prefix keeps the names of two graphs apart that become one.
        self.prefix = prefix
        self.nodes, self.constants, self.inputs, self.outputs = [], {}, [], []

    def input(self, name, shape, kind="float32"):
        self.inputs.append(helper.make_tensor_value_info(name, KINDS[kind], shape))
        return name

    def output(self, name, shape):
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, value):
        value = np.asarray(value)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(value, "%sconstant%d" % (self.prefix, len(self.constants)))
        return self.constants[key].name

    def add(self, operator, *inputs, **attributes):
        """`name`: the name of the output. `outputs`: their number; several are returned as a list."""
        count, name = attributes.pop("outputs", 1), attributes.pop("name", None)
        names = [name or "%s%s%d" % (self.prefix, operator.lower(), len(self.nodes))]
        if count > 1:
            names = ["%s.%d" % (names[0], index) for index in range(count)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names if count > 1 else names[0]

    def model(self):
        graph = helper.make_graph(self.nodes, "step", self.inputs, self.outputs, list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        onnx.checker.check_model(model)
        return model


class Trained(contract.Training):
    """A subclass has SHAPES (parameter -> shape), and SCALARS (name -> type), inputs of every step with the values of scalars(step).

    network(graph, training) writes the nodes from the input "x" to the logits, (batch, classes), and returns their name. update(graph,
    name, shape) writes the optimiser of a parameter from `name` and `name_grad`, and returns state -> name of its new value.
    to_own(parameters) and canonical(values) turn canonical arrays into the graph's and back.
    """

    SCALARS = {}

    def __init__(self, setup, shape, kind, classes):
        self.shape, self.kind, self.classes = shape, kind, classes
        self.forward = session(self._forward().SerializeToString())
        model = self._with_gradients(setup.training)
        self.backward = session(model.SerializeToString(), whole=False)
        self.step_session = session(self._with_updates(model).SerializeToString(), whole=False)
        self.values = self.spare = None
        self.steps = 0

    def _graph(self, training):
        graph = Graph()
        graph.input("x", self.shape, self.kind)
        for name in self.SHAPES:
            graph.input(name, self.SHAPES[name])
        graph.add("Identity", self.network(graph, training), name="logits")
        return graph

    def _forward(self):
        graph = self._graph(False)
        graph.output("logits", (self.shape[0], self.classes))
        return graph.model()

    def _with_gradients(self, training):
        graph = self._graph(training)
        graph.input("y", self.shape[:1], "int64")
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        # The operator's gradient needs the second output.
        loss = helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "y"], ["loss", "log_softmax"], reduction="mean")
        graph.nodes.append(loss)
        graph.output("loss", ())
        graph.output("logits", (self.shape[0], self.classes))
        # The package for inference does not have it.
        from onnxruntime.capi._pybind_state import GradientGraphBuilder

        builder = GradientGraphBuilder(graph.model().SerializeToString(), {"loss"}, set(self.SHAPES), "loss", None)
        builder.build()
        return onnx.load_from_string(builder.get_model())

    def _with_updates(self, model):
        """The same graph; its outputs are the new parameters and the new state, not the gradients."""
        graph = Graph("update/")
        for name, kind in self.SCALARS.items():
            graph.input(name, (), kind)
        # input -> output, for the parameters and the optimiser's state
        self.state = {}
        for name, shape in self.SHAPES.items():
            for old, new in self.update(graph, name, shape).items():
                self.state[old] = new
                if old != name:
                    graph.input(old, shape)
                graph.output(new, shape)
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        loss = [output for output in whole.graph.output if output.name == "loss"]
        del whole.graph.output[:]
        whole.graph.output.extend(loss + graph.outputs)
        whole.graph.input.extend(graph.inputs)
        whole.graph.initializer.extend(graph.constants.values())
        whole.graph.node.extend(graph.nodes)
        return whole

    def load(self, parameters):
        def zeros(name):
            return np.zeros(self.SHAPES[name.split("/")[0]], "float32")

        own = self.to_own(parameters)
        # Copies: on a CPU ONNX Runtime keeps the array's memory, and the second step writes to it.
        self.values = {
            name: place(np.array(own[name], order="C") if name in own else zeros(name)) for name in self.state
        }
        # A step cannot write to the memory that it reads: two sets, used in turn.
        self.spare = {name: place(zeros(name)) for name in self.state}
        self.steps = 0

    def read(self):
        return self.canonical({name: self.values[name].numpy() for name in self.SHAPES})

    def inputs(self, x, y):
        return x, y.astype("int64")

    # There is no updates(): Adam is fed the number of its step, and Momentum has none.
    def scalars(self, step):
        return {}

    def _bound(self, used, x, y):
        binding = used.io_binding()
        binding.bind_cpu_input("x", x)
        if y is not None:
            binding.bind_cpu_input("y", y)
        for name in {argument.name for argument in used.get_inputs()} & set(self.values):
            binding.bind_ortvalue_input(name, self.values[name])
        return binding

    def probe(self, x, y):
        outputs = [argument.name for argument in self.backward.get_outputs()]
        feeds = {name: self.values[name].numpy() for name in self.SHAPES}
        results = dict(zip(outputs, self.backward.run(outputs, dict(feeds, x=x, y=y))))
        gradients = {name: results[name + "_grad"] for name in self.SHAPES}
        return results["logits"], float(results["loss"]), self.canonical(gradients)

    def step(self, x, y):
        self.steps += 1
        binding = self._bound(self.step_session, x, y)
        for name, value in self.scalars(self.steps).items():
            binding.bind_cpu_input(name, np.array(value, self.SCALARS[name]))
        for old, new in self.state.items():
            binding.bind_ortvalue_output(new, self.spare[old])
        binding.bind_output("loss", where())
        self.step_session.run_with_iobinding(binding)
        self.values, self.spare = self.spare, self.values
        return binding.get_outputs()[-1]

    def value(self, loss):
        return float(loss.numpy())

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        binding = self._bound(self.forward, x, None)
        binding.bind_output("logits")
        self.forward.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()
