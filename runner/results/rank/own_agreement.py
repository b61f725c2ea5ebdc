"""A person's own network in several images: they are ranked where they compute the same in float64, from the same drawn parameters. An
image that has no proof in float64 is held against the others by the losses of several seeds, as it measured them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from bench import rules
from runner.results.cells import StoredCell, StoredRepeat

# tf32, mixed precision and half types rest on fp32: their own bounds are so wide that mistakes hide in them, such as a wrong epsilon.

Cell = TypeVar("Cell", bound=StoredCell)


def rested(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of a wide precision with the cell at fp32 that their proof rests on: of the same adapter, image and device.

    Where the cell at fp32 of the same mode failed parity, no other mode's serves.
    """
    # A name in a results file may be any text; only those of workloads name a file.
    named, workloads = {cell.key.workload for cell in cells}, rules.workload_names()
    known = {name for name in named if name in workloads or rules.is_own(name)}
    networks = {cell.key.workload: "" for cell in cells} | {name: _network(name) for name in known}
    passed: dict[tuple[object, ...], str] = {}
    failed: dict[tuple[object, ...], str] = {}
    for full in (cell for cell in cells if cell.key.precision == "fp32"):
        name = f"{full.cell_id} of run {full.run_id}"
        for repeat in full.repeats:
            adapters = _adapters(full, repeat, networks[full.key.workload])
            if repeat.row.get("parity_passed") is False:
                failed |= {(*adapter, full.mode): name for adapter in adapters}
            # A refused repeat proves nothing, though its first tensors passed.
            elif repeat.status == "ok" and repeat.row.get("parity_passed") is True:
                passed |= dict.fromkeys(adapters, name)
    return [
        _resting(cell, network, passed, failed)
        if cell.key.precision in rules.WIDE and (network := networks[cell.key.workload])
        else cell
        for cell in cells
    ]


def _resting(
    cell: Cell, network: str, passed: Mapping[tuple[object, ...], str], failed: Mapping[tuple[object, ...], str]
) -> Cell:
    """The cell with what all of its good repeats rest on."""
    proof = ""
    for repeat in cell.repeats:
        adapters = list(_adapters(cell, repeat, network))
        if wrong := next((failed[key] for key in ((*adapter, cell.mode) for adapter in adapters) if key in failed), ""):
            return replace(cell, unproved=f"parity at fp32 failed, in {wrong}")
        proof = next((passed[adapter] for adapter in adapters if adapter in passed), "")
        if repeat.status == "ok" and not proof:
            return replace(cell, unproved=f"no parity at fp32 here: measure --precision fp32,{cell.key.precision}")
    return replace(cell, at_fp32=proof)


def _network(workload: str) -> str:
    """The workload whose network this one has; empty for operations, and for one that this checkout does not declare.

    Whoever shows the workload says what is wrong with a file that cannot be read.
    """
    with contextlib.suppress(ValueError, OSError, KeyError):
        if rules.workload_declaration(workload)["task"] != "operators":
            return str(rules.network_of(workload))
    return ""


def _adapters(cell: StoredCell, repeat: StoredRepeat, network: str) -> Iterator[tuple[object, ...]]:
    """An adapter in an image on a device: by the digest of its code, and by that of all sources, as workloads may share a network.

    The image is that of its digest or, within a run, that of its lock: each node may have made it for itself.
    """
    row, place = repeat.row, (network, cell.image, cell.framework, cell.key.device_kind, cell.key.device_model)
    of_run = "run", cell.run_id, row.get("lock_sha256")
    for image in (of_run, ("digest", digest)) if (digest := row.get("image_digest")) else (of_run,):
        yield from ((*place, image, code) for name in ("code_sha256", "bench_sha256") if (code := row.get(name)))


# How far losses in float64 may be apart, relative to the largest: three steps make rounding, 1e-16, larger by some powers of ten. Another
# epsilon, or half of a batch, is off by 1e-6 and more. They are told with ten digits.
SAME = 1e-8
# Losses that are not of float64 may differ by so many times their own scatter (bench.own_float64.MARGIN), and by this share at most where
# both are none; beside float64 by as much as a proof allows.
SCATTERS, MOST = 8.0, 0.1


class _Told(NamedTuple):
    batches: str
    # The digest of the names and shapes of its parameters; empty in older runs.
    names: str
    losses: tuple[float, ...]
    # Empty where the losses are of float64.
    why_not: str
    scatter: float
    # The word "drawn" or "none" on the random numbers of its measured step; empty where it declares none, and in older runs.
    random: str


