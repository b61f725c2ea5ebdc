"""Stored rows put together: each cell with its repeats, their windows, how they ended, and how long a step took.

The report and `runner verify` both begin with these cells.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.results import statistics, steadiness
from runner.results.on_disk import roles
from runner.results.on_disk.other_work import OtherWork, of_rows
from runner.results.rows import Place, Row, columns
from runner.text import in_a_line, plural

if TYPE_CHECKING:
    import pyarrow as pa

# The status of a cell without any repeat, and how an imported run goes on.
MISSING = "missing"
# The most characters of a line that names such cells: some 500 of them.
MOST_NAMES = 20_000
# Of the cells that are not yet run a line names so many.
_NAMED = 6
_IMPORTED = "run kit.py again on the machine that measured it, and import that"


@dataclass(frozen=True)
class Windows:
    """The measured windows of one repeat, in their order, as parallel columns."""

    index: statistics.Array
    stage: tuple[str, ...]
    begin: statistics.Array
    seconds: statistics.Array
    steps: statistics.Array
    items: statistics.Array

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, kw_only=True)
class StoredRepeat:
    """One process of a cell: how it ended and what it measured. The row's other columns stay in `row`."""

    number: int
    status: str
    shift: steadiness.Shift | None
    windows: Windows
    row: Row
    reused: bool = False  # it was measured before the run was resumed

    @property
    def began(self) -> float:
        """When its process started, on its machine's clock: seconds since 1970, not trusted. Not a number where it was not recorded."""
        began = self.row.get("started_unix")
        return float(began) if isinstance(began, (int, float)) else math.nan

    @cached_property
    def steady_step_seconds(self) -> statistics.Array:
        """Seconds per step of each steady window."""
        return _steady_step_seconds(self.windows)

    @cached_property
    def steady(self) -> statistics.Timings:
        """The steady windows: their total time over their total steps is the repeat's level."""
        steady = np.array([stage == "steady" for stage in self.windows.stage], dtype=bool)
        return statistics.timings(statistics.Timings(self.steady_step_seconds, self.windows.steps[steady]))

    @property
    def timed(self) -> bool:
        """True if it has a level: some steady window, in which time passed."""
        return len(self.steady) > 0 and self.steady.typical > 0


# The default folder of runs: as of `runner.run.options`.
USUAL_OUT = "results"


def out_of(manifest: Mapping[str, Any]) -> str:
    """The folder that a run was started in, as it was given."""
    return str((manifest.get("options") or {}).get("out") or USUAL_OUT)


def run_word(folder: Path) -> str:
    """The word by which a command finds a run in its folder, as a shell takes it."""
    return shlex.quote(in_a_line(folder.name if folder.parent == Path(USUAL_OUT) else str(folder), 1000))


def resume_command(name: str, out: str) -> str:
    """The command that goes on with the run whose folder has this name, in the folder `out`."""
    command = f"runner matrix --resume {shlex.quote(in_a_line(name, 200))}"
    return command if out == USUAL_OUT else f"{command} --results {shlex.quote(in_a_line(out, 1000))}"


# Half the interval of a cell's median relative to it, as the cell computed it; and that of a single repeat, as the report shows it.
# The presets stop at a few percent; above this the machine was not the cell's own.
MOST_NOISE = 0.25


@dataclass(frozen=True)
class Key:
    """The fields that comparable cells share, each named as its column. A default is of a row that lacks it."""

    workload: str = "unknown"
    precision: str = "unknown"
    preset: str = "unknown"
    device_kind: str = "unknown"
    device_model: str = "unknown"
    devices: int = 1
    batch: int = 0
    data_source: str = ""
    scaling: str = ""  # of several devices: weak, where the batch is that of each, or strong

    @property
    def device(self) -> str:
        if self.devices == 1:
            return self.device_model
        return f"{self.devices} × {self.device_model}" + (f", {self.scaling} scaling" if self.scaling else "")


