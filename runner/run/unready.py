"""What a run whose minutes are limited loses to images that are not ready, in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from runner.run.budget import Agenda, Forecast, forecast
from runner.run.dispatch import Job
from runner.run.prospect import Prospect
from runner.text import length, plural


def sentences(prospect: Prospect, jobs: Sequence[Job], held: Forecast, minutes: float) -> Iterator[str]:
    """How much of the time of a new run goes to images, what the next one holds, and what makes the images ready before."""
    agenda = prospect.agenda()
    unready = agenda.unready(())
    # A node makes its images by itself.
    if not unready or not held.left or prospect.options.nodes is not None:
        return
    if made := [step.image for step, _ in held.steps if step.image is not None]:
        again = forecast(_with(agenda, made), jobs, minutes)
        yield (
            f"about {length(agenda.preparing(made, unready))} of them go to making {plural(len(made), 'image')} ready, while nothing is "
            f"measured; the next such run finds {'it' if len(made) == 1 else 'them'} ready and holds {_counted(again)}"
        )
    # The frameworks that most people use come first.
    first = {cell.framework: cell.image for cell in agenda.groups[0]}
    missing = [image for image in dict.fromkeys(first.values()) if image in unready]
    ready = forecast(_with(agenda, missing), jobs, minutes)
    if lost := [column for column in _columns(ready) if column not in _columns(held) and column[0] in first]:
        size = sum({part: size for image in missing for part, size in agenda.parts[image].items()}.values())
        yield (
            f"they are too short for {', '.join(f'{framework} at {precision}' for framework, precision in lost)}: making "
            f"{plural(len(missing), 'image')} ready ({size / 1e9:.1f} GB) takes about {length(agenda.preparing(missing, unready))}; "
            f"`{_command(prospect, agenda, missing)}` does it before, measures a cell of each, and then such a run holds {_counted(ready)}"
        )


def _with(agenda: Agenda, images: Collection[str]) -> Agenda:
    """The agenda once these images are ready, and with them the parts that others share."""
    here = {part for name in images for part in agenda.parts[name]}
    parts = {
        name: {part: size for part, size in of.items() if part not in here} if name not in images else {}
        for name, of in agenda.parts.items()
    }
    return replace(agenda, parts=parts)


def _columns(held: Forecast) -> dict[tuple[str, str], None]:
    return dict.fromkeys((span.job.cell.framework, span.job.cell.precision) for span in held.spans)


def _counted(held: Forecast) -> str:
    cells = {span.job.cell for span in held.spans}
    frameworks = {cell.framework for cell in cells}
    return f"about {plural(len(held.spans), 'repeat')} of {plural(len(cells), 'cell')} of {plural(len(frameworks), 'framework')}"


def _command(prospect: Prospect, agenda: Agenda, images: Sequence[str]) -> str:
    """A run of one cell of each of these images."""
    cells = [cell for cell in agenda.groups[0] if cell.image in images]
    frameworks = ",".join(dict.fromkeys(cell.framework for cell in cells))
    names = " ".join(f"--images {shlex.quote(image)}" for image in images)
    return (
        f"runner matrix --engine {prospect.engine.name} {names} --frameworks {frameworks} --workloads {cells[0].workload} "
        "--modes default --repeats 1"
    )
