"""What a framework.py need not have: the contract's defaults stand in for it, also where a cell's error is judged."""

import sys
import types

import pytest

from bench import contract, run


@pytest.fixture
def bare(monkeypatch):
    """A framework's module without any function."""
    module = types.ModuleType("bench.frameworks.bare.framework")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_framework_whose_steps_return_computed_needs_no_synchronize(bare):
    framework = contract.Framework(bare)
    framework.synchronize()
    assert framework.device_peak_bytes() is None


@pytest.mark.parametrize(
    ("message", "kind"), [("CUDA error: Out of memory", "out-of-memory"), ("no such kernel", "framework")]
)
def test_a_failed_cell_of_a_bare_framework_has_the_right_kind_of_error(bare, monkeypatch, message, kind):
    def fail(options, emitter):
        raise RuntimeError(message)

    monkeypatch.setitem(run.TASKS, "train", fail)
    events = {}
    emitter = types.SimpleNamespace(emit=lambda event, **fields: events.update({event: fields}))
    assert run.run(types.SimpleNamespace(workload="mlp-mnist", framework="bare"), emitter) == 1
    assert events["error"]["kind"] == kind
