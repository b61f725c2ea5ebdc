"""The state of a machine while a cell was measured, as far as it explains how long steps took: clocks and what held them back, heat,
power, other work. The facts are those of the role `cause` (runner/results/on_disk/roles.py).

They are measured, so they are never quite equal. A difference counts where it is larger than an idle machine makes it, and the middle
halves of the repeats of both sides lie apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.results import gpu_facts, rows
from runner.results.on_disk import roles
from runner.results.on_disk.other_work import MOST
from runner.text import number

if TYPE_CHECKING:
    import pyarrow as pa

    from runner.results.cells import Windows
    from runner.results.rows import Row
    from runner.results.statistics import Array

Names = tuple[str, ...]
# The facts of one repeat: numbers, and what has names.
Observed = Mapping[str, float | Names]

_UNKNOWN = "not recorded"
_BITS = "throttle_reasons"
# A reason that held a clock back for less of the time explains no difference that anybody asks about.
_LEAST_SHARE = 0.1
_OF_ROW = roles.with_role("cause")
# Each device says most of them; only the cell's own processes have the clock of their CPUs.
OF_TELEMETRY = tuple(name for name in roles.with_role("cause", of=roles.TELEMETRY_ROLES) if name != _BITS)

# The least difference that is no noise of a sensor, of the larger value: a share of it, or so many of the unit.
_SHARES = dict.fromkeys(("sm_megahertz", "memory_megahertz", "cpu_megahertz"), 0.03) | dict.fromkeys(
    ("power_watts", "mean_power_watts"), 0.1
)
_DEGREES = dict.fromkeys(("temperature_celsius", "max_temperature_celsius", "memory_temperature_celsius"), 5.0)

# Facts that disturb by themselves: each is told too where one side recorded nothing of it.
_DISTURBS = ("throttled_by", "other_cpus", "foreign_processes")

# A fact that says the same as another one -> that one. It is named only where the other one is not.
_SAME_AS = {
    "max_temperature_celsius": "temperature_celsius",
    "mean_power_watts": "power_watts",
    "foreign_process_count": "foreign_processes",
}


def observed(row: Row, windows: Windows, telemetry: pa.Table | None) -> Observed:
    """The facts of one repeat: those of its row, and of its telemetry the medians over the steady windows. What was not recorded is
    left out."""
    found: dict[str, Any] = {}
    if telemetry is not None and (inside := _steady(windows, rows.floats(telemetry, "seconds"))) is not None:
        # A cell's own processes and its GPUs do not share a column, but for their memory.
        medians = {
            name: float(np.nanmedian(at))
            for name in OF_TELEMETRY
            if np.isfinite(at := rows.floats(telemetry, name)[inside]).any()
        }
        found.update(medians)
        found.update(_held_back(rows.floats(telemetry, _BITS)[inside]))
    for name in _OF_ROW:
        value = row.get(name)
        # Beside a GPU's cell other cells keep CPUs busy.
        if name == "other_cpus" and row.get("device_kind") != "cpu":
            continue
        if value is not None and not isinstance(value, bool):
            found[name] = float(value) if isinstance(value, (int, float)) else tuple(sorted(map(str, value)))
    if (held := _reasons(found.pop(_BITS, None), found.pop("throttled_by", None), row.get("throttled"))) is not None:
        found["throttled_by"] = held
    return found


def _reasons(often: Names | None, ever: Names | None, throttled: bool | None) -> Names | None:
    """The names of what held the clock back, of three columns: those of a share of the time, by telemetry; those ever seen; and whether it
    throttled. A GPU meets its power limit now and then: that counts by its share of the time, where this is known."""
    if often is None and ever is None and throttled is None:
        return None
    seen = {*(often or ()), *(name for name in ever or () if often is None or name != gpu_facts.POWER_CAP)}
    return tuple(sorted(seen)) or (("an unnamed reason",) if throttled else ())


def _steady(windows: Windows, seconds: Array) -> Array | None:
    steady = np.array([stage == "steady" for stage in windows.stage], dtype=bool)
    if not steady.any():
        return None
    ends = windows.begin[steady] + windows.seconds[steady]
    inside: Array = (seconds >= windows.begin[steady].min()) & (seconds <= ends.max())
    return inside


def _held_back(bits: Array) -> Iterator[tuple[str, Names]]:
    told = bits[np.isfinite(bits)].astype(np.int64)
    if len(told):
        often = sum(bit for bit in gpu_facts.CLOCK_REASONS if np.mean((told & bit) > 0) >= _LEAST_SHARE)
        yield _BITS, tuple(gpu_facts.reasons_of(often))


def changes(before: Sequence[Observed], after: Sequence[Observed], cpus: int) -> tuple[tuple[str, str, str], ...]:
    """(the word for the fact, its value before, its value after) of each that differs. `before` and `after` hold the repeats of a side;
    `cpus` is how many CPUs the cell had."""
    found: dict[str, tuple[str, str, str]] = {}
    for name in dict.fromkeys(name for repeat in (*before, *after) for name in repeat):
        old, new = (_values(side, name) for side in (before, after))
        if (not old or not new) and name not in _DISTURBS:
            continue
        values = _of_names(old, new) if isinstance((old or new)[0], tuple) else _of_numbers(name, old, new, cpus)
        if values:
            found[name] = (roles.WORDS[name], *values)
    return tuple(value for name, value in found.items() if _SAME_AS.get(name) not in found)


def _values(side: Sequence[Observed], name: str) -> list[Any]:
    return [repeat[name] for repeat in side if name in repeat]


def _of_numbers(name: str, old: Sequence[float], new: Sequence[float], cpus: int) -> tuple[str, str] | None:
    (low, middle, high), (lower, other, upper) = (
        np.percentile(values, (25, 50, 75)) if len(values) else (0.0, 0.0, 0.0) for values in (old, new)
    )
    if not (high < lower or upper < low) or not differ(name, float(middle), float(other), cpus):
        return None
    return number(float(middle)) if old else _UNKNOWN, number(float(other)) if new else _UNKNOWN


def differ(name: str, before: float, after: float, cpus: int = 1) -> bool:
    """True if two values of a fact lie further apart than the noise of a sensor, or than what an idle machine does beside a cell."""
    least = MOST * cpus if name == "other_cpus" else _DEGREES.get(name) or _SHARES.get(name, 0.0) * max(before, after)
    return before != after and abs(after - before) >= least


def _of_names(old: Sequence[Names], new: Sequence[Names]) -> tuple[str, str] | None:
    """The names of most repeats of each side."""
    before, after = (
        sorted(
            name for name, count in Counter(name for names in side for name in names).items() if 2 * count > len(side)
        )
        for side in (old, new)
    )
    if before == after:
        return None
    return _listed(before, old), _listed(after, new)


def _listed(names: Sequence[str], side: Sequence[Names]) -> str:
    return ", ".join(names) or ("none" if side else _UNKNOWN)
