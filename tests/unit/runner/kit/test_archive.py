"""An archive comes from another machine: whatever it holds, the answer is a sentence, and nothing is left behind."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import identity
from runner.cli.main import app
from runner.cli.reference import lines
from runner.kit import archive as archives
from runner.kit import imported as importing
from runner.kit.archive import ArchiveError, read
from runner.kit.doing import outcome
from runner.kit.imported import Imported, StepOutcome, import_archive
from runner.kit.results_folder import packed
from runner.machine.devices import Gpu
from runner.results import store
from runner.results.cells import stored_cells
from runner.results.parcel import Parcel, ParcelError, decode, encode, unpacked_bytes
from runner.results.rows import by_repeat, rows_of
from tests.fixtures.archives import AGAIN, CELL, EVENTS, FACTS, NAME, PARCEL, ROW, STEP, files, steps_on


def printed(parcel: Parcel) -> bytes:
    return b"".join(piece for _, piece in parcel.tape)


def planned(**changed: Any) -> dict[str, Any]:
    """Facts with one planned step, whose cell is changed."""
    return FACTS | {"planned": [asdict(STEP) | {"cell": asdict(CELL) | changed}]}


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


OLD = tarfile.TarInfo("manifest.json"), b'{"kit": 2, "files": {}}'


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


def imported(tmp_path: Path, content: dict[str, bytes]) -> Imported:
    return import_archive(read(write(tmp_path / "kit.tar.gz", packed(content))), tmp_path / "runs")


def test_the_cell_of_a_whole_archive_is_ok_and_is_kept_as_a_parcel_with_its_rows(tmp_path: Path) -> None:
    made = imported(tmp_path, files())
    (outcome,) = made.outcomes
    assert outcome.status == "ok", outcome.reason
    (path,) = (made.run.folder / "repeats").iterdir()
    parcel = decode(path.read_bytes(), path.name)
    assert printed(parcel) == printed(PARCEL)
    (row,) = store.read([made.run.folder], "cells").to_pylist()
    assert (row["cell_id"], row["engine"], row["wall_seconds"]) == (parcel.cell_id, "host", parcel.wall_seconds)


def test_a_cell_that_ran_other_code_than_the_kit_of_this_checkout_has_fails(tmp_path: Path) -> None:
    """What was recorded ran the bench of its day. Of a kit with another bench than this checkout no digest is known."""
    (outcome,) = imported(tmp_path, files(FACTS | {"bench_sha256": identity.source_digest()})).outcomes
    assert outcome.status == "failed"
    assert "it ran a bench with the digest" in outcome.reason


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
        (lambda content: tar(*[(tarfile.TarInfo("facts.json"), b"1")] * 2), "it has two files 'facts.json'"),
        (lambda content: tar((tarfile.TarInfo("facts.json"), b"{}")), "it has no manifest.json"),
        (lambda content: tar(*[(header(), b"a" * 8)] * 5000), "or it is no .tar.gz file .maximum recursion"),
        (lambda content: tar((tarfile.TarInfo("manifest.json"), b"[" * 100_000)), "manifest.json is not JSON"),
        # The archives of kits of before.
        (lambda content: tar(OLD), "kit is not 4; import it with the release that the kit was made with$"),
        (
            lambda content: tar(OLD, (tarfile.TarInfo("steps/cell.torch/step.json"), b"")),
            "kit is not 4; import it with",
        ),
        (lambda content: tar(OLD, (tarfile.TarInfo("steps/check.torch.json"), b"")), "kit is not 4; import it with"),
    ],
)
def test_a_damaged_or_hostile_archive_is_refused(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    path = write(tmp_path / "kit.tar.gz", change(packed(files())))
    with pytest.raises(ArchiveError, match=words) as raised:
        read(path)
    assert str(raised.value).startswith(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["kit.tar.gz"]


def test_a_file_that_is_not_what_the_manifest_says_is_refused(tmp_path: Path) -> None:
    members = []
    with tarfile.open(fileobj=io.BytesIO(packed(files())), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file
            members.append((member, file.read().replace(b'"kernel": "6"', b'"kernel": "7"')))
    with pytest.raises(ArchiveError, match=r"'facts.json' has another digest than manifest.json names"):
        read(write(tmp_path / "kit.tar.gz", tar(*members)))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 100_000)
    bomb = tarfile.TarInfo("facts.json")
    with pytest.raises(ArchiveError, match="it unpacks to more than 100000 bytes"):
        read(write(tmp_path / "kit.tar.gz", tar((bomb, b"\0" * 200_000))))
    monkeypatch.undo()
    with pytest.raises(ArchiveError, match=r"it unpacks to more than \d+ bytes, and no kit makes such an archive"):
        read(write(tmp_path / "large.tar.gz", packed(files(parcel=b"\0" * (40 << 20)))))


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
        (files(facts=FACTS | {"created": "0001-01-01T00:00:00+00:00"}), "facts.json: created"),
        (
            files(facts=FACTS | {"packages": {"python": "3.11.7", "path": "x" * 17_000_000, "installed": []}}),
            r"'facts.json' has more than \d+ bytes",
        ),
        (
            files(facts=FACTS | {"options": {"x": json.loads("[" * 300 + "]" * 300)}}),
            "options: x has neither a value nor",
        ),
        (files(facts=FACTS | {"options": {"x": [{}]}}), "options: x has neither a value nor a short list"),
        (files(facts=FACTS | {"options": {"x": [1] * 1001}}), "options: x has neither a value nor a short list"),
        (files(facts=FACTS | {"options": dict.fromkeys(map(str, range(101)), 1)}), "facts.json: options"),
        (files(facts=FACTS | {"options": {"x": [[]] * 450_000}}), "facts.json has more than 400000 values"),
        (files(facts=FACTS | {"options": {"x": [[]] * 4_000_000}}), r"'facts.json' has more than \d+ bytes"),
        (
            files(facts=planned(workload="of-the-future"), name=NAME.replace("gru-imdb", "of-the-future")),
            "this release does not know torch of-the-future fp32",
        ),
        (files(facts=planned(batch=1)), "this release does not know another preset, seed or batch"),
        (files(facts=planned(device_model="Xeon")), "a cell of another interpreter or device than facts.json names"),
        (files(facts=planned(lock_sha256="0" * 64)), "a cell of another interpreter or device than facts.json names"),
        (files(facts=planned(image="host-\x1b[31m")), "facts.json: planned: a text that cannot be shown as it is"),
        (files(facts=planned(image="torch-2.13.0-cpu")), "a cell of another interpreter or device than facts.json"),
        (files(facts=FACTS | {"device_uuid": "GPU-1"}), "a device_uuid that is none of its GPUs"),
        (files(facts=FACTS | {"planned": [asdict(STEP) | {"kind": "evil"}]}), "facts.json: planned.*kind"),
        (files(facts=[]), "facts.json"),
        (files(facts=FACTS | {"cpu": FACTS["cpu"] | {"memory_bytes": 10**400}}), "the number 1000.* is too large"),
        (files(facts=FACTS | {"cpu": FACTS["cpu"] | {"model": "\ud800"}}), "facts.json is not JSON .*surrogates"),
        (
            files(name=NAME.replace("gru-imdb", "cnn-cifar10")),
            "cnn-cifar10.fp32.r1.parcel is of a step that was not planned",
        ),
        (
            files(parcel=b""),
            "cell.torch.gru-imdb.fp32.r1: .* is no parcel: it is damaged; copy it again from the machine",
        ),
        (files(parcel=gzip.compress(encode(PARCEL))), "is no parcel"),
        (files(parcel=replace(PARCEL, row_seconds=-1.0)), "row_seconds: it must be a number"),
        (files(parcel=replace(PARCEL, repeat=2)), "it is the parcel of another cell"),
        (files(parcel=replace(PARCEL, cell_id="0" * 16)), "it is the parcel of another cell"),
        (
            files(parcel=replace(PARCEL, engine="docker")),
            "it was measured in another interpreter than facts.json names",
        ),
        (files(parcel=replace(PARCEL, image_digest="sha256:1")), "it was measured in another interpreter"),
    ],
)
def test_a_field_that_no_kit_writes_is_named(tmp_path: Path, changed: dict[str, bytes], words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        imported(tmp_path, changed)
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(PARCEL, tape=()), "its `end`"),
        (replace(PARCEL, tape=((101.0, b"x" * 2_000_000),)), "its output broke the protocol"),
        (
            replace(
                PARCEL, tape=tuple((at, each.replace(b'"kind":"cpu"', b'"kind":"cuda"')) for at, each in PARCEL.tape)
            ),
            "where cpu was asked for",
        ),
        (replace(PARCEL, uuids=("GPU-1",)), "its parcel names other devices"),
        (replace(PARCEL, telemetry=(ROW | {"device": "GPU-of-nobody"},)), "its telemetry is of 'GPU-of-nobody'"),
        (replace(PARCEL, tape=tuple((None, each) for _, each in PARCEL.tape)), "nobody noted when its output came"),
        (replace(PARCEL, began=110.0), "its process is older than the call that started it"),
        (
            Parcel(CELL.id, 1, "host", ended_by=("gpu-lost", "every GPU has fallen off the bus")),
            "every GPU has fallen off the bus",
        ),
    ],
)
def test_an_imported_cell_is_judged_as_a_measured_one(tmp_path: Path, changed: Parcel, words: str) -> None:
    (outcome,) = imported(tmp_path, files(parcel=changed)).outcomes
    assert outcome.status == "failed"
    assert words in outcome.reason


def test_a_gpu_cell_is_proved_by_what_the_kit_saw(tmp_path: Path) -> None:
    """The framework says that it ran on the GPU. NVML's list of processes decides whether that is proved."""
    uuid = "GPU-11111111-1111-1111-1111-111111111111"
    gpu = Gpu(0, uuid, "NVIDIA H200", "9.0", 10**11, "580.65.06", (0, 1))
    step = next(each for each in steps_on(gpu) if each.kind == "cell")
    facts = FACTS | {"device_uuid": uuid, "gpus": [asdict(gpu)], "planned": [asdict(step)]}
    told = (b'"kind":"cpu"', b'"kind":"cuda"'), (b'"uuids":[]', b'"uuids":["%s"]' % uuid.encode())
    output = printed(PARCEL)
    for old, new in told:
        output = output.replace(old, new)
    times = (at for at, _ in PARCEL.tape)
    parcel = replace(
        PARCEL,
        cell_id=step.cell.id,
        uuids=(uuid,),
        boards=(uuid,),
        jit_cache_grew_bytes=5,
        foreign=("x (process 7, 0.0 GB)",),
        telemetry=(ROW | {"device": uuid},),
        tape=tuple(zip(times, output.splitlines(keepends=True), strict=True)),
    )
    for number, proved in enumerate(((uuid,), ())):
        (tmp_path / str(number)).mkdir()
        made = imported(tmp_path / str(number), files(facts, replace(parcel, proved=proved)))
        assert made.outcomes[0].status == "ok", made.outcomes
        (row,) = store.read([made.run.folder], "cells").to_pandas().to_dict("records")
        assert row["device_proof"].startswith("proved by NVML" if proved else "not proved")
        assert list(row["foreign_processes"]) == ["x (process 7, 0.0 GB)"]
        assert (row["device_model"], row["jit_cache_grew_bytes"]) == ("NVIDIA H200", 5)