@dataclass(frozen=True, kw_only=True)
class StoredCell:
    """One cell of one run with all its repeats. Its status is that of its worst repeat; MISSING where none has been run yet."""

    run_id: str
    cell_id: str
    image: str
    framework: str
    mode: str
    engine: str
    key: Key
    status: str
    reason: str
    planned: int  # repeats
    repeats: tuple[StoredRepeat, ...]
    step: statistics.Estimate | None
    items_per_step: float | None
    first_step_seconds: float | None
    parity_passed: bool | None
    environment: Mapping[str, Any]
    row: Row  # of the first repeat that ended well, else of the first
    imported: bool = False  # the run is of a machine on which it cannot be resumed from here
    out: str = USUAL_OUT  # the folder that its run was started in, as it was given
    # Half the interval of its only repeat relative to the median, where `step` has room for more than that repeat shows.
    own_width: float | None = None
    # Standard deviation of the log levels of repeats in other stored runs on this model of device; 0 where none was looked at.
    seen_scatter: float = 0.0
    # Of a precision whose proof rests on that of fp32 (rank.at_fp32): the cell that passed it, or why its figure is not ranked. Both are
    # empty of others, and until they are asked.
    at_fp32: str = ""
    unproved: str = ""

    @cached_property
    def measured(self) -> list[StoredRepeat]:
        """The repeats that its step time is of: those that ended well and have a steady window. If none ended well, those with a window.

        That another repeat failed is a fact about how robust the cell is, and none about its speed.
        """
        timed = [repeat for repeat in self.repeats if repeat.timed]
        return [repeat for repeat in timed if repeat.status == "ok"] or timed

    @property
    def ended_well(self) -> bool:
        """True if it has a step time of a repeat that ended well, though others may have failed."""
        return any(repeat.status == "ok" for repeat in self.measured)

    @property
    def lost(self) -> str:
        """How many of its repeats failed, where it is judged by the others: `1 of 3 failed`; else empty."""
        failed = sum(repeat.status != "ok" for repeat in self.repeats)
        return f"{failed} of {self.planned} failed" if failed and self.ended_well else ""

    @property
    def items_per_second(self) -> statistics.Estimate | None:
        """Items per second: the step time's estimate, inverted."""
        step, items = self.step, self.items_per_step
        if step is None or items is None or step.value <= 0:
            return None
        low, high = (None if end is None else items / end for end in (step.high, step.low))
        return statistics.Estimate(items / step.value, low, high, step.windows, step.repeats, step.method, step.note)

    @cached_property
    def log_levels(self) -> statistics.Array:
        """The logarithm of the level of each of the measured repeats, as it counts for the cell."""
        return statistics.log_levels([repeat.steady for repeat in self.measured])

    @cached_property
    def typical_step(self) -> float | None:
        """Seconds a step in the median window: the geometric mean over the repeats. Less than `step` where the cell stalls."""
        steady = [repeat.steady for repeat in self.measured]
        return math.exp(float(np.mean(statistics.log_typical(steady)))) if steady else None

    @cached_property
    def scatter(self) -> float:
        """The standard deviation of the logarithms of its windows about the typical one, without its stalls."""
        steady = [repeat.steady for repeat in self.measured]
        logs = [np.abs(np.log(one.step_seconds / one.typical)) for one in steady]
        return 1.4826 * statistics.median(np.concatenate(logs)) if logs else 0.0

    @cached_property
    def stalls(self) -> statistics.Stalls | None:
        """How much longer its steps take than the typical one; None where they do not."""
        return statistics.stalls([repeat.steady for repeat in self.measured])

    @cached_property
    def left_out(self) -> statistics.LeftOut | None:
        """The stalls of few repeats that its step time does not count; None where there are none."""
        return statistics.left_out([repeat.steady for repeat in self.measured])

    @property
    def shifts(self) -> tuple[tuple[int, steadiness.Shift], ...]:
        """(repeat, shift) of each repeat whose level changed midway."""
        return tuple((repeat.number, repeat.shift) for repeat in self.measured if repeat.shift is not None)

    @property
    def levels(self) -> list[float]:
        """Seconds a step at every level of the cell: its median, and both sides of each shift."""
        shifts = [level for _, shift in self.shifts for level in (shift.before, shift.after)]
        return [self.step.value, *shifts] if self.step else shifts

    @cached_property
    def noise(self) -> float | None:
        """The median over the repeats of what each computed."""
        return middle((repeat.row for repeat in self.measured), "noise")

    @property
    def other_work(self) -> OtherWork | None:
        """The work of others beside it, where that is much."""
        return of_rows((repeat.row for repeat in self.measured), self.key.device_kind, self.environment)

    @property
    def ranked(self) -> bool:
        """True if its figure is good enough for the order of a report, which also asks whether it is `unproved`."""
        step = self.step if self.ended_well and self.parity_passed is True else None
        return step is not None and step.windows >= statistics.fewest_windows() and not self.too_noisy

    @property
    def too_noisy(self) -> bool:
        return self._wide or (self.noise is not None and self.noise > MOST_NOISE)

    @property
    def _wide(self) -> bool:
        """True if the only repeat has a wider interval than the rule allows: that of an unsteady one spans its levels.

        Two repeats or more say how far repeats differ. Few of them have a wide interval for that reason alone.
        """
        if self.step is None or len(self.measured) != 1:
            return False
        width = self.step.half_width if self.own_width is None else self.own_width
        return width is not None and width > MOST_NOISE

    @property
    def variant(self) -> tuple[str, str]:
        """The variant that the cell computes instead of the specification, and why. Both are empty if it computes the specification."""
        entries = self._all_settings
        return str(entries.get("variant") or ""), str(entries.get("variant_reason") or "no reason was given")

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that the framework itself read back, such as its threads; without the variant."""
        return {name: value for name, value in self._all_settings.items() if name not in ("variant", "variant_reason")}

    @property
    def versions(self) -> Mapping[str, Any]:
        """The versions that the cell recorded and that have no column of their own, such as NumPy's."""
        versions = self.environment.get("versions")
        entries = versions.items() if isinstance(versions, dict) else ()
        return {
            name: value
            for name, value in entries
            if f"{name}_version" not in roles.ROLES and name != self.environment.get("framework")
        }

    @property
    def _all_settings(self) -> Mapping[str, Any]:
        settings = self.environment.get("settings")
        return settings if isinstance(settings, dict) else {}


