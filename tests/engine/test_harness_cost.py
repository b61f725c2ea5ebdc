"""What the bench and the container cost, measured inside the image that people run."""

from __future__ import annotations

from typing import Any

import pytest

from runner.catalog.images import PROJECT, Image
from runner.engines.docker.engine import DockerEngine

from .conftest import CPU_IMAGES

SCRIPT = PROJECT / "tests" / "contract" / "harness_cost.py"


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_a_step_under_the_bench_costs_at_most_2_percent_more_than_a_plain_loop_in_the_same_container(
    engine: DockerEngine, client: Any, base_image: str, catalog: dict[str, Image]
) -> None:
    image = engine.prepare(catalog[CPU_IMAGES[0]], print)
    mount = {str(SCRIPT): {"bind": "/harness_cost.py", "mode": "ro"}}
    ratios = []
    for _ in range(5):  # a neighbour can disturb one attempt; it cannot make the harness cheaper than it is
        printed = client.containers.run(
            image.digest,
            ["/harness_cost.py"],
            entrypoint="python",
            environment={"PYTHONPATH": "."},  # a script's own folder is on the path, not the one it starts in
            volumes=mount,
            remove=True,
            network_mode="none",
        )
        ratios.append(float(printed))
        if ratios[-1] <= 1.02:
            break
    assert min(ratios) <= 1.02, ratios
