"""What the bench and the container cost, measured inside the image that people run."""

from __future__ import annotations

import os
from typing import Any

import pytest

from runner.catalog.images import PROJECT, Image
from runner.engines.docker.engine import DockerEngine
from tests.contract.speed_verdict import HARNESS, verdict_of

from .conftest import CPU_IMAGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(
        os.environ.get("DLBENCH_SPEED") != "all",
        reason="a verdict within 2 percent needs a machine that holds still, and minutes; DLBENCH_SPEED=all asks for it",
    ),
]

SCRIPT = PROJECT / "tests" / "contract" / "harness_cost.py"


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_a_step_under_the_bench_costs_at_most_2_percent_more_than_a_plain_loop_in_the_same_container(
    engine: DockerEngine, client: Any, base_image: str, catalog: dict[str, Image]
) -> None:
    image = engine.prepare(catalog[CPU_IMAGES[0]], print)
    mount = {str(SCRIPT): {"bind": "/harness_cost.py", "mode": "ro"}}

    def one_container() -> float:
        printed = client.containers.run(
            image.digest,
            ["/harness_cost.py"],
            entrypoint="python",
            environment={"PYTHONPATH": "."},  # a script's own folder is on the path, not the one it starts in
            volumes=mount,
            remove=True,
            network_mode="none",
        )
        return float(printed)

    verdict, ratios = verdict_of(one_container, HARNESS)
    assert verdict == "alike", f"{verdict}: {ratios}"
