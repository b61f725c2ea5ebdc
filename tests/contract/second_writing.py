"""Every workload that is trained, and resnet50-features, written a second time, in torch, from the specifications' sentences.

Nothing here comes from bench.reference, bench.canonical or a specification's code: networks, losses, optimisers, the order of the draws
are written anew. Gradients are autograd's. A network is a function of (parameters, batch, ops): `ops` computes its products, so that
the same network can be computed in float64 (recomputed.py) or by another float32 arithmetic (honest_arithmetic.py).
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

SEED = 20171124


class Ops:
    """The products and nonlinear functions of a network, as torch computes them in the type of its arguments. Dropout is off."""

    conv2d = staticmethod(F.conv2d)
    linear = staticmethod(F.linear)
    sigmoid = staticmethod(torch.sigmoid)
    tanh = staticmethod(torch.tanh)
    dropout = staticmethod(lambda x, share: x)


# -- parameters, in the order in which they are drawn: (name, shape, kind, fan in, fan out, matrices drawn one after another) ----------


def weight(name, shape, fan_in, fan_out, matrices=1):
    return name, shape, "weight", fan_in, fan_out, matrices


def vector(name, size, kind="bias"):
    return name, (size,), kind, None, None, 1


def convolved(name, channels, maps, side, end=".w"):
    return weight(name + end, (maps, channels, side, side), channels * side * side, maps * side * side)


def connected(name, units, outputs):
    return [weight(name + ".w", (outputs, units), units, outputs), vector(name + ".b", outputs)]


def normalised(name, maps):
    ends = (("weight", "scale"), ("bias", "bias"), ("running_mean", "mean"), ("running_var", "variance"))
    return [vector(f"{name}.{end}", maps, kind) for end, kind in ends]


def cnn_cifar10_parameters():
    layers = (("conv1", 3, 50), ("conv2", 50, 50), ("conv3", 50, 100), ("conv4", 100, 100))
    listed = [entry for n, i, o in layers for entry in (convolved(n, i, o, 3), vector(n + ".b", o))]
    return listed + connected("dense1", 6400, 512) + connected("dense2", 512, 10)


def gru_imdb_parameters(one_bias=False):
    listed = [
        weight("embedding", (30000, 125), 30000, 125),
        weight("gru.w", (300, 125), 125, 100, 3),
        vector("gru.b", 300),
        weight("gru.u", (300, 100), 100, 100, 3),
        vector("gru.c", 300),
        *connected("dense", 100, 2),
    ]
    return [entry for entry in listed if not (one_bias and entry[0] == "gru.c")]


def mlp_mnist_parameters():
    return connected("dense1", 784, 32) + connected("dense2", 32, 10)


def cnn_mnist_parameters():
    first = [convolved("conv1", 1, 16, 2), vector("conv1.b", 16)]
    return [*first, convolved("conv2", 16, 8, 2), vector("conv2.b", 8), *connected("dense", 288, 10)]


# blocks, channels inside, stride of the first block
RESNET = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
DENSENET = (6, 12, 24, 16)


def resnet50_parameters():
    listed, maps = [convolved("conv1", 3, 64, 7, ".weight"), *normalised("bn1", 64)], 64
    for group, (count, inside, _) in enumerate(RESNET, 1):
        for index in range(count):
            name = f"layer{group}.{index}"
            for layer, channels, outputs, side in (
                (1, maps, inside, 1),
                (2, inside, inside, 3),
                (3, inside, 4 * inside, 1),
            ):
                listed.append(convolved(f"{name}.conv{layer}", channels, outputs, side, ".weight"))
                listed += normalised(f"{name}.bn{layer}", outputs)
            if index == 0:
                listed.append(convolved(f"{name}.downsample.0", maps, 4 * inside, 1, ".weight"))
                listed += normalised(f"{name}.downsample.1", 4 * inside)
            maps = 4 * inside
    return listed


def resnet50_imagenet_parameters():
    return [*resnet50_parameters(), weight("fc.weight", (1000, 2048), 2048, 1000), vector("fc.bias", 1000)]


def densenet121_parameters():
    listed, maps = [convolved("features.conv0", 3, 64, 7, ".weight"), *normalised("features.norm0", 64)], 64
    for block, layers in enumerate(DENSENET, 1):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            listed += [*normalised(name + ".norm1", maps), convolved(name + ".conv1", maps, 128, 1, ".weight")]
            listed += [*normalised(name + ".norm2", 128), convolved(name + ".conv2", 128, 32, 3, ".weight")]
            maps += 32
        if block < len(DENSENET):
            name = f"features.transition{block}"
            listed += [*normalised(name + ".norm", maps), convolved(name + ".conv", maps, maps // 2, 1, ".weight")]
            maps //= 2
    listed += normalised("features.norm5", maps)
    return [*listed, weight("classifier.weight", (14, maps), maps, 14), vector("classifier.bias", 14)]


def draw(listed, random, training=False):
    """name -> float32 array: Glorot uniform weights; the rest is drawn at random too, but where training starts a bias is zero."""
    drawn = {}
    for name, shape, kind, fan_in, fan_out, matrices in listed:
        if kind == "weight":
            limit = math.sqrt(6.0 / (fan_in + fan_out))
            part = (shape[0] // matrices, *shape[1:])
            value = np.concatenate([random.uniform(-limit, limit, part) for _ in range(matrices)])
        elif training and kind == "bias":
            value = np.zeros(shape)
        elif kind == "mean":
            value = random.normal(0.0, 0.1, shape)
        else:
            low, high = (-0.1, 0.1) if kind == "bias" else (0.5, 1.5)
            value = random.uniform(low, high, shape)
        drawn[name] = value.astype("float32")
    return drawn


# -- networks ------------------------------------------------------------------------------------------------------------------------


def cnn_cifar10(p, x, ops):
    h = F.relu(ops.conv2d(x, p["conv1.w"], p["conv1.b"], padding=1))
    h = ops.dropout(F.relu(F.max_pool2d(ops.conv2d(h, p["conv2.w"], p["conv2.b"], padding=1), 2)), 0.25)
    h = F.relu(ops.conv2d(h, p["conv3.w"], p["conv3.b"], padding=1))
    h = ops.dropout(F.relu(F.max_pool2d(ops.conv2d(h, p["conv4.w"], p["conv4.b"], padding=1), 2)), 0.25)
    h = ops.dropout(F.relu(ops.linear(h.flatten(1), p["dense1.w"], p["dense1.b"])), 0.5)
    return ops.linear(h, p["dense2.w"], p["dense2.b"])


def gru_imdb(p, x, ops):
    """r = s(W x + b + U h + c), z alike, n = tanh(W x + b + r (U h + c)), h' = (1 - z) n + z h; variant one-bias has no c."""
    given = ops.linear(F.embedding(x, p["embedding"]), p["gru.w"], p["gru.b"])
    h = given.new_zeros(len(x), 100)
    for position in range(x.shape[1]):
        ri, zi, ni = given[:, position].split(100, 1)
        rh, zh, nh = ops.linear(h, p["gru.u"], p.get("gru.c")).split(100, 1)
        r, z = ops.sigmoid(ri + rh), ops.sigmoid(zi + zh)
        h = (1 - z) * ops.tanh(ni + r * nh) + z * h
    return ops.linear(h, p["dense.w"], p["dense.b"])


