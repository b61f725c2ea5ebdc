"""An advice is a promise: for each sentence of the product that says "remove it" or "make room", a test that follows it to the end."""

from __future__ import annotations

import ast
import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import trees
from runner.admission import renew as of_renew
from runner.admission.renew import renew
from runner.engines import cell_cache
from runner.kit import bundle, shared_run
from runner.kit.archive import read
from runner.kit.imported import import_archive
from runner.kit.results_folder import packed
from runner.machine import clocks, lease
from runner.nodes.spool import Spool
from runner.nodes.transports.ssh import Ssh
from runner.paths import PROJECT
from runner.results.on_disk import derived
from runner.results.parcel import encode
from runner.results.store import RunStore, StoreError
from tests.fixtures.advice import OF_CATALOG, OF_FILES, Scene, Set, run_of, stored_ceilings
from tests.fixtures.archives import files
from tests.fixtures.nodes import CELL, parcel_of

# Every sentence that asks for something to be removed, freed or put back. What makes an installation slow is named by verify, with its fix.
ADVICE = re.compile(
    r"\bremove\b(?! torch\.| tf\.| nothing)|\bfrees? (some|room|a part)|make room|make it yours|put (it|them) back|give the name back"
)

# The places of values in a sentence.
GAP = re.compile(
    r"%s|(?<=\()(?=[,)])|(?<=cell )(?=,)|(?<=repeat )(?=;)|(?<=between )(?= and)|(?<=and )(?=;)|(?<=no )(?=;)|(?<=field)(?=;)"
)


def of_run(change: Callable[[Path], object], name: str = f"{CELL.id}.r2.parcel", made: bool = True) -> Set:
    """A run in which somebody changed a parcel, before or after its tables were made."""

    def scene(folder: Path, _: pytest.MonkeyPatch) -> Scene:
        run = run_of(folder)
        if made:
            renew(run)
        else:
            shutil.rmtree(run.folder / "tables", ignore_errors=True)
        path = run.folder / "repeats" / name
        change(path)

        def again() -> None:
            # Each command reads the run anew.
            here = RunStore(run.folder)
            renew(here)
            if not path.exists():
                assert ((CELL.id, 2) in here.finished()) is (name != f"{CELL.id}.r2.parcel"), "--resume measures it"

        return Scene(again, path)

    return scene


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def another(path: Path) -> None:
    path.write_bytes(encode(parcel_of(CELL, 3)))


def unreadable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    real = of_renew.read_bytes
    scene = of_run(another, made=False)(folder, monkeypatch)

    def bad_sector(path: Path, *most: int) -> bytes:
        if path == scene.path:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *most)

    monkeypatch.setattr(of_renew, "read_bytes", bad_sector)
    return scene


def key(folder: Path, _: pytest.MonkeyPatch) -> Scene:
    (folder / "key").write_bytes(b"short")
    return Scene(lambda: derived.key_of(folder / "key"), folder / "key")


def salt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    path = shared_run.salt_path()
    path.mkdir(parents=True)
    return Scene(shared_run.own_salt, path)


def of_archive(folder: Path, _: pytest.MonkeyPatch) -> Scene:
    path = folder / "kit.tar.gz"
    path.write_bytes(packed(files()))
    made = import_archive(read(path), folder / "runs")
    return Scene(lambda: import_archive(read(path), folder / "runs"), made.run.folder)


def old_kit(folder: Path, _: pytest.MonkeyPatch) -> Scene:
    (folder / "kit").mkdir()
    (folder / "kit" / bundle.SCRIPT).touch()
    return Scene(lambda: bundle.build(folder / "kit"), folder / "kit")


def cache_of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    path = cell_cache.private_folder("cells")
    path.chmod(0o777)
    os.chown(path, 12345, 12345)
    return Scene(lambda: cell_cache.private_folder("cells"), path)


def lease_of_a_run(folder: Path, _: pytest.MonkeyPatch) -> Scene:
    (folder / ".lease").mkdir()
    return Scene(lambda: lease.alone(folder).__enter__(), folder / ".lease")


