"""The origin of a parcel belongs to the parcel: signed as it is stored, told beside the rank where it was changed or is of others."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.admission.admit import store_parcel
from runner.admission.judges import HostFacts
from runner.admission.renew import renew
from runner.cli.main import app
from runner.results import store
from runner.results.on_disk import derived
from runner.results.on_disk.parcel_origin import CHANGED, ELSEWHERE
from runner.results.parcel import Parcel, decode, encode
from runner.results.store import RunStore
from tests.fixtures import stored
from tests.fixtures.nodes import parcel_of
from tests.fixtures.plans import make_cell

CELL = make_cell(image="torch-2.13.0-cpu")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """A run that this installation measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run = stored.measured(tmp_path / "results" / "run", [], [CELL], repeats=3)
    for repeat in (1, 2, 3):
        store_parcel(run, parcel_of(CELL, repeat), CELL, HostFacts())
    renew(run)
    return run


def path_of(run: RunStore, repeat: int) -> Path:
    return run.folder / "repeats" / f"{CELL.id}.r{repeat}.parcel"


def origins(run: RunStore) -> dict[int, str | None]:
    """Repeat -> the origin of its parcel, read by a process that measured nothing."""
    renew(RunStore(run.folder))
    rows = store.read([run.folder], "cells").to_pylist()
    return {row["repeat"]: row["origin"] for row in rows if row["status"] != "skipped"}


def said(*words: str) -> str:
    result = CliRunner().invoke(app, [*words])
    return result.stdout + result.stderr


def test_what_was_measured_here_says_nothing_of_its_origin(run: RunStore) -> None:
    assert origins(run) == {1: None, 2: None, 3: None}
    assert "origin" not in said("report", str(run.folder), "--text")


def with_log(run: RunStore, repeat: int) -> None:
    """Change a parcel where no judge looks."""
    path = path_of(run, repeat)
    path.write_bytes(encode(replace(decode(path.read_bytes(), "x"), log="another log")))


# Somebody's changes of a run, the index and the tables with them -> the origin of repeat 2.
def edited(run: RunStore) -> None:
    with_log(run, 2)


def edited_and_signed_by_others(run: RunStore) -> None:
    with_log(run, 2)
    content, name = path_of(run, 2).read_bytes(), path_of(run, 2).name
    line = f"{name} {hashlib.sha256(content).hexdigest()} {'0' * 64}\n"
    (run.folder / derived.SIGNATURES).open("a").write(line)


def without_signatures(run: RunStore) -> None:
    (run.folder / derived.SIGNATURES).unlink()


def of_another_repeat(run: RunStore) -> None:
    """The line of repeat 1 under the name of repeat 2."""
    with_log(run, 2)
    path = run.folder / derived.SIGNATURES
    path.write_text(path.read_text().replace(".r1.", ".r2."))


def of_another_run(run: RunStore) -> None:
    manifest = run.manifest()
    run.write_manifest({**manifest, "run_id": "20260101-000000-abcd"})


WAYS: dict[str, tuple[Callable[[RunStore], None], str]] = {
    "edited": (edited, CHANGED),
    "edited and signed by others": (edited_and_signed_by_others, CHANGED),
    "without signatures": (without_signatures, ELSEWHERE),
    "signed as another repeat": (of_another_repeat, CHANGED),
    "put into another run": (of_another_run, ELSEWHERE),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_parcel_that_was_changed_or_is_of_others_is_told_by_every_command(
    run: RunStore, tmp_path: Path, way: str
) -> None:
    change, origin = WAYS[way]
    change(run)
    shutil.rmtree(run.folder / "tables")
    shutil.rmtree(tmp_path / "here" / "dlbench" / "tables", ignore_errors=True)
    assert origins(run)[2] == origin
    folder = str(run.folder)
    page = tmp_path / "page.html"
    commands = (
        ("report", folder, "--text"),
        ("report", folder, "-o", str(page)),
        ("compare", folder, folder),
        ("verify", "--run", folder),
        ("reference", "save", folder, "--name", "mine", "--references", str(tmp_path / "references"), "--noisy"),
    )
    for words in commands:
        assert f"{origin}" in said(*words), words
    assert origin in page.read_text()


def test_a_copied_run_is_of_others_until_it_is_back(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    assert set(origins(run).values()) == {ELSEWHERE}
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    shutil.rmtree(run.folder / "tables")
    assert set(origins(run).values()) == {None}


def test_another_cache_or_one_that_is_freed_changes_no_origin(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages on full and failing disks tell people to do both."""
    shutil.rmtree(tmp_path / "here", ignore_errors=True)
    shutil.rmtree(run.folder / "tables")
    assert set(origins(run).values()) == {None}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    store_parcel(run, parcel_of(CELL, 4), CELL, HostFacts())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    assert set(origins(run).values()) == {None}


def test_a_runner_that_is_killed_between_signature_and_parcel_leaves_nothing_false(run: RunStore) -> None:
    parcel = encode(parcel_of(CELL, 4))
    derived.sign(run.folder, run.run_id, path_of(run, 4).name, hashlib.sha256(parcel).hexdigest())
    (run.folder / derived.SIGNATURES).open("a").write("half of a li")
    assert 4 not in origins(run)
    fresh = RunStore(run.folder)
    store_parcel(fresh, parcel_of(CELL, 5), CELL, HostFacts())
    assert origins(run) == {1: None, 2: None, 3: None, 5: None}


def test_a_parcel_that_was_imported_and_then_changed_elsewhere_is_told_by_run_json(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parcels: dict[str, Parcel | str] = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in run.folder.glob("repeats/*.parcel")
    }
    imported = {"archive": "a.tar.gz", "sha256": "0" * 64, "when": "2026-11-29T00:00:00+00:00", "parcels": parcels}
    run.write_manifest({**run.manifest(), "imported": imported})
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    with_log(run, 2)
    assert origins(run) == {1: ELSEWHERE, 2: CHANGED, 3: ELSEWHERE}
    assert json.loads((run.folder / "run.json").read_text())["imported"]["parcels"] == parcels


def of_a_pipe(path: Path) -> None:
    os.mkfifo(path)


def of_a_link(path: Path) -> None:
    path.symlink_to(path.with_name("of-another"))


@pytest.mark.parametrize("made", [of_a_pipe, of_a_link, Path.mkdir])
def test_a_cell_that_puts_something_in_the_place_of_the_signatures_holds_up_no_run(
    run: RunStore, made: Callable[[Path], None]
) -> None:
    """A pipe that nobody reads took a runner for good: neither Ctrl-C nor SIGTERM ended it."""
    path = run.folder / derived.SIGNATURES
    path.unlink()
    made(path)
    store_parcel(run, parcel_of(CELL, 4), CELL, HostFacts())
    assert origins(run) == {1: ELSEWHERE, 2: ELSEWHERE, 3: ELSEWHERE, 4: None}
    assert not (run.folder / "of-another").exists()


def test_a_disk_that_takes_a_part_of_a_signature_is_full(run: RunStore) -> None:
    """The system says how much it took, and that is no error of its own: a parcel without a signature is not of this installation."""
    taken = (run.folder / derived.SIGNATURES).stat().st_size
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (taken + 20, most))
    try:
        with pytest.raises(OSError, match="File too large"):
            derived.sign(run.folder, run.run_id, "aaaa.r1.parcel", "0" * 64)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    store_parcel(run, parcel_of(CELL, 4), CELL, HostFacts())
    assert set(origins(run).values()) == {None}