def mlp_mnist(p, x, ops):
    return ops.linear(F.relu(ops.linear(x.flatten(1), p["dense1.w"], p["dense1.b"])), p["dense2.w"], p["dense2.b"])


def cnn_mnist(p, x, ops):
    h = F.max_pool2d(F.relu(ops.conv2d(x, p["conv1.w"], p["conv1.b"])), 2)
    h = F.max_pool2d(F.relu(ops.conv2d(h, p["conv2.w"], p["conv2.b"])), 2)
    return ops.linear(h.flatten(1), p["dense.w"], p["dense.b"])


class Evaluation:
    """Batch normalisation with the running statistics."""

    def __call__(self, p, name, x):
        mean, variance, scale, shift = (p[f"{name}.{end}"] for end in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, variance, scale, shift, False, 0.0, 1e-5)


class PartsApart:
    """Batch normalisation in training: each of `parts` equal parts by its own statistics; `moved` holds where the running ones go.

    A tenth of the way to the mean over the parts. The variance is moved twice: by the unbiased and by the biased estimate.
    """

    def __init__(self, parts):
        self.parts, self.moved = parts, {}

    def __call__(self, p, name, x):
        shares = x.chunk(self.parts)
        for end, old, estimates in (
            ("running_mean", "running_mean", [s.mean((0, 2, 3)) for s in shares]),
            ("running_var", "running_var", [s.var((0, 2, 3), correction=1) for s in shares]),
            ("running_var.biased", "running_var.biased", [s.var((0, 2, 3), correction=0) for s in shares]),
        ):
            before = p.get(f"{name}.{old}", p[name + ".running_var"])
            estimate = torch.stack(estimates).mean(0).detach()
            self.moved[f"{name}.{end}"] = 0.9 * before.detach() + 0.1 * estimate
        scale, shift = p[name + ".weight"], p[name + ".bias"]
        return torch.cat([F.batch_norm(share, None, None, scale, shift, True, 0.0, 1e-5) for share in shares])


