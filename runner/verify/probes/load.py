"""Every GPU of a machine under full load, each alone and then all at once, with its clock, its power and what held it back.

Small networks hardly load a large GPU: a weak one looks like the others there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from bench import rules
from runner.engines.base import EngineError, ReadyImage, Running
from runner.errors import first_problem
from runner.machine import lease, telemetry
from runner.machine.telemetry_cpu import Row
from runner.plan.plan import Cell
from runner.results import gpu_facts, store
from runner.results.validate import Frozen
from runner.run.dispatch import Place, places
from runner.run.progress import say
from runner.run.prospect import Prospect
from runner.run.schedule import slot_of
from runner.verify.outliers import FEWEST, FleetFinding, fleet_of
from runner.verify.probes.ceilings import CeilingsError, Rate, printed_by

PROBE = "bench.load"
# In the folder of a run, for each of its GPUs.
FILE = "load-{}.json"
FILES = "load*.json"

# Of each load. There are four, so a GPU alone is loaded for 30 s.
SECONDS = 7.5
# Until all GPUs begin at once: each process first imports its framework.
LEAD_SECONDS = 40.0
_LIMIT_SECONDS = 240.0

Round = Literal["alone", "all at once"]
Number = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=300)]


class PrintedLoad(Frozen):
    """One load as the probe prints it: the rates of its windows, a second."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    unit: Literal["FLOP/s", "bytes/s"]
    begin_unix: Moment
    end_unix: Moment
    rates: Annotated[tuple[Rate, ...], Field(min_length=3, max_length=1000)]


class _Printed(Frozen):
    loads: Annotated[tuple[PrintedLoad, ...], Field(min_length=1, max_length=20)]


class Load(Frozen):
    """One load of one GPU: the median of its rates, and what telemetry saw meanwhile. None: the GPU does not say."""

    round: Round
    name: Text
    unit: Literal["FLOP/s", "bytes/s"]
    rate: Rate
    sm_megahertz: Number | None
    power_watts: Number | None
    celsius: Number | None
    held_back_by: tuple[Text, ...]

    def __str__(self) -> str:
        parts = [
            rate_text(self.rate, self.unit),
            "" if self.sm_megahertz is None else f"{self.sm_megahertz:.0f} MHz",
            "" if self.power_watts is None else f"{self.power_watts:.0f} W",
            "" if self.celsius is None else f"{self.celsius:.0f} °C",
            f"held back by {', '.join(self.held_back_by)}" if self.held_back_by else "",
        ]
        return ", ".join(filter(None, parts))


class GpuLoads(Frozen):
    """load-0.json and so on: all loads of one GPU."""

    framework: Text
    image: Text
    uuid: Text
    model: Text
    loads: Annotated[tuple[Load, ...], Field(max_length=100)]


def rate_text(rate: float, unit: str) -> str:
    return f"{rate / 1e12:.4g} TFLOP/s" if unit == "FLOP/s" else f"{rate / 1e9:.4g} GB/s"


@dataclass(frozen=True)
class _Site:
    """The place of the loads."""

    prospect: Prospect
    monitor: telemetry.Monitor
    label: str


def load_each(prospect: Prospect, runs: Sequence[store.RunStore]) -> None:
    """Load every GPU of the prospect that one of these runs was of, and keep what was measured in that run."""
    run_of = {str(device["uuid"]): run for run in runs for device in run.manifest().get("devices") or ()}
    gpus = [gpu for gpu in places(prospect.machine, "cuda") if gpu.uuid in run_of]
    environments = _environments(prospect) if gpus else []
    if not environments:
        why = "no framework here has a load" if gpus else "none is free any more"
        say(f"the GPUs were not loaded: {why}")
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(lease.hold([gpu.board for gpu in gpus], "load", say, prospect.options.wait))
        site = _Site(prospect, stack.enter_context(telemetry.Monitor()), runs[0].run_id)
        for cell in environments:
            try:
                loads = _loads(site, cell, gpus)
            except (CeilingsError, EngineError) as error:
                say(f"load {cell.image} {cell.framework}: the GPUs were not loaded: {error}")
                continue
            for number, gpu in enumerate(gpus):
                kept = GpuLoads(
                    framework=cell.framework, image=cell.image, uuid=gpu.uuid, model=gpu.model, loads=tuple(loads[gpu])
                )
                store.write_bytes(
                    run_of[gpu.uuid].folder / FILE.format(number), kept.model_dump_json(indent=1).encode()
                )
            return


def _environments(prospect: Prospect) -> list[Cell]:
    """A cell of each environment whose framework may have a load. One of them is enough: the GPUs are compared, not frameworks."""
    cells = {(cell.image, cell.framework): cell for cell in prospect.plan.cells if cell.device_kind == "cuda"}
    return [cell for cell in cells.values() if rules.adapter_path(cell.framework, "ceilings")]


def _loads(site: _Site, cell: Cell, gpus: Sequence[Place]) -> Mapping[Place, list[Load]]:
    """Each GPU alone, then all at once. Raises CeilingsError and EngineError."""
    prepared = site.prospect.engine.prepare(site.prospect.images[cell.image], say)
    loads: dict[Place, list[Load]] = {}
    for gpu in gpus:
        loads[gpu] = _load(site, prepared, cell.framework, gpu, "alone", 0.0, _Live())
        say(f"load {gpu.uuid} alone: " + "; ".join(f"{load.name} {load}" for load in loads[gpu]))
    start, live = time.time() + LEAD_SECONDS, _Live()
    with ThreadPoolExecutor(len(gpus)) as pool:
        try:
            together = list(
                pool.map(lambda gpu: _load(site, prepared, cell.framework, gpu, "all at once", start, live), gpus)
            )
        except BaseException as error:
            live.fail(error)
            raise live.first_error or error from None
    for gpu, more in zip(gpus, together, strict=True):
        loads[gpu] += more
    return loads


