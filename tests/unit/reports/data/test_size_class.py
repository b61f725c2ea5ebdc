"""The categories of operations by their work."""

from __future__ import annotations

import pytest

from bench.workloads import ops
from reports.data.operators import size_class


@pytest.mark.parametrize(
    ("mop", "name"),
    [
        (0, ""),
        (0.1, "SMALL"),
        (19.9, "SMALL"),
        (20, "MEDIUM"),
        (999, "MEDIUM"),
        (1022.72, "LARGE"),  # the product that dl_bench plots under LARGE
        (1e5, "VERY_LARGE"),
    ],
)
def test_an_operation_is_in_the_class_that_the_founding_document_has_it_in(mop: float, name: str) -> None:
    assert size_class(mop) == name


def test_the_ladder_of_sizes_reaches_every_class_of_the_founding_document() -> None:
    reached = {size_class(point.mop) for point in ops.points("fp32", 1e9)}
    assert reached >= {"SMALL", "MEDIUM", "LARGE", "VERY_LARGE"}
