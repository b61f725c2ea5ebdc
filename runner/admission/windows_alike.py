"""Repeats whose windows are those of another one: as they are, scaled, mirrored, begun later, backwards or in another order. Pure.

Two repeats differ by their noise. A pattern that both have, such as that of their data, is not a thousand times as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from runner.results.statistics import Array

# How a window differs from the one before it is the same to a thousandth of what such differences are. Windows that differ by less than
# the last figure have no pattern.
_SAME = 1e-3
_FEWEST_WINDOWS = 12
_LEAST_PATTERN = 1e-5
_MOST_DIFFERENCES = 64

# A copy may leave out so many windows at its beginning.
_MOST_LATER = 8
# The least share of equal differences: of windows as they are, where a forger may have changed some, and of those in another order,
# which more pairs of honest repeats are held to.
_AS_THEY_ARE, _IN_ANOTHER_ORDER = 0.5, 0.9
# A clock that counts in few steps makes windows that are equal by chance: those are not looked for in another order.
_DISTINCT = 0.9
# Forms are not looked at further whose first two differences have another proportion, as an angle, or of whose first ones fewer are equal.
_ANGLE = 0.02
_HEAD, _LEAST_HEAD = _FEWEST_WINDOWS - 1, 0.4

# The differences between neighbouring windows: as they are, backwards, and by size.
Forms = tuple[tuple[float, ...], ...]

Where = TypeVar("Where")


@dataclass(frozen=True)
class _Form:
    differences: Array
    is_by_size: bool
    is_first: bool
    least_share: float


def forms(seconds: Array) -> Forms:
    """Those of the steady windows of a repeat, in seconds a step; none where it has no pattern."""
    if len(seconds) < _FEWEST_WINDOWS or not np.all(seconds > 0):
        return ()
    own = np.diff(seconds / np.median(seconds))
    if np.median(np.abs(own)) < _LEAST_PATTERN:
        return ()
    if len(np.unique(seconds)) < _DISTINCT * len(seconds):
        return (tuple(own[:_MOST_DIFFERENCES].tolist()),)
    orders = (own[: _MOST_DIFFERENCES + _MOST_LATER], -own[::-1][:_MOST_DIFFERENCES], np.diff(np.sort(seconds)))
    return tuple(tuple(order[: _MOST_DIFFERENCES + _MOST_LATER].tolist()) for order in orders)


def _every(each: Forms) -> Iterator[_Form]:
    for order, differences in enumerate(map(np.array, each)):
        by_size = order == 2
        for later in range(_MOST_LATER + 1 if order == 0 and len(each) > 1 else 1):
            rest = differences[later : later + _MOST_DIFFERENCES]
            first = order == 0 and not later
            if len(rest) >= _HEAD:
                yield _Form(rest, by_size, first, _AS_THEY_ARE if first and len(each) > 1 else _IN_ANOTHER_ORDER)


def _angle(differences: Array) -> float:
    """The proportion of the first differences, which no factor changes."""
    return float(np.arctan2(differences[1], differences[0]) % np.pi)


def _share(own: Array, others: Array) -> Array:
    """How many differences of each row are those of `own`, times a factor."""
    if not len(others) or not np.any(own):
        return np.zeros(len(others))
    factors = np.median(others[:, own != 0] / own[own != 0], axis=1, keepdims=True)
    same = np.abs(others - factors * own) <= _SAME * np.abs(factors) * np.median(np.abs(own))
    shares: Array = np.mean(same, axis=1)
    return shares


def _are_alike(one: _Form, other: _Form) -> bool:
    if one.is_by_size != other.is_by_size or not (one.is_by_size or one.is_first or other.is_first):
        return False
    most = min(len(one.differences), len(other.differences))
    share = _share(one.differences[:most], other.differences[None, :most])[0]
    return bool(share >= max(one.least_share, other.least_share))


class KnownWindows(Generic[Where]):
    """The windows of many repeats, to find the one of which another is a copy."""

    def __init__(self) -> None:
        self._known: list[tuple[float, _Form, Where]] = []
        self._sorted: tuple[Array, Array] | None = None

    def add(self, each: Forms, where: Where) -> None:
        """Know these again."""
        self._known += [(_angle(form.differences), form, where) for form in _every(each)]
        self._sorted = None

    def _by_angle(self) -> tuple[Array, Array]:
        """The angles of all known forms, and their first differences."""
        if self._sorted is None:
            self._known.sort(key=lambda known: known[0])
            heads = [form.differences[:_HEAD] for _, form, _ in self._known]
            self._sorted = np.array([angle for angle, _, _ in self._known]), np.array(heads).reshape(-1, _HEAD)
        return self._sorted

    def like(self, each: Forms) -> Iterator[Where]:
        """The places of known repeats whose windows have one of these forms."""
        angles, heads = self._by_angle()
        for form in _every(each):
            angle = _angle(form.differences)
            # An angle near 0 may be one near the other end.
            for near in (angle, angle - np.pi, angle + np.pi):
                begin, end = np.searchsorted(angles, [near - _ANGLE, near + _ANGLE])
                shares = _share(form.differences[:_HEAD], heads[begin:end])
                for at in np.flatnonzero(shares >= _LEAST_HEAD) + begin:
                    _, other, where = self._known[at]
                    if _are_alike(form, other):
                        yield where