class _Live:
    """The probes that run now: when one fails or the user interrupts, the others end."""

    def __init__(self) -> None:
        self._running: set[Running] = set()
        # Those that are ended for it fail after it.
        self.first_error: BaseException | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def watch(self, running: Running) -> Iterator[None]:
        with self._lock:
            self._running.add(running)
            stopped = self.first_error is not None
        if stopped:
            running.stop()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(running)

    def fail(self, error: BaseException) -> None:
        """End them all because of this error."""
        with self._lock:
            self.first_error = self.first_error or error
            running = list(self._running)
        for each in running:
            with contextlib.suppress(EngineError):
                each.stop()


def _load(
    site: _Site, prepared: ReadyImage, framework: str, gpu: Place, when: Round, start_unix: float, live: _Live
) -> list[Load]:
    """The loads of one GPU, with its telemetry. Raises CeilingsError."""
    slot = slot_of(site.prospect.machine, [gpu])
    recordings: list[telemetry.Recording] = []

    @contextlib.contextmanager
    def observe(running: Running) -> Iterator[None]:
        recordings.append(site.monitor.begin([gpu.board], running, slot.cpus, slot.device_uuids))
        try:
            with live.watch(running):
                yield
        finally:
            site.monitor.end(recordings[-1])

    arguments = [framework, slot.device_kind, str(SECONDS), str(start_unix)]
    engine = site.prospect.engine
    try:
        text = printed_by(engine, prepared, PROBE, arguments, slot, site.label, _LIMIT_SECONDS, observe)
        printed = _parse(text, gpu.uuid)
    except BaseException as error:
        live.fail(error)
        raise
    return [_with_telemetry(load, when, recordings[-1].rows, gpu.board) for load in printed.loads]


def _parse(text: bytes, uuid: str) -> _Printed:
    try:
        return _Printed.model_validate_json(text)
    except ValidationError as error:
        raise CeilingsError(f"the load of {uuid}: {first_problem(error)}") from None


def _with_telemetry(load: PrintedLoad, when: Round, rows: Sequence[Row], board: str) -> Load:
    """A load beside what its GPU did between its first hot window and its last."""
    inside = [row for row in rows if row["device"] == board and load.begin_unix <= row["unix"] <= load.end_unix]
    reasons = 0
    for row in inside:
        reasons |= int(row.get("throttle_reasons") or 0)
    return Load(
        round=when,
        name=load.name,
        unit=load.unit,
        rate=median(load.rates),
        sm_megahertz=_median(inside, "sm_megahertz"),
        power_watts=_median(inside, "power_watts"),
        celsius=_median(inside, "temperature_celsius"),
        held_back_by=tuple(gpu_facts.reasons_of(reasons)),
    )


def _median(rows: Sequence[Row], column: str) -> float | None:
    values = [float(row[column]) for row in rows if row.get(column) is not None]
    return median(values) if values else None


def read_loads(folders: Sequence[Path]) -> list[GpuLoads]:
    """The loads that these runs hold. Raises StoreError."""
    loads = []
    for path in (path for folder in folders for path in sorted(folder.glob(FILES))):
        try:
            loads.append(GpuLoads.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            raise store.StoreError(f"{path}: {first_problem(error)}; remove the file, or restore it") from None
    return loads


# (model, image, load, round) -> each GPU's load.
Groups = Mapping[tuple[str, str, str, str], Mapping[str, Load]]


def groups_of_loads(gpus: Sequence[GpuLoads]) -> Groups:
    """The loads that can be compared with one another."""
    groups: dict[tuple[str, str, str, str], dict[str, Load]] = {}
    for gpu in gpus:
        for load in gpu.loads:
            groups.setdefault((gpu.model, gpu.image, load.name, load.round), {})[gpu.uuid] = load
    return groups


def fleets_of_loads(groups: Groups, comparisons: int) -> list[tuple[FleetFinding, dict[str, float]]]:
    """The GPUs of a model compared under each load, with their rates: a GPU whose rate is low is slow. Beside it stands what it did.

    `comparisons` is how many the verification makes, of loads and of cells.
    """
    return [
        (_finding(model, name, when, loads, comparisons), {uuid: load.rate for uuid, load in loads.items()})
        for (model, _, name, when), loads in groups.items()
    ]


def _finding(model: str, name: str, when: str, loads: Mapping[str, Load], comparisons: int) -> FleetFinding:
    fleet = fleet_of({uuid: 1 / load.rate for uuid, load in loads.items()}, comparisons)
    unit = next(iter(loads.values())).unit
    # Too few GPUs to judge: a person sees them all.
    shown = [slow.device for slow in fleet.slow] if len(loads) >= FEWEST else list(loads)
    beside = [f"{uuid}: {loads[uuid]}" for uuid in shown]
    if fleet.slow:
        beside.append(f"the fleet's medians: {_medians(list(loads.values()))}")
    middle = rate_text(1 / fleet.step_seconds, unit)
    return FleetFinding(f"load {name}, {when},", model, fleet, middle, tuple(beside))


def _medians(loads: Sequence[Load]) -> str:
    clocks = [load.sm_megahertz for load in loads if load.sm_megahertz is not None]
    watts = [load.power_watts for load in loads if load.power_watts is not None]
    parts = [rate_text(median(load.rate for load in loads), loads[0].unit)]
    parts += [f"{median(clocks):.0f} MHz"] if clocks else []
    parts += [f"{median(watts):.0f} W"] if watts else []
    return ", ".join(parts)