def stored_cells(
    manifests: Sequence[Mapping[str, Any]], cells: Sequence[Row], samples: Mapping[Place, pa.Table]
) -> list[tuple[StoredCell, list[Row]]]:
    """Every cell of some runs with its rows, in the order of the plans; a row without a plan's entry comes last in its run.

    `cells` are the rows of that table and `samples` the parts of that one by repeat. A GPU that has two names in them, with and without
    its maker, gets the longer one.
    """
    ran: dict[tuple[str, str], list[Row]] = {}
    plans = [entry for manifest in manifests for entry in manifest["plan"]]
    models = {str(row.get("device_model")) for row in (*cells, *plans)}

    def named(row: Row) -> Row:
        longer = f"NVIDIA {row.get('device_model')}"
        return {**row, "device_model": longer} if longer in models else row

    for row in map(named, cells):
        if row["status"] != "skipped":
            ran.setdefault((row["run_id"], row["cell_id"]), []).append(row)
    result = []
    for manifest in manifests:
        plan = {entry["id"]: named(entry) for entry in manifest["plan"]}
        ids = list(plan) + [cell for run, cell in ran if run == manifest["run_id"] and cell not in plan]
        for cell_id in ids:
            rows = sorted(ran.get((manifest["run_id"], cell_id), []), key=lambda row: int(row["repeat"]))
            result.append((_cell(manifest, cell_id, plan.get(cell_id), rows, samples), rows))
    return result


