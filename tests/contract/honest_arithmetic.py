"""What the parity gate says of networks that are right, computed in another float32 arithmetic; of TF32 where it is asked for or not; of
gates that are too coarse for float32.

Runs in an interpreter that has torch: honest_arithmetic.py NAME [WORKLOAD]... prints one JSON object, "NAME WORKLOAD PRECISION" -> the
largest error divided by its bound and where, or the refusal. NAME is one of ARITHMETICS or of ADAPTERS: the PyTorch adapters as they are,
under the switches that the environment's variables set. test_honest_arithmetic.py holds what must pass and what must not.
"""

import json
import sys
from fractions import Fraction

import numpy as np
import second_writing as written
import torch
import torch.nn.functional as F

from bench import contract, parity
from bench.contract import Setup
from bench.errors import BenchError
from bench.frameworks.torch import framework

SETUP = Setup("cpu", "fp32", "default", 2, 1, False)
TRAINED = ("cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist")
FEATURES = "resnet50-features"
random = torch.Generator().manual_seed(1)

# -- products ------------------------------------------------------------------------------------------------------------------------


def in_ten_parts(a, b):
    """a b, the terms of each sum in a random order, in ten parts that are added in a random order."""
    terms = torch.randperm(a.shape[1], generator=random)
    parts = [a[:, some] @ b[some] for some in terms.chunk(10)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def to_nearest(value):
    """float32 rounded to the 10 bits of fraction of TF32, halves away from zero (cvt.rna)."""
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def truncated(value):
    """float32 without the last 13 bits of its fraction."""
    return (value.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def of_rounded(first, second):
    return lambda a, b: first(a) @ second(b)


def product_by(multiply):
    """A differentiable product of two matrices whose gradients' products are computed by `multiply` as well."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return multiply(a, b)

        @staticmethod
        def backward(ctx, d):
            a, b = ctx.saved_tensors
            da = multiply(d, b.T) if ctx.needs_input_grad[0] else None
            db = multiply(a.T, d) if ctx.needs_input_grad[1] else None
            return da, db

    return Product.apply


class Products(written.Ops):
    """Every product of a network, forward and backward, as one of two matrices by `multiply`."""

    def __init__(self, multiply):
        self.product = product_by(multiply)

    def linear(self, x, w, b=None):
        y = self.product(x.reshape(-1, x.shape[-1]), w.T).reshape(*x.shape[:-1], len(w))
        return y if b is None else y + b

    def conv2d(self, x, w, b=None, stride=1, padding=0):
        side = w.shape[2]
        rows, columns = ((length + 2 * padding - side) // stride + 1 for length in x.shape[2:])
        patches = F.unfold(x, side, padding=padding, stride=stride).transpose(1, 2)
        y = self.linear(patches, w.flatten(1), b)
        return y.transpose(1, 2).reshape(len(x), len(w), rows, columns)


# -- Winograd's convolutions -----------------------------------------------------------------------------------------------------------


def toom_cook(outputs, points):
    """(A, G, B) of `outputs` results of a correlation with 3 weights: A^T ((G g) (B^T d)), from so many points and infinity.

    The transposed form of Toom and Cook's polynomial product, exact in fractions (Lavin and Gray 2016; Barabasz et al. 2020).
    """
    size = outputs + 2
    points = [Fraction(point) for point in points]
    assert len(points) == size - 1

    def powers(count):
        rows = [[point**k for k in range(count)] for point in points]
        return [*rows, [Fraction(int(k == count - 1)) for k in range(count)]]

    def without(index):
        """The coefficients of the product of (x - point) over all points but that one."""
        polynomial = [Fraction(1)]
        for other, point in enumerate(points):
            if other != index:
                shifted, scaled = [Fraction(0), *polynomial], [*(-point * c for c in polynomial), Fraction(0)]
                polynomial = [a + b for a, b in zip(shifted, scaled, strict=True)]
        return polynomial

    lagrange = [[*without(index), Fraction(0)] for index in range(size - 1)] + [without(None)]
    weights = powers(3)
    for index, row in enumerate(lagrange[:-1]):
        at_point = sum(c * points[index] ** k for k, c in enumerate(row))
        weights[index] = [value / at_point for value in weights[index]]
    return [np.array(matrix, dtype=float) for matrix in (powers(outputs), weights, np.array(lagrange).T)]


POINTS = {2: (0, 1, -1), 4: (0, 1, -1, 2, -2), 6: (0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2))}


class Winograd(written.Ops):
    """3 x 3 convolutions of stride 1 as Winograd's F(m x m, 3 x 3). Autograd's gradients are the transposed algorithm's."""

    def __init__(self, outputs, kind=torch.float32):
        self.outputs = outputs
        self.a, self.g, self.b = (torch.tensor(m, dtype=kind) for m in toom_cook(outputs, POINTS[outputs]))

    def conv2d(self, x, w, b=None, stride=1, padding=0):
        if w.shape[2:] != (3, 3) or stride != 1:
            return F.conv2d(x, w, b, stride, padding)
        many, (rows, columns) = self.outputs, (length + 2 * padding - 2 for length in x.shape[2:])
        more = [-rows % many, -columns % many]
        x = F.pad(x, (padding, padding + more[1], padding, padding + more[0]))
        tiles = x.unfold(2, many + 2, many).unfold(3, many + 2, many)
        tiles = torch.einsum("ki,nchwkl,lj->nchwij", self.b, tiles, self.b)
        kernels = torch.einsum("ik,ockl,jl->ocij", self.g, w, self.g)
        products = torch.einsum("nchwij,ocij->nohwij", tiles, kernels)
        y = torch.einsum("ik,nohwij,jl->nohkwl", self.a, products, self.a)
        y = y.reshape(*y.shape[:2], rows + more[0], columns + more[1])[:, :, :rows, :columns]
        return y if b is None else y + b[:, None, None]


# -- nonlinear functions ---------------------------------------------------------------------------------------------------------------


class FastGates(written.Ops):
    """Gates from an exponential that errs by up to 4 units in the last place, and tanh(x) = 2 sigmoid(2 x) - 1."""

    @staticmethod
    def sigmoid(x):
        noise = 1 + 4 * 2.0**-23 * (2 * torch.rand(x.shape, generator=random) - 1)
        return 1 / (1 + torch.exp(-x) * noise)

    @staticmethod
    def tanh(x):
        return 2 * FastGates.sigmoid(2 * x) - 1


class CoarseGates(written.Ops):
    """Gates from PTX's tanh.approx.f32, whose relative error is up to 2^-11: as coarse as TF32, and float32 is asked for."""

    @staticmethod
    def tanh(x):
        return torch.tanh(x) * (1 + 2.0**-11 * (2 * torch.rand(x.shape, generator=random) - 1))

    @staticmethod
    def sigmoid(x):
        return 0.5 + 0.5 * CoarseGates.tanh(0.5 * x)


ARITHMETICS = {
    "cell by cell": written.Ops(),
    "ten parts in random order": Products(in_ten_parts),
    "winograd 2": Winograd(2),
    "winograd 4": Winograd(4),
    "winograd 6": Winograd(6),
    "fast gates": FastGates(),
    "coarse gates": CoarseGates(),
    "tf32 nearest": Products(of_rounded(to_nearest, to_nearest)),
    "tf32 truncated": Products(of_rounded(truncated, truncated)),
    "tf32 mixed": Products(of_rounded(to_nearest, truncated)),
}

# -- adapters --------------------------------------------------------------------------------------------------------------------------


class Training(contract.Training):
    """A workload as second_writing has it, in float32 by an arithmetic of its own."""

    def __init__(self, name, ops):
        self.written, self.ops = written.WRITTEN[name], ops

    def load(self, parameters):
        self.p = {name: torch.from_numpy(value.copy()) for name, value in parameters.items()}
        self.optimiser = self.written.optimiser()

    def read(self):
        return {name: tensor.numpy() for name, tensor in self.p.items()}

    def inputs(self, x, y):
        x = torch.from_numpy(x)
        return x if x.is_floating_point() else x.long(), torch.from_numpy(y).long()

    def _gradients(self, x, y):
        p = {name: tensor.requires_grad_() for name, tensor in self.p.items()}
        logits = self.written.network(p, x, self.ops)
        loss = self.written.loss(logits, y)
        gradients = torch.autograd.grad(loss, list(p.values()))
        self.p = {name: tensor.detach() for name, tensor in p.items()}
        return logits.detach(), loss.detach(), dict(zip(p, gradients, strict=True))

    def probe(self, x, y):
        logits, loss, gradients = self._gradients(x, y)
        return logits.numpy(), loss.item(), {name: gradient.numpy() for name, gradient in gradients.items()}

    def step(self, x, y):
        _, loss, gradients = self._gradients(x, y)
        self.optimiser.step(self.p, gradients, self.written.rates[0])
        return loss

    def value(self, loss):
        return loss.item()

    def predict(self, x):
        with torch.no_grad():
            return self.written.network(self.p, x, self.ops).numpy()


class Features(contract.Inference):
    def __init__(self, ops):
        self.ops = ops

    def load(self, parameters):
        self.p = {name: torch.from_numpy(value) for name, value in parameters.items()}

    def inputs(self, x):
        return torch.from_numpy(x)

    def predict(self, x):
        with torch.no_grad():
            return written.resnet50(self.p, x, self.ops, written.Evaluation()).numpy()


def verdict(name, adapter, precision, steps):
    """{"worst": error / bound, "where": quantity and tensor} of the gate's results, or {"refused": sentence}."""
    try:
        if isinstance(adapter, contract.Training) and not steps:
            results, _ = parity.check_network(name, adapter, precision)
        else:
            results = parity.check(name, adapter, precision)
    except BenchError as error:
        return {"refused": str(error)}
    if isinstance(adapter, contract.Training):
        results = [*results, parity.check_prediction(name, adapter, precision)]
    worst = max(results, key=lambda result: result.error / result.bound)
    return {"worst": worst.error / worst.bound, "where": f"{worst.quantity} {worst.tensor}"}


def cases(arithmetic):
    """(workload, precision, whether the steps are taken): its own precision, and where it must not pass the other one without steps."""
    names = ["gru-imdb"] if arithmetic.endswith("gates") else [*TRAINED, FEATURES]
    if arithmetic.startswith("winograd") or "without" in arithmetic:
        names = ["cnn-cifar10", FEATURES]
    tf32 = arithmetic.startswith("tf32")
    own, other = ("tf32", "fp32") if tf32 else ("fp32", "tf32")
    if arithmetic == "coarse gates":
        return [("gru-imdb", "fp32", False)]
    both = tf32 or arithmetic == "cell by cell"
    return [(name, *how) for name in names for how in ([(own, True), (other, False)] if both else [(own, True)])]


# The PyTorch adapters, and which of the CPU's libraries for convolutions they do without. NNPACK is asked only where oneDNN is off.
ADAPTERS = {
    "adapters": [],
    "adapters without oneDNN": [torch.backends.mkldnn],
    "adapters without oneDNN and NNPACK": [torch.backends.mkldnn, torch.backends.nnpack],
}


def adapter_of(arithmetic, name):
    if arithmetic in ADAPTERS:
        for library in (torch.backends.mkldnn, torch.backends.nnpack):
            library.set_flags(library not in ADAPTERS[arithmetic])
        return contract.load_adapter("torch", name)(SETUP)
    ops = ARITHMETICS[arithmetic]
    return Features(ops) if name == FEATURES else Training(name, ops)


def main(arithmetic, *workloads):
    framework.configure(SETUP)
    found = {
        f"{arithmetic} {name} {precision}": verdict(name, adapter_of(arithmetic, name), precision, steps)
        for name, precision, steps in cases(arithmetic)
        if name in (workloads or (*TRAINED, FEATURES))
    }
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
