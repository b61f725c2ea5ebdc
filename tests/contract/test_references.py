"""Every stored reference is what a second writing of its workload computes.

That one takes its gradients from torch's autograd in float64; bench.reference has them written by hand in NumPy.
"""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench import contract, curve, dropout, parity, rules
from tests.fixtures.weekly import only_with

pytestmark = pytest.mark.slow

TORCH = "torch-2.13.0-cpu"
# The largest relative difference of a tensor. Seen: 3e-14 of the networks of few layers. A hundred normalised layers amplify a rounding
# error, and Adam divides by small gradients: of the deep ones 6e-10, of gpt2-124m with its twelve blocks 1.7e-12, and of llama-bytes, whose
# bytes' vectors have the gradient of one position each, 1.8e-11.
SHALLOW, DEEP = 1e-12, 1e-8
OF_BLOCKS = {"gpt2-124m": 1e-11, "llama-bytes": 1e-10, "moe-bytes": 1e-11}

EVERYTHING = os.environ.get("DLBENCH_CURVES") == "all"
FILES = sorted(Path(rules.WORKLOADS).glob("*.reference.npz"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".reference.npz"))
def test_a_stored_reference_is_what_autograd_computes(run_in: Callable[..., str], path: Path, tmp_path: Path) -> None:
    name, _, kind = path.name.removesuffix(".reference.npz").partition(".")
    if name == "gpt2-124m" and not EVERYTHING:
        pytest.skip("gpt-bytes has the same layers; DLBENCH_CURVES=all computes this one, in two minutes and 12 GB")
    workload = contract.specification(name)
    parts = workload.PARTS if kind == "devices" else 1
    variant = "" if kind == "devices" else kind
    again = tmp_path / "again.npz"
    run_in(TORCH, "recomputed.py", "reference", name, variant, str(parts), str(workload.BUCKETS), str(again))
    with contextlib.ExitStack() as stack:
        recomputed = stack.enter_context(np.load(again))
        paths = [path, *([Path(parity.first_steps_path(name))] if rules.has_dropout(name) else [])]
        files = [stack.enter_context(np.load(one)) for one in paths]
        stored = {key: file[key] for file in files for key in file.files}
        values = {key for key in stored if key.startswith("value/")}
        assert values == set(recomputed.files)
        errors = {key: parity.relative_error(recomputed[key].ravel(), stored[key].ravel()) for key in values}
    bound = DEEP if workload.PARTS > 1 else OF_BLOCKS.get(name, SHALLOW)
    assert {key: error for key, error in errors.items() if not error <= bound} == {}


def test_every_workload_and_variant_has_a_reference_and_no_file_is_left_over() -> None:
    owed = set()
    for name in rules.workload_names():
        workload = contract.specification(name)
        if name != "ops":
            owed |= {parity.reference_path(name, variant) for variant in ("", *workload.VARIANTS)}
            owed.add(parity.reference_path(name, devices=2))
    assert {str(path) for path in FILES} == owed


CURVES = [name for name in rules.workload_names() if curve.has_curve(name)]
FIRST_STEPS = 5
# The largest relative difference of a loss. Seen: 4e-16, of mlp-mnist over all steps. Each step may multiply a rounding error.
FIRST_LOSSES, ALL_LOSSES = 1e-11, 1e-6


@only_with("DLBENCH_CURVES", "the stored references are computed")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", CURVES)
def test_a_stored_curve_is_what_autograd_computes(run_in: Callable[..., str], name: str) -> None:
    """Its first steps; all of them where DLBENCH_CURVES=all."""
    stored = np.loadtxt(curve.path(name))
    again = np.array(
        json.loads(run_in(TORCH, "recomputed.py", "curve", name, str(len(stored) if EVERYTHING else FIRST_STEPS)))
    )
    np.testing.assert_allclose(again[:FIRST_STEPS], stored[:FIRST_STEPS], rtol=FIRST_LOSSES)
    np.testing.assert_allclose(again, stored[: len(again)], rtol=ALL_LOSSES)


DROPOUT_RUNS = 64 if EVERYTHING else 6
# How many deviations the mean of so many runs may be away. Of normal statistics one in 10^6 lies beyond.
DEVIATIONS = 5.0


@only_with("DLBENCH_CURVES", "the stored runs are held against the code")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name in rules.workload_names() if Path(rules.dropout_path(name)).is_file()])
def test_the_stored_movement_under_dropout_is_that_under_torch_s_own_dropout(
    run_in: Callable[..., str], name: str, tmp_path: Path
) -> None:
    """The distance of three steps from the stored mean is the stored spread, within what is due to chance in either's runs."""
    again = tmp_path / "again.npz"
    run_in(TORCH, "recomputed.py", "dropout", name, str(DROPOUT_RUNS), str(dropout.BUCKETS), str(again))
    stored = dropout.stored(name)
    with np.load(again) as file:
        assert parity.relative_error(file["first step"], stored["first step",]) < SHALLOW
        tensors = [tensor for tensor in file.files if tensor != "first step"]
        runs = [{(dropout.TOGETHER, tensor): file[tensor][run] for tensor in tensors} for run in range(DROPOUT_RUNS)]
    found = [dropout.statistics(run, stored) for run in runs]
    assert len(found[0]) == len(contract.specification(name).PARAMETERS)
    chance = np.sqrt(1 / DROPOUT_RUNS + 1 / dropout.RUNS)
    off = {key: np.mean([one[key] for one in found]) / (chance * float(stored[key])) for key in found[0]}
    assert {key: deviations for key, deviations in off.items() if abs(deviations) > DEVIATIONS} == {}
