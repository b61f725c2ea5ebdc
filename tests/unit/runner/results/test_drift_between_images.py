"""Two equal cells of a run that drifts between them: a drift is no difference, on a GPU either."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from runner.results.rank.blocks import Blocks, InBlock
from runner.results.rank.ranking import Contender, Field

TRIALS = 300
# Of 300 runs with a chance of 5 % more than 24 err in 1 of 100.
MOST = 24 / TRIALS
Design = tuple[Sequence[int], Sequence[int]]
# The blocks of each cell. The machine drifts between the third and the fourth.
DESIGNS: dict[str, Design] = {
    "one after the other": ((1, 2, 3), (4, 5, 6)),
    "the first once more": ((1, 2, 3, 6), (4, 5, 6)),
    "both once more": ((1, 2, 3, 7), (4, 5, 6, 7)),
    "two repeats each": ((1, 2), (4, 5)),
}


def field(drift: float, noise: float, kind: str, design: Design, cells: int, true: float, seed: int) -> Field:
    """Cells a0, b0, a1, b1, …: an image's cells a and another one's b, in the blocks of the design."""
    random = np.random.default_rng(seed)
    logs = {
        f"{image}{at}": [
            InBlock(
                ("run", block),
                at + (true if image == "b" else 0.0) + (drift if block > 3 else 0.0) + random.normal(0, noise),
                "run",
            )
            for block in blocks
        ]
        for at in range(cells)
        for image, blocks in zip("ab", design, strict=True)
    }
    blocks = Blocks(logs)

    def contender(name: str) -> Contender:
        values, level = [one.log for one in logs[name]], blocks.level(name)
        return Contender(float(np.mean(values)) if level is None else level, values, 0.0, frozenset({"run"}))

    return Field({name: contender(name) for name in ("a0", "b0")}, blocks, kind)


def told(drift: float, noise: float, kind: str, design: Design, cells: int, true: float = 0.0) -> float:
    fields = (field(drift, noise, kind, design, cells, true, seed) for seed in range(TRIALS))
    return float(np.mean([one.between("b0", "a0").verdict in ("slower", "faster") for one in fields]))


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize("cells", [1, 4])
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("drift", [0.0, 0.01, 0.02, 0.03, 0.04, 0.05])
def test_a_drift_of_up_to_five_percent_between_two_equal_images_is_no_difference(
    kind: str, cells: int, name: str, drift: float
) -> None:
    for noise in (0.003, 0.01):
        assert told(math.log1p(drift), noise, kind, DESIGNS[name], cells) <= MOST, noise


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_true_difference_of_twenty_percent_is_told_all_the_same(kind: str) -> None:
    assert told(0.0, 0.005, kind, DESIGNS["one after the other"], 1, math.log(1.2)) > 0.95
    assert told(math.log(1.03), 0.005, kind, DESIGNS["both once more"], 4, math.log(1.1)) > 0.95
