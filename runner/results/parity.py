"""The names of the parity check's quantities, and the errors that this host allows, by its own references.

What a cell says of its checks is not believed: it could print a bound of its own, or leave out the tensors that fail.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import rules
from bench.collectives import COLLECTIVES

# The phase that checks the measured adapter. The phase "parity" checks one that was built without dropout.
PROOF = "proof"

# quantity -> (its name, what is compared)
QUANTITIES: dict[str, tuple[str, str]] = {
    "logits": ("logits", "of one batch, dropout off"),
    "loss": ("loss", "of one batch, dropout off"),
    "gradient": ("gradients", "of one batch, dropout off"),
    "movement": ("movement in the first steps", "of the parameters, in two steps on two batches, dropout off"),
    "parameter": ("movement of the parameters", "in three or four steps, each on another batch"),
    "decay": ("weight decay", "of one step"),
    "features": ("features", "of one batch"),
    "operation": ("operations", "each at its smallest size; parts of the last run at each size, the error in bounds"),
    "moved": ("training moved every tensor", "the share of its numbers that stayed; at least one must differ"),
    "updates": ("the optimiser's count of its steps", "its distance from the steps that were measured"),
    "prediction": ("prediction", "logits of one batch, as the evaluation computes them"),
    "landing": ("mean movement under dropout", "in three steps, along the reference's mean over masks"),
    "dropout": ("spread under dropout", "distance from the mean movement, against the reference's over masks"),
    "learning": ("learning curve", "the losses of training, in deviations from the reference's"),
    "items": (
        "items of training",
        "numbers of the last batch that are another item's; the test part's share in training",
    ),
    "evaluated": (
        "items of the evaluation",
        "those that are missing or mixed up; the logits of some, by the trained parameters",
    ),
    "decoded": ("last sequence", "logits of its last token; greedy tokens that are others where the choice is clear"),
    "exact": (
        "exact parts of steps",
        "numbers without a gradient, digits: in the check's steps; the loss and the gradients of three steps that were measured",
    ),
}

# A cell's own bound is printed and read again, so it is the reference's to the last digit. A larger one is another reference's.
_ROUNDING = 1e-9

# Bounds that no reference holds. They are those of bench.proof, bench.parity, bench.learning and bench.dropout; a test compares them.
# "moved" compares a share of a tensor's numbers, and the largest tensor has some ten millions. The losses' bound follows from the stored
# losses of a few runs: none is larger.
_MOVED = 1.0 - 1e-9
_DECAY = 0.2
_LEARNING = 25.0
_DEVIATIONS = 6.0
# Bounds of the first step under dropout: the end of the tensor's name -> the bound, and another one at some precisions.
_FIRST_STEP = {", first step": 1e-5, ", at rest": 0.5, ", digits": 0.5}
_FIRST_STEP_IN_HALF = {(", first step", "amp-bf16"): 0.09, (", first step", "amp-fp16"): 0.09 / 8}
# Of single operations, by precision: that of the operation which adds up the most numbers.
_OPERATIONS = {"fp64": 1.1e-7, "fp32": 4e-6, "tf32": 2.1e-3, "fp16": 3.2e-2, "bf16": 0.25, "fp8": 1.2e-2}

# The names of "moved" beside each tensor.
_MOVED_TOGETHER = ("all tensors, by the last steps", "the prediction, by training")

# The older names, of a bench before November 2026. Three steps show what two show.
_OLDER_QUANTITY = {("parity", "movement"): ("parity", "parameter")}
_OLDER_TENSOR = {
    "all tensors, by one more step": "all tensors, by the last steps",
    "the prediction, by three steps": "the prediction, by training",
}

# The key of what bench.dropout stores of the share of zeros, and the end of that check's name.
_ZEROS = "zeros"

# The end of the second name, if a specification accepts two values of a tensor.
_EITHER = ".biased"

Bounds = Mapping[tuple[str, str], float]


def name_of(quantity: str) -> str:
    """The name of a quantity for a person; of one that a newer bench printed, the quantity itself."""
    return QUANTITIES[quantity][0] if quantity in QUANTITIES else quantity


def reference_path(workload: str, variant: str, devices: int) -> Path:
    """The path of a workload's reference: a variant has its own, and so have several devices of some workloads."""
    stem = rules.workload_declaration(workload).get("computes") or workload
    stem = f"{stem}.{variant}" if variant else stem
    of_devices = Path(rules.WORKLOADS) / f"{stem}.devices.reference.npz"
    return of_devices if devices > 1 and of_devices.is_file() else Path(rules.WORKLOADS) / f"{stem}.reference.npz"


