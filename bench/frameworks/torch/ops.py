"""Single operations in PyTorch, called as a person would call them. Mode compile compiles them.

Idiomatic here: inputs without requires_grad record nothing. torch.autograd.grad returns the gradients and accumulates none. Optimisers
are torch.optim's, fused where there is a fused kernel. A copy overlaps the host's work only from or to pinned memory.
"""

import functools

import torch
import torch.nn.functional as F
from torch import distributed

from bench import collectives, contract
from bench.errors import Unsupported
from bench.frameworks.torch import _attention, _fp8
from bench.frameworks.torch.framework import compiled, torch_device
from bench.workloads import ops
from bench.workloads.rows import EPSILON

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    # Its products are in _fp8.py.
    "fp8": None,
}


def dense(x, *parameters):
    for w, b in zip(parameters[::2], parameters[1::2]):
        x = F.linear(x, w, b)
    return x


def recurrent(kind):
    """The fused kernel on stacked gates: the layer's function, so that its weights are inputs too."""

    def run(x, w, u, b, c):
        state = x.new_zeros(1, x.shape[0], u.shape[1])
        state = (state, state) if kind is torch.lstm else state
        # Biases, one layer, no dropout, training only for gradients (they need what it stores), one direction, batch first.
        return kind(x, state, (w, u, b, c), True, 1, 0.0, x.requires_grad, False, True)[1][0]

    return run


def lstm_cell(x, w, u, b, c):
    units = u.shape[1]
    h = state = x.new_zeros(x.shape[0], units)
    for x_t in x.unbind(1):
        gates = F.linear(x_t, w, b) + F.linear(h, u, c)
        i, f, g, o = gates.chunk(4, 1)
        state = torch.sigmoid(f) * state + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(state)
    return h


def gru_cell(x, w, u, b, c):
    h = x.new_zeros(x.shape[0], u.shape[1])
    for x_t in x.unbind(1):
        r, z, n = F.linear(x_t, w, b).chunk(3, 1)
        h_r, h_z, h_n = F.linear(h, u, c).chunk(3, 1)
        r, z = torch.sigmoid(r + h_r), torch.sigmoid(z + h_z)
        n = torch.tanh(n + r * h_n)
        h = (1 - z) * n + z * h
    return h


def layer_norm(h, w, b):
    return F.layer_norm(h, w.shape, w, b, EPSILON)


def rms_norm(h, w):
    if not hasattr(F, "rms_norm"):
        raise Unsupported("PyTorch %s has no rms_norm; PyTorch 2.4 is the first" % torch.__version__)
    return F.rms_norm(h, w.shape, w, EPSILON)


FUNCTIONS = {
    "add": torch.add,
    "mul": torch.mul,
    "div": torch.div,
    "matmul": torch.matmul,
    "matmul_flat": torch.matmul,
    "matmul_thin": torch.matmul,
    "dense": dense,
    "dense_x5": dense,
    "conv1d": functools.partial(F.conv1d, padding=1),
    "conv2d": functools.partial(F.conv2d, padding=1),
    "conv2d_transposed": functools.partial(F.conv_transpose2d, stride=2),
    "lstm": recurrent(torch.lstm),
    "lstm_cell": lstm_cell,
    "gru": recurrent(torch.gru),
    "gru_cell": gru_cell,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "softmax": functools.partial(F.softmax, dim=1),
    "cross_entropy": F.cross_entropy,
    "embedding": lambda table, ids: F.embedding(ids, table),
}

# PyTorch 2.13 renamed them.
REDUCE_SCATTER = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
ALL_GATHER = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor

OPTIMIZERS = {
    "sgd": functools.partial(torch.optim.SGD, lr=ops.RATE),
    "momentum": functools.partial(torch.optim.SGD, lr=ops.RATE, momentum=ops.MOMENTUM),
    "adam": functools.partial(torch.optim.Adam, lr=ops.RATE, betas=(ops.BETA1, ops.BETA2), eps=ops.EPSILON),
}


def forward(function, tensors):
    return functools.partial(function, *tensors)