def resnet50(p, x, ops, norm):
    """The mean over each of 2 048 maps."""

    def unit(x, conv, bn, stride=1, padding=0):
        return norm(p, bn, ops.conv2d(x, p[conv + ".weight"], None, stride, padding))

    h = F.max_pool2d(F.relu(unit(x, "conv1", "bn1", 2, 3)), 3, 2, 1)
    for group, (count, _, first) in enumerate(RESNET, 1):
        for index in range(count):
            name, stride = f"layer{group}.{index}", first if index == 0 else 1
            through = F.relu(unit(h, name + ".conv1", name + ".bn1"))
            through = F.relu(unit(through, name + ".conv2", name + ".bn2", stride, 1))
            through = unit(through, name + ".conv3", name + ".bn3")
            shortcut = unit(h, name + ".downsample.0", name + ".downsample.1", stride) if index == 0 else h
            h = F.relu(through + shortcut)
    return h.mean((2, 3))


def resnet50_imagenet(p, x, ops, norm):
    return ops.linear(resnet50(p, x, ops, norm), p["fc.weight"], p["fc.bias"])


def densenet121(p, x, ops, norm):
    def unit(x, bn, conv, padding=0):
        return ops.conv2d(F.relu(norm(p, bn, x)), p[conv + ".weight"], None, 1, padding)

    h = ops.conv2d(x, p["features.conv0.weight"], None, 2, 3)
    h = F.max_pool2d(F.relu(norm(p, "features.norm0", h)), 3, 2, 1)
    for block, layers in enumerate(DENSENET, 1):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            new = unit(unit(h, name + ".norm1", name + ".conv1"), name + ".norm2", name + ".conv2", 1)
            h = torch.cat([h, new], 1)
        if block < len(DENSENET):
            name = f"features.transition{block}"
            h = F.avg_pool2d(unit(h, name + ".norm", name + ".conv"), 2)
    h = F.relu(norm(p, "features.norm5", h)).mean((2, 3))
    return ops.linear(h, p["classifier.weight"], p["classifier.bias"])


# -- optimisers: one step of name -> tensor, in place ----------------------------------------------------------------------------------


class Momentum:
    """v = 0.9 v + g + decay w; w = w - rate v."""

    def __init__(self, decay=0.0):
        self.decay, self.velocity = decay, {}

    def step(self, p, gradients, rate):
        for name, gradient in gradients.items():
            gradient = gradient + self.decay * p[name]
            self.velocity[name] = 0.9 * self.velocity[name] + gradient if name in self.velocity else gradient
            p[name] = p[name] - rate * self.velocity[name]


class Adam:
    """Algorithm 1 of Kingma and Ba: beta 0.9 and 0.999, bias-corrected, 1e-8 outside the root. decay: of matrices, AdamW's."""

    def __init__(self, beta=0.999, decay=0.0):
        self.steps, self.first, self.second, self.beta, self.decay = 0, {}, {}, beta, decay

    def step(self, p, gradients, rate):
        self.steps += 1
        for name, g in gradients.items():
            zero = torch.zeros_like(g)
            self.first[name] = 0.9 * self.first.get(name, zero) + 0.1 * g
            self.second[name] = self.beta * self.second.get(name, zero) + (1 - self.beta) * g * g
            m = self.first[name] / (1 - 0.9**self.steps)
            v = self.second[name] / (1 - self.beta**self.steps)
            p[name] = p[name] * (1 - rate * self.decay * (g.dim() > 1)) - rate * m / (v.sqrt() + 1e-8)


# -- workloads -------------------------------------------------------------------------------------------------------------------------