@functools.cache
def variants(workload: str) -> frozenset[str]:
    """The variants of a workload that have a reference, and "" for the specification itself."""
    stem = reference_path(workload, "", 1).name.removesuffix(".reference.npz")
    names = (path.name for path in Path(rules.WORKLOADS).glob(f"{stem}.*.reference.npz"))
    named = {name.removeprefix(f"{stem}.").removesuffix(".reference.npz") for name in names}
    return frozenset(named - {"devices"} | {""})


@functools.cache
def bounds(workload: str, precision: str, variant: str, devices: int) -> Bounds:
    """(quantity, tensor) -> the largest error that this checkout's reference allows."""
    # Imported here: commands that judge no cell start faster without NumPy.
    import numpy as np

    found: dict[tuple[str, str], float] = {}
    prefix = f"bound/{precision}/"
    # The path of the bounds of "movement", of a workload with dropout.
    for path in (reference_path(workload, variant, devices), (Path(rules.WORKLOADS) / f"{workload}.first-steps.npz")):
        if not path.is_file():
            continue
        with np.load(path) as stored:
            for name in stored.files:
                if name.startswith(prefix):
                    quantity, tensor = name.removeprefix(prefix).split("/", 1)
                    key = quantity, tensor.removesuffix(_EITHER)
                    found[key] = max(found.get(key, 0.0), float(stored[name]))
    if rules.has_dropout(workload):
        with np.load(rules.dropout_path(workload)) as stored:
            for name in stored.files:
                quantity, _, tensor = name.partition("/")
                if quantity in ("landing", "dropout"):
                    found[quantity, tensor] = _DEVIATIONS * float(stored[name])
            # The mean and the deviation of a share; an older reference has none.
            if _ZEROS in stored.files:
                found[_ZEROS, ""] = _DEVIATIONS * float(stored[_ZEROS][1])
    return found


@functools.cache
def _task(workload: str) -> str:
    return str(rules.workload_declaration(workload)["task"])


@dataclass(frozen=True)
class Checked:
    """The cell whose checks are judged: what its reference depends on."""

    workload: str
    precision: str
    preset: str
    devices: int


def allowed(row: Mapping[str, Any], cell: Checked, steps: int) -> float | None:
    """The largest error of a check that this host allows; None where the reference has no such quantity. `steps`: that were measured."""
    quantity, tensor = row["quantity"], row["tensor"]
    if _task(cell.workload) == "operators":
        if quantity != "operation":
            return None
        return 1.0 if tensor.endswith(rules.LAST_RUN) else _OPERATIONS.get(cell.precision)
    if _task(cell.workload) == rules.OWN:
        return _allowed_of_own(row, cell.precision)
    if row["variant"] not in variants(cell.workload):
        return None
    own = bounds(cell.workload, cell.precision, row["variant"], cell.devices)
    fixed = {"moved": _MOVED, "decay": _DECAY, "learning": _LEARNING, "updates": 0.5 / max(1, steps)}
    if quantity in fixed:
        return fixed[quantity]
    if quantity in rules.TAKEN:
        taken: Bounds = rules.taken(cell.precision)
        return taken.get((quantity, tensor))
    if quantity == rules.DECODED:
        decoded: Bounds = rules.decoded(cell.precision)
        return decoded.get((quantity, tensor))
    if quantity == "exact":
        end = tensor[tensor.rfind(",") :]
        return own.get((_ZEROS, "")) if end == f", {_ZEROS}" else rules.EXACT.get(end)
    if quantity == "prediction":
        return own.get((quantity, tensor), own.get(("logits", tensor)))
    if quantity == "landing":
        for end, bound in _FIRST_STEP.items():
            if tensor.endswith(end):
                return _FIRST_STEP_IN_HALF.get((end, cell.precision), bound)
    return own.get((quantity, tensor))


def _allowed_of_own(row: Mapping[str, Any], precision: str) -> float | None:
    """The most that the error of a person's own network may be, whatever bound the cell derived from its own steps."""
    most = rules.OWN_BOUNDS.get(row["quantity"])
    if row["quantity"] == "parameter" and precision in rules.WIDE:
        most = rules.OWN_BOUNDS["together"]
    allowed: float | None = most.get(precision) if isinstance(most, dict) else most
    return allowed


