"""A disk of the engine or of the host that fails in mid-run: nothing is lost, one sentence says so, and --resume measures the rest.

They wait more than they compute, and for a Docker Engine of their own: like others with one they run beside those of the engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.gpu_runs import Run, ended, folder, nothing_is_left, rows, wait_for
from tests.fixtures.mounts import ENDS, ENDS_OF_DISKS, TROUBLES
from tests.fixtures.weekly import drawn
from tests.stand_ins.engine import OwnEngine
from tests.stand_ins.fleet import FakeGpu, Fleet

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("own engine"), pytest.mark.timeout(600)]

# Six of them: two frameworks in three images.
CELLS = ("--precision", "fp32", "--workloads", "cnn-cifar10")


@pytest.mark.parametrize(("trouble", "mended"), drawn("DLBENCH_FAULTS", 3, ENDS))
def test_a_disk_of_the_engine_that_fails_in_mid_run_loses_nothing_and_resume_measures_the_rest(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path, trouble: str, mended: bool
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    what, data = TROUBLES[trouble], own.folder / "data"
    own.stop()
    data.rename(own.folder / "before")
    try:
        with what.mounted(data):
            own.start()
            variables = {"DLBENCH_TINY_FRAMEWORKS": "torch,jax", "DLBENCH_TINY": own.make_tiny_image()}
            process = run(*CELLS, **variables)
            wait_for(lambda: rows_there(tmp_path) >= 1, process)
            with what.befalls(data):
                printed = ended(process)
                assert process.returncode == 1, printed
                assert printed.lower().count(what.words.lower()) == 1, printed
                assert f"{data} has {what.room}" in printed
                kept = parcels_there(tmp_path)
                if not mended:
                    fails_again(run, folder(tmp_path).name, what.words, **variables)
                # A disk that failed is mounted again: nobody may use it then.
                own.stop()
            own.start()
            resume_measures_the_rest(run, tmp_path, kept, **variables)
            own.stop()
    finally:
        own.stop()
        data.rmdir()
        (own.folder / "before").rename(data)
        own.start()


@pytest.mark.parametrize(("trouble", "mended", "disk"), drawn("DLBENCH_FAULTS", 3, ENDS_OF_DISKS))
def test_a_disk_of_the_host_that_fails_while_containers_run_loses_nothing_and_resume_measures_the_rest(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path, trouble: str, mended: bool, disk: str
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    what = TROUBLES[trouble]
    (tmp_path / "tmp").mkdir()
    variables = {"DLBENCH_TINY_FRAMEWORKS": "torch,jax", "TMPDIR": str(tmp_path / "tmp")}
    with what.mounted(tmp_path / disk):
        process = run(*CELLS, **variables)
        wait_for(lambda: rows_there(tmp_path) >= 1, process)
        kept, name = parcels_there(tmp_path), folder(tmp_path).name
        with what.befalls(tmp_path / disk):
            printed = ended(process)
            assert "Traceback" not in printed
            if disk == "tmp":
                # No cell in a container needs the runner's temporary folder.
                assert process.returncode == 0, printed
            else:
                assert process.returncode == 1, printed
                assert printed.count(what.words) == 1, printed
                assert f"{tmp_path / disk} has {what.room}" in printed
                assert f"--resume {name}" in printed
                if not mended:
                    fails_again(run, name, what.words, **variables)
        assert kept.items() <= parcels_there(tmp_path).items(), "what had ended is there"
        resume_measures_the_rest(run, tmp_path, parcels_there(tmp_path), **variables)
        nothing_is_left(own, tmp_path)


def fails_again(run: Run, name: str, why: str, **variables: str) -> None:
    """--resume of the run of that name while the disk still fails: it says so once."""
    process = run("--resume", name, **variables)
    printed = ended(process)
    assert process.returncode not in (0, 3), printed
    assert "Traceback" not in printed
    assert printed.lower().count(why.lower()) == 1, printed


def resume_measures_the_rest(run: Run, tmp_path: Path, kept: dict[Path, bytes], **variables: str) -> None:
    process = run("--resume", folder(tmp_path).name, **variables)
    printed = ended(process)
    assert process.returncode == 0, printed
    ran = rows(tmp_path).query("status != 'skipped'")
    assert set(ran.status) == {"ok"}
    assert len(ran) == len(set(ran.cell_id)) == 6
    assert {path: path.read_bytes() for path in kept} == kept, "what had ended was run again"


def parcels_there(tmp_path: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (tmp_path / "results").glob("*/repeats/*.parcel")}


def rows_there(tmp_path: Path) -> int:
    return len(list((tmp_path / "results").glob("*/repeats/*.parcel")))
