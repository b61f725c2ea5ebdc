"""How PyTorch runs a training step: eagerly, or in mode graph as a CUDA graph that is recorded once and replayed.

A step of a small network is some hundred kernels, and Python takes longer to start them than a GPU to run them. A replay starts them all
at once. It follows PyTorch's notes on CUDA graphs: some steps on a stream of their own first, then the recording; batches are copied into
the tensors that the recorded kernels read.
"""

import torch

from bench.errors import Unsupported

# Steps before the recording: by then cuDNN has chosen its algorithms, and the optimiser has its state.
WARM_UP = 3


def steps_of(setup, device, body):
    """A function of a batch (x, y), as `inputs` made it; body(x, y) takes one step with tensors on the device and returns the loss.

    restart(optimizer) makes the optimiser start afresh; forget() is called when its rate changes.
    """
    if setup.mode != "graph":
        return Eager(device, body)
    if not hasattr(torch.cuda, "CUDAGraph"):
        raise Unsupported("PyTorch %s has no CUDA graphs" % torch.__version__)
    return Recorded(device, body)


class Eager(object):
    def __init__(self, device, body):
        self.device, self.body = device, body

    def __call__(self, *batch):
        return self.body(*(_tensor(part).to(self.device, non_blocking=True) for part in batch))

    def restart(self, optimizer):
        optimizer.state.clear()

    def forget(self):
        """Nothing is kept."""


class Recorded(object):
    def __init__(self, device, body):
        self.device, self.body = device, body
        self.stream = torch.cuda.Stream(device)
        self.forget()

    def restart(self, optimizer):
        """In the tensors that the recording reads and writes: so the steps that are proved are replays of what was measured.

        Moments of zero are those of a first step, of Adam and of SGD with momentum.
        """
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()

    def forget(self):
        """The recording has the optimiser's old rate, or is of a batch of another size."""
        self.graph = self.batch = self.loss = None
        self.taken = 0

    def __call__(self, *batch):
        """The first steps run, the next one is recorded. The loss is the same tensor each time."""
        batch = [_tensor(part) for part in batch]
        if self.batch is not None and any(ours.shape != given.shape for ours, given in zip(self.batch, batch)):
            self.forget()
        if self.graph is None and self.taken < WARM_UP:
            self.taken += 1
            return self._run(batch)
        if self.graph is None:
            self._record(batch)
        for ours, given in zip(self.batch, batch):
            ours.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.loss

    def _run(self, batch):
        now = torch.cuda.current_stream()
        self.stream.wait_stream(now)
        with torch.cuda.stream(self.stream):
            loss = self.body(*(part.to(self.device, non_blocking=True) for part in batch))
        now.wait_stream(self.stream)
        return loss

    def _record(self, batch):
        """The recording runs nothing."""
        # Tensors of its own: a batch that lies on the device belongs to the data.
        self.batch = [torch.empty_like(part, device=self.device) for part in batch]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.loss = self.body(*self.batch)


def _tensor(part):
    """An array of NumPy as a tensor that shares its memory.

    It is not pinned: pinning copies it on the host first, and PyTorch's guide to pin_memory() and non_blocking calls that slower than the
    copy to the device by itself, where no loader pins it beforehand.
    """
    return part if torch.is_tensor(part) else torch.from_numpy(part)