def softmax_loss(logits, y):
    return F.cross_entropy(logits, y)


def sigmoid_loss(logits, y):
    return F.binary_cross_entropy_with_logits(logits, y)


def labels(random, classes, many):
    return random.randint(0, classes, many).astype("int64")


def cnn_cifar10_batch(random):
    return random.uniform(0.0, 1.0, (64, 3, 32, 32)).astype("float32"), labels(random, 10, 64)


def gru_imdb_batch(random):
    """Reviews of 90 to 150 tokens of ids from 1, padded on the right with id 0."""
    x = random.randint(1, 30000, (64, 150)).astype("int64")
    for review, length in zip(x, random.randint(90, 151, 64), strict=True):
        review[length:] = 0
    return x, labels(random, 2, 64)


def mlp_mnist_batch(random):
    return random.uniform(0.0, 1.0, (1000, 1, 28, 28)).astype("float32"), labels(random, 10, 1000)


def cnn_mnist_batch(random):
    return random.standard_normal((100, 1, 28, 28)).astype("float32"), labels(random, 10, 100)


def resnet50_imagenet_batch(random):
    return random.uniform(0.0, 1.0, (8, 3, 64, 64)).astype("float32"), labels(random, 1000, 8)


def densenet121_batch(random):
    x = random.uniform(0.0, 1.0, (4, 3, 64, 64)).astype("float32")
    return x, random.randint(0, 2, (4, 14)).astype("float32")


def remembering(parameters, batches):
    """The update gate's bias is 3 more, so that the gate is about 0.95; the batches share out all ids, and have some in common."""
    parameters["gru.b"][100:200] += 3
    random, common, at = np.random.RandomState(30000), [*range(1, 10), 29999], 0
    rest = random.permutation([word for word in range(1, 30000) if word not in common])
    for x, _ in batches:
        places = np.argwhere(x > 0)
        shared = [rest[(at + index) % len(rest)] for index in range(len(places) - len(common))]
        at += len(shared)
        for (review, position), word in zip(places, random.permutation(common + shared), strict=True):
            x[review, position] = word


def dimmed(parameters, batches):
    """The last batch's images are dimmed to a fiftieth."""
    x, y = batches[-1]
    batches[-1] = x * np.float32(0.02), y


class Written:
    """One workload: its parameters' list, the draw of one batch, network, loss, optimiser, and the rate of each step.

    adjusted: changes the drawn parameters and the batches in place. symmetric: the end of the names of tensors without a gradient.
    """

    symmetric = ".k.b"

    def __init__(self, listed, batch, network, optimiser, rates, loss=softmax_loss, deep=False, adjusted=None):
        self.listed, self.batch, self.network, self.optimiser = listed, batch, network, optimiser
        self.rates, self.loss, self.deep, self.adjusted = rates, loss, deep, adjusted

    def case(self, *variant):
        """(name -> float32 array, the (x, y) of each step): the canonical case."""
        random = np.random.RandomState(SEED)
        parameters = draw(self.listed(*variant), random)
        batches = [self.batch(random) for _ in self.rates]
        if self.adjusted:
            self.adjusted(parameters, batches)
        return parameters, batches


WRITTEN = {
    "cnn-cifar10": Written(cnn_cifar10_parameters, cnn_cifar10_batch, cnn_cifar10, Momentum, (0.01,) * 3),
    "gru-imdb": Written(gru_imdb_parameters, gru_imdb_batch, gru_imdb, Adam, (0.001,) * 4, adjusted=remembering),
    "mlp-mnist": Written(mlp_mnist_parameters, mlp_mnist_batch, mlp_mnist, Adam, (0.001,) * 3, adjusted=dimmed),
    "cnn-mnist": Written(cnn_mnist_parameters, cnn_mnist_batch, cnn_mnist, Adam, (0.001,) * 3),
    "resnet50-imagenet": Written(
        resnet50_imagenet_parameters,
        resnet50_imagenet_batch,
        resnet50_imagenet,
        lambda: Momentum(1e-4),
        (1e-7, 1e-7, 0.1 * 32 / 256),
        deep=True,
    ),
    "densenet121-chestxray": Written(
        densenet121_parameters, densenet121_batch, densenet121, Adam, (1e-4, 1e-4, 2e-4), sigmoid_loss, deep=True
    ),
}
