"""What a container is started with, without an engine. tests/engine/test_docker.py starts one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import load_catalog
from runner.engines.base import Launch, ReadyImage, Slot
from runner.engines.docker import container
from runner.errors import EngineError


def mountinfo(tmp_path: Path, *points: Path) -> Path:
    """A file as /proc/self/mountinfo, with these mount points."""
    path = tmp_path / "mountinfo"
    lines = [
        f"{36 + at} 35 98:0 / {str(point).replace(' ', chr(92) + '040')} rw - ext4 /dev/sda rw\n"
        for at, point in enumerate(points)
    ]
    path.write_text("".join(lines))
    return path


def test_each_file_system_below_the_data_is_mounted_so_that_nobody_can_write_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    below = [data / "imagenet", data / "imagenet" / "second disk"]
    for folder in (*below, tmp_path / "database"):
        folder.mkdir(parents=True)
    mounts = container.data_mounts(
        data, mountinfo(tmp_path, Path("/"), data, tmp_path / "database", *below, data / "hidden")
    )
    assert [(mount["Target"], mount["Source"]) for mount in mounts] == [
        ("/data", str(data)),
        ("/data/imagenet", str(below[0])),
        ("/data/imagenet/second disk", str(below[1])),
    ]
    assert all(mount["ReadOnly"] and mount["BindOptions"] == {"NonRecursive": True} for mount in mounts)


def test_more_file_systems_than_a_container_gets_are_refused(tmp_path: Path) -> None:
    points = [tmp_path / str(number) for number in range(65)]
    for point in points:
        point.mkdir()
    with pytest.raises(EngineError, match="65 file systems are mounted below it, and a cell gets at most 64"):
        container.data_mounts(tmp_path, mountinfo(tmp_path, *points))


def test_the_kernel_ends_a_cell_before_the_runner(tmp_path: Path) -> None:
    prepared = ReadyImage(load_catalog()["torch-2.13.0-cpu"], "sha256:0", ("python",))
    options: dict[str, Any] = container.container_options(
        Launch(prepared, ["run"], Slot("cpu", (), (0,), None), "run", tmp_path), "1000:1000"
    )
    assert options["oom_score_adj"] == 1000
