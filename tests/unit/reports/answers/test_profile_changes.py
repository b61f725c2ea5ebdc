"""Of two profiles the operations are named whose share of a step differs, the one with the most time between the two first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reports.answers.comparison import profile_changes
from reports.data.model import Operation, Profile


def profile(**seconds: float) -> Profile:
    whole = sum(seconds.values())
    operations = tuple(Operation(name, "cpu", 1.0, each, each / whole) for name, each in seconds.items())
    return Profile(operations, 5, whole, whole)


def said(before: Profile | None, after: Profile | None) -> list[str]:
    cells = [SimpleNamespace(run_id="r", cell_id=name, key=SimpleNamespace(workload="net@0")) for name in "ab"]
    row: Any = SimpleNamespace(*(), before=SimpleNamespace(cells=cells[:1]), after=SimpleNamespace(cells=cells[1:]))
    row.cell = cells[1]
    profiles = {("r", name): each for name, each in (("a", before), ("b", after)) if each}
    return list(profile_changes([row], profiles))


def test_the_operation_with_the_most_time_between_the_sides_comes_first() -> None:
    before = profile(conv=0.5, addmm=0.3, relu=0.2)
    after = profile(conv=0.5, addmm=9.0, relu=0.2, new=0.4)
    assert said(before, after) == [
        "profile of net@0: addmm 300 → 9\u2009000 ms (30\u00a0% → 89\u00a0%); new 0 → 400 ms (none → 4.0\u00a0%)"
    ]


def test_profiles_that_are_alike_say_so_and_a_side_without_one_says_nothing() -> None:
    assert said(profile(conv=0.5, relu=0.5), profile(conv=0.51, relu=0.49))[0].endswith(
        "no operation differs by 3\u00a0% of a step"
    )
    assert said(profile(conv=1.0), None) == []
