"""`runner doctor` on a real engine: it starts a container and believes what that sees."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import PROJECT, load_catalog
from runner.engines.base import Launch, ReadyImage, Slot
from runner.engines.docker import container
from runner.engines.docker.engine import DockerEngine
from tests.stand_ins.engine import OwnEngine
from tests.stand_ins.fleet import FakeGpu, Fleet, eight_gpus, uuid_of

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("own engine"), pytest.mark.timeout(600)]


DOCTOR = ("-m", "runner", "doctor", "--image")


def doctor(variables: dict[str, str], image: str) -> dict[str, Any]:
    command = [sys.executable, *DOCTOR, image, "--format", "json"]
    ended = subprocess.run(command, cwd=PROJECT, env=variables, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(ended.stdout)
    assert ended.returncode == (1 if told["failed"] else 0), ended.stderr
    return {check["name"]: check for check in told["checks"]}


def test_doctor_starts_a_container_and_sees_that_all_is_well(
    variables: dict[str, str], tiny: str, fleet_file: Path, own: OwnEngine, tmp_path: Path
) -> None:
    eight_gpus(0, busy=()).write(fleet_file)
    checks = doctor(variables, tiny)
    assert checks["container"]["status"] == "ok", checks["container"]
    assert uuid_of(0) in checks["container"]["saw"]
    assert uuid_of(9, "MIG") in checks["container"]["saw"]
    assert checks["MIG"]["saw"].startswith("3:0 ")
    assert checks["engine"]["status"] == "ok"


@pytest.mark.parametrize(
    ("line", "saw", "fix"),
    [
        (f"hook_gives {uuid_of(5)}", "sees " + uuid_of(5), "nvidia-ctk cdi list"),
        ("hook_error requirement error: unsatisfied condition: cuda>=13.0", "unsatisfied condition", "a newer driver"),
    ],
)
def test_doctor_tells_what_is_wrong_with_the_container(
    variables: dict[str, str], tiny: str, fleet_file: Path, line: str, saw: str, fix: str
) -> None:
    file = Fleet((FakeGpu(),)).write(fleet_file)
    file.write_text(f"{file.read_text()}{line}\n")
    check = doctor(variables, tiny)["container"]
    assert check["status"] == "fail"
    assert saw in check["saw"]
    assert fix in check["fix"]


def test_doctor_explains_an_engine_without_the_toolkit(variables: dict[str, str], fleet_file: Path) -> None:
    if shutil.which("nvidia-container-runtime-hook"):
        pytest.skip("left out, because this machine has the NVIDIA Container Toolkit")
    Fleet((FakeGpu(),)).write(fleet_file)
    with OwnEngine(fleet_file, hook=False) as plain:
        check = doctor(variables | {"DOCKER_HOST": plain.url}, plain.make_tiny_image())["container"]
    assert check["status"] == "fail"
    assert "could not select device driver" in check["saw"]
    assert "install the NVIDIA Container Toolkit" in check["fix"]


def test_doctor_says_that_cuda_opens_nothing_in_a_container_where_nvml_answers(
    variables: dict[str, str], tiny: str, fleet_file: Path
) -> None:
    file = Fleet((FakeGpu(),)).write(fleet_file)
    well = doctor(variables, tiny)["container"]
    assert (well["status"], "through NVIDIA's hook; CUDA opens them" in well["saw"]) == ("ok", True), well
    file.write_text(f"{file.read_text()}hook_cuinit 802\n")
    check = doctor(variables, tiny)["container"]
    assert check["status"] == "fail"
    assert "through NVIDIA's hook, and CUDA opens none of them (cuInit says 802" in check["saw"]
    assert check["fix"] == "its remedy"


def test_an_engine_that_has_no_hook_by_this_name_gives_its_gpus_without_the_name(
    own: OwnEngine, tiny: str, fleet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker before 29 refuses the name as Docker 29 does where dockerd found no hook."""
    Fleet((FakeGpu(),)).write(fleet_file)
    monkeypatch.setenv("DOCKER_HOST", own.url)
    monkeypatch.setattr(DockerEngine, "_hook", container.HOOK_DRIVER)
    engine = DockerEngine()
    prepared = ReadyImage(load_catalog()["torch-2.15.0-cu132"], tiny, ("nvidia-smi",))
    slot = Slot("cuda", (uuid_of(0),), (), None)
    for _ in range(2):
        running = engine.start(Launch(prepared, ["-L"], slot, "test", tmp_path / "cache"))
        assert uuid_of(0).encode() in b"".join(running.events())
        assert running.wait().code == 0
        # From then on it is asked without it.
        assert engine._hook == ""
    engine.sweep()