def test_a_run_that_came_from_elsewhere_has_the_settings_of_the_cpus_that_measured_it(tmp_path: Path) -> None:
    """Those of the machine that imports it would explain its times."""
    own = {"governor": "performance", "energy_preference": "power", "turbo": "off", "machine_cpus": 64}
    told = {"cpu_governor": "performance", "cpu_energy_preference": "power", "cpu_turbo": "off", "machine_cpus": 64}
    for name, cpu, expected in (("new", own, told), ("older", {}, {})):
        (tmp_path / name).mkdir()
        made = imported(tmp_path / name, files(FACTS | {"cpu": FACTS["cpu"] | cpu}))
        host = made.run.manifest()["host"]
        assert {fact: host[fact] for fact in told if fact in host} == expected


def two_repeats(*repeats: int) -> dict[str, bytes]:
    """An archive of a measurement that was to have two repeats, with these."""
    facts = FACTS | {"planned": [asdict(STEP), asdict(AGAIN)]}
    content = {"facts.json": json.dumps(facts).encode()}
    return content | {NAME.replace("r1", f"r{n}"): encode(replace(PARCEL, repeat=n)) for n in repeats}


def test_the_same_files_are_the_same_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = packed(files())
    monkeypatch.setattr("time.time", lambda: 1.0)
    assert packed(files()) == before


