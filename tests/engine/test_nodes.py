"""Nodes whose cells are containers, on GPUs that are not there: what a killed agent leaves running is ended by the next one."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.gpu_runs import Run, ended, folder, nothing_is_left, rows, wait_for
from tests.stand_ins.engine import OwnEngine
from tests.stand_ins.fleet import FakeGpu, Fleet

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("own engine")]


def agents(tmp_path: Path) -> list[int]:
    """The agents of this test, by the folder of its caches."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            own = f"XDG_CACHE_HOME={tmp_path / 'cache'}".encode() in (path / "environ").read_bytes().split(b"\0")
            if own and b"\0agent\0" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            pass
    return sorted(found)


def test_containers_of_a_killed_agent_end_and_each_cell_has_one_row(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    Fleet((FakeGpu(), FakeGpu())).write(fleet_file)
    process = run("--frameworks", "torch", "--repeats", "4", "--nodes", "local:2")
    wait_for(lambda: len(list((tmp_path / "results").glob("*/repeats/*.parcel"))) >= 4, process)
    os.kill(agents(tmp_path)[0], signal.SIGKILL)
    printed = ended(process)
    assert process.returncode == 0, printed
    ran = rows(tmp_path).query("status != 'skipped'")
    assert set(ran.status) == {"ok"}
    assert set(Counter(zip(ran.cell_id, ran.repeat, strict=True)).values()) == {1}
    assert len(ran) == 3 * 2 * 4
    assert set(ran.node) == {"local-1", "local-2"}
    assert set(ran.engine) == {"docker"}
    nodes = json.loads((folder(tmp_path) / "run.json").read_bytes())["nodes"]
    assert sum(bool(node["lost"]) for node in nodes) == 1
    nothing_is_left(own, tmp_path)


def test_ctrl_c_ends_the_containers_of_all_nodes(run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path) -> None:
    Fleet((FakeGpu(), FakeGpu())).write(fleet_file)
    process = run("--frameworks", "torch", "--repeats", "4", "--nodes", "local:2")
    wait_for(lambda: len(list((tmp_path / "results").glob("*/repeats/*.parcel"))) >= 2, process)
    process.send_signal(signal.SIGINT)
    printed = ended(process)
    assert process.returncode == 130, printed
    assert agents(tmp_path) == []
    nothing_is_left(own, tmp_path)
