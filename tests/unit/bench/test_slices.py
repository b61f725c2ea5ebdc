"""Parts of the last run of a single operation: right ones pass in every operation and direction, and a wrong one is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import operators, parity
from bench.workloads import ops, slices
from bench.workloads.rows import EPSILON

POINTS = {
    (name, direction): operation
    for name, operation in {**ops.OPERATIONS, **ops.OPTIMIZERS}.items()
    for direction in ops.directions(name)
    if name not in ops.ATTENTION or name in ops.HEADS
}
SMALL = {
    "matmul_flat": (48, 8, 40), "matmul_thin": (8, 48, 12), "matmul": (24, 20, 28), "dense": (16, 12), "dense_x5": (16, 12),
    "conv1d": (4, 6, 9), "conv2d": (3, 4, 7), "conv2d_transposed": (3, 4, 5), "lstm": (6, 4, 5), "gru": (6, 4, 5), "lstm_cell": (6, 4, 5),
    "gru_cell": (6, 4, 5), "layer_norm": (24, 16), "rms_norm": (24, 16), "softmax": (24, 16), "cross_entropy": (24, 30),
    "embedding": (40, 30, 6), "attention_d64": (2, 20, 4, 2, 8), "attention_d128": (2, 20, 2, 2, 8), "attention_grouped": (1, 20, 8, 2, 8),
    "add": (40,), "mul": (40,), "div": (40,), "sgd": (3000,), "momentum": (3000,), "adam": (3000,),
}  # fmt: skip


def gradients(operation: Any, p: dict[str, np.ndarray]) -> list[np.ndarray]:
    """By central differences, number by number."""
    if operation.gradients:
        return [np.asarray(value) for value in operation.gradients(p)]
    found = []
    for name, value in p.items():
        gradient = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            sides = []
            for sign in (1, -1):
                moved = value.copy()
                moved[at] += sign * 1e-5
                sides.append(operation.compute({**p, name: moved}).sum())
            gradient[at] = (sides[0] - sides[1]) / 2e-5
        found.append(gradient)
    return found


def run(name: str, direction: str) -> tuple[ops.Point, dict[str, np.ndarray], list[np.ndarray]]:
    """(the point, its inputs, the values of its run)."""
    operation, size = POINTS[name, direction], SMALL[name]
    p = ops.draw_inputs(operation, size, np.random.RandomState(3), direction)
    if direction == ops.GRADIENT:
        values = gradients(operation, p)
    else:
        values = [np.asarray(operation.compute({key: value.copy() for key, value in p.items()}))]
    return ops.Point(name, direction, size, 1.0, 1, 8), p, values


def held(name: str, direction: str, values: list[np.ndarray], p: Any = None, precision: str = "fp32") -> float:
    point, inputs, _ = run(name, direction)
    return float(operators.last_run(point, values, p or inputs, precision, 7).error)


@pytest.mark.parametrize(("name", "direction"), POINTS)
def test_a_right_run_is_right_in_each_part_and_one_that_did_half_of_its_work_is_not(name: str, direction: str) -> None:
    _, _, values = run(name, direction)
    assert held(name, direction, values, precision="tf32") <= 1.0
    # Central differences are right to 1e-8 or so.
    assert held(name, direction, values) <= 1.0
    for number, value in enumerate(values):
        if value.ndim == 0:
            halves = [value * 0.999]
        else:
            halves = [value.copy(), value.copy()]
            halves[0][: (len(value) + 1) // 2] = 0.0
            halves[1][len(value) // 2 :] = 0.0
        for half in halves:
            assert held(name, direction, [*values[:number], half, *values[number + 1 :]]) > 1.0, (name, number)


def steps_taken(
    name: str, runs: int, precision: str = "float32"
) -> tuple[ops.Point, dict[str, np.ndarray], np.ndarray]:
    """(the point, its inputs, the parameter after so many steps of a type, each by the formula of one step and the momentum by hand)."""
    point, p, _ = run(name, ops.STEP)
    w, g, v = p["w"].astype(precision), p["g"].astype(precision), np.zeros(len(p["g"]), precision)
    for _ in range(runs):
        v = (0.9 * v).astype(precision) + g if name == "momentum" else g
        step = g / np.abs(g) if name == "adam" else v
        w = w - (np.array(ops.RATE, precision) * step).astype(precision)
    return point, p, w.astype("float64")


@pytest.mark.parametrize("name", ops.OPTIMIZERS)
@pytest.mark.parametrize("runs", [1, 30, 3000])
def test_all_steps_of_an_optimiser_are_held_and_not_only_their_way(name: str, runs: int) -> None:
    point, p, w = steps_taken(name, runs)
    assert operators.last_run(point, [w], p, "fp32", 7, runs).error <= 0.5
    # A tenth of the steps is skipped, or every tenth one is taken twice.
    for other in (runs * 10 // 11, runs * 11 // 10) if runs > 10 else (2,):
        assert operators.last_run(point, [w], p, "fp32", 7, other).error > 1.0
    assert operators.last_run(point, [np.full_like(w, np.nan)], p, "fp32", 7, runs).error > 1.0


def test_of_an_optimiser_in_a_half_type_the_way_alone_is_held() -> None:
    point, p, w = steps_taken("sgd", 3000, "float16")
    assert operators.last_run(point, [w], p, "fp16", 7, 3000).error == 0.0
    assert operators.last_run(point, [2 * p["w"] - w], p, "fp16", 7, 3000).error > 1.0


@pytest.mark.parametrize("name", ["matmul", "conv2d", "dense", "gru", "attention_d64", "softmax"])
def test_half_of_the_rows_is_another_shape_and_is_named(name: str) -> None:
    _, _, (value,) = run(name, ops.FORWARD)
    assert held(name, ops.FORWARD, [value[: len(value) // 2]]) == float("inf")
    assert held(name, ops.FORWARD, [value.astype("float16").astype("float64")]) > 1.0
    assert held(name, ops.FORWARD, [np.full_like(value, np.nan)]) == float("inf")


@pytest.mark.slow
def test_the_parts_of_every_point_of_a_quick_run_take_little_beside_it() -> None:
    import time

    random, spent, points = np.random.RandomState(0), 0.0, 0
    for point in ops.points("fp32", 200.0, 250000000, 3, (0, 600)):
        if point.direction in (ops.COPY, ops.STEP) or (
            point.operation in ops.ATTENTION and point.operation not in ops.HEADS
        ):
            continue
        p = ops.draw_inputs(ops.OPERATIONS[point.operation], point.size, random, point.direction)
        begin = time.process_time()
        parts = slices.parts(point.operation, point.direction, p, random)
        spent, points = spent + time.process_time() - begin, points + 1
        assert parts
    assert points > 80
    print(spent, points)


def test_the_weight_of_a_normalisation_is_held_in_half_types_as_far_as_a_sum_in_them_errs() -> None:
    _, p, values = run("layer_norm", ops.GRADIENT)
    wrong = [values[0], values[1] * 1.01, values[2]]
    assert held("layer_norm", ops.GRADIENT, wrong) > 1.0
    assert held("layer_norm", ops.GRADIENT, wrong, precision="bf16") <= 1.0
    half = [values[0], values[1], p["d"][: len(p["d"]) // 2].sum(axis=0)]
    assert held("layer_norm", ops.GRADIENT, half, precision="bf16") > 1.0
    assert held("layer_norm", ops.GRADIENT, [values[0] * 1.05, *values[1:]], precision="bf16") > 1.0


def in_steps(terms: np.ndarray, digits: int) -> np.ndarray:
    """The running sum of the rows in a type of so many binary digits."""
    total = np.zeros(terms.shape[1])
    for row in terms:
        fractions, exponents = np.frexp(total + row)
        total = np.ldexp(np.round(fractions * 2.0**digits), exponents - digits)
    return total


@pytest.mark.parametrize(("precision", "digits", "rows"), [("bf16", 8, 500), ("bf16", 8, 4096), ("fp16", 11, 1024)])
def test_a_sum_over_many_rows_in_steps_of_a_half_type_passes(precision: str, digits: int, rows: int) -> None:
    operation, size = ops.OPERATIONS["layer_norm"], (rows, 32)
    p = ops.draw_inputs(operation, size, np.random.RandomState(3), ops.GRADIENT)
    of_h, _, of_b = (np.asarray(value) for value in operation.gradients(p))
    mean, deviation = p["h"].mean(1, keepdims=True), np.sqrt(p["h"].var(1, keepdims=True) + EPSILON)
    values = [of_h, in_steps(p["d"] * (p["h"] - mean) / deviation, digits), in_steps(p["d"], digits)]
    point = ops.Point("layer_norm", ops.GRADIENT, size, 1.0, 1, 8)
    assert 0.1 < operators.last_run(point, values, p, precision, 1).error <= 1.0
    # Of 4 096 rows the sum of the bias stands still in bfloat16.
    assert (parity.relative_error(values[2], of_b) > 0.7) is (rows == 4096)
    # A gradient of half of the rows is refused.
    half = p["d"][::2] * ((p["h"] - mean) / deviation)[::2]
    assert operators.last_run(point, [of_h, half.sum(axis=0), values[2]], p, precision, 1).error > 1.0
