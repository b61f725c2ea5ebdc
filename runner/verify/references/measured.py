"""Stored runs as what references are made of and held against: each cell with its facts and the ceilings of its environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runner.results import cells, parity, store
from runner.results.gpu_facts import bare_model
from runner.results.on_disk.image_names import as_file_name
from runner.results.on_disk.observed import observed
from runner.results.rank.ranking import levelled_run
from runner.results.rows import Place, by_repeat, parts, rows_of
from runner.results.statistics import Array, log_levels
from runner.text import in_a_line, plural
from runner.verify.probes.ceilings import Ceilings, CeilingsError, parse
from runner.verify.references.comparability import IDENTITY, conditions, device_of, excuses, same_device
from runner.verify.references.facts import DifferentFact, Facts, facts_of
from runner.verify.references.saved import (
    FEWEST_WINDOWS,
    Reference,
    SavedCell,
    SavedError,
    Telemetry,
    make,
    summarise_telemetry,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Of a list of cells that a note names.
MOST_NAMED = 10


@dataclass(frozen=True)
class Measured:
    """One stored cell."""

    cell: cells.StoredCell
    facts: Facts
    ceilings: Ceilings | None
    telemetry: Telemetry | None
    machine_gpus: int  # that the run was to use
    proved: tuple[str, ...] = ()  # the quantities that were checked on the adapter that was measured

    @property
    def by_number(self) -> dict[int, Array]:
        """Seconds a step of each steady window, by the repeat's number, of the repeats that ended well and have enough windows."""
        fine = {repeat.number: repeat.steady_step_seconds for repeat in self.cell.repeats if repeat.status == "ok"}
        return {number: seconds for number, seconds in fine.items() if len(seconds) >= FEWEST_WINDOWS}

    @property
    def repeats(self) -> list[Array]:
        """The same, without the numbers."""
        return list(self.by_number.values())

    @property
    def levels(self) -> dict[int, float]:
        """The step time of each of these repeats."""
        return dict(zip(self.by_number, np.exp(log_levels(self.repeats)).tolist(), strict=True)) if self.repeats else {}


def ceilings_path(folder: Path, image: str, framework: str, device_kind: str) -> Path:
    """The path of the ceilings of one environment in a run."""
    return folder / "ceilings" / f"{as_file_name(image)}.{framework}.{device_kind}.json"


def read_runs(folders: Sequence[Path]) -> list[Measured]:
    """Every cell of some stored runs. Raises StoreError."""
    measured = []
    for folder, manifest in zip(folders, store.manifests_of(folders), strict=True):
        gpus = len(manifest.get("devices") or ())
        tables = store.tables_of([folder], ("cells", "samples", "telemetry", "parity"))
        samples, telemetry = by_repeat(tables["samples"]), by_repeat(tables["telemetry"])
        proved = _proved(tables["parity"])
        for cell in levelled_run(
            [cell for cell, _ in cells.stored_cells([manifest], rows_of(tables["cells"]), samples)]
        ):
            ceilings = _ceilings(folder, cell)
            facts = facts_of(cell, manifest, ceilings.cpus if ceilings else None)
            measured.append(
                Measured(cell, facts, ceilings, _telemetry(telemetry, cell), gpus, proved.get(cell.cell_id, ()))
            )
    return measured


def _proved(checks: pa.Table) -> dict[str, tuple[str, ...]]:
    """Cell id -> the quantities that were checked on the adapter that it measured, each once, in the order of the checks."""
    proved = parts(checks, ("cell_id", "phase"))
    return {
        cell: tuple(dict.fromkeys(part["quantity"].to_pylist()))
        for (cell, phase), part in proved
        if phase == parity.PROOF
    }


def _ceilings(folder: Path, cell: cells.StoredCell) -> Ceilings | None:
    """The ceilings that the run measured for this cell's environment; None where it measured none."""
    stored = ceilings_path(folder, cell.image, cell.framework, cell.key.device_kind)
    path = folder / "ceilings" / stored.name  # the names are a stored row's: none of them leads out of the folder
    if not path.is_file():
        return None
    try:
        return parse(path.read_bytes())
    except CeilingsError as error:
        raise store.StoreError(f"{path}: {error}; remove the file, or restore it") from None


