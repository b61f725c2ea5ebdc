"""A bundle holds what a stranger needs to judge a run again, and nothing that names its machine, its people or its folders."""

from __future__ import annotations

import gzip
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.kit import archive
from runner.kit import shared_run as share
from runner.kit.archive import ArchiveError
from runner.kit.imported import import_archive
from runner.kit.results_folder import packed
from runner.kit.shared_run import Pseudonyms
from runner.results import store
from runner.verify.references.contributed import derived_rows
from tests.fixtures.contributions import MODELS, cell_of, contribution, retold, uuid_of

SALT = b"s" * 32
NAMES = (b"node17", b"example.org", b"contributor", b"/home", b"3B:00.0", uuid_of("node17.example.org")[4:].encode())


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def everything_in(path: Path) -> bytes:
    """All bytes of a bundle, unpacked."""
    with tarfile.open(path) as bundle:
        files = [(member.name, bundle.extractfile(member).read()) for member in bundle]  # type: ignore[union-attr]
    return b"".join(
        name.encode() + (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content) for name, content in files
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read([folder], "cells").to_pylist()
    return found


def test_a_bundle_names_no_machine_person_or_folder_and_what_it_says_is_the_same(tmp_path: Path) -> None:
    run = contribution(tmp_path / "run")
    bundle = share.bundle_of(run, SALT)
    path = write(tmp_path / "bundle.tar.gz", bundle.content)
    content = everything_in(path)
    assert [name for name in NAMES if name in content] == []
    before = b"".join(gzip.decompress(parcel.read_bytes()) for parcel in (run / "repeats").iterdir())
    assert [name for name in (b"contributor", uuid_of("node17.example.org")[4:].encode()) if name not in before] == []
    imported = import_archive(archive.read(path), tmp_path / "runs")
    assert [(each.status, each.reason) for each in imported.outcomes] == [("ok", "")] * 3
    times = [sorted(row["noise"] for row in rows(folder)) for folder in (run, imported.run.folder)]
    assert times[0] == times[1]
    (host,) = {row["device_uuids"][0] for row in rows(imported.run.folder)}
    assert (
        host
        == json.loads((imported.run.folder / "run.json").read_text())["devices"][0]["uuid"]
        != uuid_of("node17.example.org")
    )
    assert {row["foreign_processes"][0] for row in rows(imported.run.folder)} == {"another process"}


def test_a_machine_has_one_pseudonym_for_each_salt(tmp_path: Path) -> None:
    first, second = (contribution(tmp_path / name, seed=at) for at, name in enumerate("ab"))
    machines = [share.bundle_of(run, salt).facts for run, salt in ((first, SALT), (second, SALT), (first, b"t" * 32))]
    assert machines[0].machine == machines[1].machine != machines[2].machine
    assert machines[0].gpus[0].uuid == machines[1].gpus[0].uuid != machines[2].gpus[0].uuid


def test_an_interpreter_of_the_contributor_has_a_digest_that_nobody_can_try_out(tmp_path: Path) -> None:
    cell = cell_of(MODELS[0], "host-torch-2.13.0")
    (shared,) = share.bundle_of(contribution(tmp_path / "run", MODELS[0], cells=[cell]), SALT).facts.planned
    assert shared.cell.lock_sha256 not in (cell.lock_sha256, "")
    assert shared.cell == replace(cell, lock_sha256=Pseudonyms(SALT).sha256(cell.lock_sha256))


def test_a_repeat_that_failed_stays_where_it_is(tmp_path: Path) -> None:
    run = contribution(tmp_path / "run", forge=lambda parcels: [replace(parcels[0], code=1), *parcels[1:]])
    bundle = share.bundle_of(run, SALT)
    assert ([cell.repeats for cell in bundle.facts.planned], bundle.left_out) == ([(2, 3)], 1)
    none = contribution(tmp_path / "none", forge=lambda parcels: [replace(one, code=1) for one in parcels])
    with pytest.raises(share.ShareError, match="no repeat ended well in an image of the catalog"):
        share.bundle_of(none, SALT)


def test_a_person_sees_what_is_in_it_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(share.getpass, "getuser", lambda: "torch")
    run, bundle = contribution(tmp_path / "run"), tmp_path / "bundle.tar.gz"
    words = ["share", str(run), "-o", str(bundle)]
    asked = CliRunner().invoke(app, words)
    assert (asked.exit_code, bundle.exists()) == (2, False)
    assert "nobody can answer here" in asked.stderr
    written = CliRunner().invoke(app, [*words, "--yes"])
    assert written.exit_code == 0, written.stderr
    assert written.stdout.split() == [str(bundle)]
    for sentence in (
        "1 cell, 3 repeats",
        "NVIDIA A100-SXM4-40GB, driver 580.82.07",
        "share.salt",
        "it holds the word 'torch'",
    ):
        assert sentence in written.stderr
    salt = tmp_path / "data" / "dlbench" / "share.salt"
    assert salt.stat().st_mode & 0o077 == 0
    assert salt.read_bytes() not in everything_in(bundle)


def test_what_every_index_would_refuse_is_said_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    few, fine = contribution(tmp_path / "few", repeats=1), contribution(tmp_path / "fine")
    said = CliRunner().invoke(app, ["share", str(few), "-o", str(tmp_path / "few.tar.gz"), "--yes"]).stderr
    assert "an index of references would refuse" in said
    assert "1 repeat with enough windows; a reference needs 3" in said
    good = CliRunner().invoke(app, ["share", str(fine), "-o", str(tmp_path / "fine.tar.gz"), "--yes"]).stderr
    assert "would refuse" not in good


def test_a_person_who_says_no_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("runner.cli.reference._can_answer", lambda: True)
    run, bundle = contribution(tmp_path / "run"), tmp_path / "bundle.tar.gz"
    for answer, wrote in (("n\n", False), ("y\n", True)):
        result = CliRunner().invoke(app, ["share", str(run), "-o", str(bundle)], input=answer)
        assert (result.exit_code == 0, bundle.exists()) == (wrote, wrote), result.stderr


def test_a_collection_gets_a_file_for_each_device_image_and_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    cells = [cell_of(MODELS[2]), cell_of(MODELS[2], "host-torch-2.13.0"), cell_of(MODELS[2], precision="tf32")]
    run, collection = contribution(tmp_path / "run", cells=cells), tmp_path / "collection"
    assert CliRunner().invoke(app, ["share", str(run), "-o", f"{collection}/", "--yes"]).exit_code == 0
    paths = list(derived_rows.bundles_in(collection))
    folders = [path.relative_to(collection).parent.as_posix() for path in paths]
    assert folders == ["a100-sxm4-40gb/host-torch-2.13.0/gru-imdb", "a100-sxm4-40gb/torch-2.9.1-cu128/gru-imdb"]
    for path in paths:
        bundle = archive.read(path)
        assert derived_rows.place_of(bundle.facts, bundle.sha256) == derived_rows.PurePosixPath(
            path.relative_to(collection).as_posix()
        )  # type: ignore[arg-type]


def test_a_parcel_of_another_gpu_than_the_facts_name_is_no_part_of_the_run(tmp_path: Path) -> None:
    bundle = share.bundle_of(contribution(tmp_path / "run"), SALT)
    facts = json.loads(bundle.files["facts.json"])
    facts["gpus"][0]["uuid"] = uuid_of("another")
    path = write(tmp_path / "bundle.tar.gz", packed({**bundle.files, "facts.json": json.dumps(facts).encode()}))
    with pytest.raises(ArchiveError, match="it was measured on a GPU that facts.json does not name"):
        import_archive(archive.read(path), tmp_path / "runs")


def test_a_shared_run_tells_how_its_cpus_were_set(tmp_path: Path) -> None:
    run = contribution(tmp_path / "run")
    manifest = store.RunStore(run).manifest()
    power = {"cpu_governor": "powersave", "cpu_energy_preference": "power", "cpu_turbo": "off"}
    store.RunStore(run).write_manifest(manifest | {"host": manifest["host"] | power})
    path = write(tmp_path / "bundle.tar.gz", share.bundle_of(run, SALT).content)
    assert import_archive(archive.read(path), tmp_path / "runs").run.manifest()["host"].items() >= power.items()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": "node17"}, "machine: "),
        ({"planned": []}, "planned: "),
        ({"run": 2}, "run: "),
        ({"host": "node17"}, "host: there is no such field"),
        ({"kernel": "6.1\u202e"}, "kernel|cannot be shown"),
        ({"machine_cpus": 10**30}, "too large"),
    ],
)
def test_facts_that_no_runner_writes_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    bundle = share.bundle_of(contribution(tmp_path / "run"), SALT)
    facts = json.loads(bundle.files["facts.json"]) | change
    path = write(tmp_path / "bundle.tar.gz", packed({**bundle.files, "facts.json": json.dumps(facts).encode()}))
    with pytest.raises(ArchiveError, match=words):
        archive.read(path)


def test_an_edited_tape_fails_where_it_is_imported_as_where_it_was_measured(tmp_path: Path) -> None:
    def halved(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [event | {"seconds": event["seconds"] / 2} if event["event"] == "sample" else event for event in events]

    bundle = share.bundle_of(contribution(tmp_path / "run"), SALT)
    files = dict(bundle.files)
    for name in [name for name in files if name.endswith(".parcel")]:
        (parcel,) = retold(halved)([share.decode(files[name], name)])
        files[name] = share.encode(parcel)
    imported = import_archive(archive.read(write(tmp_path / "bundle.tar.gz", packed(files))), tmp_path / "runs")
    assert {each.status for each in imported.outcomes} == {"failed"}
