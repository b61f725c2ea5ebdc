"""An archive comes from another machine: whatever it holds, the answer is a sentence, and nothing is left behind."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import identity
from runner.cli.import_ import lines
from runner.cli.main import app
from runner.kit import archive as archives
from runner.kit.archive import ArchiveError, PlannedStep, read
from runner.kit.imported import Imported, Outcome, import_archive
from runner.kit.pack import packed
from runner.machine.devices import Gpu
from runner.results import store
from runner.results.cells import stored_cells
from runner.results.parcel import decode
from runner.results.rows import by_repeat, rows_of
from tests.unit.runner.kit.conftest import RECORDED

FACTS: dict[str, Any] = {
    "kit": 1,
    "bench_sha256": "0" * 64,
    "device_kind": "cpu",
    "device_uuid": "",
    "packages": {"python": "3.11.7", "path": "/usr/bin/python3", "installed": ["torch==2.13.0"]},
    "created": "2026-11-22T10:00:00+00:00",
    "python": "/usr/bin/python3",
    "frameworks": [{"framework": "torch", "version": "2.13.0+cpu", "device_kinds": ["cpu"]}],
    "gpus": [],
    "refused": [],
    "cpu": {"model": "AMD EPYC", "cpus": [0, 1], "memory_bytes": 1, "memory_nodes": []},
    "kernel": "6",
    "planned": [{"kind": "cell", "framework": "torch", "workload": "gru-imdb", "precision": "fp32", "repeat": 1}],
    "left_out": [],
}
STEP: dict[str, Any] = {
    **FACTS["planned"][0],
    "code": 0,
    "out_of_memory": False,
    "ended_by": None,
    "started_unix": 1795223026.0,
    "wall_seconds": 20.0,
    "uuids": [],
    "xids": [],
    "lost": None,
    "fault": None,
    "row_seconds": 0.1,
    "users": {"proved": [], "reasons": {}, "foreign": []},
    "jit_cache_grew_bytes": None,
}
ROW = {"device": "cpu", "unix": 1795223027.0, "cpu_seconds": 1.0}
FOLDER = "steps/cell.torch.gru-imdb.fp32.r1"


def files(facts: Any = FACTS, step: Any = STEP, row: Any = ROW, output: bytes | None = None) -> dict[str, bytes]:
    stream = (RECORDED / "torch-2.13.0-cpu.gru-imdb.jsonl").read_bytes()
    return {
        "facts.json": json.dumps(facts).encode(),
        f"{FOLDER}/step.json": json.dumps(step).encode(),
        f"{FOLDER}/output": stream if output is None else output,
        f"{FOLDER}/telemetry.jsonl": json.dumps(row).encode(),
        f"{FOLDER}/log.txt": b"",
    }


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def header() -> tarfile.TarInfo:
    """The long name of a next member."""
    member = tarfile.TarInfo("././@LongLink")
    member.type = tarfile.GNUTYPE_LONGNAME
    return member


def sparse(name: str) -> tarfile.TarInfo:
    """A file of one byte that says that it has sixty million."""
    member = tarfile.TarInfo(name)
    member.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "60000000", "GNU.sparse.name": name}
    return member


def test_a_whole_archive_is_read_and_its_cell_is_ok(tmp_path: Path) -> None:
    archive = read(write(tmp_path / "kit.tar.gz", packed(files())))
    (outcome,) = import_archive(archive, tmp_path / "runs").outcomes
    assert outcome.status == "ok", outcome.reason


def test_a_cell_that_ran_other_code_than_the_kit_of_this_checkout_has_fails(tmp_path: Path) -> None:
    """What was recorded ran the bench of its day. Of a kit with another bench than this checkout no digest is known."""
    today = FACTS | {"bench_sha256": identity.source_digest()}
    archive = read(write(tmp_path / "kit.tar.gz", packed(files(facts=today))))
    (outcome,) = import_archive(archive, tmp_path / "runs").outcomes
    assert outcome.status == "failed"
    assert "it ran a bench with the digest" in outcome.reason


def test_an_imported_cell_is_kept_as_a_parcel_and_has_the_rows_of_it(tmp_path: Path) -> None:
    archive = read(write(tmp_path / "kit.tar.gz", packed(files())))
    run = import_archive(archive, tmp_path / "runs").run
    (path,) = (run.folder / "repeats").iterdir()
    parcel = decode(path.read_bytes(), path.name)
    assert b"".join(piece for _, piece in parcel.tape) == files()[f"{FOLDER}/output"]
    (row,) = store.read([run.folder], "cells").to_pylist()
    assert (row["cell_id"], row["engine"], row["wall_seconds"]) == (parcel.cell_id, "host", parcel.wall_seconds)


def test_more_telemetry_than_a_parcel_holds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_TELEMETRY_BYTES", 10)
    with pytest.raises(ArchiveError, match=r"telemetry\.jsonl has more than 10 bytes"):
        read(write(tmp_path / "kit.tar.gz", packed(files())))


@pytest.mark.timeout(20)
def test_what_is_no_file_is_no_archive_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(ArchiveError, match=f"{path} cannot be read .it is no file.; name the archive of a kit"):
            read(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[: len(content) // 2], "it is damaged"),
        (lambda content: b"not a tar", "it is damaged"),
        (lambda content: b"", "it has no manifest.json|it is damaged"),
        (lambda content: gzip.compress(b"\0" * 1024), "it has no manifest.json|it is damaged"),
        (lambda content: tar((tarfile.TarInfo("../evil"), b"x")), "'../evil' is not a file of a kit's archive"),
        (lambda content: tar((tarfile.TarInfo("/etc/cron.d/evil"), b"x")), "is not a file of a kit's archive"),
        (lambda content: tar((link("facts.json", tarfile.SYMTYPE), b"")), "'facts.json' is not a plain file"),
        (lambda content: tar((link("facts.json", tarfile.LNKTYPE), b"")), "'facts.json' is not a plain file"),
        (lambda content: tar((link("facts.json", tarfile.FIFOTYPE), b"")), "'facts.json' is not a plain file"),
        (lambda content: tar((sparse("facts.json"), b"1")), "'facts.json' is not a plain file"),
        (lambda content: tar(*[(tarfile.TarInfo("facts.json"), b"1")] * 2), "is there twice"),
        (lambda content: tar((tarfile.TarInfo("facts.json"), b"{}")), "it has no manifest.json"),
        (lambda content: tar(*[(header(), b"a" * 8)] * 5000), "it is damaged, or no .tar.gz .maximum recursion"),
        (lambda content: tar((tarfile.TarInfo("manifest.json"), b"[" * 100_000)), "manifest.json is not JSON"),
        (lambda content: tar((tarfile.TarInfo("manifest.json"), b'{"kit": 2, "files": {}}')), "kit is not 1"),
    ],
)
def test_a_damaged_or_hostile_archive_is_refused(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    path = write(tmp_path / "kit.tar.gz", change(packed(files())))
    with pytest.raises(ArchiveError, match=words) as raised:
        read(path)
    assert str(raised.value).startswith(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["kit.tar.gz"]


def test_a_step_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    whole = files()
    again = {name.replace("r1", "r2"): content for name, content in whole.items() if name.startswith(FOLDER)}
    with pytest.raises(ArchiveError, match="it holds a step twice"):
        read(write(tmp_path / "kit.tar.gz", packed(whole | again)))


def test_a_file_that_is_not_what_the_manifest_says_is_refused(tmp_path: Path) -> None:
    members = []
    with tarfile.open(fileobj=io.BytesIO(packed(files())), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file
            members.append((member, file.read().replace(b'"code": 0', b'"code": 1')))
    with pytest.raises(ArchiveError, match=r"step.json' is not what manifest.json says"):
        read(write(tmp_path / "kit.tar.gz", tar(*members)))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 100_000)
    bomb = tarfile.TarInfo("facts.json")
    with pytest.raises(ArchiveError, match="it unpacks to more than 100000 bytes"):
        read(write(tmp_path / "kit.tar.gz", tar((bomb, b"\0" * 200_000))))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (files(facts=FACTS | {"kernel": 5}), "facts.json: kernel: input should be a valid string"),
        (
            files(facts=FACTS | {"cpu": {**FACTS["cpu"], "memory_bytes": -5}}),
            "facts.json: cpu.memory_bytes: input should be greater than or equal to 0, not -5",
        ),
        (files(facts=FACTS | {"surprise": 5}), "facts.json: surprise: there is no such field"),
        (files(facts=FACTS | {"created": "yesterday"}), "facts.json: created"),
        (files(facts=FACTS | {"created": "2026-99-99T00:00:00+00:00"}), "facts.json: created"),
        (
            files(facts=FACTS | {"packages": {"python": "3.11.7", "path": "x" * 17_000_000, "installed": []}}),
            "too large",
        ),
        (files(facts=[]), "facts.json"),
        (files(facts=FACTS | {"cpu": FACTS["cpu"] | {"memory_bytes": 10**400}}), "the number 1000.* is too large"),
        (files(facts=FACTS | {"cpu": FACTS["cpu"] | {"model": "\ud800"}}), "facts.json is not JSON .*surrogates"),
        (files(step=STEP | {"wall_seconds": float("inf")}), "step.json is not JSON .Infinity is no number"),
        (files(row=ROW | {"device": "GPU-of-nobody"}), "its telemetry is of 'GPU-of-nobody'"),
        (files(step=STEP | {"code": "0"} | {"xids": [["GPU", -1]]}), "step.json: xids"),
        (
            files(step=STEP | {"users": {"proved": [], "reasons": {}, "foreign": [{"pid": "me"}]}}),
            "step.json: users.foreign",
        ),
        (files(step=STEP | {"uuids": ["GPU-1"]}), "a step was given another device"),
        (files(step=STEP | {"started_unix": 1e300}), "step.json: started_unix"),
        (files(step=STEP | {"workload": "../../etc"}), "step.json: workload"),
        (files(step=STEP | {"workload": "cnn-cifar10"}), "it holds a step that was not planned"),
        (files(row={"device": "cpu"}), "a row that is no sample of a device"),
        (files(row=ROW | {"evil": 1}), "a row that is no sample of a device"),
        (files(row=ROW | {"power_watts": "1"}), "telemetry.jsonl: input should be a valid number"),
        ({k: v for k, v in files().items() if not k.endswith("log.txt")}, "has no log.txt"),
    ],
)
def test_a_field_that_no_kit_writes_is_named(tmp_path: Path, changed: dict[str, bytes], words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        read(write(tmp_path / "kit.tar.gz", packed(changed)))


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"", "it never printed its environment|before its `end`"),
        (b'{"event":"evil"}\n', "its output broke the protocol"),
        (b"\xff" * 100 + b"\n", "its output broke the protocol"),
        (b"x" * 2_000_000, "its output broke the protocol"),
    ],
)
def test_an_imported_cell_is_judged_as_a_measured_one(tmp_path: Path, output: bytes, words: str) -> None:
    archive = read(write(tmp_path / "kit.tar.gz", packed(files(output=output))))
    (outcome,) = import_archive(archive, tmp_path / "runs").outcomes
    assert outcome.status == "failed"
    assert any(word in outcome.reason for word in words.split("|")), outcome.reason


def test_a_cell_that_measured_another_framework_or_device_fails(tmp_path: Path) -> None:
    stream = (RECORDED / "torch-2.13.0-cpu.gru-imdb.jsonl").read_bytes()
    other = stream.replace(b'"kind":"cpu"', b'"kind":"cuda"')
    assert other != stream
    archive = read(write(tmp_path / "kit.tar.gz", packed(files(output=other))))
    (outcome,) = import_archive(archive, tmp_path / "runs").outcomes
    assert "where cpu was asked for" in outcome.reason


def test_a_gpu_cell_is_proved_by_what_the_kit_saw(tmp_path: Path) -> None:
    """The framework says that it ran on the GPU. NVML's list of processes decides whether that is proved."""
    uuid = "GPU-11111111-1111-1111-1111-111111111111"
    gpu = Gpu(0, uuid, "NVIDIA H200", "9.0", 10**11, "580.65.06", (0, 1))
    facts = FACTS | {"device_kind": "cuda", "device_uuid": uuid, "gpus": [asdict(gpu)]}
    stream = (RECORDED / "torch-2.13.0-cpu.gru-imdb.jsonl").read_bytes()
    output = stream.replace(b'"kind":"cpu"', b'"kind":"cuda"').replace(b'"uuids":[]', b'"uuids":["%s"]' % uuid.encode())
    for number, proved in enumerate(([uuid], [])):
        users = {
            "proved": proved,
            "reasons": {},
            "foreign": [{"pid": 7, "program": "x", "user": "", "memory_bytes": 1}],
        }
        step = STEP | {"uuids": [uuid], "users": users, "jit_cache_grew_bytes": 5}
        content = packed(files(facts=facts, step=step, row=ROW | {"device": uuid}, output=output))
        imported = import_archive(read(write(tmp_path / f"{number}.tar.gz", content)), tmp_path / f"runs-{number}")
        assert imported.outcomes[0].status == "ok", imported.outcomes
        (row,) = store.read([imported.run.folder], "cells").to_pandas().to_dict("records")
        assert row["device_proof"].startswith("proved by NVML" if proved else "not proved")
        assert list(row["foreign_processes"]) == ["x (process 7, 0.0 GB)"]
        assert (row["device_model"], row["jit_cache_grew_bytes"]) == ("NVIDIA H200", 5)


