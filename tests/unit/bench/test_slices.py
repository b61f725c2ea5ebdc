"""Parts of the last run of a single operation: right ones pass in every operation and direction, and a wrong one is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import operators
from bench.workloads import ops, slices

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


def test_the_weight_of_a_normalisation_is_held_where_its_sum_is_in_float32() -> None:
    _, _, values = run("layer_norm", ops.GRADIENT)
    wrong = [values[0], values[1] * 1.05, values[2]]
    assert held("layer_norm", ops.GRADIENT, wrong) > 1.0
    assert held("layer_norm", ops.GRADIENT, wrong, precision="bf16") <= 1.0
    assert held("layer_norm", ops.GRADIENT, [values[0] * 1.05, *values[1:]], precision="bf16") > 1.0
