"""A flipped bit of a product is found, and its block is named."""

from __future__ import annotations

import itertools

import numpy as np

from bench import same_bits
from bench.same_bits import BLOCKS

SIDE = 1024
RESULT = np.random.RandomState(1).standard_normal((SIDE, SIDE)).astype("float32")


def block_sums(result: np.ndarray) -> np.ndarray:
    side = SIDE // BLOCKS
    return result.view("int32").reshape(BLOCKS, side, BLOCKS, side).sum(axis=(1, 3), dtype="int64")


def watched(flips: dict[int, tuple[int, int, int]], runs: int) -> dict:
    """The facts of so many runs, in some of which one bit of one result is another: run -> (row, column, bit)."""
    number = itertools.count()

    def sums() -> np.ndarray:
        at = next(number)
        if at not in flips:
            return USUAL
        row, column, bit = flips[at]
        result = RESULT.copy()
        result.view("uint32")[row, column] ^= np.uint32(1 << bit)
        return block_sums(result)

    clock = itertools.count()
    return same_bits.watch(sums, runs + 1, lambda: next(clock))


USUAL = block_sums(RESULT)


def test_one_flipped_bit_among_a_billion_results_is_found_and_its_block_is_named() -> None:
    runs = 10**9 // SIDE**2 + 1
    found = watched({500: (700, 33, 0)}, runs)
    assert (found["runs"], found["alike"]) == (runs, runs - 1)
    assert found["odd"] == [[500, 700 // 32, 33 // 32]]


def test_each_bit_is_seen_and_a_first_run_that_is_wrong_is_the_wrong_one() -> None:
    for bit in range(32):
        assert watched({0: (0, 1023, bit)}, 9)["odd"] == [[0, 0, 31]], bit
    assert watched({}, 9)["odd"] == []


def test_a_device_that_is_wrong_each_time_fills_no_memory_and_no_line() -> None:
    random = np.random.RandomState(2)
    found = same_bits.watch(
        lambda: random.randint(0, 2**31, (BLOCKS, BLOCKS)), 5.0, iter(np.arange(0, 6, 0.01)).__next__
    )
    assert found["runs"] > 100
    assert len(found["odd"]) == same_bits.MOST_NAMED
