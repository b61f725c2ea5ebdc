"""The probes of the ceilings: on a GPU they fill it, and their clocks have risen first."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from bench import ceilings


@pytest.mark.parametrize(
    ("framework", "matrix", "vector"),
    [
        ("torch", lambda stand_in: stand_in.rand.call_args_list[0], lambda stand_in: stand_in.rand.call_args_list[1]),
        (
            "tensorflow",
            lambda stand_in: stand_in.random.uniform.call_args_list[0],
            lambda stand_in: stand_in.random.uniform.call_args_list[1],
        ),
    ],
)
@pytest.mark.parametrize(("device", "side", "items"), [("cpu", 1024, 2**24), ("cuda", 8192, 2**28)])
def test_a_framework_s_product_and_copy_fill_the_device_with_random_numbers(
    monkeypatch, framework, matrix, vector, device, side, items
):
    stand_in = MagicMock()
    monkeypatch.setitem(sys.modules, framework, stand_in)
    path = "bench.frameworks.%s.ceilings" % framework
    monkeypatch.delitem(sys.modules, path, raising=False)
    module = importlib.import_module(path)
    monkeypatch.delitem(sys.modules, path)
    assert len(module.calls(device)) == 3
    flat = [number for part in matrix(stand_in).args for number in (part if isinstance(part, tuple) else (part,))]
    assert flat == [side, side]
    (count,) = vector(stand_in).args
    assert count == (items if framework == "torch" else (items,))


def test_the_windows_of_a_gpu_begin_when_its_clock_has_risen(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(ceilings, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def call():
        clock.now += 0.04 if clock.now < 0.9 else 0.01

    assert min(ceilings.rates(call, 1.0)) == pytest.approx(25)
    clock.now = 0.0
    assert min(ceilings.rates(call, 1.0, warm_up_seconds=1.0)) == pytest.approx(100)
