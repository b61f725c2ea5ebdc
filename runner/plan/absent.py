"""Cells that the plan offers an image on GPUs that are not here."""

from __future__ import annotations

from collections.abc import Mapping

from runner.catalog.frameworks import Framework
from runner.catalog.images import Image
from runner.catalog.names import PresetName
from runner.catalog.workloads import Workload
from runner.images.absent.targets import Target
from runner.machine.devices import Cpu, Gpu, Machine
from runner.plan.plan import plan
from runner.plan.request import Request

# The preset whose batch is that of the published procedure. `quick` has smaller ones, for CPUs.
PRESET: PresetName = "standard"

# No driver is too old.
_DRIVER = "99999"


def offered_steps(
    image: Image,
    workloads: Mapping[str, Workload],
    frameworks: Mapping[str, Framework],
    targets: Mapping[str, Target],
) -> dict[tuple[str, str, str], tuple[int, list[str]]]:
    """(framework, workload, precision) -> (batch, the names of the targets on which the plan has it, in the order of `targets`).

    A workload that computes another one is left out: its program is that one's.
    """
    own = {name: workload for name, workload in workloads.items() if workload.computes is None}
    every = tuple(dict.fromkeys(precision for workload in own.values() for precision in workload.precisions))
    request = Request(images=(image.name,), precisions=every, modes=("default",), preset=PRESET)
    steps: dict[tuple[str, str, str], tuple[int, list[str]]] = {}
    for name, target in targets.items():
        gpu = Gpu(0, f"GPU-{name}", target.model, target.compute_capability, target.memory_bytes, _DRIVER, ())
        machine = Machine(Cpu("", (), 0), (gpu,), None)
        for cell in plan(request, [image], own, frameworks, machine, lambda _: None).cells:
            step = cell.framework, cell.workload, cell.precision
            steps.setdefault(step, (cell.batch, []))[1].append(name)
    return steps
