"""A step that the compiler's record calls wrong is none that the plan offers."""

from __future__ import annotations

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog
from runner.catalog.workloads import load_workloads
from runner.images.compiled import load_targets, read_compiled
from runner.plan.plan import plan
from runner.plan.request import Request
from tests.fixtures.plans import with_gpu


def test_no_page_of_compiled_steps_calls_a_planned_cell_wrong() -> None:
    targets, catalog = load_targets(), load_catalog()
    seen = 0
    for image in catalog.values():
        record = read_compiled(image)
        for step in record.steps if record else ():
            if step.outcome != "wrong":
                continue
            seen += 1
            target = targets[step.target]
            machine = with_gpu(
                model=target.model,
                compute_capability=target.compute_capability,
                memory_bytes=target.memory_bytes,
                driver="595.71.05",
            )
            request = Request(
                images=(image.name,),
                frameworks=(step.framework,),
                workloads=(step.workload,),
                precisions=(step.precision,),
            )
            found = plan(request, [image], load_workloads(), load_frameworks(), machine, lambda _: None)
            assert [cell for cell in found.cells if cell.device_kind == "cuda"] == [], (step, step.reason)
    assert seen, "the record has such steps"
