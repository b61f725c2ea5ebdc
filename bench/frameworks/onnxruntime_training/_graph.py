"""Writing an ONNX graph by hand, and training one.

ONNX Runtime's on-device training knows SGD without momentum and an AdamW with "epsilon hat" only. Its gradient builder, which is
under that, gives a plain ONNX graph: the optimiser is added to it, and the whole step is one graph and one run.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.frameworks.onnxruntime_training.framework import place, session, where

KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


class Graph(object):
    """Nodes and constants in the order in which they are added; add() returns the name of a node's output."""

    def __init__(self, prefix=""):
        self.prefix = prefix  # of every name that is made here, where two graphs become one
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
        """`name`: what its output is called; `outputs`: how many there are, given back as a list when not one."""
        count, name = attributes.pop("outputs", 1), attributes.pop("name", None)
        names = [name or "%s%s%d" % (self.prefix, operator.lower(), len(self.nodes))]
        if count > 1:
            names = ["%s.%d" % (names[0], index) for index in range(count)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names if count > 1 else names[0]

    def model(self):
        graph = helper.make_graph(self.nodes, "step", self.inputs, self.outputs, list(self.constants.values()))
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        onnx.checker.check_model(made)
        return made


class Trained(object):
    """A subclass gives SHAPES (parameter -> shape); network(graph, training) from input "x" to the logits, (batch, classes);
    update(graph, name, shape), which writes the optimiser of one parameter from `name` and `name_grad`, and returns state -> new
    value's name; SCALARS (name -> type), fed in every step as scalars(step) tells; and to_own(parameters), canonical(values).
    """

    SCALARS = {}

    def __init__(self, setup, shape, kind, classes):
        self.shape, self.kind, self.classes = shape, kind, classes
        self.forward = session(self._forward().SerializeToString())
        model = self._with_gradients(setup.training)
        self.backward = session(model.SerializeToString())
        self.step_session = session(self._with_updates(model).SerializeToString())
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
        # A7, A19: one softmax, sparse labels; the operator's second output is what its gradient needs
        graph.nodes.append(
            helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "y"], ["loss", "log_softmax"], reduction="mean")
        )
        graph.output("loss", ())
        graph.output("logits", (self.shape[0], self.classes))
        from onnxruntime.capi._pybind_state import GradientGraphBuilder  # the package for inference has none

        builder = GradientGraphBuilder(graph.model().SerializeToString(), {"loss"}, set(self.SHAPES), "loss", None)
        builder.build()
        return onnx.load_from_string(builder.get_model())

    def _with_updates(self, model):
        """The same graph, with new parameters and a new state for outputs instead of gradients."""
        graph = Graph("update/")
        for name, kind in self.SCALARS.items():
            graph.input(name, (), kind)
        self.state = {}  # input -> output, for parameters and what the optimiser keeps
        for name, shape in self.SHAPES.items():
            for kept, new in self.update(graph, name, shape).items():
                self.state[kept] = new
                if kept != name:
                    graph.input(kept, shape)
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
        own = self.to_own(parameters)
        shapes = {kept: self.SHAPES[kept.split("/")[0]] for kept in self.state}
        self.values = {
            kept: place(np.ascontiguousarray(own[kept]) if kept in own else np.zeros(shapes[kept], "float32"))
            for kept in self.state
        }
        # what a step reads cannot be what it writes: two sets, used in turn
        self.spare = {kept: place(np.zeros(shapes[kept], "float32")) for kept in self.state}
        self.steps = 0

    def scalars(self, step):
        return {}

    def _bound(self, running, x, y):
        binding = running.io_binding()
        binding.bind_cpu_input("x", x)
        if y is not None:
            binding.bind_cpu_input("y", y)
        for name in {found.name for found in running.get_inputs()} & set(self.values):
            binding.bind_ortvalue_input(name, self.values[name])
        return binding

    def step(self, x, y):
        self.steps += 1
        binding = self._bound(self.step_session, x, y)
        for name, value in self.scalars(self.steps).items():
            binding.bind_cpu_input(name, np.array(value, self.SCALARS[name]))
        for kept, new in self.state.items():
            binding.bind_ortvalue_output(new, self.spare[kept])
        binding.bind_output("loss", where())
        self.step_session.run_with_iobinding(binding)
        self.values, self.spare = self.spare, self.values
        return binding.get_outputs()[-1]

    def value(self, loss):
        return float(loss.numpy())

    def probe(self, x, y):
        outputs = [found.name for found in self.backward.get_outputs()]
        feeds = {name: self.values[name].numpy() for name in self.SHAPES}
        found = dict(zip(outputs, self.backward.run(outputs, dict(feeds, x=x, y=y))))
        gradients = {name: found[name + "_grad"] for name in self.SHAPES}
        return found["logits"], float(found["loss"]), self.canonical(gradients)

    def predict(self, x):
        binding = self._bound(self.forward, x, None)  # A21: a graph without gradients
        binding.bind_output("logits")
        self.forward.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()

    def read(self):
        return self.canonical({name: self.values[name].numpy() for name in self.SHAPES})

    def inputs(self, x, y):
        return x, y.astype("int64")
