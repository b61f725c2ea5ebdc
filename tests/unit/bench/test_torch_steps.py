"""Mode graph of PyTorch, with a stand-in for torch that notes what is done: what runs, what is recorded, what a replay reads."""

import contextlib
import importlib
import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

MODULE = "bench.frameworks.torch._steps"


class Tensor:
    """An array on the device."""

    def __init__(self, array):
        self.array, self.shape = np.array(array), np.shape(array)

    def copy_(self, source, non_blocking):
        self.array[...] = source.array

    def to(self, device, non_blocking):
        return self


class HostTensor(Tensor):
    def to(self, device, non_blocking):
        return Tensor(self.array)


class Zeroed(Tensor):
    def zero_(self):
        self.array[...] = 0


class Graph:
    """A recording calls the body once, on the tensors that a replay reads; here a replay notes what they hold."""

    replayed: ClassVar = []

    def replay(self):
        self.replayed.append([part.array.tolist() for part in self.batch])


@pytest.fixture
def steps(monkeypatch):
    stream = SimpleNamespace(wait_stream=lambda other: None)
    cuda = SimpleNamespace(
        CUDAGraph=Graph,
        Stream=lambda device: stream,
        current_stream=lambda: stream,
        stream=lambda stream: contextlib.nullcontext(),
        graph=lambda graph, stream: contextlib.nullcontext(),
    )
    torch = SimpleNamespace(
        cuda=cuda,
        is_tensor=lambda part: isinstance(part, Tensor),
        from_numpy=HostTensor,
        empty_like=lambda part, device: Tensor(np.zeros(part.shape)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setattr(Graph, "replayed", [])
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


def recorded(steps):
    """A recorded step of mode graph, and the list of the batches that its body was called with."""
    called = []

    def body(*batch):
        called.append([part.array.tolist() for part in batch])
        if made.graph is not None:
            made.graph.batch = batch
        return "loss"

    made = steps.steps_of(SimpleNamespace(mode="graph"), "cuda", body)
    return made, called


def test_the_first_steps_run_the_next_is_recorded_and_each_later_one_reads_its_own_batch(steps):
    run, called = recorded(steps)
    for number in range(6):
        assert run(np.full(2, number), np.full(1, -number)) == "loss"
    assert called[:3] == [[[n, n], [-n]] for n in range(3)]
    # The recording runs nothing, so what it read is replayed with the batch of its step.
    assert len(called) == 4
    assert Graph.replayed == [[[n, n], [-n]] for n in (3, 4, 5)]


def test_an_optimiser_that_starts_afresh_is_replayed_with_moments_of_zero(steps):
    run, called = recorded(steps)
    state = {"weight": {"step": np.array(0), "exp_avg": np.zeros(2)}}
    optimizer = SimpleNamespace(
        state={name: {key: Zeroed(value) for key, value in of.items()} for name, of in state.items()}
    )
    for _ in range(4):
        run(np.zeros(2))
    for value in optimizer.state["weight"].values():
        value.array += 3
    run.restart(optimizer)
    run(np.ones(2))
    assert (len(called), Graph.replayed[-1]) == (4, [[1, 1]]), "the recording that was measured is what is proved"
    assert [value.array.tolist() for value in optimizer.state["weight"].values()] == [0, [0, 0]]
    eager = steps.steps_of(SimpleNamespace(mode="default"), "cuda", called.append)
    eager.restart(optimizer)
    assert optimizer.state == {}


def test_a_new_rate_and_a_batch_of_another_size_are_recorded_anew(steps):
    run, called = recorded(steps)
    for _ in range(4):
        run(np.zeros(2))
    run.forget()
    run(np.zeros(2))
    assert (len(called), len(Graph.replayed)) == (5, 1)
    for _ in range(3):
        run(np.zeros(2))
    assert len(Graph.replayed) == 2
    run(np.zeros(3))
    assert (called[-1], len(Graph.replayed)) == ([[0, 0, 0]], 2)


def test_batches_that_lie_on_the_device_stay_what_they_are(steps):
    run, _ = recorded(steps)
    batches = [Tensor(np.full(2, number)) for number in range(5)]
    for number in range(12):
        run(batches[number % 5])
    assert [batch.array.tolist() for batch in batches] == [[number] * 2 for number in range(5)]
    assert Graph.replayed == [[[number % 5] * 2] for number in range(3, 12)]


def test_by_default_each_step_runs(steps):
    called = []
    run = steps.steps_of(SimpleNamespace(mode="default"), "cuda", lambda x: called.append(x.array.tolist()))
    for number in range(5):
        run(np.array([number]))
    run.forget()
    assert called == [[0], [1], [2], [3], [4]]
