"""From stored frames to typed records: cells are put together from their repeats, grouped by what is comparable, and ranked."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import rules
from reports.data import costs, curves, groups, operators, profiles, telemetry_signals
from reports.data.model import (
    NO_TELEMETRY,
    PHASES,
    Curve,
    MeasuredCell,
    ParityRow,
    Repeat,
    Score,
    Skipped,
    StoredRun,
    Tables,
)
from reports.specifications import caveats, specification
from reports.wording import gpu_name, plural
from runner.results import store
from runner.results.cells import (
    Key,
    StoredCell,
    StoredRepeat,
    device_proof,
    foreign_processes,
    machine_of,
    middle,
    out_of,
    stored_cells,
)
from runner.results.gpu_facts import bare_model
from runner.results.known_issues import known_issues
from runner.results.on_disk import isolation, parcel_origin, schema
from runner.results.on_disk.observed import observed
from runner.results.rank.own_agreement import agreed, in_eval, rested
from runner.results.rank.ranking import scatter_by_model
from runner.results.rows import Place, Row, by_repeat, columns, in_order, parts, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

FRAMES = ("cells", "samples", "metrics", "parity", "operations", "profile", "telemetry")  # of the store
# The tables for an answer in words. Telemetry shows if the machine was busy.
ANSWER = ("cells", "samples", "parity", "telemetry")
# Those for a comparison of two sides: why they differ, too.
COMPARED = (*ANSWER, "profile")
# The tables for an answer from the cells' own step times: it asks for no proof's tensors, and not how cells stand beside one another.
STEPS = ("cells", "samples", "telemetry")
# The tables that show the scatter of repeats.
_TIMES = ("cells", "samples")
# The newest runs of a folder that are asked how far repeats differ on this machine.
MOST_RUNS_BESIDE = 10


def load(folders: Sequence[Path], needed: Collection[str] = FRAMES, to_loss: float | None = None) -> Tables:
    """The page's rows of the runs in `folders`. Raises StoreError where one is no readable run, or none has a loss to time.

    `needed` are the tables that are read; what the others hold is missing, as in a run that did not record it. `to_loss`: the held-out
    loss to which the training is timed, in the unit of the workload's metric; without it, those that the runs were asked for.
    """
    # A folder that is named twice counts once.
    folders = list(dict.fromkeys(folders))
    levels = (to_loss,) if to_loss is not None else _stated(store.manifests_of(folders))
    needed = {*needed, "metrics"} if levels else {*needed}
    # They are read together: between two reads a run may go on.
    manifests, frames = store.manifests_of(folders), store.tables_of(folders, _in_order(needed))
    once = needed > set(STEPS) and _each_once(frames["cells"])
    built = build(manifests, frames, _seen_scatter(folders) if once else {})
    if to_loss is not None and not any(workload.has_loss for workload in built.workloads):
        fix = f"`runner matrix --to-loss {to_loss:g}` measures one"
        raise store.StoreError(f"--to-loss {to_loss:g}: these runs have no workload with a held-out loss; {fix}")
    return replace(built, to_loss=levels)


def _each_once(cells: pa.Table) -> bool:
    """True if no cell has two repeats that ended well: then nothing in these runs shows how far repeats differ."""
    ended = Counter((row["run_id"], row["cell_id"]) for row in rows_of(cells) if row["status"] == "ok")
    return bool(ended) and max(ended.values()) == 1


def _seen_scatter(folders: Sequence[Path]) -> dict[str, float]:
    """How far repeats differ in the newest runs beside these, by the model of device, whatever they measured. A run that cannot be read
    shows nothing."""
    beside = [run for out in dict.fromkeys(folder.parent for folder in folders) for run in store.runs_below(out)]
    cells: list[StoredCell] = []
    for folder in [run for run in beside if run not in folders][-MOST_RUNS_BESIDE:]:
        with contextlib.suppress(store.StoreError):
            manifest = store.RunStore(folder).manifest()
            if manifest["repeats"] > 1:
                read = store.tables_of_run(folder, manifest, _TIMES)
                stored = stored_cells([manifest], rows_of(read["cells"]), by_repeat(read["samples"]))
                cells += [cell for cell, _ in stored]
    return scatter_by_model(cells)


def _stated(manifests: Iterable[Mapping[str, Any]]) -> tuple[float, ...]:
    """The levels of the option --to-loss of these runs, the lowest first."""
    options = (manifest.get("options") for manifest in manifests)
    levels = {of_run.get("to_loss") for of_run in options if isinstance(of_run, dict)}
    return tuple(sorted(level for level in levels if level is not None))


def load_readable(folders: Sequence[Path], needed: Collection[str] = FRAMES) -> tuple[Tables, tuple[str, ...]]:
    """The page's rows of those runs that can be read, and for each of the others why it cannot. Each run is read once.

    No loss is timed where STEPS are needed alone.
    """
    why: list[str] = []
    manifests: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for folder in dict.fromkeys(folders):
        with _told(why):
            manifest = store.RunStore(folder).manifest()
            store.refuse_a_copy(folder, manifest, manifests.setdefault(manifest["run_id"], (folder, manifest))[0])
    levels = _stated(manifest for _, manifest in manifests.values()) if set(needed) > set(STEPS) else ()
    names = _in_order({*needed, "metrics"} if levels else needed)
    read: dict[str, Mapping[str, pa.Table]] = {}
    for run_id, (folder, stated) in manifests.items():
        with _told(why):
            read[run_id] = store.tables_of_run(folder, stated, names)
    readable = [manifests[run_id][1] for run_id in read]
    built = build(readable, store.joined(list(read.values()), readable, names))
    return replace(built, to_loss=_stated(readable) if levels else ()), tuple(why)


@contextlib.contextmanager
def _told(why: list[str]) -> Iterator[None]:
    """Add the reason for which a run cannot be read."""
    try:
        yield
    except store.StoreError as error:
        why.append(str(error))


def _in_order(names: Collection[str]) -> list[str]:
    return [name for name in FRAMES if name in names]


def build(
    manifests: Sequence[Mapping[str, Any]], frames: Mapping[str, pa.Table], seen_scatter: Mapping[str, float] = {}
) -> Tables:
    """The page's rows, from each run's manifest and those of the tables FRAMES of all runs that were read.

    `seen_scatter`: how far repeats differ in other runs, by the model of device.
    """
    of_machine = set(frames) > set(STEPS)
    frames = {name: schema.no_rows(name) for name in FRAMES} | dict(frames)
    stored = rows_of(frames["cells"])
    of_repeats = {name: by_repeat(frames[name]) for name in ("samples", "metrics", "parity", "telemetry")}
    by_id = {str(manifest["run_id"]): manifest for manifest in manifests}
    left_out = _skipped(row for row in stored if row["status"] == "skipped")
    values = telemetry_signals.values_each(len(of_repeats["samples"])) if of_machine else 0
    checks = {place: rows_of(part) for place, part in of_repeats.pop("parity").items()}
    cells = rested(
        agreed(
            [
                _cell(by_id[cell.run_id], cell, rows, of_repeats, checks, values)
                for cell, rows in stored_cells(manifests, stored, of_repeats["samples"])
            ]
        )
    )
    devices = {run: manifest.get("devices") or () for run, manifest in by_id.items()}
    of_operations = operators.rates(frames["operations"])
    labelled = _labelled(cells, devices)
    labelled = [replace(cell, seen_scatter=seen_scatter.get(cell.key.device_model, 0.0)) for cell in labelled]
    if of_machine:
        labelled = operators.utilised(telemetry_signals.starved(labelled), of_operations)
    begun = [cell for cell in labelled if cell.status != "missing"]
    return Tables(
        tuple(StoredRun(manifest["run_id"], manifest) for manifest in manifests),
        groups.workloads(begun or labelled, compared=of_machine),
        left_out,
        of_operations,
        profiles.profiles(frames["profile"]),
        tuple(cell for cell in labelled if begun and cell.status == "missing"),
    )


def _curves(metrics: pa.Table | None, repeat: int) -> tuple[Curve, ...]:
    if metrics is None:
        return ()
    curves = []
    for (name, split), part in sorted(parts(metrics, ("name", "split")), key=itemgetter(0)):
        part = in_order(part, "step")
        steps, seconds, values = columns(part, ("step", "train_seconds", "value")).values()
        curves.append(Curve(str(name), str(split), repeat, steps, seconds, values))
    return tuple(curves)


def _fields(stored: StoredRepeat | StoredCell) -> dict[str, Any]:
    """The fields of a stored record, for the one of the page that has them too."""
    return {field.name: getattr(stored, field.name) for field in fields(stored)}


def _repeat(stored: StoredRepeat, place: Place, parts: Mapping[str, Mapping[Place, pa.Table]], most: int) -> Repeat:
    """`most` values of each line of telemetry; none of 0."""
    telemetry = parts["telemetry"].get(place)
    return Repeat(
        **_fields(stored),
        curves=_curves(parts["metrics"].get(place), stored.number),
        signals=telemetry_signals.signals(telemetry, most),
        observed=observed(stored.row, stored.windows, telemetry),
    )


def _cell(
    manifest: Mapping[str, Any],
    stored: StoredCell,
    rows: Sequence[Row],
    parts: Mapping[str, Mapping[Place, pa.Table]],
    checks: Mapping[Place, Sequence[Row]],
    values: int,
) -> MeasuredCell:
    """One cell of the page from the stored one, its rows, and the parts of the other tables by repeat, with so many `values` a line."""
    places = [(stored.run_id, stored.cell_id, repeat.number) for repeat in stored.repeats]
    repeats = tuple(_repeat(repeat, place, parts, values) for repeat, place in zip(stored.repeats, places, strict=True))
    short = any(row["short"] for row in rows)
    steady = [repeat for repeat in repeats if len(repeat.steady_step_seconds)]
    metric = specification(stored.key.workload).get("metric") or {}
    held = _parity([checks.get(place, ()) for place in places])
    return MeasuredCell(
        **_fields(replace(stored, repeats=repeats)),
        anchor="",
        label=stored.image,
        seed=stored.row.get("seed"),
        phases={name: seconds for name in PHASES if (seconds := middle(rows, rules.seconds_column(name))) is not None},
        costs={**_costs(rows), **curves.of_tokens(steady), **curves.waiting(steady)},
        caveats=(
            *caveats(stored.framework, stored.key.workload, stored.key.device_kind, stored.mode),
            *_known_issues(stored),
            *_losses_not_compared(stored.key, {row.quantity for row in held}),
            *dict.fromkeys(filter(None, (isolation.caveat(isolation.of_row(row)) for row in rows))),
            *filter(None, [parcel_origin.caveat(row.get("origin") for row in rows)]),
            *_no_telemetry(rows),
            *filter(None, [in_eval(stored)]),
        ),
        compiled_repeats=sum((row.get("jit_cache_grew_bytes") or 0) > 0 for row in rows),
        device_proof=device_proof(rows),
        foreign_processes=foreign_processes(rows),
        throttled=_throttled(rows),
        score=_score(repeats, str(metric.get("name") or "")),
        parity=held,
        short=short,
        total_seconds=None if short or stored.status != "ok" else _total(repeats),
        host=machine_of(stored.row, manifest),
        gpus=_gpus(stored, manifest),
        command=_command(stored.row, manifest),
    )


def _known_issues(stored: StoredCell) -> tuple[str, ...]:
    """The published faults of the libraries that the cell used, on its GPU."""
    versions = {library: stored.row.get(f"{library}_version") for library in ("cuda", "cudnn")}
    capability = stored.row.get("compute_capability")
    return known_issues(stored.framework, stored.mode, stored.key.precision, versions, capability)


def _gpus(stored: StoredCell, manifest: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The entries of the GPUs of the cell's model that its run could use, by UUID; none for a CPU."""
    if stored.key.device_kind != "cuda":
        return ()
    model = bare_model(stored.key.device_model)
    of_model = (entry for entry in manifest.get("devices") or () if bare_model(str(entry.get("model"))) == model)
    return tuple(sorted(of_model, key=lambda entry: str(entry.get("uuid"))))


