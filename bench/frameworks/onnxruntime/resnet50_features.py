"""ResNet-50's features in ONNX operators, by an ordinary InferenceSession of ONNX Runtime.

Idiomatic here: the parameters are constants of the graph. By default the session then folds each normalisation into the convolution before
it, fuses ReLU and addition, and uses a blocked layout on a CPU (ONNX Runtime's page on graph optimizations). Input and output are
bound (IO binding), so only the images and the features are copied.
"""

from bench import contract
from bench.frameworks.onnxruntime_training._graph import Graph
from bench.frameworks.onnxruntime_training.framework import session
from bench.workloads.resnet50_features import EPSILON, FEATURES, SHAPE, blocks

STATISTICS = ("weight", "bias", "running_mean", "running_var")


def network(parameters):
    """The graph from "x", (N, 3, 224, 224), to "features", (N, 2048), for any N."""
    graph = Graph()
    add = graph.add

    def conv(x, name, size, stride=1, pad=0):
        weight = graph.constant(parameters[name + ".weight"])
        return add("Conv", x, weight, kernel_shape=(size, size), strides=(stride, stride), pads=(pad,) * 4)

    def norm(x, name):
        own = [graph.constant(parameters["%s.%s" % (name, end)]) for end in STATISTICS]
        # Evaluation uses the running statistics.
        return add("BatchNormalization", x, *own, epsilon=EPSILON)

    x = graph.input("x", ("N",) + SHAPE)
    x = add("Relu", norm(conv(x, "conv1", 7, 2, 3), "bn1"))
    x = add("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    for name, _, stride, shortcut in blocks():
        h = add("Relu", norm(conv(x, name + ".conv1", 1), name + ".bn1"))
        h = add("Relu", norm(conv(h, name + ".conv2", 3, stride, 1), name + ".bn2"))
        h = norm(conv(h, name + ".conv3", 1), name + ".bn3")
        if shortcut:
            x = norm(conv(x, name + ".downsample.0", 1, stride), name + ".downsample.1")
        x = add("Relu", add("Add", h, x))
    add("Flatten", add("GlobalAveragePool", x), name="features")
    graph.output("features", ("N", FEATURES))
    return graph


class Inference(contract.Inference):
    def __init__(self, setup):
        self.session = None

    def load(self, parameters):
        self.session = session(network(parameters).model().SerializeToString())

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    # No gradients in evaluation: they cost memory and time. This graph has none.
    def predict(self, x):
        binding = self.session.io_binding()
        binding.bind_cpu_input("x", x)
        # Without a device this is the host's memory.
        binding.bind_output("features")
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()