def test_a_measurement_is_one_run_however_often_it_was_packed(tmp_path: Path) -> None:
    short, whole = (write(tmp_path / f"{r[-1]}.gz", packed(two_repeats(*r))) for r in ((1,), (1, 2)))
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
    kept = imported(tmp_path, files()).run.folder / "kit.json"
    kept.unlink()
    os.mkfifo(kept)
    with pytest.raises(ArchiveError, match="is there already, and is another run"):
        imported(tmp_path, files())


def test_a_place_where_no_run_can_be_stored_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "kit.tar.gz", packed(files()))
    with pytest.raises(ArchiveError, match=r"no run can be stored there \(Not a directory\); check --results"):
        import_archive(read(path), path)


def test_a_reference_is_saved_of_the_repeats_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLBENCH_REFERENCES", str(tmp_path / "references"))
    folder = imported(tmp_path, two_repeats(1)).run.folder
    saved = CliRunner().invoke(app, ["reference", "save", str(folder), "--name", "there", "--noisy"])
    assert saved.exit_code == 0, saved.output


def test_a_cell_has_the_repeats_that_were_measured_and_one_without_any_did_not_end(tmp_path: Path) -> None:
    for number, (repeats, status, planned) in enumerate((((1,), "ok", 1), ((), "missing", 2))):
        (tmp_path / str(number)).mkdir()
        run = imported(tmp_path / str(number), two_repeats(*repeats)).run
        manifest, tables = run.manifest(), [store.read([run.folder], table) for table in ("cells", "samples")]
        ((cell, _),) = stored_cells([manifest], rows_of(tables[0]), by_repeat(tables[1]))
        assert (cell.status, cell.planned) == (status, planned)
        assert "--resume" not in cell.reason
    assert cell.reason == ("it is not yet run; run kit.py again on the machine that measured it, and import that")