def _losses_not_compared(key: Key, checked: Collection[str]) -> Iterator[str]:
    """A sentence about a cell that trained, where its losses were not held against the reference's; `checked` are its quantities."""
    if "moved" in checked and "learning" not in checked and not rules.is_own(key.workload):
        several = f"on {key.devices} devices" if key.devices > 1 else "with this batch, seed and precision"
        where = "on real data" if key.data_source == "files" else several
        yield f"Its losses were not compared with the reference's: none are stored of training {where}."


def _costs(rows: Sequence[Row]) -> Mapping[str, float]:
    """The median over the repeats of each cost that some of them recorded."""
    return {cost.name: value for cost in costs.COSTS if (value := middle(rows, cost.name)) is not None}


def _throttled(rows: Iterable[Row]) -> tuple[str, ...]:
    """Why a cell's device slowed down in any repeat; empty where it did not."""
    slowed = (row.get("throttled_by") for row in rows if row.get("throttled"))
    return tuple(sorted({str(why) for reasons in slowed if reasons is not None for why in reasons}))


def _no_telemetry(rows: Iterable[Row]) -> Iterator[str]:
    """A sentence on a GPU's cell where nothing was seen of its GPU meanwhile: its judges had nothing to go by."""
    fine = [row for row in rows if row.get("status") == "ok" and row.get("device_kind") == "cuda"]
    told = ("throttled", "energy_joules", "max_temperature_celsius", "device_used_bytes")
    blind = sum(all(row.get(name) is None for name in told) for row in fine)
    if blind:
        yield f"{NO_TELEMETRY} in {blind} of {plural(len(fine), 'repeat')}: nothing shows whether its GPU was throttled or idle."