def two_repeats(*repeats: int) -> bytes:
    """An archive of a measurement that was to have two repeats, with these."""
    first = FACTS["planned"][0]
    facts = FACTS | {"planned": [first, first | {"repeat": 2}]}
    content = {"facts.json": json.dumps(facts).encode()}
    for repeat in repeats:
        part = files(facts=facts, step=STEP | {"repeat": repeat})
        content |= {name.replace("r1/", f"r{repeat}/"): data for name, data in part.items()}
    return packed(content)


def test_the_same_files_are_the_same_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = packed(files())
    monkeypatch.setattr("time.time", lambda: 1.0)
    assert packed(files()) == before


def test_a_measurement_is_one_run_however_often_it_was_packed(tmp_path: Path) -> None:
    short, whole = (write(tmp_path / name, two_repeats(*r)) for name, r in (("1.tar.gz", (1,)), ("2.tar.gz", (1, 2))))
    first = import_archive(read(short), tmp_path / "runs")
    # Of an import that was killed.
    (tmp_path / "runs" / f".{first.run.run_id}.part" / "cells").mkdir(parents=True)
    second = import_archive(read(whole), tmp_path / "runs")
    assert first.run.folder == second.run.folder
    assert sorted(store.read([second.run.folder], "cells").to_pandas().repeat) == [1, 2]
    for path in (short, whole):
        with pytest.raises(ArchiveError, match="is imported already, as .* with 2 steps"):
            import_archive(read(path), tmp_path / "runs")
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == [second.run.run_id]


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_what_an_import_kept_is_not_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path / "kit.tar.gz", packed(files()))
    kept = import_archive(read(path), tmp_path / "runs").run.folder / "kit.json"
    kept.unlink()
    os.mkfifo(kept)
    with pytest.raises(ArchiveError, match="is there already, and is another run"):
        import_archive(read(path), tmp_path / "runs")


