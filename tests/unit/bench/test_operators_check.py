"""Single operations: the check of results and gradients, of an adapter that is right and of such that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import operators
from bench.errors import Unsupported
from bench.workloads import ops
from tests.fixtures.operators import Operators


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
def test_forward_results_of_the_reference_pass(precision: str) -> None:
    for name, operation in {**ops.OPERATIONS, **ops.OPTIMIZERS}.items():
        direction = ops.STEP if name in ops.OPTIMIZERS else ops.FORWARD
        error, bound = operators.error_of(Operators(), name, operation, direction, precision)
        assert error <= bound, name


@pytest.mark.parametrize("name", ["add", "matmul", "gru", "adam"])
def test_a_result_that_is_off_by_a_thousandth_fails(name: str) -> None:
    operation = ops.OPERATIONS.get(name) or ops.OPTIMIZERS[name]
    direction = ops.STEP if name in ops.OPTIMIZERS else ops.FORWARD
    error, bound = operators.error_of(Operators(wrong=name), name, operation, direction, "fp32")
    assert error > 100 * bound


@pytest.mark.parametrize(("wrong", "passed"), [("", True), ("mul", False)])
def test_gradients_are_held_against_slopes(wrong: str, passed: bool) -> None:
    tiny = ops.OPERATIONS["mul"]._replace(sizes=((4,),))
    error, bound = operators.error_of(Operators(wrong=wrong), "mul", tiny, ops.GRADIENT, "fp32")
    assert (error <= bound) is passed


@pytest.mark.parametrize(("wrong", "passed"), [("", True), ("all_reduce", False)])
def test_each_device_s_sum_is_held_against_the_sum(wrong: str, passed: bool) -> None:
    """The wrong one is off on the last of three devices alone, by two thousandths."""
    (result,) = operators.check(Operators(wrong=wrong), "fp32", 3)
    assert result.tensor == "all_reduce of 3 devices"
    assert result.passed is passed
    with pytest.raises(Unsupported, match="this framework has none"):
        operators.check(Operators(refuse="all_reduce"), "fp32", 3)


class Fp8Products(Operators):
    """Products at fp8 in NumPy, with the factors and the sums' type of one's choice."""

    def __init__(self, factor: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__()
        self.factor = factor

    def runs(self, operation: str, direction: str, buffers: list[dict[str, Any]]) -> list[Callable[[], Any]]:
        def run() -> Any:
            a, b = (self.factor(buffers[0][name]).astype("float32") for name in "ab")
            d = np.ones((len(a), b.shape[1]), "float32")
            return (d.dot(b.T), a.T.dot(d)) if direction == ops.GRADIENT else a.dot(b)

        return [run]


def fewer_bits(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """Rounded to so many bits of fraction: 2 are e5m2's, where nothing leaves its range."""

    def rounded(values: np.ndarray) -> np.ndarray:
        unit = 2.0 ** (np.frexp(values)[1] - 1 - bits)
        return np.asarray(np.round(values / unit) * unit)

    return rounded


@pytest.mark.parametrize(
    ("factor", "passed"), [(ops.to_fp8, True), (fewer_bits(2), False), (lambda values: 1.02 * values, False)]
)
def test_products_at_fp8_are_held_to_e4m3_and_sums_in_fp32(
    factor: Callable[[np.ndarray], np.ndarray], passed: bool
) -> None:
    """e5m2 in place of e4m3 fails, and so does a scale that is off by a fiftieth."""
    found = operators.check(Fp8Products(factor), "fp8")
    assert [result.tensor for result in found] == [
        f"{name} {way}" for name in ops.PRODUCTS for way in ("forward", "gradient")
    ]
    assert all(result.passed is passed for result in found)
