"""The prospect of a run: its plan, with all that the plan was made from, and what follows from both."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import rules
from runner.catalog.addresses import ForeignImage
from runner.catalog.images import Image
from runner.engines.base import Engine
from runner.machine import lease
from runner.machine.devices import Machine
from runner.plan.durations import Durations
from runner.plan.plan import Cell, Plan, tiers
from runner.plan.request import BEST
from runner.results import store
from runner.results.rank.time_to_loss import FEWEST_SEEDS
from runner.run import budget, dispatch
from runner.run.options import Options
from runner.text import length, plural

# How often each cell is run where the options do not say it, and by the number of cells where these are few.
REPEATS = 3
REPEATS_OF_FEW = {2: 7, 3: 5, 4: 5, 5: 5, 6: 5}


@dataclass(frozen=True)
class Prospect:
    """The prospect of a run: the plan with all that it was made from."""

    options: Options
    machine: Machine
    engine: Engine
    why_engine: str
    images: dict[str, Image]
    plan: Plan
    durations: Durations

    @property
    def repeats(self) -> int:
        """How often each cell is run.

        Three repeats of few cells show the noise of each too badly, and a warm-up of the machine hides a difference of 5 %
        (docs/statistics.md). A full training lasts too long for more of them.
        """
        if self.options.to_loss is not None and self.options.repeats is None:
            return FEWEST_SEEDS
        few = {} if self.options.preset == "full" else REPEATS_OF_FEW
        return self.options.repeats or few.get(len(self.plan.cells), REPEATS)

    @property
    def jobs(self) -> list[dispatch.Job]:
        """Every repeat of every cell, in shuffled blocks. `Agenda.next_step` says which come first."""
        return dispatch.blocks(self.plan.cells, self.repeats, self.options.seed)

    def jobs_left(self, run: store.RunStore) -> list[dispatch.Job]:
        """The jobs that have not ended in this run: of each cell as many as it lacks, since a repeat may have had another number.

        A repeat that failed by a fault of its machine is left: `runner.run.execution.clear_up` removes it.
        """
        ended = run.finished() - store.due_again(run.folder)
        lacks = dict.fromkeys(self.plan.cells, self.repeats)
        of_ids = {cell.id: cell for cell in lacks}
        for cell_id, _ in ended:
            if cell_id in of_ids:
                lacks[of_ids[cell_id]] -= 1
        left = []
        # The last ones: a cell whose first repeat is left has not begun.
        for job in reversed(self.jobs):
            if job.key not in ended and lacks[job.cell] > 0:
                lacks[job.cell] -= 1
                left.append(job)
        return left[::-1]

    def boards(self, jobs: Sequence[dispatch.Job]) -> list[str]:
        """The GPUs that the runner holds for these jobs: none where all of them run on the CPU."""
        return [gpu.board for gpu in self.machine.gpus] if any(job.cell.device_kind == "cuda" for job in jobs) else []

    def leased(self, jobs: Sequence[dispatch.Job]) -> list[str]:
        """The leases of a run: the GPUs, and the CPUs if some of these jobs run on them."""
        on_cpus = any(job.cell.device_kind == "cpu" for job in jobs)
        return [*self.boards(jobs), *([lease.CPUS] if on_cpus else [])]

    def lanes(self, jobs: Sequence[dispatch.Job]) -> int:
        """How many of these jobs run at a time."""
        return budget.lanes(jobs, self.machine)

    def expected_seconds(self, jobs: Sequence[dispatch.Job]) -> float:
        """A rough length of these jobs on this machine: GPU cells side by side, then the CPU's one after another."""
        spans = budget.spans_of(
            [job for job in jobs if job.cell.device_kind != "cpu"], self.machine, self.durations.seconds
        )
        # Nothing runs beside a cell of the CPU, so their sum is their length, also of a million of them.
        repeats = Counter(job.cell for job in jobs if job.cell.device_kind == "cpu")
        in_line = sum(many * self.durations.seconds(cell) for cell, many in repeats.items())
        return max((span.end for span in spans), default=0.0) + in_line

    def expectations(self, jobs: Sequence[dispatch.Job]) -> dict[str, Any]:
        """The fields of run.json on lengths: of each cell a repeat, of all of these jobs, and of the cells that have ended."""
        seconds, guessed = self.durations.seconds, self.durations.guessed
        cells = self.plan.cells
        return {
            "expected": {cell.id: {"seconds": round(seconds(cell), 3), "guessed": guessed(cell)} for cell in cells},
            "took": self.durations.took(),
            "left": {"repeats": len(jobs), "seconds": round(self.expected_seconds(jobs), 3)},
        }

    def agenda(self) -> budget.Agenda:
        """The facts that the steps of the run depend on."""
        cells = self.plan.cells
        parts = {name: self.engine.parts(self.images[name]) for name in dict.fromkeys(cell.image for cell in cells)}
        contending = self.options.modes == BEST
        groups = tiers(cells, self.images, contending, self.options.images)
        unsettled = budget.NotYetKnown(cells) if contending and self.options.repeats is None else None
        return budget.Agenda(self.machine, self.durations, groups, parts, self.repeats, unsettled, contending)

    def facts(self) -> dict[str, Any]:
        """Facts for run.json beside those of every run."""
        return {}

    @property
    def foreign(self) -> dict[str, str]:
        """Of each foreign image its digest, by its address. One that nobody could look into is not among them."""
        return {
            name: image.pinned
            for name, image in self.images.items()
            if isinstance(image, ForeignImage) and image.pinned
        }

    def fetch_bytes(self) -> int:
        """Bytes to fetch or build before the first cell."""
        parts: dict[str, int] = {}
        for name in {cell.image for cell in self.plan.cells}:
            parts |= self.engine.parts(self.images[name])
        return sum(parts.values())

    def fetches(self) -> str:
        """The same in words."""
        return f"{self.fetch_bytes() / 1e9:.2f} GB"