def machine_of(row: Row, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's facts of the machine that measured a repeat: of its node in a run over several."""
    machines: dict[Any, Mapping[str, Any]] = {entry["node"]: entry for entry in manifest.get("nodes", ())}
    machines[None] = manifest["host"]
    return machines.get(row.get("node"), {})


def middle(rows: Iterable[Row], name: str) -> float | None:
    """The median of a column over the rows that have it."""
    values = statistics.clean([row[name] for row in rows if row.get(name) is not None])
    return statistics.median(values) if len(values) else None


def not_yet_run(cells: Iterable[StoredCell]) -> tuple[str, ...]:
    """How many of the cells have no repeat, the command that goes on with them, and their names: a line a run."""
    waiting: dict[str, list[StoredCell]] = {}
    for cell in cells:
        if cell.status == MISSING:
            waiting.setdefault(cell.run_id, []).append(cell)
    return tuple(
        f"{plural(len(missing), 'cell')} {'is' if len(missing) == 1 else 'are'} not yet run "
        f"({_IMPORTED if missing[0].imported else resume_command(run, missing[0].out)}): {_names_by_key(missing)}"
        for run, missing in waiting.items()
    )


def _names_by_key(cells: Iterable[StoredCell]) -> str:
    """The first cells by what they measure: `cnn-cifar10, 2 × A100, fp32, quick: torch-2.13.0-cu130, jax-0.10.2-cu130`."""
    names: dict[str, list[str]] = {}
    every = list(cells)
    for cell in every[:_NAMED]:
        key = cell.key
        place = ", ".join((key.workload, key.device, key.precision, key.preset))
        # An image may serve several frameworks. Its name begins with the one that it is made for.
        other = "" if cell.image.replace("-", "_").startswith(f"{cell.framework}_") else f" ({cell.framework})"
        mode = f" · {cell.mode}" if cell.mode not in ("", "default") else ""
        names.setdefault(place, []).append(cell.image + other + mode)
    more = f"; and {len(every) - _NAMED} more, which `runner report` names" if len(every) > _NAMED else ""
    return "; ".join(f"{place}: {', '.join(same)}" for place, same in names.items()) + more


def foreign_processes(rows: Iterable[Row]) -> tuple[str, ...]:
    """Foreign processes on the GPUs of a cell in any of its repeats, each cut to a length that a line holds."""
    lists = (row.get("foreign_processes") for row in rows)
    return tuple(dict.fromkeys(str(one)[:200] for processes in lists if processes is not None for one in processes))


def device_proof(rows: Iterable[Row]) -> str:
    """The host's proof of a cell on its GPUs, in its worst repeat; empty for a CPU and in runs of earlier releases."""
    return max(
        (str(row["device_proof"]) for row in rows if row.get("device_proof")),
        key=lambda text: text.startswith("not"),
        default="",
    )


def _windows(table: pa.Table | None) -> Windows:
    if table is None:
        empty = np.empty(0)
        return Windows(empty, (), empty, empty, empty, empty)
    begin, seconds, steps, items, index = columns(
        table, ("begin_seconds", "seconds", "steps", "items", "index")
    ).values()
    stage = np.array(table["stage"].to_pylist(), dtype=object)
    # A window without steps, or in which the clock stood still, has no step time. No clock resolves less than a nanosecond.
    kept = np.flatnonzero((steps > 0) & (seconds >= 1e-9))
    kept = kept[np.argsort(index[kept], kind="stable")]
    return Windows(index[kept], tuple(stage[kept].tolist()), begin[kept], seconds[kept], steps[kept], items[kept])


def _steady_step_seconds(windows: Windows) -> statistics.Array:
    steady = [stage == "steady" for stage in windows.stage]
    return windows.seconds[steady] / windows.steps[steady]


def _repeat(row: Row, table: pa.Table | None, reused: bool) -> StoredRepeat:
    windows = _windows(table)
    shift = steadiness.level_shift(_steady_step_seconds(windows))
    return StoredRepeat(
        number=row["repeat"], status=str(row["status"]), shift=shift, windows=windows, row=row, reused=reused
    )


def _cell(
    manifest: Mapping[str, Any],
    cell_id: str,
    planned: Row | None,
    rows: Sequence[Row],
    samples: Mapping[Place, pa.Table],
) -> StoredCell:
    """One cell from its rows by repeat; `planned` is its entry in the manifest's plan; None where the plan has none."""
    run_id = str(manifest["run_id"])
    reused = {(entry["cell_id"], entry["repeat"]) for entry in manifest.get("reused") or ()}
    repeats = tuple(
        _repeat(row, samples.get((run_id, cell_id, row["repeat"])), (cell_id, row["repeat"]) in reused) for row in rows
    )
    row: Row = next((repeat.row for repeat in repeats if repeat.status == "ok"), rows[0] if rows else planned or {})
    asked = 0 if planned is None else int(planned.get("repeats") or manifest["repeats"])
    count = max(asked, len(repeats))
    status, reason = _status(repeats, count, imported=bool(manifest.get("imported")))
    passed = [row["parity_passed"] for row in rows if row["parity_passed"] is not None]
    cell = StoredCell(
        run_id=run_id,
        cell_id=cell_id,
        image=str(row.get("image")),
        framework=str(row.get("framework")),
        mode=str(row.get("mode") or "default"),
        engine=str(row.get("engine") or manifest["engine"]),
        key=Key(**{name: row[name] for name in Key.__dataclass_fields__ if row.get(name)}),
        status=status,
        reason=reason,
        planned=count,
        repeats=repeats,
        step=None,
        items_per_step=None,
        first_step_seconds=middle(rows, "first_step_seconds"),
        parity_passed=all(passed) if passed else None,
        environment=_environment(row),
        row=row,
        imported=bool(manifest.get("imported")),
        out=out_of(manifest),
    )
    return replace(cell, step=step_of(cell.measured), items_per_step=_items_per_step(cell.measured))


def step_of(repeats: Sequence[StoredRepeat]) -> statistics.Estimate | None:
    """Seconds a step. With one repeat, either level of an unsteady one may be the one to come: the interval holds both."""
    step = statistics.step_estimate([repeat.steady for repeat in repeats])
    if step is None:
        return None
    return steadiness.widened(step, [repeat.shift for repeat in repeats if repeat.shift is not None])


def _items_per_step(repeats: Sequence[StoredRepeat]) -> float | None:
    shares = [repeat.windows.items / repeat.windows.steps for repeat in repeats]
    return float(np.median(np.concatenate(shares))) if shares else None


def _status(repeats: Sequence[StoredRepeat], planned: int, imported: bool) -> tuple[str, str]:
    """The worst status among the planned repeats, and the sentence for it."""
    bad = [repeat for repeat in repeats if repeat.status != "ok"]
    if bad:
        first = bad[0].row
        reason = f"{first['error_kind'] or 'failed'}: {first['reason'] or 'no reason was given'}"
        share = f"{len(bad)} of {planned} repeats: " if planned > 1 else ""
        return "failed", share + reason
    if repeats:
        return "ok", ""
    return MISSING, f"it is not yet run; {_IMPORTED if imported else '--resume goes on with it'}"


def _environment(row: Row) -> Mapping[str, Any]:
    """The stored environment event; empty where the cell ended before it printed one."""
    text = row.get("environment_json")
    try:
        environment = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"unreadable environment event": str(text)}
    return environment if isinstance(environment, dict) else {}
