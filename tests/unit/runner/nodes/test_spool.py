"""A result stays on the node's disk until the driver has it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from runner.engines.process.process import owner_of
from runner.errors import UserError
from runner.nodes import spool
from runner.nodes.spool import Spool
from runner.results.parcel import encode
from tests.fixtures.nodes import attempt_of, parcel_of
from tests.fixtures.plans import make_cell

ATTEMPTS = [attempt_of(make_cell(), 1, number) for number in (1, 2, 3)]
PARCEL = encode(parcel_of())


def test_a_result_is_there_for_the_next_agent_until_it_is_acknowledged(tmp_path: Path) -> None:
    spool = Spool("run", "n1", tmp_path)
    for number, attempt in enumerate(ATTEMPTS):
        spool.keep(attempt, PARCEL)
        os.utime(spool.folder / f"{attempt}.parcel", (number, number))
    again = Spool("run", "n1", tmp_path)
    assert list(again.parcels()) == [(attempt, PARCEL) for attempt in ATTEMPTS]
    again.forget(ATTEMPTS[1])
    assert again.attempts() == [ATTEMPTS[0], ATTEMPTS[2]]
    assert Spool("run", "n2", tmp_path).attempts() == []
    assert Spool("other", "n1", tmp_path).attempts() == []


def test_no_two_nodes_share_a_folder(tmp_path: Path) -> None:
    names = ["a:b", "a_b", "a%3Ab", "a@b", "a.b"]
    assert len({Spool("run", name, tmp_path).folder for name in names}) == len(names)


def test_a_damaged_result_is_measured_again(tmp_path: Path) -> None:
    spool = Spool("run", "n1", tmp_path)
    spool.keep(ATTEMPTS[0], PARCEL)
    path = spool.folder / f"{ATTEMPTS[0]}.parcel"
    path.write_bytes(PARCEL[:-1])
    (spool.folder / "x.parcel").write_bytes(b"")
    assert list(spool.parcels()) == []
    assert not path.exists()


def test_an_empty_spool_leaves_no_folder_and_an_old_one_goes(tmp_path: Path) -> None:
    spool = Spool("run", "n1", tmp_path)
    spool.close()
    assert list(tmp_path.iterdir()) == []
    old = Spool("old", "n1", tmp_path)
    old.keep(ATTEMPTS[0], PARCEL)
    long_ago = time.time() - 40 * 86400
    for path in (*old.folder.iterdir(), old.folder, old.folder.parent):
        os.utime(path, (long_ago, long_ago))
    assert Spool("run", "n1", tmp_path).attempts() == []
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_nodes_may_share_the_folder_and_leave_each_other_s_running_cells_alone(tmp_path: Path) -> None:
    """A home folder of several machines holds the cache of all of them."""
    other = Spool("run", "n2", tmp_path)
    _, namespace, pid, start = owner_of(os.getpid()).split("/")
    of_another_machine = other.folder / "_".join(("running-another-boot", namespace, pid, start, "x"))
    ended_here = other.folder / (f"running-{owner_of(os.getpid())}".replace("/", "_").removesuffix(start) + "1_x")
    for folder in (of_another_machine, ended_here):
        folder.mkdir()
    Spool("run", "n1", tmp_path)
    assert of_another_machine.is_dir()
    assert not ended_here.exists()
    Spool("run", "n2", tmp_path)
    assert not of_another_machine.exists(), "what this node left before its machine started anew"


def test_a_spool_that_cannot_be_written_to_is_said_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(
        UserError, match="run/n1 cannot be written to .*; make it yours, or name another cache with XDG"
    ):
        Spool("run", "n1", tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "n1").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="other/n1 cannot be written to"):
        Spool("other", "n1", tmp_path)


@pytest.mark.parametrize("run", ["{outside}", "../outside", "..", ".", "", "a/../../outside"])
def test_a_run_whose_id_leads_out_of_the_spool_has_nothing_there(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = [tmp_path / "dlbench" / "outside" / "a", tmp_path / "dlbench" / "spool" / "other" / "a"]
    for path in kept:
        path.parent.mkdir(parents=True)
        path.touch()
    spool.remove(run.format(outside=kept[0].parent))
    assert all(path.exists() for path in kept)
    spool.remove("other")
    assert [path.exists() for path in kept] == [True, False]
