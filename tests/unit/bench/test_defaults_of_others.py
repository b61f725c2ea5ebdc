"""A precision whose bounds hide another framework's default is ranked beside parity at fp32 only.

Each default is planted in the reference, in exact arithmetic, and the stored bounds are asked whether they refuse it. DLBENCH_CURVES=all
asks those of every network, which takes minutes for the large ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, bounds, contract, parity, reference, rules

EVERYTHING = os.environ.get("DLBENCH_CURVES") == "all"
QUICK = ("mlp-mnist",)
SLOW = ("gpt-bytes", "resnet50-features")
# It has no normalisation, and SGD.
WITHOUT = ("cnn-cifar10",)


def normalised_by(epsilon: float) -> Callable[[Any], Any]:
    """Functions of bench.reference whose last arguments are the epsilon and the rounding."""
    return lambda function: lambda *of: function(*of[:-2], epsilon, of[-1])


def adam_with(**changes: float) -> Callable[[Any], Any]:
    def changed(adam: Any) -> Any:
        class Changed(adam):  # type: ignore[misc]
            def __init__(self, *of: float) -> None:
                super().__init__(*of)
                vars(self).update(changes)

        return Changed

    return changed


# The name of the default -> what of bench.reference computes it, and how. PyTorch's are in the specifications.
DEFAULTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    f"{whose}, {function}": (function, normalised_by(epsilon))
    for function in ("layer_norm", "rms_norm", "batch_norm", "batch_norm_training")
    for whose, epsilon in (("Flax' epsilon 1e-6", 1e-6), ("Keras' epsilon 1e-3", 1e-3))
} | {
    "Keras' epsilon of Adam": ("Adam", adam_with(epsilon=1e-7)),
    "Everybody's beta2 of Adam": ("Adam", adam_with(beta2=0.999)),
}


def networks() -> list[str]:
    declared = {name: rules.workload_declaration(name) for name in rules.workload_names()}
    alone = [name for name, of in declared.items() if of["task"] != "operators" and not of.get("computes")]
    return [name for name in alone if name not in QUICK + WITHOUT]


def stored(name: str) -> dict[str, dict[tuple[str, str], float]]:
    """The bounds of each precision."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    with np.load(parity.reference_path(name, "", 1)) as file:
        for key in (key for key in file.files if key.startswith("bound/")):
            _, precision, quantity, tensor = key.split("/", 3)
            found.setdefault(precision, {})[quantity, tensor] = float(file[key])
    return found


def refused(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Each default of another framework that changes this network -> the precisions whose bounds refuse it."""
    workload, exact = contract.specification(name), arithmetic.Exact()
    right = bounds.quantities(workload, exact)
    found = {}
    for default, (function, wrong) in DEFAULTS.items():
        with monkeypatch.context() as planted:
            planted.setattr(reference, function, wrong(getattr(reference, function)))
            other = bounds.quantities(workload, exact)
        errors = {key: parity.relative_error(other[key], value) for key, value in right.items()}
        if any(errors.values()):
            found[default] = {
                precision
                for precision, of in stored(name).items()
                if any(errors[key] > bound for key, bound in of.items() if key in errors)
            }
    return found


def check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = refused(name, monkeypatch)
    assert found, "no default of another framework changes this network"
    hidden = [precision for precision in stored(name) if any(precision not in by for by in found.values())]
    assert "fp32" not in hidden, found
    assert [precision for precision in hidden if not rules.rests_on_fp32(name, precision)] == [], found


@pytest.mark.parametrize("name", QUICK)
def test_a_precision_that_hides_another_framework_s_default_rests_on_fp32(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(36000)
@pytest.mark.parametrize("name", networks())
def test_so_it_does_in_the_deeper_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in SLOW and not EVERYTHING:
        pytest.skip("the reference of this network takes minutes; DLBENCH_CURVES=all asks its bounds too")
    check(name, monkeypatch)