def lease_of_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.delenv("DLBENCH_LEASES", raising=False)
    monkeypatch.setattr(lease, "_SHARED", ())
    path = lease.path_of("GPU-1")
    path.mkdir(parents=True)
    return Scene(lambda: lease.hold(["GPU-1"], "run", lambda _: None).__enter__(), path)


def lease_of_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("DLBENCH_LEASES", str(folder / "leases"))
    path = lease.path_of("GPU-1")
    path.mkdir()

    def hold() -> None:
        with lease.hold(["GPU-1"], "run", trees.tell):
            pass

    return Scene(hold, path)


def record_of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("DLBENCH_LEASES", str(folder / "leases"))
    board = "GPU-11111111-2222-3333-4444-555555555555"
    path = clocks._record(board)
    path.symlink_to("/etc/hostname")
    return Scene(lambda: [trees.tell(sentence) for sentence in clocks.undo()], path)


def stuck(call: str) -> Set:
    """A folder that this process cannot remove, or not even look at."""

    def scene(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
        path = folder / "left"
        path.mkdir()
        real = getattr(os, call)

        def busy(name: Any, *rest: Any, **more: Any) -> Any:
            if os.fspath(name) == os.fspath(path) and os.path.lexists(path):
                raise OSError(errno.EBUSY, "Device or resource busy", str(path))
            return real(name, *rest, **more)

        def by_hand() -> None:
            trees.remove(path)

        monkeypatch.setattr(trees.os, call, busy)
        return Scene(by_hand, path)

    return scene


def spool(folder: Path, _: pytest.MonkeyPatch) -> Scene:
    (folder / "run").touch()
    return Scene(lambda: Spool("run", "n1", folder), folder / "run")


def hosts(folder: Path, _: pytest.MonkeyPatch) -> Scene:
    path = folder / "hosts"
    path.write_text("n1\nn1\n")
    return Scene(lambda: Ssh(path), path, "n1\n")


# A piece of the sentence -> what makes the product say it.
REMOVED: dict[str, Set] = {
    **OF_CATALOG,
    **OF_FILES,
    "is no file, and is passed over; remove it": of_run(a_folder),
    "cannot be read (), and is passed over; remove it": of_run(a_loop),
    "is of a cell that run.json does not plan": of_run(lambda path: path.write_bytes(b"x"), f"{'0' * 16}.r1.parcel"),
    "was changed after it was measured here": of_run(another),
    "restore it, or remove it and --resume measures its repeat again": unreadable,
    "; remove it, and --resume measures its repeat again": of_run(lambda path: path.write_bytes(b"x"), made=False),
    "is of the cell , repeat ; remove it": of_run(another, made=False),
    "it is no key; remove it": key,
    "and your machines get new pseudonyms": salt,
    "remove that folder to import it again": of_archive,
    "an older release made this kit; remove it": old_kit,
    "is not a folder of yours: remove it": cache_of_another,
    "whoever made it may remove it when no runner is at work": lease_of_a_run,
    "=remove it": lease_of_ones_own,
    "root, or who made it, may remove it": lease_of_all,
    "then remove that file": record_of_another,
    "could not be removed (); remove it by hand": stuck("rmdir"),
    "make it yours, or name another cache with XDG_CACHE_HOME": spool,
    "is there twice; remove one line": hosts,
}


# Those for which a whole run, an engine or a lock is needed: a piece of the sentence -> the file and the name of their test.
ELSEWHERE = {
    "make room there": (
        "run/test_failing_disks.py",
        "test_a_disk_that_fails_in_mid_run_loses_nothing_and_resume_measures_the_rest",
    ),
    "=make it yours, or name another": (
        "../test_system_faults.py",
        "test_a_command_that_cannot_write_says_to_which_file",
    ),
    "free some space": (
        "run/test_due_again.py",
        "test_a_failed_repeat_whose_advice_names_resume_is_measured_again_by_it",
    ),
    "; free some": (
        "run/test_failing_disks.py",
        "test_a_run_whose_image_the_disk_holds_no_more_goes_on_where_some_is_freed",
    ),
    "free some of your files": (
        "run/test_due_again.py",
        "test_a_failed_repeat_whose_advice_names_resume_is_measured_again_by_it",
    ),
    "free some room there": (
        "doctor/test_diagnosis.py",
        "test_a_folder_of_temporary_files_that_takes_none_is_named",
    ),
    "free room there": (
        "doctor/test_diagnosis.py",
        "test_the_disk_of_the_engine_s_images_is_named_with_what_it_does_not_do",
    ),
    "frees a part of it": (
        "../../engine/test_registry.py",
        "test_prune_names_what_the_catalog_lost_and_leaves_what_another_checkout_built",
    ),
    "or remove what ended processes left in /dev/shm": (
        "run/test_due_again.py",
        "test_a_failed_repeat_whose_advice_names_resume_is_measured_again_by_it",
    ),
    "is not as this kit wrote it; remove , and its step is done again": (
        "kit/test_kit.py",
        "test_edited_facts_of_an_earlier_start_are_named",
    ),
    "remove the __pycache__ folders of the environment": (
        "../test_system_faults.py",
        "test_bytecode_that_a_full_disk_cuts_short_is_not_left_for_the_next_command",
    ),
    "remove the __pycache__ folders below  and ": (
        "../test_system_faults.py",
        "test_a_command_whose_module_a_full_disk_cut_short_says_the_remedy",
    ),
    "put it back, then say --resume": (
        "run/test_odd_machines.py",
        "test_results_that_are_moved_in_mid_run_end_it_at_once_and_go_on_where_they_are",
    ),
    "give the name back to the image of then": (
        "engines/test_foreign.py",
        "test_a_run_goes_on_only_with_the_images_that_it_began_with",
    ),
    "remove it, and export": (
        "images/test_exported.py",
        "test_what_is_damaged_is_named_with_the_remedy_not_loaded_and_exported_again",
    ),
    "the next run tries to remove it": (
        "engines/test_docker_engine.py",
        "test_a_container_that_cannot_be_ended_ends_for_its_reader_and_is_named_and_left_for_the_sweep",
    ),
    "or remove it from requirements.in": (
        "images/test_consistency.py",
        "test_a_fact_that_the_lock_or_the_base_does_not_bear_out_is_named",
    ),
    "=; remove it": (
        "images/test_consistency.py",
        "test_a_fact_that_the_lock_or_the_base_does_not_bear_out_is_named",
    ),
    "look for OMP_NUM_THREADS": ("verify/test_causes.py", "test_a_fault_is_named_with_its_evidence_and_its_fix"),
}


# A sentence that says that --resume goes on -> the file and the name of the test that follows it. run/test_due_again.py follows those of
# the known messages.
RESUME = re.compile(
    r"then say --resume|with --resume|[Gg]o on with(:| `)|for --resume|run it again$|same command again|the next runner ends them"
)
RESUMED = {
    "put it back, then say --resume": (
        "run/test_odd_machines.py",
        "test_results_that_are_moved_in_mid_run_end_it_at_once_and_go_on_where_they_are",
    ),
    "cannot be opened: ; then say --resume": (
        "run/test_opened.py",
        "test_a_run_whose_gpu_cannot_be_opened_measures_nothing_and_goes_on_after_the_remedy",
    ),
    "restart the machine, then say --resume": (
        "run/test_opened.py",
        "test_a_run_whose_gpu_cannot_be_opened_measures_nothing_and_goes_on_after_the_remedy",
    ),
    "what had ended is kept. Go on with: ": (
        "run/test_failing_disks.py",
        "test_a_disk_that_fails_in_mid_run_loses_nothing_and_resume_measures_the_rest",
    ),
    "interrupted; go on with: ": (
        "cli/test_cli.py",
        "test_an_interrupt_ends_the_cells_within_5_seconds_and_says_how_to_resume",
    ),
    "so no GPU was compared; go on with": (
        "verify/test_verify_measures.py",
        "test_gpus_whose_comparison_was_interrupted_are_compared_after_resume",
    ),
    "; left for --resume: ": (
        "run/test_further_repeats.py",
        "test_what_a_limit_of_time_leaves_for_resume_is_measured_by_it",
    ),
    "what had ended is kept, run it again": (
        "kit/test_kit.py",
        "test_a_kit_whose_disk_another_fills_says_so_and_the_same_command_goes_on_once_there_is_room",
    ),
    "run the same command again: it goes on": (
        "kit/test_kit.py",
        "test_a_kit_whose_disk_another_fills_says_so_and_the_same_command_goes_on_once_there_is_room",
    ),
    "cannot be opened: ; then run the same command again": (
        "kit/test_kit.py",
        "test_a_gpu_that_cuda_cannot_open_stops_the_kit_and_the_same_command_measures_it_after_the_remedy",
    ),
    "the next runner ends them when it answers": (
        "../../engine/test_chaos.py",
        "test_an_engine_that_freezes_longer_than_the_time_limit_fails_no_cell_and_an_interrupt_does_not_wait_for_it",
    ),
    "with --resume": (
        "blame/test_ladder_document.py",
        "test_a_command_that_was_cut_short_names_the_words_that_end_it_with_a_step",
    ),
}


def advice(pattern: re.Pattern[str] = ADVICE) -> dict[str, list[str]]:
    """File -> the sentences that it says, without what is put into them. No docstring is one."""
    found: dict[str, list[str]] = {}
    for path in (path for top in ("runner", "bench") for path in sorted((PROJECT / top).rglob("*.py"))):
        tree = ast.parse(path.read_text())
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                text = node.value
            else:
                continue
            if pattern.search(text):
                found.setdefault(path.relative_to(PROJECT).as_posix(), []).append(text)
    return found


def follows(piece: str, text: str) -> bool:
    """`=`: the whole sentence."""
    return text == piece[1:] if piece.startswith("=") else piece in text


@pytest.mark.parametrize(
    ("pattern", "here", "elsewhere"), [(ADVICE, REMOVED, ELSEWHERE), (RESUME, {}, RESUMED)], ids=["room", "resume"]
)
def test_every_sentence_that_says_remove_it_make_room_or_resume_is_followed_by_a_test(
    pattern: re.Pattern[str], here: dict[str, Set], elsewhere: dict[str, tuple[str, str]]
) -> None:
    said = advice(pattern)
    pieces = [*here, *elsewhere]
    assert [
        f"{file}: {text}"
        for file, texts in said.items()
        for text in texts
        if not any(follows(piece, text) for piece in pieces)
    ] == []
    texts = [text for each in said.values() for text in each]
    assert [piece for piece in pieces if not any(follows(piece, text) for text in texts)] == []
    for file, name in elsewhere.values():
        assert f"def {name}(" in (Path(__file__).parent / file).read_text()


def test_ceilings_that_no_run_writes_are_not_named_any_more_once_the_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second place of a sentence that the load of a GPU has, too."""
    scene = stored_ceilings(tmp_path, monkeypatch)
    with pytest.raises(StoreError, match="remove the file, or restore it"):
        scene.act()
    scene.path.unlink()
    assert scene.act() is None


@pytest.mark.parametrize("said", REMOVED)
def test_who_removes_what_a_sentence_names_hears_it_no_more(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "scene").mkdir()
    scene = REMOVED[said](tmp_path / "scene", monkeypatch)

    def heard() -> str:
        trees._told.clear()
        capfd.readouterr()
        try:
            scene.act()
        except Exception as error:
            return f"{error} {capfd.readouterr().err}"
        return capfd.readouterr().err

    parts = [re.escape(part) for part in GAP.split(said.removeprefix("=")) if part]
    assert re.search(".*".join(parts), heard())
    if scene.mended is not None:
        scene.path.write_text(scene.mended)
    elif scene.path.is_dir() and not scene.path.is_symlink():
        shutil.rmtree(scene.path) if "by hand" not in said else os.renames(scene.path, tmp_path / "gone")
    else:
        scene.path.unlink()
    assert not ADVICE.search(heard())
