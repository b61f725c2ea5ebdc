"""The contract of adapters, frameworks and specifications: what is owed, and the defaults."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from bench import contract, rules
from bench.errors import BrokenImportError, Unsupported
from tests.fixtures.adapters import Incomplete


def test_an_adapter_that_lacks_a_method_cannot_be_built_and_the_error_names_it() -> None:
    class Forgetful(contract.Inference):
        def load(self, parameters: object) -> None: ...

        def inputs(self, x: object) -> object:
            return x

    with pytest.raises(TypeError, match="Forgetful.*predict"):
        Forgetful()


def test_the_hooks_have_defaults_and_a_rate_that_cannot_be_set_is_a_sentence() -> None:
    training = Incomplete()
    assert (training.VARIANT, training.compile, training.skipped(), training.share_statistics()) == ("", None, 0, None)
    with pytest.raises(NotImplementedError, match=r"changes its learning rate, and the adapter has no set_rate"):
        training.set_rate(0.1)


def test_an_adapter_of_another_language_is_an_object_and_gets_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """As R and Julia make it: a function of the setup that returns an object with some of the methods."""

    def build(setup: contract.Setup) -> SimpleNamespace:
        return SimpleNamespace(step=lambda x, y: (setup.seed, x, y), value=float)

    monkeypatch.setattr(build, "VARIANT", "one-bias", raising=False)
    module = SimpleNamespace(Training=build)
    monkeypatch.setattr(contract.importlib, "import_module", lambda name: module)
    adapter = contract.load_adapter("r_keras", "gru-imdb")
    training = adapter(contract.Setup("cpu", "fp32", "default", 1, 7, True))
    assert issubclass(adapter, contract.Training)
    assert (adapter.VARIANT, adapter.VARIANT_REASON) == ("one-bias", "")
    assert training.step(1, 2) == (7, 1, 2)
    assert training.skipped() == 0


def test_a_framework_and_a_specification_are_modules_over_defaults() -> None:
    module = ModuleType("framework")
    module.__dict__.update(NAME="toy", is_out_of_memory=lambda error: True)
    framework = contract.Framework(module)
    assert (framework.NAME, framework.is_out_of_memory(ValueError())) == ("toy", True)
    assert (framework.synchronize(), framework.device_peak_bytes()) == (None, None)
    plain, deep = contract.specification("cnn-cifar10"), contract.specification("resnet50-imagenet")
    assert (plain.rate, plain.predict, plain.PARTS, plain.PARITY_RATES) == (None, None, 1, (None, None, None))
    assert deep.PARTS == 2
    assert deep.rate(0, 256, 32) == pytest.approx(0.1)


def test_a_workload_that_a_framework_does_not_compute_is_refused() -> None:
    with pytest.raises(Unsupported, match="lasagne has no adapter for ops"):
        contract.load_adapter("lasagne", "ops")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from bench.frameworks.toy import _helpr", BrokenImportError),
        ("    from bench import _helpr", BrokenImportError),
        ("from benchmarks import helper", Unsupported),
        ("from torch import helper", Unsupported),
    ],
)
def test_python_3_6_which_names_no_module_in_the_error_is_told_by_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: type[Exception]
) -> None:
    path = tmp_path / "adapter.py"
    path.write_text(f"if True:\n{line}\n")

    def fail(name: str) -> None:
        """As Python 3.6 fails in the second line of that file."""
        exec(compile("\nraise ImportError(\"cannot import name '_helpr'\")", path, "exec"), {})

    monkeypatch.setattr(contract.importlib, "import_module", fail)
    with pytest.raises(expected, match="cannot import name '_helpr'"):
        contract.load_adapter("torch", "cnn-cifar10")


def test_a_metric_of_a_class_is_told_from_every_other_metric() -> None:
    assert rules.label_of(rules.auc_of("Edema of the lung")) == "Edema of the lung"
    assert rules.label_of("share of time") == ""


def test_an_adapter_that_takes_arrays_as_they_are_and_returns_a_number_says_nothing_of_it() -> None:
    adapter = Incomplete()
    x, y = object(), object()
    assert adapter.inputs(x, y) == (x, y)
    assert adapter.value(np.float32(0.5)) == 0.5
    assert adapter.masks() is None
