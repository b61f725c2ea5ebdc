"""ResNet-50's features in MXNet's Module: a Symbol, bound for inference only.

Idiomatic here: for_training=False binds no gradients and makes the normalisations use their running statistics. A batch of another size
makes the Module bind again. BatchNorm's defaults do not fit: fix_gamma would fix the factor to 1, and epsilon would be 1e-3.
"""

import mxnet as mx

from bench import contract
from bench.frameworks.mxnet.framework import context
from bench.workloads.resnet50_features import BATCH, EPSILON, EXPANSION, PARAMETERS, SHAPE, blocks

# torchvision's name for a vector of a normalisation -> the Symbol's
NORMALISATION = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_var"}


def symbol():
    """Images (N, 3, 224, 224) -> features (N, 2048)."""
    sym = mx.sym

    def conv(x, name, filters, size, stride=1, pad=0):
        options = {"kernel": (size, size), "stride": (stride, stride), "pad": (pad, pad), "no_bias": True}
        return sym.Convolution(x, num_filter=filters, name=name, **options)

    # Activation computes in the layout that oneDNN's layers hand on. sym.relu would have it converted, there and back.
    def relu(x):
        return sym.Activation(x, act_type="relu")

    def norm(x, name):
        return sym.BatchNorm(x, eps=EPSILON, fix_gamma=False, name=name)

    x = relu(norm(conv(sym.Variable("data"), "conv1", 64, 7, 2, 3), "bn1"))
    x = sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    for name, channels, stride, shortcut in blocks():
        h = relu(norm(conv(x, name + ".conv1", channels, 1), name + ".bn1"))
        h = relu(norm(conv(h, name + ".conv2", channels, 3, stride, 1), name + ".bn2"))
        h = norm(conv(h, name + ".conv3", EXPANSION * channels, 1), name + ".bn3")
        if shortcut:
            x = norm(conv(x, name + ".downsample.0", EXPANSION * channels, 1, stride), name + ".downsample.1")
        x = relu(h + x)
    return sym.flatten(sym.Pooling(x, kernel=(7, 7), global_pool=True, pool_type="avg"))


def own_name(spec):
    layer, end = spec.name.rsplit(".", 1)
    return "%s_%s" % (layer, "weight" if spec.kind == "weight" else NORMALISATION[end])


class Inference(contract.Inference):
    def __init__(self, setup):
        self.context = context(setup)
        self.module = mx.mod.Module(symbol(), ["data"], None, context=self.context)
        self.module.bind([("data", (BATCH,) + SHAPE)], for_training=False)

    def load(self, parameters):
        # Module keeps the trained parameters and the running statistics apart.
        trained, running = {}, {}
        for spec in PARAMETERS:
            arrays = running if spec.kind in ("mean", "variance") else trained
            arrays[own_name(spec)] = mx.nd.array(parameters[spec.name])
        self.module.set_params(trained, running)

    def inputs(self, x):
        # Channels first, the layout that cuDNN computes in.
        return x

    # No gradients in evaluation: they cost memory and time. Evaluation uses the running statistics.
    def predict(self, x):
        self.module.forward(mx.io.DataBatch([mx.nd.array(x, ctx=self.context)]), is_train=False)
        return self.module.get_outputs()[0].asnumpy()
