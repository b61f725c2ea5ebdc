"""Commands where a home, a cache or locks are missing: each works as ever, or says in a sentence what to set.

The commands are taken from the command line itself, so a new one needs its words here. No engine answers, no index is reached, and
what a command would write into the checkout it cannot make.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner

from runner.cli.main import app
from runner.doctor import gpu_checks
from runner.doctor import scene as doctor_folders
from runner.doctor.scene import FAIL, OK, WARN, Scene
from runner.engines.base import EngineError
from runner.engines.process import venv
from runner.engines.process.host import HostEngine
from runner.errors import ExitCode
from runner.machine import lease
from runner.paths import cache_folder
from tests.fixtures.commands import fresh_runner
from tests.fixtures.contributions import contribution
from tests.fixtures.mounts import TROUBLES, tmpfs
from tests.fixtures.weekly import drawn, only_with

IMAGE = "onnxruntime-1.26.0-cpu"
CELLS = f"--gpus none --engine venv --images {IMAGE} --workloads resnet50-features"

# OUT has the runs d1 and d2; NEW can be made.
WORDS = {
    "matrix": f"{CELLS} --repeats 1 --out NEW",
    "import": "NEW/none.tar.gz --out NEW",
    "gpu-kit": "NEW/kit",
    "share": "d1 --yes -o NEW --out OUT",
    "report": "--out OUT",
    "compare": "d1 d2 --out OUT",
    # Both have one name: the other images of its framework differ in Python.
    "blame": f"{IMAGE} {IMAGE} --workloads resnet50-features --out NEW",
    "history": "--out OUT",
    "rosetta": "cnn-cifar10 torch jax",
    "verify": f"--gpus none --engine venv --image {IMAGE} --workloads resnet50-features --out NEW",
    "reference save": "OUT/d1 --name lab",
    "reference list": "",
    "reference show": "published",
    "reference diff": "published published",
    "reference export": "published -o NEW",
    "reference import": "NEW",
    "reference judge": "OUT",
    "reference index": "OUT -o NEW",
    "gpus": "",
    "doctor": "--out OUT",
    "images list": "",
    "images show": IMAGE,
    "images check": IMAGE,
    "images build": IMAGE,
    "images reproduce": IMAGE,
    "images push": f"127.0.0.1:9/none {IMAGE}",
    "images export": f"{IMAGE} --to NEW",
    "images new": IMAGE,
    "images lock": f"{IMAGE} --date 2020-01-01",
    "images update": f"{IMAGE} --dry-run",
    "images pin": IMAGE,
    "images try": f"{IMAGE} --workloads resnet50-features --limit 5",
    "images prune": "--dry-run",
    # It would write the pages of the checkout.
    "images files": "--help",
    "images ci-matrix": "",
    "list": "runs --out OUT",
    "completion": "bash",
    # It starts the command `agent`, which ends its process and so cannot be called in this one.
    "nodes": f"--nodes local:1 {CELLS}",
    "complete": "images sh",
}


# What else than 0 they end with here: nothing answers, what is imported is not there, and what was published has no samples.
USUAL = {
    **dict.fromkeys(
        ("import", "blame", "reference import", "reference diff", "reference export", "images new"), ExitCode.USAGE
    ),
    "doctor": ExitCode.FOUND,
    "history": ExitCode.OPEN,
    **dict.fromkeys(
        (
            "matrix",
            "verify",
            *(f"images {name}" for name in ("build", "reproduce", "push", "export", "lock", "update", "pin", "try")),
        ),
        ExitCode.CANNOT_BEGIN,
    ),
}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    below = getattr(group, "commands", None)
    if below is None:
        yield " ".join(path)
    for name in below or ():
        yield from commands(below[name], (*path, name))


def test_every_command_has_its_words_here() -> None:
    assert [name for name in commands(typer.main.get_command(app)) if name != "agent"] == list(WORDS)


@contextlib.contextmanager
def well(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    # Their names are no variables': a path in a message is no advice.
    for name, place in (("HOME", "home"), ("XDG_CACHE_HOME", "cache"), ("XDG_DATA_HOME", "data")):
        patch.setenv(name, str(folder / place))
        (folder / place).mkdir()
    yield


@contextlib.contextmanager
def no_home(patch: pytest.MonkeyPatch, folder: Path, **variables: str) -> Iterator[None]:
    """As a user without an entry in the system's list, in an environment emptied but for these variables."""

    def getpwuid(uid: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        patch.delenv(name, raising=False)
    for name, value in variables.items():
        patch.setenv(name, value)
    # Python's own answers and the libraries' all follow from this list.
    patch.setattr(pwd, "getpwuid", getpwuid)
    yield


@contextlib.contextmanager
def xdg_only(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    with no_home(patch, folder):
        for name, place in (("XDG_CACHE_HOME", "cache"), ("XDG_DATA_HOME", "data")):
            patch.setenv(name, str(folder / place))
        yield


@contextlib.contextmanager
def home_is_root(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """As HOME=/ of a container whose user may write nothing there."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        patch.delenv(name, raising=False)
    patch.setenv("HOME", str(folder / "root"))
    with tmpfs(folder / "root", "ro"):
        yield


@contextlib.contextmanager
def no_cache(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    (folder / "file").write_text("")
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        patch.setenv(name, str(folder / "file"))
    yield


@contextlib.contextmanager
def on_a_disk(patch: pytest.MonkeyPatch, folder: Path, options: str) -> Iterator[None]:
    with tmpfs(folder / "disk", options) as disk:
        for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
            patch.setenv(name, str(disk))
        yield


@contextlib.contextmanager
def no_locks(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """As Lustre that was mounted without `flock`."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    with well(patch, folder):
        patch.setattr(fcntl, "flock", flock)
        yield


noexec = functools.partial(on_a_disk, options="noexec")
# Room for the mount's own folder and two files.
no_inodes = functools.partial(on_a_disk, options="nr_inodes=3")
SITUATIONS = {
    "no HOME": no_home,
    "HOME empty": functools.partial(no_home, HOME=""),
    "HOME relative": functools.partial(no_home, HOME="rel"),
    "XDG relative": functools.partial(no_home, XDG_CACHE_HOME="rel", XDG_DATA_HOME="rel"),
    "HOME=/": home_is_root,
    "XDG only": xdg_only,
    "no cache": no_cache,
    "noexec": noexec,
    "no flock": no_locks,
    "no inodes": no_inodes,
}
# A variable or an option, and no part of a path.
ADVICE = re.compile(r"(?<![\w/])(XDG_(CACHE|DATA)_HOME|HOME|--out)(?!\w)")
Situation = Callable[[pytest.MonkeyPatch, Path], contextlib.AbstractContextManager[None]]


@functools.cache
def measured() -> Path:
    """Two runs of one machine, with parcels: where the cache is another one, a run's tables are made of these."""
    folder = Path(tempfile.mkdtemp(prefix="dlbench-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for at in (1, 2):
        contribution(folder / f"d{at}", seed=at)
    return folder


def run(name: str, situation: Situation, folder: Path) -> tuple[int, str]:
    """A command's exit code and what it said. It raises what the command raises."""
    shutil.copytree(measured(), folder / "out")
    words = WORDS[name].replace("OUT", str(folder / "out")).replace("NEW", str(folder / "new")).split()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("no_proxy", "*")
        # The interpreter of the tests has none; to look for each of them takes seconds. It keeps what it sees in the cache.
        patch.setattr(HostEngine, "unavailable", lambda _: f"no framework in {cache_folder()}")
        patch.setenv("DOCKER_HOST", f"unix://{folder}/none.sock")
        for variable, value in (("INDEX_URL", "http://127.0.0.1:9/"), ("RETRIES", "0"), ("CONFIG_FILE", "/dev/null")):
            patch.setenv(f"PIP_{variable}", value)
        with situation(patch, folder):
            result = CliRunner().invoke(app, [*name.split(), *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


LONG = only_with("DLBENCH_FAULTS", "every other command is tried")


def marked(name: str, *more: object) -> object:
    return pytest.param(name, *more, marks=[LONG] * (name in ("images lock", "images update")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "third"), drawn("DLBENCH_FAULTS", 3, [marked(name, third) for name in WORDS for third in range(3)])
)
def test_every_command_works_as_ever_or_names_what_to_set(name: str, third: int, tmp_path: Path) -> None:
    """In a third of the situations."""
    usual = run(name, well, tmp_path / "well")
    assert usual[0] == USUAL.get(name, ExitCode.OK), usual
    wrong = {}
    for number, (said, situation) in enumerate(list(SITUATIONS.items())[third::3]):
        code, output = run(name, situation, tmp_path / str(number))
        assert "Traceback" not in output, (said, output)
        if code != usual[0] and not ADVICE.search(output):
            wrong[said] = code, output
    assert wrong == {}, usual


def on_a_bad_disk(trouble: str, place: str) -> Situation:
    """What the command finds at that place lies on a disk that is full, read-only or failing by then."""

    @contextlib.contextmanager
    def bad_disk(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
        what, disk = TROUBLES[trouble], folder / place
        with well(patch, folder), contextlib.ExitStack() as stack:
            if disk.exists():
                disk.rename(folder / "before")
            stack.enter_context(what.mounted(disk))
            if (folder / "before").exists():
                shutil.copytree(folder / "before", disk, dirs_exist_ok=True)
                os.sync()
            stack.enter_context(what.befalls(disk))
            yield

    return bad_disk


# Each command meets one of them.
TROUBLED = [
    marked(name, trouble, place)
    for name in WORDS
    for trouble in ("full", "read-only", "failing")
    for place in ("new", "cache", "out")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trouble", "place"), drawn("DLBENCH_FAULTS", 9, TROUBLED))
def test_a_disk_that_fails_under_a_command_has_the_same_code_in_all_of_them(
    name: str, trouble: str, place: str, tmp_path: Path
) -> None:
    code, said = run(name, on_a_bad_disk(trouble, place), tmp_path / "run")
    assert "Traceback" not in said
    if code != USUAL.get(name, ExitCode.OK):
        assert code == ExitCode.CANNOT_BEGIN, said
        assert TROUBLES[trouble].words in said or "the disk cannot hold it" in said


@pytest.mark.slow
@pytest.mark.parametrize("situation", [name for name in SITUATIONS if name != "XDG only"])
def test_a_run_names_what_to_set_and_the_doctor_fails_where_it_does(situation: str, tmp_path: Path) -> None:
    """The remedy of a failed run points to the doctor, which then must not say that nothing failed."""
    code, said = run("matrix", SITUATIONS[situation], tmp_path / "run")
    assert code
    assert "XDG_CACHE_HOME" in said or "--results" in said
    code, said = run("doctor", SITUATIONS[situation], tmp_path / "doctor")
    assert code == 1 or (situation == "no inodes" and "room for" in said), said
    assert "XDG_CACHE_HOME" in said


def test_a_run_that_cannot_write_its_cache_says_so_before_it_waits_in_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for hours, to fail then."""
    monkeypatch.setenv(lease.VARIABLE, str(tmp_path / "leases"))
    with tmpfs(tmp_path / "cache", "ro") as cache, lease.hold(["cpu"], "another", print, wait=False):
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        ended = CliRunner().invoke(app, ["matrix", *CELLS.split(), "--out", str(tmp_path / "results")])
    assert ended.exit_code == ExitCode.CANNOT_BEGIN
    assert "cannot be made: Read-only file system; set XDG_CACHE_HOME" in ended.stderr
    assert "in line" not in ended.output


WELL = Scene((), None, (), None, None, None, {}, None, None)


def test_the_doctor_names_a_clock_that_was_never_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(gpu_checks.clock(WELL)) == []
    monkeypatch.setattr(gpu_checks.time, "time", lambda: 12.0)
    (check,) = gpu_checks.clock(WELL)
    assert (check.status, check.saw) == (FAIL, "it says 1970-01-01")


def test_little_room_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for most, status in ((1, OK), (1 << 60, WARN)):
        for name in ("_ROOM_BYTES", "_TEMPORARY_BYTES"):
            monkeypatch.setattr(doctor_folders, name, most)
        assert {check.status for check in doctor_folders.folders(WELL)} == {status}


def test_an_environment_is_not_made_where_two_runners_could_make_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name.lock").touch()
    with (
        no_locks(monkeypatch, tmp_path),
        pytest.raises(EngineError, match="has no locks .*; set XDG_CACHE_HOME"),
        venv.alone(tmp_path / "name", print),
    ):
        pytest.fail("it was held")


def test_a_package_of_pythonpath_does_not_stand_in_for_the_runners_own(tmp_path: Path) -> None:
    """As in a tree of modules (EasyBuild, Lmod), whose typing_extensions may be too old."""
    (tmp_path / "typing_extensions.py").write_text("raise ImportError('another one')\n")
    ended = fresh_runner("images", "show", IMAGE, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert (ended.returncode, ended.stderr) == (0, "")