def _total(repeats: Sequence[Repeat]) -> float | None:
    """Median seconds of the whole training as specified: first step, warm-up, every window; no evaluation."""
    totals = [float(np.sum(repeat.windows.seconds)) for repeat in repeats if len(repeat.windows)]
    return float(np.median(totals)) if totals else None


def _score(repeats: Iterable[Repeat], metric: str) -> Score | None:
    """The last value of the test metric in each repeat that ended well. The metric is the workload's; for a workload that this
    checkout does not have, it is the first metric."""
    name, last, steps = "", [], []
    for repeat in repeats:
        tests = [curve for curve in repeat.curves if curve.split == "test" and curve.name != "loss"]
        tests.sort(key=lambda curve: curve.name != metric)
        if repeat.status == "ok" and tests and math.isfinite(tests[0].values[-1]):
            name = tests[0].name
            last.append(float(tests[0].values[-1]))
            steps.append(int(tests[0].steps[-1]))
    return Score(name, float(np.median(last)), min(last), max(last), len(last), min(steps)) if last else None


def _parity(repeats: Iterable[Iterable[Row]]) -> tuple[ParityRow, ...]:
    """For each quantity, the tensor nearest to its bound, over all repeats."""
    worst: dict[str, ParityRow] = {}
    tensors: dict[str, set[str]] = {}
    for rows in repeats:
        for row in rows:
            quantity, tensor = str(row["quantity"]), str(row["tensor"])
            tensors.setdefault(quantity, set()).add(tensor)
            bound = math.nan if row["bound"] is None else float(row["bound"])
            variant, phase = str(row["variant"] or ""), str(row["phase"] or "")
            current = ParityRow(quantity, tensor, row["error"], bound, bool(row["passed"]), variant, phase, 0)
            kept = worst.get(quantity)
            if kept is None or (current.passed, -current.share) < (kept.passed, -kept.share):
                worst[quantity] = current
    return tuple(replace(row, tensors=len(tensors[name])) for name, row in worst.items())