def test_a_place_where_no_run_can_be_stored_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "kit.tar.gz", packed(files()))
    with pytest.raises(ArchiveError, match=r"no run can be stored there \(Not a directory\); check --out"):
        import_archive(read(path), path)


def test_a_reference_is_saved_of_the_repeats_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLBENCH_REFERENCES", str(tmp_path / "references"))
    folder = import_archive(read(write(tmp_path / "kit.tar.gz", two_repeats(1))), tmp_path / "runs").run.folder
    saved = CliRunner().invoke(app, ["reference", "save", str(folder), "--name", "there", "--noisy"])
    assert saved.exit_code == 0, saved.output


def test_a_cell_has_the_repeats_that_were_measured_and_one_without_any_did_not_end(tmp_path: Path) -> None:
    for number, (repeats, status, planned) in enumerate((((1,), "ok", 1), ((), "missing", 2))):
        archive = read(write(tmp_path / f"{number}.tar.gz", two_repeats(*repeats)))
        run = import_archive(archive, tmp_path / f"runs-{number}").run
        manifest, tables = run.manifest(), [store.read([run.folder], table) for table in ("cells", "samples")]
        ((cell, _),) = stored_cells([manifest], rows_of(tables[0]), by_repeat(tables[1]))
        assert (cell.status, cell.planned) == (status, planned)
        assert "--resume" not in cell.reason
    assert cell.reason == ("it is not yet run; run kit.py again on the machine that measured it, and import that")


