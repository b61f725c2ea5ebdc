"""A run that is gone on with measures no other image beside what it has."""

from __future__ import annotations

import pytest

from runner.run.execution import _others

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("before", "now", "others"),
    [
        ({A}, A, []),
        ({A}, B, [A]),
        ({A, B}, B, []),
        (set(), A, []),
        # built before and pulled now: the id and the registry's digest of one image, or of two
        ({A}, f"registry/x@{B}", []),
        ({f"registry/x@{A}"}, f"registry/x@{B}", [f"registry/x@{A}"]),
    ],
)
def test_digests_of_one_kind_are_compared(before: set[str], now: str, others: list[str]) -> None:
    assert _others(before, now) == others
