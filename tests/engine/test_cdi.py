"""GPUs by their CDI names, for real: on a Docker Engine that has CDI, is given no hook, and so has no other way to give a GPU.

Where the machine's own is older, DLBENCH_CDI_ENGINE names a folder with one that has (.ci/cdi-engine makes it).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import known_messages
from runner.engines.docker import container as cdi
from tests.engine.gpu_runs import Run, ended, nothing_is_left, rows
from tests.engine.test_doctor import doctor
from tests.stand_ins.engine import OwnEngine, why_no_cdi, why_not
from tests.stand_ins.fleet import FakeGpu, Fleet, eight_gpus, uuid_of

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("own engine"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def own(fleet_file: Path) -> Iterator[OwnEngine]:
    if reason := why_not() or why_no_cdi():
        pytest.skip(f"left out, because {reason}")
    Fleet((FakeGpu(),)).write(fleet_file)
    with OwnEngine(fleet_file, hook=False, cdi=True) as engine:
        yield engine


def info(own: OwnEngine) -> dict[str, Any]:
    client = own.client()
    try:
        return dict(client.info())
    finally:
        client.close()


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_the_engine_knows_what_its_specification_names(own: OwnEngine, form: str) -> None:
    fleet = eight_gpus(0, busy=())
    own.describe(fleet, form)
    assert cdi.cdi_devices(info(own)) == {cdi.cdi_name(uuid) for uuid, _ in fleet.devices()}
    own.describe(Fleet(()))
    assert cdi.cdi_devices(info(own)) == frozenset()


def test_every_cell_sees_just_the_gpus_and_instances_that_it_was_given(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    fleet = eight_gpus(0, busy=())
    fleet.write(fleet_file)
    own.describe(fleet)
    process = run("--frameworks", "torch", "--workloads", "gru-imdb", "--devices", "1,2", "--images", "tiny-cu128")
    printed = ended(process)
    assert process.returncode == 0, printed
    ran = rows(tmp_path).query("status == 'ok'")
    assert sorted(zip(ran.device_model.str.contains("MIG"), ran.devices, strict=True)) == [
        (False, 1), (False, 1), (False, 2), (False, 2), (True, 1)]  # fmt: skip
    for row in ran.itertuples():
        assert sorted(row.device_uuids) == sorted(row.given_uuids)
        assert len(row.given_uuids) == row.devices
    nothing_is_left(own, tmp_path)


def test_a_name_that_is_older_than_the_gpus_fails_its_cell_and_doctor_says_why(
    run: Run, own: OwnEngine, variables: dict[str, str], tiny: str, fleet_file: Path, tmp_path: Path
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    own.describe(Fleet((FakeGpu(uuid=uuid_of(9)),)))
    ended(run("--frameworks", "torch", "--workloads", "gru-imdb", "--images", "tiny-cu128"))
    (row,) = rows(tmp_path).query("status == 'failed'").itertuples()
    assert row.error_kind == "engine"
    assert "install the NVIDIA Container Toolkit" in row.hint
    checks = doctor(variables, tiny)
    assert (checks["CDI"]["status"], checks["container"]["status"]) == ("warn", "fail")
    assert uuid_of(0) in checks["CDI"]["saw"]


def test_the_engines_own_words_for_a_name_that_is_gone_are_known(own: OwnEngine, tiny: str) -> None:
    import docker

    own.describe(Fleet((FakeGpu(),)))
    request = cdi.device_request([uuid_of(9)], {cdi.cdi_name(uuid_of(9))})
    client = own.client()
    made = client.containers.create(tiny, ["/cell"], network_mode="none", device_requests=[request])
    try:
        with pytest.raises(docker.errors.APIError) as error:
            made.start()
    finally:
        made.remove(force=True)
        client.close()
    known = known_messages.find(str(error.value.explanation))
    assert known is not None, error.value.explanation
    assert "nvidia-ctk cdi list" in known.fix


def test_doctors_container_sees_what_it_was_given_by_name(
    own: OwnEngine, variables: dict[str, str], tiny: str, fleet_file: Path
) -> None:
    fleet = eight_gpus(0, busy=())
    fleet.write(fleet_file)
    own.describe(fleet)
    checks = doctor(variables, tiny)
    assert {checks[name]["status"] for name in ("CDI", "hook", "cgroups", "container")} == {"ok"}, checks
    assert uuid_of(9, "MIG") in checks["container"]["saw"]


def test_doctor_tells_that_cdi_gave_the_gpus_and_that_cuda_opens_none(
    own: OwnEngine, variables: dict[str, str], tiny: str, fleet_file: Path
) -> None:
    fleet = Fleet((FakeGpu(),))
    fleet.write(fleet_file)
    own.describe(fleet)
    assert "through CDI; CUDA opens them" in doctor(variables, tiny)["container"]["saw"]
    # A specification that was made before nvidia_uvm was loaded lacks its device.
    file = own.specifications / "nvidia.yaml"
    file.write_text(file.read_text().replace(" NVIDIA L4", " NVIDIA L4\n    - DLBENCH_CUINIT=999", 1))
    check = doctor(variables, tiny)["container"]
    assert (check["status"], "through CDI, and CUDA opens none of them (cuInit says 999" in check["saw"]) == (
        "fail", True), check  # fmt: skip