def test_a_step_that_cannot_be_read_is_left_out_with_a_sentence_and_the_others_are_imported(tmp_path: Path) -> None:
    with_two = json.loads(json.dumps(FACTS))
    with_two["planned"].append(FACTS["planned"][0] | {"repeat": 2})
    bad = files(facts=with_two, step=STEP | {"repeat": 2, "xids": [["GPU", 1]] * 2000})
    content = files(facts=with_two) | {name.replace("r1/", "r2/"): data for name, data in bad.items()}
    path = write(tmp_path / "kit.tar.gz", packed(content))
    said = CliRunner().invoke(app, ["import", str(path), "--out", str(tmp_path / "runs")])
    assert said.exit_code == 0, said.stderr
    assert "1 × cell ok; 1 steps were not done; run kit.py again on the machine that measured it" in said.stderr
    assert f"skipped {FOLDER.replace('r1', 'r2')}" in said.stderr
    assert "xids: tuple should have at most 1000 items" in said.stderr


def test_the_telemetry_of_all_steps_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_ROWS", 1)
    content = files(facts=FACTS | {"planned": [FACTS["planned"][0] | {"repeat": number} for number in (1, 2)]})
    content |= {
        name.replace("r1/", "r2/"): data
        for name, data in files(step=STEP | {"repeat": 2}).items()
        if name.startswith(FOLDER)
    }
    content = {name: data + b"\n" if name.endswith("telemetry.jsonl") else data for name, data in content.items()}
    archive = read(write(tmp_path / "kit.tar.gz", packed(content)))
    assert [step.record.repeat for step in archive.steps] == [1]
    assert "the telemetry of all steps has more than 1 rows" in archive.dropped[0]


