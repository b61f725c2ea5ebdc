"""The operations that take another part of a step on one of two sides, as the framework's own profiler saw them (`--profile`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reports.answers.contrast import Contrast, Side
from reports.data.model import Profile
from reports.wording import number, percent
from runner.text import visible

# A profile is of a few steps: a smaller part of the longer step is its noise. Of many operations the first explain the most.
LEAST, MOST = 0.03, 5

Profiles = Mapping[tuple[str, str], Profile]


def profile_changes(rows: Sequence[Contrast], profiles: Profiles) -> Iterator[str]:
    """A line for each row whose two sides have a profile: of the operations that differ first the one with the most time between them."""
    for row in rows:
        before, after = _profile(row.before, profiles), _profile(row.after, profiles)
        if before is None or after is None:
            continue
        changed = [text for _, text in sorted(_changes(before, after), reverse=True)[:MOST]]
        what = "; ".join(changed) or f"no operation differs by {percent(LEAST, 1)} of a step"
        yield visible(f"profile of {row.cell.key.workload}: {what}", 600)


def _profile(side: Side, profiles: Profiles) -> Profile | None:
    return next((found for cell in side.cells if (found := profiles.get((cell.run_id, cell.cell_id)))), None)


def _changes(before: Profile, after: Profile) -> Iterator[tuple[float, str]]:
    """(seconds of a step between the two, the change in words) of each operation that differs."""
    least = LEAST * max(before.busy_seconds, after.busy_seconds)
    old, new = ({(one.on, one.name): one for one in side.operations} for side in (before, after))
    for key in old.keys() | new.keys():
        ends = old.get(key), new.get(key)
        first, second = (one.seconds if one else 0.0 for one in ends)
        if abs(first - second) >= least:
            shares = " → ".join(percent(one.share, 2) if one else "none" for one in ends)
            yield abs(first - second), f"{key[1]} {number(1e3 * first)} → {number(1e3 * second)} ms ({shares})"