class Operators(contract.Operators):
    ATTENTION = True
    COLLECTIVES = tuple(collectives.COLLECTIVES)
    # (buffers, their tensors) of the last attention.
    _kept = (None, None)

    def __init__(self, setup):
        self.setup = setup
        self.device = torch_device(setup)
        self.dtype = DTYPES[setup.precision]

    def runs(self, operation, direction, buffers):
        """For each of `buffers` (input name -> float64 array) a callable without arguments. Raises Unsupported."""
        self.kernel = None
        if operation in ops.ATTENTION:
            return self._attention(operation, direction, buffers)
        self._kept = None, None
        if direction == ops.COPY:
            return [self._copy(operation, buffer["x"]) for buffer in buffers]
        if operation in collectives.COLLECTIVES:
            return [self._collective(operation, buffer["x"][self.setup.rank]) for buffer in buffers]
        if self.setup.precision == "fp8":
            return _fp8.runs(direction, buffers, self.device)
        inputs = self._tensors(buffers)
        if direction == ops.STEP:
            return [self._step(OPTIMIZERS[operation], *tensors) for tensors in inputs]
        function = FUNCTIONS[operation]
        # The recurrent layers are fused kernels already: TorchDynamo does not compile them.
        if operation not in ("lstm", "gru"):
            function = compiled(self.setup, function)
        if direction == ops.GRADIENT:
            given = [tensors.pop() if "d" in p else None for p, tensors in zip(buffers, inputs)]
            return [self._gradient(function, tensors, d) for tensors, d in zip(inputs, given)]
        return [forward(function, tensors) for tensors in inputs]

    def values(self, operation, direction, result):
        """The result, or the gradients in the order of the inputs, as float64 arrays in the specification's layouts."""
        return [value.detach().double().cpu().numpy() for value in (result if isinstance(result, tuple) else (result,))]

    def _tensors(self, buffers):
        # Copies at every precision: an optimiser's step writes into its parameter.
        return [[self._tensor(value) for value in p.values()] for p in buffers]

    def _tensor(self, value):
        return torch.tensor(value, dtype=self.dtype if value.dtype.kind == "f" else torch.int64, device=self.device)

    def _attention(self, operation, direction, buffers):
        """One set of inputs goes through all backends, one after the other: it is copied to the device once."""
        function = _attention.function(operation)
        if self._kept[0] is not buffers:
            self._kept = None, None
            self._kept = buffers, self._tensors(buffers)
        # Tensors of their own on the same memory: gradients are required of some only.
        inputs = [[tensor.detach() for tensor in tensors] for tensors in self._kept[1]]
        run = self._gradient if direction == ops.GRADIENT else forward
        kernel = _attention.kernel(operation, lambda: run(function, inputs[0]))
        # Inductor may replace products and softmax by a fused operator.
        self.kernel = kernel if self.setup.mode == "default" else None
        function = compiled(self.setup, function)
        return [run(function, tensors) for tensors in inputs]

    def _gradient(self, function, tensors, d=None):
        """d: the result's gradient, where it is not ones."""
        wanted = [tensor.requires_grad_() for tensor in tensors if tensor.is_floating_point()]
        if d is None:
            d = torch.ones_like(function(*tensors).detach())
        return lambda: torch.autograd.grad(function(*tensors), wanted, d)

    def _step(self, make, w, g):
        w.grad = g
        optimizer = make([w])

        def run():
            optimizer.step()
            return w

        return run

    def _collective(self, operation, x):
        """By NCCL on GPUs and gloo on CPUs; all-reduce and broadcast in place. Raises Unsupported where that library has none."""
        x = torch.tensor(x, dtype=self.dtype, device=self.device)
        rank, count = self.setup.rank, self.setup.devices
        result = torch.empty_like(x)
        own = result[: len(x) // count]

        def send_receive():
            sent = distributed.P2POp(distributed.isend, x, (rank + 1) % count)
            received = distributed.P2POp(distributed.irecv, result, (rank - 1) % count)
            for work in distributed.batch_isend_irecv([sent, received]):
                work.wait()

        start, result = {
            "all_reduce": (lambda: distributed.all_reduce(x), x),
            "reduce_scatter": (lambda: REDUCE_SCATTER(own, x), own),
            "all_gather": (lambda: ALL_GATHER(result, x.view(count, -1)[rank]), result),
            "all_to_all": (lambda: distributed.all_to_all_single(result, x), result),
            "broadcast": (lambda: distributed.broadcast(x, 0), x),
            "send_receive": (send_receive, result),
        }[operation]
        if result is not x:
            try:
                start()
            except RuntimeError as error:
                if "does not support" not in str(error) and "not supported" not in str(error):
                    raise
                raise Unsupported(str(error).splitlines()[0]) from error

        def run():
            start()
            return result

        return run

    def _copy(self, operation, x):
        if self.device.type == "cpu":
            raise Unsupported("the host's memory is the device's: there is nothing to copy")
        host = torch.from_numpy(x.astype("float32"))
        if operation.endswith("_pinned"):
            host = host.pin_memory()
        device = torch.empty_like(host, device=self.device)
        if operation.startswith("h2d"):
            return lambda: device.copy_(host, non_blocking=True)
        return lambda: host.copy_(device, non_blocking=True)
