"""What becomes of a folder, a log or a disk beside a run: nothing that ended is lost, and --resume measures the rest."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.machine import lease
from runner.results import store
from tests.fixtures.mounts import filled, tmpfs
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.fixtures.warm import WarmProcess

pytestmark = pytest.mark.slow

# Six cells.
WORDS = ("--gpus", "none", "--workloads", "cnn-cifar10,gru-imdb", "--repeats", "1")


def runner(folder: Path, *words: str, **files: int) -> WarmProcess:
    """A command of the runner over toys. `files`: where its streams go; a pipe otherwise."""
    own = {"TMPDIR": str(folder / "tmp"), lease.VARIABLE: str(folder / "leases"), "COLUMNS": "500"}
    environment = os.environ | toy_variables(folder, seconds=0.5) | own
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | files
    return WarmProcess("tests.unit.toy_runner", list(words), environment, PROJECT, **pipes)


def matrix(folder: Path, *words: str, **files: int) -> WarmProcess:
    return runner(folder, "matrix", *WORDS, "--out", str(folder / "results"), *words, **files)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of a runner. Its runs are read here, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("cache", "results", "tmp", "leases"):
        (tmp_path / name).mkdir()
    (tmp_path / "started").touch()
    return tmp_path


def ends_well(process: WarmProcess) -> None:
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said


def run_in(place: Path) -> Path:
    (manifest,) = place.glob("results/*/run.json")
    return manifest.parent


def all_ended(place: Path) -> bool:
    return Counter(store.statuses(run_in(place)).values()) == {"ok": 6}


def test_a_lease_that_has_no_room_for_its_holders_name_holds_all_the_same(place: Path) -> None:
    with tmpfs(place / "leases", "size=64k,nr_inodes=100"):
        # No room for a byte, and some for files.
        with open(place / "leases" / "somebody", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        first = matrix(place)
        wait_for(lambda: list(place.glob("results/*/repeats/*.parcel")))
        second = matrix(place, "--no-wait")
        _, said = second.communicate(timeout=120)
        assert (second.returncode, "the CPUs of this machine are held by another runner" in said) == (4, True), said
        ends_well(first)
    assert all_ended(place), "who was refused leaves no run"


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_a_log_on_a_full_disk_ends_no_run(place: Path, stream: str) -> None:
    with (
        tmpfs(place / "logs", "size=64k,nr_inodes=100"),
        open(place / "logs" / "log", "wb") as log,
        filled(place / "logs"),
    ):
        process = matrix(place, **{stream: log.fileno()})
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert all_ended(place)


@pytest.mark.parametrize(
    "command", [("report", "--text"), ("report", "--format", "csv"), ("history",), ("images", "list")], ids=" ".join
)
def test_an_answer_that_its_file_has_no_room_for_is_no_success_and_names_the_stream(
    place: Path, command: tuple[str, ...]
) -> None:
    ends_well(matrix(place))
    # In a process of its own: what is left in a stream is written as it ends.
    command = [sys.executable, "-m", "runner", *command, *([str(run_in(place))] if command[0] != "images" else [])]
    with (
        tmpfs(place / "logs", "size=64k,nr_inodes=100"),
        open(place / "logs" / "log", "wb") as log,
        filled(place / "logs"),
    ):
        ended = subprocess.run(command, cwd=PROJECT, stdout=log, stderr=subprocess.PIPE, text=True, check=False)
    sentence = "runner: standard output: No space left on device; make room there\n"
    assert (ended.returncode, ended.stderr) == (4, sentence)


@pytest.mark.parametrize(
    "words",
    [
        ("import", str(PROJECT / "docs" / "h200" / "fp32.tar.gz"), "--out", "FULL"),
        ("report", "RUN", "-o", "FULL/page.html"),
        ("share", "RUN", "--yes", "-o", "FULL/"),
        ("gpu-kit", "FULL/kit"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_whose_disk_is_full_says_which_file_and_works_once_there_is_room(
    place: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(place / "data"))
    ends_well(matrix(place))
    full = place / "full"
    words = tuple(word.replace("FULL", str(full)).replace("RUN", str(run_in(place))) for word in words)
    with tmpfs(full, "size=64m,nr_inodes=2000"):
        with filled(full):
            process = runner(place, *words)
            _, said = process.communicate(timeout=120)
            last = said.splitlines()[-1]
            assert process.returncode == 4, said
            assert str(full) in last
            assert "No space left on device" in last
            assert "make room there" in last
            left = {path.name for path in full.iterdir() if any(part.is_file() for part in path.rglob("*"))}
            assert left <= {"names"}, "half of a file is none"
        process = runner(place, *words)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said


def removes(name: str) -> Callable[[Path], object]:
    def remove(place: Path) -> None:
        # Somebody who cleans up while files are made there.
        subprocess.run(["rm", "-rf", str(place / name)], check=False, capture_output=True)

    return remove


def sets_a_link_in_its_place(place: Path) -> None:
    (place / "elsewhere").mkdir()
    shutil.move(place / "tmp", place / "tmp.before")
    (place / "tmp").symlink_to(place / "elsewhere")


@pytest.mark.parametrize(
    "change", [removes("cache"), removes("tmp"), removes("leases"), sets_a_link_in_its_place], ids=["cache", "tmp", "leases", "link"]
)  # fmt: skip
def test_a_folder_that_is_cleaned_up_in_mid_run_costs_no_repeat(place: Path, change: Callable[[Path], object]) -> None:
    process = matrix(place)
    wait_for(lambda: list(place.glob("results/*/repeats/*.parcel")))
    change(place)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said
    if process.returncode:
        ends_well(matrix(place, "--resume", run_in(place).name))
    assert all_ended(place)


@pytest.mark.parametrize(("when", "code"), [("*/run.json", 4), ("*/repeats/*.parcel", 1)], ids=["first", "later"])
def test_a_cache_in_whose_place_a_file_lies_in_mid_run_is_no_mistake_of_the_command_line(
    place: Path, when: str, code: int
) -> None:
    process = matrix(place)
    wait_for(lambda: list(place.glob(f"results/{when}")))
    wait_for((place / "cache" / "dlbench").exists)
    shutil.move(place / "cache" / "dlbench", place / "aside")
    (place / "cache" / "dlbench").touch()
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert f"{place / 'cache' / 'dlbench'} cannot be made: File exists" in said.splitlines()[-1]
    assert len(list(place.glob("results/*/repeats/*.parcel"))) == (code == 1), (
        "nothing is stored of a repeat that never ran"
    )
    assert "set XDG_CACHE_HOME" in said.splitlines()[-1]
    assert ("Go on with: " in said) == (code == 1)
    (place / "cache" / "dlbench").unlink()
    shutil.move(place / "aside", place / "cache" / "dlbench")
    ends_well(matrix(place, "--resume", run_in(place).name))
    assert all_ended(place)


@pytest.mark.parametrize(
    ("limit", "most", "words"),
    [(resource.RLIMIT_NOFILE, 8, "Too many open files"), (resource.RLIMIT_FSIZE, 2000, "File too large")],
    ids=["open files", "size of a file"],
)
def test_a_limit_of_the_runner_that_is_lowered_in_mid_run_ends_it_and_costs_no_repeat(
    place: Path, limit: int, most: int, words: str
) -> None:
    process = matrix(place)
    wait_for(lambda: list(place.glob("results/*/repeats/*.parcel")))
    resource.prlimit(process.pid, limit, (most, most))
    goes_on_after(process, place, words)


def test_a_disk_with_room_and_without_files_ends_the_run_with_both_numbers(place: Path) -> None:
    """Its free bytes alone would say that it is well."""
    with tmpfs(place / "cache", "nr_inodes=300"):
        process = matrix(place)
        wait_for(lambda: list(place.glob("results/*/repeats/*.parcel")))
        names = place / "cache" / "names"
        names.mkdir()
        with contextlib.suppress(OSError):
            for number in range(300):
                (names / str(number)).touch()
        _, said = process.communicate(timeout=120)
        assert re.search(r"/cache has [1-9][0-9.]* GB of \S+ GB free and room for 0 files", said.splitlines()[-1])
        shutil.rmtree(names)
        goes_on_after(process, place, "No space left on device", said)


def goes_on_after(process: WarmProcess, place: Path, words: str, said: str = "") -> None:
    """The run has ended with these words and the command that goes on, and `--resume` measures what is left."""
    said = said or process.communicate(timeout=120)[1]
    assert process.returncode == 1, said
    assert "Traceback" not in said
    assert words in said.splitlines()[-1]
    assert f"Go on with: runner matrix --resume {run_in(place).name}" in said.splitlines()[-1]
    ends_well(matrix(place, "--resume", run_in(place).name))
    assert all_ended(place)


def test_results_that_are_moved_in_mid_run_end_it_at_once_and_go_on_where_they_are(place: Path) -> None:
    process = matrix(place)
    wait_for(lambda: list(place.glob("results/*/repeats/*.parcel")))
    name = run_in(place).name
    (place / "results").rename(place / "away")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"{place / 'results' / name} has no run.json any more: it was moved or removed in mid-run" in said
    assert f"put it back, then say --resume {name}" in said
    assert not list(place.glob("results/*/repeats/*.parcel")), "what belongs to no run is not kept as if it did"
    shutil.rmtree(place / "results", ignore_errors=True)
    (place / "away").rename(place / "results")
    stored = {path: path.read_bytes() for path in place.glob("results/*/repeats/*.parcel")}
    ends_well(matrix(place, "--resume", name))
    assert all_ended(place)
    assert {path: path.read_bytes() for path in stored} == stored
