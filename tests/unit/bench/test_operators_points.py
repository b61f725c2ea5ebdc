"""Single operations: what a point of the specification stands for, and the numbers that it is computed from."""

from __future__ import annotations

import numpy as np
import pytest

from bench import rules
from bench.workloads import ops


def test_work_is_counted_as_the_specification_says() -> None:
    """dl_bench prints 1022.72 million operations for its 800 x 800 product: 2 m n (k - 1)."""
    mop = ops.OPERATIONS["matmul"].mop(800, 800, 800)
    assert mop == 1024.0
    assert mop - 2 * 800 * 800 / 1e6 == pytest.approx(1022.72)
    assert ops.OPERATIONS["add"].mop(1000) == 1.0
    assert ops.OPERATIONS["dense_x5"].mop(64, 256) == 5 * ops.OPERATIONS["dense"].mop(64, 256)
    assert ops.OPERATIONS["conv2d"].mop(1, 2, 4) == 2 * 2 * 2 * 16 * 9 / 1e6


def test_every_operation_makes_the_shape_that_it_declares_near_one() -> None:
    # Backends of one computation are one.
    for operation, name in {each: name for name, each in {**ops.OPERATIONS, **ops.OPTIMIZERS}.items()}.items():
        for size in operation.sizes[:2]:
            value = operation.compute(ops.draw_inputs(operation, size, np.random.RandomState(0)))
            assert value.shape == operation.result(*size), name
            # The numbers of a softmax's row add up to one, and the loss is near the logarithm of the number of classes.
            expected = {"softmax": 1 / size[-1], "cross_entropy": np.log(size[-1])}.get(name, 1.0)
            assert 0.05 < np.abs(value).mean() / expected < 5, name


def test_points_are_bounded_by_their_work_and_grow_within_an_operation() -> None:
    points = ops.points("fp32", 200.0)
    assert max(point.mop for point in points) <= 200.0
    assert {point.direction for point in points} == {"forward", "gradient", "step", "copy"}
    for one, next_one in zip(points, points[1:], strict=False):
        if one[:2] == next_one[:2] and one.operation not in ops.COPIES:
            assert one.mop < next_one.mop
    assert len(ops.points("fp32", 1e9)) > 1.5 * len(points)


def test_preset_quick_has_fewer_sizes_and_the_others_all() -> None:
    limited, whole = ops.points("fp32", 200.0, 250000000), ops.points("fp32", 200.0)
    assert {point for point in whole if point.bytes <= 250000000} == set(limited)
    assert any(point.operation == "add" and point.bytes > 100e6 for point in limited)  # beyond most caches
    thinned = ops.points("fp32", 200.0, 250000000, 3)
    assert [point.size[0] for point in thinned if point[:2] == ("add", "forward")] == [32, 512, 4096]
    assert [point.size[0] for point in thinned if point[:2] == ("matmul", "forward")] == [32, 128, 400]
    assert {point[:2] for point in thinned} == {point[:2] for point in limited}
    declared = rules.workload_declaration("ops")["presets"]
    limits = {"most_bytes", "most_sizes"}
    assert [sorted(limits & set(declared[name])) for name in ("quick", "standard", "full")] == [sorted(limits), [], []]


def test_traffic_is_each_input_once_and_each_result_once() -> None:
    points = {point[:3]: point.bytes for point in ops.points("fp32", 1e9)}
    assert points["add", "forward", (32,)] == 3 * 32 * 32 * 4
    assert points["matmul", "gradient", (32, 32, 32)] == 5 * 32 * 32 * 4
    assert points["add", "gradient", (32,)] == 3 * 32 * 32 * 4  # the gradients of a sum are the result's own, handed on
    assert points["mul", "gradient", (32,)] == 5 * 32 * 32 * 4
    assert points["adam", "step", (1024,)] == 7 * 1024 * 4


def test_a_pool_hands_out_what_lies_in_the_range_and_never_twice_the_same_row() -> None:
    pool = ops.Pool(np.random.RandomState(1))
    first, second, large = (pool.uniform(-1.0, 1.0, shape) for shape in ((8, 8), (8, 8), (1100, 1024)))
    assert large.shape == (1100, 1024)
    for values in (first, second, large):
        assert values.min() >= -1.0
        assert values.max() <= 1.0
        assert len({row.tobytes() for row in values}) == len(values)
    assert not np.array_equal(first, second)
    assert abs(large.mean()) < 0.01
    first[:] = 7.0  # whoever has it may write into it
    assert pool.uniform(-1.0, 1.0, (1 << 20,)).max() <= 1.0


def test_the_error_of_a_slope_by_differences_is_below_what_the_bound_allows_for_it() -> None:
    """Held against exact slopes: an operation that is linear in an input has its derivative there for nothing."""
    random = np.random.RandomState(5)
    for name in ("matmul", "dense_x5", "conv2d", "conv2d_transposed"):
        operation = ops.OPERATIONS[name]
        p = ops.draw_inputs(operation, operation.sizes[0], random)
        first = next(iter(p))
        direction, slope = ops.slope(operation, p, first, random)
        offset = operation.compute({**p, first: np.zeros_like(p[first])}).sum()
        exact = operation.compute({**p, first: direction}).sum() - offset
        gradient_norm = abs(exact) / np.linalg.norm(direction)
        assert abs(slope - exact) / np.linalg.norm(direction) <= ops.SLOPE_ERROR * max(1.0, gradient_norm), name


def test_fp8_rounds_as_the_format_says() -> None:
    """e4m3fn of Micikevicius et al.: 448 is the largest, 2^-9 the smallest, between 1 and 2 there are eighths, ties go to even."""
    values = [
        0.0,
        1.0,
        1.0625,
        1.1875,
        1.07,
        -1.9999,
        448.0,
        5000.0,
        2.0**-9,
        2.0**-10,
        1.1 * 2.0**-10,
        0.3,
        17.0,
        19.0,
    ]
    wanted = [0.0, 1.0, 1.0, 1.25, 1.125, -2.0, 448.0, 448.0, 2.0**-9, 0.0, 2.0**-9, 0.3125, 16.0, 20.0]
    assert ops.to_fp8(np.array(values)).tolist() == wanted
