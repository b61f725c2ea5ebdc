"""Single operations: the check of results and gradients, of an adapter that is right and of such that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import operators
from bench.collectives import COLLECTIVES
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


@pytest.mark.parametrize("wrong", ["", *COLLECTIVES])
def test_of_each_collective_every_device_s_result_is_held(wrong: str) -> None:
    """The wrong one is off on the last of three devices most, by two thousandths. A refused one is left out."""
    results = operators.check(Operators(wrong=wrong), "fp32", 3)
    assert [result.tensor for result in results] == [f"{name} of 3 devices" for name in COLLECTIVES]
    assert [result.tensor for result in results if not result.passed] == [f"{wrong} of 3 devices"] * bool(wrong)
    left = operators.check(Operators(refuse="broadcast"), "fp32", 3)
    assert [result.tensor for result in left] == [f"{name} of 3 devices" for name in COLLECTIVES if name != "broadcast"]


class Few(Operators):
    """The all-reduce alone, and not even that."""

    COLLECTIVES = ("all_reduce",)


def test_an_adapter_that_refuses_all_collectives_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="this framework has none"):
        operators.check(Few(refuse="all_reduce"), "fp32", 3)


def of_each(what: Callable[[np.ndarray, int], np.ndarray]) -> Callable[[np.ndarray], tuple[np.ndarray, ...]]:
    return lambda x: tuple(what(x, at) for at in range(len(x)))


def blocks(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), len(x), -1)


# What is done wrong -> the collective, and (a row for each device's buffer) -> what the devices have afterwards.
MISTAKES: dict[str, tuple[str, Callable[[np.ndarray], tuple[np.ndarray, ...]]]] = {
    "the mean in place of the sum": ("all_reduce", of_each(lambda x, at: x.mean(axis=0))),
    "one device is left out": ("all_reduce", of_each(lambda x, at: x[:-1].sum(axis=0))),
    "nothing is added": ("reduce_scatter", of_each(lambda x, at: blocks(x)[at, at])),
    "another device's block": ("reduce_scatter", of_each(lambda x, at: blocks(x)[:, at - 1].sum(axis=0))),
    "the blocks in another order": (
        "all_gather",
        of_each(lambda x, at: np.concatenate([blocks(x)[at - of, at - of] for of in range(len(x))])),
    ),
    "its own block only": ("all_gather", of_each(lambda x, at: np.tile(blocks(x)[at, at], len(x)))),
    "nothing is exchanged": ("all_to_all", of_each(lambda x, at: x[at])),
    "the last device's buffer": ("broadcast", of_each(lambda x, at: x[-1])),
    "every device keeps its own": ("broadcast", of_each(lambda x, at: x[at])),
    "the other way round": ("send_receive", of_each(lambda x, at: x[(at + 1) % len(x)])),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
def test_a_mistake_among_devices_is_refused(mistake: str, precision: str) -> None:
    name, result = MISTAKES[mistake]

    class Mistaken(Operators):
        def runs(self, operation: str, direction: str, buffers: list[dict[str, Any]]) -> list[Callable[[], Any]]:
            return (
                [lambda p=p: result(p["x"]) for p in buffers]
                if operation == name
                else super().runs(operation, direction, buffers)
            )

    results = operators.check(Mistaken(), precision, 3)
    assert [result.tensor for result in results if not result.passed] == [f"{name} of 3 devices"]
    assert all(result.bound > 0 for result in results), "errors are shown as shares of it"


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_result_that_is_kept_from_the_run_before_is_refused(name: str) -> None:
    class Keeps(Operators):
        def runs(self, operation: str, direction: str, buffers: list[dict[str, Any]]) -> list[Callable[[], Any]]:
            first, *others = super().runs(operation, direction, buffers)
            return [first] * (1 + len(others))

    results = {result.tensor: result.passed for result in operators.check(Keeps(), "fp32", 2)}
    assert not results[f"{name} of 2 devices"]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_process_is_held_to_what_its_own_device_must_have(name: str) -> None:
    """Of the second of two processes. As the first one it fails, where each device has another result."""

    class Second(Operators):
        def values(self, operation: str, direction: str, result: Any) -> Any:
            return (result[1],)

    same = name in ("all_reduce", "all_gather", "broadcast")
    for rank, passed in ((1, True), (0, same)):
        results = {result.tensor: result.passed for result in operators.check(Second(), "fp32", 2, rank)}
        assert results[f"{name} of 2 devices"] is passed


def test_blocks_are_whole_whatever_the_number_of_devices() -> None:
    for devices in (2, 3, 5, 8):
        for point in ops.among(devices, "bf16"):
            assert point.bytes % ops.ITEMSIZE["bf16"] == 0
            if COLLECTIVES[point.operation].blocks:
                assert point.bytes // ops.ITEMSIZE["bf16"] % devices == 0


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
