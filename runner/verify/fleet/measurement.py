"""Measure every GPU of several nodes in one run: each GPU by itself, in blocks over the GPUs of its node, all nodes side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from runner.errors import CannotBeginError
from runner.nodes import driver
from runner.nodes.fleet import hellos
from runner.nodes.fleet_plan import FleetProspect, looking
from runner.run.begin import refuse_cpu_only, start
from runner.run.options import Options
from runner.run.progress import announce, say
from runner.run.prospect import Prospect
from runner.verify.fleet.level import Site, chosen, seconds_of, shortened
from runner.verify.verification_run import Measurement, WriteReport


def measure_nodes(options: Options, argv: Sequence[str], write_report: WriteReport, limit: str | None) -> Measurement:
    """Measure the GPUs of the nodes that the options name. Raises UserError.

    `limit` is what `--time` says. A node that is lost does not end the verification: what is missing is "not yet run".
    """
    wanted = options.model_copy(update={"each_gpu": True})
    # A mistake in --time is said before any agent is started.
    seconds = None if limit is None else seconds_of(limit)
    with contextlib.ExitStack() as stack:
        look_at_nodes = looking(stack.enter_context)

        def look(options: Options, minutes: float | None) -> Prospect:
            prospect = look_at_nodes(options, minutes)
            if not prospect.plan.cells:
                return prospect
            refuse_cpu_only(prospect, "--each-gpu")
            if limit is None or seconds is None:
                return prospect
            level, sentence = chosen(_site(prospect), seconds, limit)
            say(sentence)
            return shortened(prospect, level)

        prospect, run = start(wanted, argv, None, look)
        assert isinstance(prospect, FleetProspect)
        # --resume goes on with the chosen options.
        run.write_manifest(run.manifest() | {"options": prospect.options.model_dump(mode="json")})
        announce(prospect)
        ended = driver.execute(prospect, run, write_report)
    if not run.finished():
        raise CannotBeginError(
            f"{run.folder}: no cell ended, so no GPU was compared; see the lines above, and measure again"
        )
    return Measurement([run.folder], ended.cut_by)


def _site(prospect: Prospect) -> Site:
    assert isinstance(prospect, FleetProspect)
    said = hellos(prospect.fleet.taken())
    cost = prospect.fetch_bytes() // max(1, len(said))
    images = list(dict.fromkeys(cell.image for cell in prospect.plan.cells))
    return Site(
        cells=prospect.plan.cells,
        seconds=prospect.durations.seconds,
        node_of={gpu.uuid: name for name, hello in said.items() for gpu in hello.gpus},
        prepare_seconds=sum(prospect.durations.preparing(image, cost // len(images)) for image in images)
        if cost
        else 0.0,
        # An agent runs cells, and no loads.
        loads=False,
    )
