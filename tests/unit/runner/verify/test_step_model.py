"""The model behind an expectation: its work is the specification's, its error the published rows', and it says that it is a model."""

from __future__ import annotations

import numpy as np
import pytest

from bench.workloads import cnn_cifar10, gru_imdb
from runner.verify.probes.ceilings import Ceilings
from runner.verify.references.published import (
    DATASHEETS,
    WORK,
    ideal_seconds,
    inefficiency,
    load_published,
    modelled_step,
    training_times,
)


def ceilings(product: float = 60e9, framework: bool = True) -> Ceilings:
    numpy = {"matmul_flops": [product] * 3, "copy_bytes": [20e9] * 3, "core_operations": [1e9] * 3}
    own = {"matmul_flops": [product] * 3, "copy_bytes": [20e9] * 3, "launches": [5e5] * 3}
    return Ceilings.model_validate(
        {"load": 0.1, "cpus": 2, "debug": False, "numpy": numpy, "framework": own if framework else None}
    )


def test_the_work_of_a_step_is_that_of_the_specified_layers() -> None:
    shapes = {name: shape for name, shape, *_ in cnn_cifar10.PARAMETERS}
    places = {"conv1": 32 * 32, "conv2": 32 * 32, "conv3": 16 * 16, "conv4": 16 * 16, "dense1": 1, "dense2": 1}
    macs = sum(np.prod(shapes[f"{layer}.w"]) * count for layer, count in places.items())
    assert WORK["cnn-cifar10"].flops == pytest.approx(6 * 64 * macs, rel=1e-3)
    gates = sum(np.prod(shape) for name, shape, *_ in gru_imdb.PARAMETERS if name in ("gru.w", "gru.u"))
    assert WORK["gru-imdb"].flops == pytest.approx(6 * 64 * 150 * gates, rel=1e-3)


@pytest.mark.parametrize("workload", sorted(WORK))
def test_the_band_holds_nine_tenths_of_the_published_trainings(workload: str) -> None:
    error = inefficiency(workload)
    rows = training_times(load_published(), workload, list(DATASHEETS))
    assert error.rows == len(rows) > 50
    assert {"K80", "P100", "V100"} <= set(error.gpus)
    work = WORK[workload]
    inside = sum(
        error.low
        <= (row.seconds or 0) / work.steps / ideal_seconds(work, *DATASHEETS[row.gpu or ""], 10e-6)
        <= error.high
        for row in rows
    )
    assert 0.86 <= inside / len(rows) <= 0.94  # nine tenths, but for the rows at its very ends
    assert 1 < error.low < error.middle < error.high


def test_an_expectation_says_that_it_is_a_model_and_how_wrong_it_is() -> None:
    found = modelled_step("cnn-cifar10", "cpu", ceilings())
    assert found is not None
    assert found.low < found.middle < found.high
    assert "a model, not a measurement" in found.model
    assert f"of {inefficiency('cnn-cifar10').rows} published trainings" in found.model
    assert "CPUs is not known" in found.model
    assert found.place_of(found.high * 1.1) == "slower than the model's band"
    assert found.place_of(found.middle) == "inside the model's band"


def test_twice_the_ceiling_nearly_halves_the_expectation() -> None:
    slow, fast = (
        modelled_step("cnn-cifar10", "cpu", ceilings(60e9)),
        modelled_step("cnn-cifar10", "cpu", ceilings(120e9)),
    )
    assert slow is not None
    assert fast is not None
    assert 1.8 < slow.middle / fast.middle <= 2


def test_without_ceilings_or_for_an_unknown_workload_nothing_is_expected() -> None:
    assert modelled_step("cnn-cifar10", "cpu", None) is None
    assert modelled_step("ops", "cpu", ceilings()) is None
    assert modelled_step("cnn-cifar10", "cuda", ceilings(framework=False)) is None
    assert modelled_step("cnn-cifar10", "cpu", ceilings(framework=False)) is not None