def _command(row: Row, manifest: Mapping[str, Any]) -> str:
    """The command that measures this cell again on a machine of this kind."""
    if manifest.get("imported"):
        return _command_of_the_kit(row, manifest)
    gpus = "none" if row.get("device_kind") != "cuda" else str(row.get("devices") or 1)
    uuids = row.get("device_uuids")
    if gpus != "none" and uuids is not None and len(uuids):
        gpus = ",".join(str(uuid) for uuid in uuids)
    several = row.get("devices") if int(row.get("devices") or 1) > 1 else None
    asked = (manifest.get("options") or {}).get("to_loss")
    options = {
        "gpus": gpus,
        "images": row.get("image"),
        "frameworks": row.get("framework"),
        "workloads": _named_again(str(row.get("workload")), manifest),
        "precision": row.get("precision"),
        "modes": row.get("mode"),
        "preset": row.get("preset"),
        "engine": row.get("engine") or manifest["engine"],
        # The first seed of the run, if each repeat has its own.
        "seed": manifest["seed"] if asked is not None else row.get("seed"),
        "repeats": manifest["repeats"],
        "to-loss": asked,
        "devices": several,
        "scaling": (row.get("scaling") or None) if several else None,
    }
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["runner", "matrix", *words])


def _named_again(workload: str, manifest: Mapping[str, Any]) -> str:
    """The word by which a command takes a workload: of a person's own network the folder of the copy that its run keeps."""
    return store.RunStore(Path(out_of(manifest)) / str(manifest.get("run_id"))).word(workload)


