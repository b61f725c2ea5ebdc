"""What the stored checks of a repeat that ended well show: each is within its bound, and none of those that it owes is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from bench import rules
from runner.results import parity, validate
from runner.results.rows import chosen

if TYPE_CHECKING:
    import pyarrow as pa

# Cell id and repeat.
Key = tuple[str, int]


def fault(
    checks: pa.Table, ended_well: Mapping[Key, Mapping[str, Any]], left_out: Callable[[Key], Collection[str]]
) -> tuple[Key, str] | None:
    """The first repeat of a run that ended well whose checks do not show it, and why; None where there is none.

    `checks` is the run's table of them, and `ended_well` has the rows of the repeats. `left_out` returns what a repeat says that it
    did not do.
    """
    for row in _failed(checks).to_pylist():
        if (key := (row["cell_id"], row["repeat"])) in ended_well:
            return key, f"{row['quantity']} {row['tensor']} {_why(row)}"
    checked = _checked(checks)
    for key, row in ended_well.items():
        if lacking := _lacking(row, checked.get(key, set()), functools.partial(left_out, key)):
            return key, lacking
    return None


def _failed(checks: pa.Table) -> pa.Table:
    """The rows that did not pass. An error that is not finite is null."""
    passed = pc.and_kleene(pc.less_equal(checks["error"], checks["bound"]), checks["passed"])
    passed = pc.and_kleene(passed, pc.is_valid(passed)).combine_chunks()
    # A column of bits has no dlpack.
    return chosen(checks, np.from_dlpack(passed.cast("int8")) == 0) if len(checks) else checks


def _why(row: Mapping[str, Any]) -> str:
    error, bound = (f"{row[name]:.3g}" if row[name] is not None else "not finite" for name in ("error", "bound"))
    return f"has passed {str(bool(row['passed'])).lower()}, error {error} and bound {bound}"


def _checked(checks: pa.Table) -> dict[Key, set[tuple[str | None, str]]]:
    """The (phase, quantity) that each repeat has checked."""
    columns = ("cell_id", "repeat", "phase", "quantity")
    is_first = np.zeros(len(checks), bool)
    is_first[validate.first_of_each(checks, columns)] = True
    checked: dict[Key, set[tuple[str | None, str]]] = {}
    for row in chosen(checks.select(columns), is_first).to_pylist():
        checked.setdefault((row["cell_id"], row["repeat"]), set()).add((row["phase"], row["quantity"]))
    return checked


def _lacking(
    row: Mapping[str, Any], checked: set[tuple[str | None, str]], left_out: Callable[[], Collection[str]]
) -> str | None:
    """The check that a repeat owes and does not have, in words.

    A release that kept no phases owed others, and so may a workload that this checkout does not have.
    """
    if not checked:
        return "no check is there"
    phased = {(phase, quantity) for phase, quantity in checked if phase is not None}
    if not phased or row["workload"] not in rules.workload_names():
        return None
    cell = parity.Checked(row["workload"], "", str(row.get("preset")), 1)
    lacking = [key for key in parity.due(cell, phased) if key not in phased]
    if any(key == (parity.PROOF, quantity) for key in lacking for quantity in rules.EXCUSES.values()):
        excused = {(parity.PROOF, rules.EXCUSES.get(what)) for what in left_out()}
        lacking = [key for key in lacking if key not in excused]
    return "no check of {1} in the phase {0} is there".format(*lacking[0]) if lacking else None