def test_a_small_archive_does_not_cost_what_a_large_one_does(tmp_path: Path) -> None:
    """Equal rows pack to nothing: an archive of 400 kB took 1.8 million of them and a gigabyte."""
    facts = json.loads(json.dumps(FACTS))
    facts["planned"] = [FACTS["planned"][0] | {"repeat": number} for number in range(1, 10)]
    rows = (json.dumps(ROW).encode() + b"\n") * 25_000
    content = {"facts.json": json.dumps(facts).encode()}
    for number in range(1, 10):
        step = files(step=STEP | {"repeat": number})
        step[f"{FOLDER}/telemetry.jsonl"] = rows
        content |= {name.replace("r1/", f"r{number}/"): data for name, data in step.items() if name.startswith(FOLDER)}
    path = write(tmp_path / "kit.tar.gz", packed(content))
    begin = time.process_time()
    archive = read(path)
    assert time.process_time() - begin < 10
    assert [step.record.repeat for step in archive.steps] == [1]
    assert "rows, and an archive of this size holds no more" in archive.dropped[0]
    content[f"{FOLDER}/output"] = b"\0" * (40 << 20)
    with pytest.raises(ArchiveError, match=r"it unpacks to more than \d+ bytes, and no kit's archive of its size does"):
        read(write(tmp_path / "large.tar.gz", packed(content)))


def test_a_message_with_line_breaks_stays_in_its_line() -> None:
    step = PlannedStep.model_validate(FACTS["planned"][0])
    run = store.RunStore(Path("run"))
    said = lines(Imported(run, (Outcome(step, "failed", "x\nok       forged\rtoo"),), 0, {}, ()))
    assert said[1] == "failed   cell torch gru-imdb fp32: x⏎ok       forged⏎too"
    assert not [line for line in said if "\n" in line]


def test_an_unknown_workload_is_refused_and_no_run_is_left(tmp_path: Path) -> None:
    planned = [FACTS["planned"][0] | {"workload": "of-the-future"}]
    changed = files(facts=FACTS | {"planned": planned}, step=STEP | {"workload": "of-the-future"})
    archive = read(write(tmp_path / "kit.tar.gz", packed(changed)))
    with pytest.raises(ArchiveError, match="this release does not know torch of-the-future fp32"):
        import_archive(archive, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_what_no_command_would_read_is_not_imported_and_the_archive_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "kit.tar.gz", packed(files(row=ROW | {"unix": -1e18})))
    said = CliRunner().invoke(app, ["import", str(path), "--out", str(tmp_path / "runs")])
    assert said.exit_code == 2
    assert f"{path} holds what no command reads (telemetry/" in said.stderr
    assert "; nothing of it is imported" in said.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_an_archive_of_another_age_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "kit.tar.gz", packed(files(facts=FACTS | {"created": "0001-01-01T00:00:00+00:00"})))
    with pytest.raises(ArchiveError, match="created"):
        read(path)


def test_a_ratio_that_is_infinite_is_none_and_what_is_kept_is_json(tmp_path: Path) -> None:
    step = PlannedStep.model_validate(FACTS["planned"][0] | {"kind": "events"}).model_dump()
    windows = [{"steps": 1, "clock_seconds": 1.0, "event_seconds": seconds} for seconds in (5e-324, 0.5)]
    content = files(FACTS | {"planned": [step]}, STEP | step, output=json.dumps({"windows": windows}).encode())
    content = {name.replace("/cell.", "/events."): data for name, data in content.items()}
    imported = import_archive(read(write(tmp_path / "kit.tar.gz", packed(content))), tmp_path / "runs")
    assert imported.events == (("torch gru-imdb", 1.0),)
    kept = (imported.run.folder / "kit.json").read_text()
    assert json.loads(kept, parse_constant=pytest.fail)["events"] == [["torch gru-imdb", 1.0]]