def _command_of_the_kit(row: Row, manifest: Mapping[str, Any]) -> str:
    """The same where a kit measured the cell. A kit's folder of results holds one measurement."""
    options = {
        "device": row.get("device_kind"),
        "frameworks": row.get("framework"),
        "workloads": row.get("workload"),
        "precision": row.get("precision"),
        "repeats": manifest["repeats"],
        "out": "measured-again",
    }
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["python3", "kit.py", *words])


def _labelled(cells: Sequence[MeasuredCell], devices: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[MeasuredCell]:
    """Each cell with an anchor, and a label that no other cell of its group has: with image, engine, GPU and run where needed.

    `devices` are those of each run.
    """
    engines = {cell.engine for cell in cells}
    images: dict[str, set[str]] = {}
    for cell in cells:
        images.setdefault(cell.name, set()).add(cell.image)
    labels = []
    for cell in cells:
        image = cell.image if len(images[cell.name]) > 1 else ""
        gpu = gpu_name(cell.uuid, devices.get(cell.run_id, ())) if cell.uuid else ""
        parts = (cell.name, image, cell.engine if len(engines) > 1 else "", gpu)
        labels.append(" · ".join(filter(None, parts)))
    # A cell that failed before it recorded its data stands beside those that did.
    named = [(replace(cell.key, data_source=""), label) for cell, label in zip(cells, labels, strict=True)]
    counts = Counter(named)
    runs: dict[str, set[str]] = {}
    for cell in cells:
        runs.setdefault(cell.cell_id, set()).add(cell.run_id)
    out: dict[str, MeasuredCell] = {}
    for cell, (key, name) in zip(cells, named, strict=True):
        label = f"{name} · {cell.run_id}" if counts[key, name] > 1 else name
        anchor = _anchor(cell, several=len(runs[cell.cell_id]) > 1)
        anchor = (
            anchor if anchor not in out else f"{anchor}-{len(out)}"
        )  # two ids that differ in what a link cannot hold
        out[anchor] = replace(cell, anchor=anchor, label=label)
    return list(out.values())


def _anchor(cell: MeasuredCell, *, several: bool) -> str:
    """The page's anchor of a cell. It follows from the cell, and from the run where several runs have it: a link stays right."""
    place = f"cell-{cell.cell_id}-{cell.run_id}" if several else f"cell-{cell.cell_id}"
    return re.sub(r"[^A-Za-z0-9_-]", "-", place)[:200]


def _skipped(rows: Iterable[Row]) -> tuple[Skipped, ...]:
    reasons: dict[str, list[Row]] = {}
    for row in rows:
        reasons.setdefault(str(row["reason"] or "no reason was given"), []).append(row)
    return tuple(Skipped(reason, tuple(left_out)) for reason, left_out in reasons.items())