def left_out(prospect: Prospect, held: budget.Forecast) -> Iterator[str]:
    """The columns (a network at a precision) of the first group that a new run with several precisions does not begin, as a sentence."""
    first = prospect.agenda().groups[0] if held.spans else ()
    begun = {(span.job.cell.workload, span.job.cell.precision) for span in held.spans}
    columns = [key for key in dict.fromkeys((cell.workload, cell.precision) for cell in first) if key not in begun]
    if columns and len({cell.precision for cell in first}) > 1:
        names = ", ".join(f"{workload} at {precision}" for workload, precision in columns)
        yield f"not begun, since the time does not suffice to compare frameworks in: {names}"


def of_images(prospect: Prospect, jobs: Sequence[dispatch.Job], held: budget.Forecast, minutes: float) -> Iterator[str]:
    """The share of images in the time of a new run, what the next one holds, and what makes the images ready before."""
    agenda = prospect.agenda()
    unready = agenda.unready(())
    # A node makes its images by itself.
    if not unready or not held.left or prospect.options.nodes is not None:
        return
    if made := [step.image for step, _ in held.steps if step.image is not None]:
        again = budget.forecast(_with(agenda, made), jobs, minutes)
        yield (
            f"about {length(agenda.preparing(made, unready))} of them go to making {plural(len(made), 'image')} ready, while nothing is "
            f"measured; the next such run finds {'it' if len(made) == 1 else 'them'} ready and holds {_counted(again)}"
        )
    # The frameworks that most people use come first.
    first = {cell.framework: cell.image for cell in agenda.groups[0]}
    missing = [image for image in dict.fromkeys(first.values()) if image in unready]
    ready = budget.forecast(_with(agenda, missing), jobs, minutes)
    columns = dict.fromkeys((cell.framework, cell.precision) for cell in agenda.groups[0])
    if lost := [column for column in columns if column in _columns(ready) - _columns(held)]:
        size = sum({part: size for image in missing for part, size in agenda.parts[image].items()}.values())
        yield (
            f"they are too short for {', '.join(f'{framework} at {precision}' for framework, precision in lost)}: making "
            f"{plural(len(missing), 'image')} ready ({size / 1e9:.1f} GB) takes about {length(agenda.preparing(missing, unready))}; "
            f"`{_command(prospect, agenda, missing)}` does it before, measures a cell of each, and then such a run holds {_counted(ready)}"
        )


def _with(agenda: budget.Agenda, images: Collection[str]) -> budget.Agenda:
    """The agenda once these images are ready, and with them the parts that others share."""
    here = {part for name in images for part in agenda.parts[name]}
    parts = {
        name: {part: size for part, size in of.items() if part not in here} if name not in images else {}
        for name, of in agenda.parts.items()
    }
    return replace(agenda, parts=parts)


def _columns(held: budget.Forecast) -> set[tuple[str, str]]:
    return {(span.job.cell.framework, span.job.cell.precision) for span in held.spans}


def _counted(held: budget.Forecast) -> str:
    cells = {span.job.cell for span in held.spans}
    frameworks = {cell.framework for cell in cells}
    return f"about {plural(len(held.spans), 'repeat')} of {plural(len(cells), 'cell')} of {plural(len(frameworks), 'framework')}"


def _command(prospect: Prospect, agenda: budget.Agenda, images: Sequence[str]) -> str:
    """A run of one cell of each of these images."""
    cells = [cell for cell in agenda.groups[0] if cell.image in images]
    frameworks = ",".join(dict.fromkeys(cell.framework for cell in cells))
    names = " ".join(f"--images {shlex.quote(image)}" for image in images)
    return (
        f"runner matrix --engine {prospect.engine.name} {names} --frameworks {frameworks} --workloads {cells[0].workload} "
        "--modes default --repeats 1"
    )


def lacks_fp32(cells: Collection[Cell]) -> list[str]:
    """A line for each precision that is planned without the cells at fp32 that its rank rests on."""
    networks = {name: rules.network_of(name) for name in {cell.workload for cell in cells}}
    wide = {pair for pair in {(cell.workload, cell.precision) for cell in cells} if rules.rests_on_fp32(*pair)}

    def adapter(cell: Cell) -> tuple[str, ...]:
        return cell.image, cell.framework, cell.device_model, networks[cell.workload]

    proved = {adapter(cell) for cell in cells if cell.precision == "fp32"}
    alone = Counter(
        cell.precision for cell in cells if (cell.workload, cell.precision) in wide and adapter(cell) not in proved
    )
    return [
        f"{plural(count, 'cell')} at {precision} will not be ranked without parity at fp32: say --precision fp32,{precision}"
        for precision, count in alone.items()
    ]