def agreed(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of own networks that compute another thing than most of the images with why they are not ranked."""
    reported = [(cell, facts) for cell in cells if (facts := _told(cell))]
    return [_held(cell, mine, reported) if (mine := _told(cell)) else cell for cell in cells]


def worst_apart(cells: Sequence[StoredCell]) -> tuple[float, bool] | None:
    """(how far the first losses of these cells are apart at most, relative to the largest; whether all are of float64). None where fewer
    than two told them, or they are of other networks."""
    reported = [facts for cell in cells if (facts := _told(cell))]
    if len(reported) < 2 or len({cell.key.workload for cell in cells}) > 1:
        return None
    steps = list(zip(*(facts.losses for facts in reported), strict=False))
    largest = max(abs(loss) for step in steps for loss in step) or 1.0
    return max(max(step) - min(step) for step in steps) / largest, not any(facts.why_not for facts in reported)


def in_eval(cell: StoredCell) -> str:
    """A sentence on a network that computes as in evaluation while it is trained; empty where nothing shows that it does.

    That may be meant, as where only the head is trained, so it refuses nothing.
    """
    settings = cell.environment.get("settings")
    if not rules.is_own(cell.key.workload) or not isinstance(settings, dict):
        return ""
    if layers := settings.get(rules.OWN_EVAL):
        return f"layers are in eval() mode while it is measured: {layers}; call train() before a step that trains them"
    if settings.get(rules.OWN_RANDOM) == "none":
        return "DROPOUT is True, and its measured step draws no random numbers: look for eval(), or leave DROPOUT out"
    return ""


def _told(cell: StoredCell) -> _Told | None:
    """The facts by which a cell is held; None of any other cell, and where it did not tell them."""
    settings = cell.environment.get("settings")
    if not rules.is_own(cell.key.workload) or not isinstance(settings, dict):
        return None
    why_not = "" if rules.OWN_LOSSES in settings else str(settings.get(rules.OWN_WHY) or "it reported no losses")
    losses = settings.get(rules.OWN_SEEDS if why_not else rules.OWN_LOSSES)
    try:
        numbers = tuple(float(word) for word in str(losses).split(","))
        scatter = float(settings.get(rules.OWN_SCATTER, "nan")) if why_not else 0.0
    except (TypeError, ValueError):
        return None
    batches, names = str(settings.get(rules.OWN_BATCHES)), str(settings.get(rules.OWN_NAMES) or "")
    random = str(settings.get(rules.OWN_RANDOM) or "")
    told = _Told(batches, names, numbers, why_not, scatter, random)
    return told if all(map(math.isfinite, (*numbers, scatter))) else None


def _held(cell: Cell, mine: _Told, reported: Sequence[tuple[Cell, _Told]]) -> Cell:
    key = cell.key
    images = {
        f"{other.image} {other.framework}": facts
        for other, facts in reported
        if (other.key.workload, other.key.precision) == (key.workload, key.precision)
    }
    unlike = [why for name, facts in images.items() if (why := _apart(mine, facts, name, key.precision))]
    if mine.why_not and len(images) - len(unlike) < 2:
        beside = f"; {unlike[0]}" if unlike else "; measure it in a second image"
        return replace(cell, unproved=f"computation not proved: {mine.why_not}{beside}")
    # Of two that differ nobody knows which is right. Of more those that most agree with are.
    if not unlike or 2 * len(unlike) < len(images):
        return cell
    more = f", nor of {len(unlike) - 1} more" if len(unlike) > 1 else ""
    return replace(cell, unproved=unlike[0] + more)


def _apart(mine: _Told, theirs: _Told, name: str, precision: str) -> str:
    """The difference of another image, as a clause; empty where nothing is seen."""
    if mine.batches != theirs.batches:
        return f"its batches are not those of {name}: draw all that batch() draws from its argument"
    if mine.random and theirs.random and mine.random != theirs.random:
        draws, not_there = ("", "none") if mine.random == "drawn" else ("no ", "some")
        return f"its measured step draws {draws}random numbers, and that of {name} draws {not_there}: look for eval() in the file"
    largest = max(map(abs, (*mine.losses, *theirs.losses)), default=0.0) or 1.0
    most, of = _most_apart(mine, theirs, largest, precision)
    for step, (own, other) in enumerate(zip(mine.losses, theirs.losses, strict=False), 1):
        if abs(own - other) > most:
            if mine.names != theirs.names:
                return (
                    f"its parameters have other names or shapes than those of {name}: give both files read() and load()"
                )
            return f"{of} loss of step {step} is {own:.9g}, not the {other:.9g} of {name}"
    alike = len(mine.losses) == len(theirs.losses) or bool(mine.why_not) != bool(theirs.why_not)
    return "" if alike else f"its steps in float64 are not those of {name}"


def _most_apart(mine: _Told, theirs: _Told, largest: float, precision: str) -> tuple[float, str]:
    """(how far the losses of two images may be apart, how a sentence on them begins)."""
    if not (mine.why_not or theirs.why_not):
        return SAME * largest, "in float64 its"
    most = MOST if mine.why_not and theirs.why_not else rules.OWN_BOUNDS["loss"].get(precision, 0.0)
    return min(SCATTERS * max(mine.scatter, theirs.scatter), most * largest), "its"
