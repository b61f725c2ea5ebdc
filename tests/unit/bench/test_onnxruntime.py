"""What the bench asks of a build of ONNX Runtime. Stand-ins have the names that it asks for: the real package is in its images only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from bench import contract
from bench.errors import Unsupported

ON_A_CPU = contract.Setup("cpu", "fp32", "default", 1, 1, True)


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Callable[..., contract.Framework]:
    """A framework of bench/frameworks over a build with these execution providers, and with or without the builder of gradients."""

    def load(
        name: str, providers: tuple[str, ...] = ("CPUExecutionProvider",), trains: bool = False
    ) -> contract.Framework:
        package, state = ModuleType("onnxruntime"), SimpleNamespace()
        package.__dict__.update(
            __version__="1.30.0",
            __path__=[],
            get_available_providers=lambda: list(providers),
            set_default_logger_severity=lambda level: None,
        )
        if trains:
            state.GradientGraphBuilder = object
        folder = ModuleType("onnxruntime.capi")
        folder.__dict__.update(_pybind_state=state)
        monkeypatch.setitem(sys.modules, "onnxruntime", package)
        monkeypatch.setitem(sys.modules, "onnxruntime.capi", folder)
        for module in ("onnxruntime_training", "onnxruntime"):
            path = f"bench.frameworks.{module}.framework"
            monkeypatch.delitem(sys.modules, path, raising=False)
            # Another test's import, and this one's after it, must not be found as the attribute of the package.
            monkeypatch.delattr(importlib.import_module(f"bench.frameworks.{module}"), "framework", raising=False)
        return contract.load_framework(name)

    return load


def test_a_build_without_the_builder_of_gradients_does_not_count_as_the_training_package(
    framework: Callable[..., contract.Framework],
) -> None:
    with pytest.raises(Unsupported, match=r"onnxruntime 1\.30\.0 cannot train: it has no GradientGraphBuilder"):
        framework("onnxruntime_training").configure(ON_A_CPU)
    framework("onnxruntime_training", trains=True).configure(ON_A_CPU)
    framework("onnxruntime").configure(ON_A_CPU)


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime_training"])
def test_a_build_is_for_gpus_where_it_has_the_provider_for_cuda(
    framework: Callable[..., contract.Framework], name: str
) -> None:
    assert framework(name).device_kinds() == ("cpu",)
    assert framework(name, ("CUDAExecutionProvider", "CPUExecutionProvider")).device_kinds() == ("cpu", "cuda")