def _telemetry(telemetry: Mapping[Place, pa.Table], cell: cells.StoredCell) -> Telemetry | None:
    """Of the first repeat that has some; None where the run kept none."""
    for repeat in cell.repeats:
        rows = telemetry.get((cell.run_id, cell.cell_id, repeat.number))
        if rows is None:
            continue
        windows = repeat.windows
        steady = [at for at, stage in enumerate(windows.stage) if stage == "steady"]
        spans = [(float(windows.begin[at]), float(windows.begin[at] + windows.seconds[at])) for at in steady]
        columns = ["device", "seconds", "sm_megahertz", "throttle_reasons"]
        if summary := summarise_telemetry(rows.select(columns).to_pylist(), spans, observed(repeat.row, windows, rows)):
            return summary
    return None


# The advice to somebody whose cells are noisy.
_QUIETER = "end what else runs on the machine, measure again, and save that run instead"


@dataclass(frozen=True)
class Kept:
    """A reference, with what somebody who saves it should know: what was left out, and what is assumed."""

    reference: Reference
    notes: tuple[str, ...]


def reference_of(folders: Sequence[Path], name: str, runner_version: str, *, noisy: bool = False) -> Kept:
    """A reference from stored runs of one machine: every cell that ended well and passed parity. Raises StoreError and SavedError.

    `noisy`: also the cells that are too noisy to be ranked.
    """
    manifests = {folder: store.RunStore(folder).manifest() for folder in folders}
    folders = sorted(folders, key=lambda folder: (str(manifests[folder]["created"]), str(manifests[folder]["run_id"])))
    run_ids = [str(manifests[folder]["run_id"]) for folder in folders]
    if len(set(run_ids)) < len(run_ids):
        raise SavedError(f"two folders hold the same run: {', '.join(map(str, folders))}; name each run once")
    groups: dict[tuple[object, ...], list[tuple[int, Measured]]] = {}
    left_out: list[str] = []
    waiting: list[str] = []
    for run, folder in enumerate(folders):
        every = read_runs([folder])
        waiting += cells.not_yet_run(measured.cell for measured in every)
        for measured in (measured for measured in every if measured.cell.status != cells.MISSING):
            if why := _why_not(measured, noisy):
                left_out.append(f"{_name(measured)}: {why}")
            else:
                groups.setdefault(_computation(measured.facts), []).append((run, measured))
    if not groups:
        reasons = _first([*_counted(left_out), *waiting])
        anyway = "; --noisy keeps what is too noisy" if any(map(_is_noisy, left_out)) else ""
        raise SavedError(f"no cell can be kept: {reasons or 'the runs hold none'}; measure it again{anyway}")
    saved = [_saved_cell(group, run_ids) for group in groups.values()]
    created = str(manifests[folders[-1]]["created"])
    notes = [*_notes(list(groups.values()), left_out, run_ids), *waiting]
    return Kept(make(name, created, run_ids, runner_version, saved), tuple(notes))


def _why_not(measured: Measured, noisy: bool) -> str:
    """Why a cell is in no reference; empty where it is in one. `noisy`: one that is too noisy may be."""
    cell = measured.cell
    if cell.parity_passed is False:
        return "parity failed"
    if cell.status != "ok":
        return cell.reason or f"it is {cell.status}"
    if cell.parity_passed is None:
        return "parity was not checked"
    if not measured.repeats:
        most = max((len(repeat.steady_step_seconds) for repeat in cell.repeats), default=0)
        return f"{plural(most, 'window')} a repeat at most, and a reference needs {FEWEST_WINDOWS}"
    if noisy or not cell.too_noisy:
        return ""
    loud = cell.noise is not None and cell.noise > cells.MOST_NOISE
    return f"too noisy: ± {100 * (cell.noise or 0.0):.0f} %" if loud else "too noisy: a wide interval of one repeat"


def _is_noisy(sentence: str) -> bool:
    """True if this is why a cell is in no reference."""
    return ": too noisy: " in sentence


def _name(measured: Measured) -> str:
    return f"{measured.facts.name} [{measured.facts.image}]"


def _computation(facts: Facts) -> tuple[object, ...]:
    """The common key of the sessions of one cell: the computation, the device model and the environment."""
    return (*(getattr(facts, name) for name in IDENTITY), bare_model(facts.device_model), facts.image, facts.engine)