def test_a_step_that_cannot_be_read_is_left_out_with_a_sentence_and_the_others_are_imported(tmp_path: Path) -> None:
    bad = encode(replace(PARCEL, repeat=2, xids=(("GPU", 1),) * 2000))
    path = write(tmp_path / "kit.tar.gz", packed(two_repeats(1) | {NAME.replace("r1", "r2"): bad}))
    said = CliRunner().invoke(app, ["import", str(path), "--out", str(tmp_path / "runs")])
    assert said.exit_code == 0, said.stderr
    assert "1 × cell ok; 1 steps were not done; run kit.py again on the machine that measured it" in said.stderr
    assert "skipped cell.torch.gru-imdb.fp32.r2: " in said.stderr
    assert "xids: it must be a list of 1000 at most" in said.stderr


def test_a_message_with_line_breaks_stays_in_its_line() -> None:
    run = store.RunStore(Path("run"))
    said = lines(Imported(run, (StepOutcome(STEP, "failed", "x\nok       forged\rtoo"),), 0, {}, ()))
    assert said[1] == "failed   cell torch gru-imdb fp32: x⏎ok       forged⏎too"
    assert not [line for line in said if "\n" in line]


def test_a_time_that_no_clock_shows_is_not_imported_and_the_archive_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "kit.tar.gz", packed(files(parcel=replace(PARCEL, telemetry=(ROW | {"unix": -1e18},)))))
    said = CliRunner().invoke(app, ["import", str(path), "--out", str(tmp_path / "runs")])
    assert said.exit_code == 2
    assert str(path) in said.stderr
    assert "telemetry: input should be greater than or equal to 0" in said.stderr
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("of_facts", "of_parcel", "words"),
    [
        (
            {"created": "2099-01-01T00:00:00+00:00"},
            {},
            "it says that it was measured on 2099-01-01T00:00:00.00:00, which",
        ),
        ({}, {"started_unix": time.time() + 400 * 86_400.0}, "which is yet to come"),
    ],
    ids=["made in 2099", "begun in 400 days"],
)
def test_an_archive_of_a_day_that_is_yet_to_come_is_refused(
    tmp_path: Path, of_facts: dict[str, Any], of_parcel: dict[str, Any], words: str
) -> None:
    """It would be the newest run of a history for ever."""
    with pytest.raises(ArchiveError, match=words) as raised:
        imported(tmp_path, files(FACTS | of_facts, parcel=replace(PARCEL, **of_parcel)))
    assert "set the machine's clock, and measure again" in str(raised.value)
    assert list((tmp_path / "runs").glob("*")) == []


@pytest.mark.parametrize(
    ("output", "changed", "status", "reason"),
    [
        (
            '{"windows": [{"clock_seconds": 1.01, "event_seconds": 1}]}',
            {},
            "ok",
            "the clock is within 1 % of CUDA's events",
        ),
        ('{"windows": [{"clock_seconds": 1.01}]}', {}, "failed", "b"),
        ('{"windows": []}', {"code": 1}, "failed", "exit code 1: b"),
        pytest.param("[" * 100_000, {}, "failed", "b", id="deep"),
        ("[]", {"log": ""}, "failed", "it printed nothing"),
        ("", {"code": 1, "log": "bench.errors.Unsupported: no bf16"}, "refused", "no bf16"),
        ("", {"code": 1, "log": "bench.errors.NoDevice: cuInit says 999"}, "no-device", "cuInit says 999"),
        ("", {"code": 1, "ended_by": ("time-limit", "it hung")}, "failed", "it hung"),
    ],
)
def test_windows_are_what_their_parcel_shows(
    tmp_path: Path, output: str, changed: dict[str, Any], status: str, reason: str
) -> None:
    tape = ((1.0, output.encode()),) if output else ()
    windows = replace(PARCEL, **{"tape": tape, "telemetry": (), "log": "a\nb", **changed})
    content = files(FACTS | {"planned": [asdict(EVENTS)]}, windows, "steps/events.torch.gru-imdb.fp32.r1.parcel")
    (outcome,) = imported(tmp_path, content).outcomes
    assert (outcome.status, outcome.reason) == (status, reason)