def passes(row: Mapping[str, Any], cell: Checked, steps: int) -> bool:
    """True if a check passed: by its error, the bound that the cell printed, and this host's own. Its own word can only fail it."""
    if _foreign_bound(row, cell, steps) or row["error"] is None:
        return False
    return bool(row["passed"] and row["error"] <= row["bound"])


def _foreign_bound(row: Mapping[str, Any], cell: Checked, steps: int) -> str | None:
    """The contradiction of the cell's bound to this host's: a sentence."""
    own, what = allowed(row, cell, steps), f"{row['quantity']} {row['tensor']}"
    if own is None:
        return f"it checked {what}, which the reference here does not have"
    if row["bound"] > own * (1.0 + _ROUNDING):
        return f"it allows {what} an error of {row['bound']:.2g}, and the reference here allows {own:.2g}"
    return None


def incomplete(
    rows: Sequence[Mapping[str, Any]], cell: Checked, steps: int, measured: Collection[tuple[str, str, str]]
) -> str | None:
    """The fault of the list of a cell's checks, as a sentence: another reference's, a quantity twice, a tensor that is missing.

    A quantity that has no row at all is not named here: some cells are excused from it. `steps` and `measured` are what the cell
    measured: optimiser steps, and the (operation, direction, size) of single operations.
    """
    if foreign := next((why for row in rows if (why := _foreign_bound(row, cell, steps))), None):
        return foreign
    if len({row["variant"] for row in rows}) > 1:
        return "its checks are of several variants of the reference"
    keys = Counter((row["phase"], row["quantity"], _OLDER_TENSOR.get(row["tensor"], row["tensor"])) for row in rows)
    phase, quantity, tensor = max(keys, key=lambda key: keys[key])
    if keys[phase, quantity, tensor] > 1:
        return (
            f"it checked {quantity} {tensor} {keys[phase, quantity, tensor]} times, and each quantity is checked once"
        )
    checked = {(phase, quantity) for phase, quantity, _ in keys}
    if _task(cell.workload) == "operators":
        owed = _due_operations(cell, measured)
    elif _task(cell.workload) == rules.OWN:
        # The names of its parameters are the person's: that each quantity is there is held by `due`.
        owed = set()
    else:
        owed = _due_tensors(rows[0]["variant"], cell, due(cell, checked))
    lacking = sorted(key for key in owed if key not in keys and key[:2] in checked)
    if not lacking:
        return None
    _, quantity, tensor = lacking[0]
    return f"it did not check {quantity} {tensor}, which the reference has ({len(lacking)} such checks are missing)"


def due(cell: Checked, checked: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """The (phase, quantity) that the cell owes. `checked` are those that it has: an older bench's may stand in for a newer one."""
    stand_in = {new: old for new, old in _OLDER_QUANTITY.items() if new not in checked and old in checked}
    owed = [stand_in.get(key, key) for key in rules.due(cell.workload, cell.preset)]
    # Of collectives, which several devices measure alone, the last run is not held: its buffers are zeros.
    return [key for key in owed if key != (PROOF, "operation") or cell.devices == 1]


def _due_tensors(variant: str, cell: Checked, owed: Iterable[tuple[str, str]]) -> set[tuple[str, str, str]]:
    """The (phase, quantity, tensor) of every check that the reference of a network has bounds for."""
    tensors: dict[str, set[str]] = {"prediction": {"logits"}, "updates": {"optimiser"}, "learning": {"worst", "mean"}}
    for quantity, tensor in bounds(cell.workload, cell.precision, variant, cell.devices):
        tensors.setdefault(quantity, set()).add(tensor)
    for quantity, tensor in (*rules.taken(cell.precision), *rules.decoded(cell.precision)):
        tensors.setdefault(quantity, set()).add(tensor)
    tensors["moved"] = {*tensors.get("parameter", ()), *_MOVED_TOGETHER}
    return {(phase, quantity, tensor) for phase, quantity in owed for tensor in tensors.get(quantity, ())}


def _due_operations(cell: Checked, measured: Iterable[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """The checks of the operations that were measured: at the smallest size, and of the last run at each. A copy computes nothing."""
    computed = [point for point in measured if point[1] != "copy"]
    before = {
        ("parity", "operation", f"{name} of {cell.devices} devices" if name in COLLECTIVES else f"{name} {direction}")
        for name, direction, _ in computed
    }
    return before | {
        (PROOF, "operation", f"{name} {direction} {size}{rules.LAST_RUN}")
        for name, direction, size in computed
        if name not in COLLECTIVES
    }