def _refuse_several_gpus(group: Sequence[tuple[int, Measured]], run_ids: Sequence[str]) -> None:
    """Raise SavedError where several GPUs measured one cell: how GPUs differ would count as how repeats, or sessions, do."""
    runs: dict[tuple[str, ...], int] = {}
    for run, measured in group:
        for repeat in measured.cell.repeats:
            uuids = repeat.row.get("device_uuids")
            if uuids is not None and len(uuids):
                runs[tuple(sorted(map(str, uuids)))] = run
    if len(runs) > 1:
        where = " and ".join(run_ids[run] for run in sorted(set(runs.values())))
        raise SavedError(
            f"{in_a_line(_name(group[0][1]))}: {len(runs)} different GPUs measured it in run {where}, and how GPUs differ is "
            "not how repeats of one GPU do; measure on one GPU (`--gpus 0`) and save that run"
        )


def _saved_cell(group: Sequence[tuple[int, Measured]], run_ids: Sequence[str]) -> SavedCell:
    """One cell from its sessions. Its facts are those of the newest. Raises SavedError where the sessions differ in a choice."""
    _refuse_several_gpus(group, run_ids)
    newest, last = group[-1]
    for run, measured in group[:-1]:
        differences = [*excuses(last.facts, measured.facts), *conditions(last.facts, measured.facts)]
        if not same_device(last.facts, measured.facts):
            differences.append(DifferentFact("machine", device_of(last.facts), device_of(measured.facts)))
        if differences:
            fact = differences[0]
            what = f"{_name(last)}: {fact.name} is {fact.measured} in run {run_ids[newest]} and {fact.reference} in run {run_ids[run]}"
            raise SavedError(
                f"{in_a_line(what)}; a reference is of one machine and one installation, so save these runs apart"
            )
    repeats = [(run, tuple(map(float, repeat))) for run, measured in group for repeat in measured.repeats]
    return SavedCell(
        facts=last.facts,
        repeats=tuple(repeat for _, repeat in repeats),
        session_of=tuple(run for run, _ in repeats) if len(run_ids) > 1 else (),
        ceilings=last.ceilings,
        telemetry=last.telemetry,
    )


def _notes(
    groups: Sequence[Sequence[tuple[int, Measured]]], left_out: Sequence[str], run_ids: Sequence[str]
) -> Iterator[str]:
    """The sentences on a reference."""
    if left_out:
        many = sum(map(len, groups))
        yield f"kept {many} of {plural(many + len(left_out), 'measured cell')}; not kept: {_first(_counted(left_out))}"
        if any(map(_is_noisy, left_out)):
            yield f"{_QUIETER}; --noisy keeps what is too noisy"
    measured = [measured for group in groups for _, measured in group]
    short = [one for one in measured if len(one.repeats) < len(one.cell.repeats)]
    if short:
        names = _first([f"{_name(one)}: {len(one.cell.repeats) - len(one.repeats)}" for one in short])
        yield f"repeats with too few windows, fewer than {FEWEST_WINDOWS}, are not kept: {names}"
    if noisy := [_name(one) for one in measured if one.cell.too_noisy]:
        yield f"too noisy to be ranked, and kept: {_first(_counted(noisy))}; {_QUIETER}"
    if blind := [_name(one) for one in measured if one.facts.device_kind == "cuda" and one.telemetry is None]:
        yield f"no telemetry, so nothing shows whether the GPU was throttled or idle: {_first(_counted(blind))}"
    if unsteady := [_name(one) for one in measured if one.cell.shifts]:
        yield f"unsteady, and kept with both levels: {_first(_counted(unsteady))}; {_QUIETER}"
    if single := [_name(group[0][1]) for group in groups if max(len(one.repeats) for _, one in group) == 1]:
        yield f"one repeat each, so how far repeats differ is assumed: {_first(single)}"
    if once := [_name(group[0][1]) for group in groups if len(group) < len(run_ids)]:
        yield f"not in all of the {plural(len(run_ids), 'run')}: {_first(once)}"
    if len(run_ids) == 1:
        yield (
            "one run: how far this machine differs from day to day is assumed; `runner reference save RUN RUN ...` with runs of "
            "several days measures it"
        )


def _counted(sentences: Sequence[str]) -> list[str]:
    """Each sentence once, with the number of runs that it is true of."""
    counts = Counter(sentences)
    return [sentence + (f" (in {count} runs)" if count > 1 else "") for sentence, count in counts.items()]


def _first(names: Sequence[str]) -> str:
    """The first few of some names, each safe to print."""
    more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return "; ".join(in_a_line(name, 300) for name in names[:MOST_NAMED]) + more