def test_the_windows_are_compared_and_a_ratio_that_is_infinite_is_none() -> None:
    windows = [{"steps": 1, "clock_seconds": 1.0, "event_seconds": seconds} for seconds in (5e-324, 0.5)]
    for printed_windows, said in ((windows, "the clock is within 1e+02 % of CUDA's events"), ([], "")):
        tape = ((1.0, json.dumps({"windows": printed_windows}).encode()),)
        assert outcome(EVENTS, replace(PARCEL, tape=tape)) == ("ok", said)


def test_a_small_archive_costs_little_however_its_parcels_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine kilobytes held two hundred thousand windows and rows, for each of many repeats: each took 700 MB and twenty seconds."""
    assert importing._LEAST_UNPACKED_BYTES <= 32 << 20
    monkeypatch.setattr(importing, "_LEAST_UNPACKED_BYTES", 1 << 20)
    repeats = range(1, 9)
    facts = FACTS | {"planned": [FACTS["planned"][0] | {"repeat": repeat} for repeat in repeats]}
    line = b'{"name":"loss","split":"train","step":1,"seconds":0.5,"value":0.5,"event":"metric","t":6.0,"v":1}\n'
    large = replace(PARCEL, tape=(*PARCEL.tape[:3], *[(200.0, line)] * 2000), telemetry=PARCEL.telemetry[:1] * 4000)
    steps = {NAME.replace(".r1.", f".r{repeat}."): encode(replace(large, repeat=repeat)) for repeat in repeats}
    archive = read(write(tmp_path / "kit.tar.gz", packed({"facts.json": json.dumps(facts).encode()} | steps)))
    each = unpacked_bytes(steps[NAME])
    assert each > 50 * archive.size
    assert each == len(gzip.decompress(steps[NAME]))
    most = importing._LEAST_UNPACKED_BYTES + importing._UNPACKS_TO * archive.size
    assert most < 8 * each
    made = import_archive(archive, tmp_path / "runs")
    assert len(made.outcomes) == most // each
    assert len(made.dropped) == 8 - most // each
    assert f"it unpacks to {each} bytes, and no kit's archive of its size has so many" in made.dropped[0]
    # What is refused is not unpacked, and a parcel that says less than it has is damaged.
    lying = steps[NAME][:-4] + (1000).to_bytes(4, "little")
    with pytest.raises(ParcelError, match="it is damaged"):
        decode(lying, "x")


@pytest.mark.parametrize("how", ["as it is", "unpacked", "./", "kit/", "alphabetical, with folders and a Mac's files"])
def test_an_archive_that_was_packed_again_is_the_same_measurement(tmp_path: Path, how: str) -> None:
    content = packed(files())
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]
    before = how if how.endswith("/") else ""
    entries = [(tarfile.TarInfo(before + name), data) for name, data in members]
    if how.startswith("alphabetical"):
        folder = tarfile.TarInfo("steps/")
        folder.type = tarfile.DIRTYPE
        entries = [
            (tarfile.TarInfo("._facts.json"), b"x"),
            (folder, b""),
            *sorted(entries, key=lambda each: each[0].name),
        ]
    again = {"as it is": content, "unpacked": gzip.decompress(content)}.get(how) or tar(*entries)
    found = read(write(tmp_path / "kit.tar.gz", again))
    assert found.facts_sha256 == read(write(tmp_path / "first.tar.gz", content)).facts_sha256
    assert [printed(decode(parcel, "x")) for parcel in found.steps.values()] == [printed(PARCEL)]


def test_an_archive_of_two_folders_is_refused(tmp_path: Path) -> None:
    two = [(tarfile.TarInfo(f"{name}/facts.json"), b"{}") for name in ("a", "b")]
    with pytest.raises(ArchiveError, match="'b/facts.json' is not a file of a kit's archive"):
        read(write(tmp_path / "kit.tar.gz", tar(*two)))
