"""What was left out is said at the end of every run: each group of tests, how many, and why.

DLBENCH_ENVIRONMENTS=required: a run that left out tests because a framework's environment could not be made has failed.
DLBENCH_SHARD=2/8: only the second of eight parts of the tests, which together are all of them.
DLBENCH_TURN=5: the number by which a part of many alike cases is drawn (tests/fixtures/weekly.py), in place of the commit's.

A test marked `keyed` that passed with the same inputs is counted as kept (tests/fixtures/green.py). DLBENCH_KEYS=ignore runs it.

A test that takes more than SLOW_SECONDS of CPU without the marker `slow` is named at the end too: `make test` must stay quick.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy  # noqa: F401  # threadpoolctl limits what is loaded
import pytest
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from tests.stand_ins.fleet import Fleet

if "PYTEST_XDIST_WORKER" in os.environ:
    # Beside other workers NumPy's products use one thread here: threads that wait for each other's CPU take longer.
    threadpool_limits(1)

# pytest's words before a reason, of a test and of a whole file that could not be collected
PREFIX = "Skipped: "
# and before that of a test whose framework's environment could not be made
NO_ENVIRONMENT = "no environment for "
# tests/fixtures/green.py skips a test with these words before its reason if its result is known.
KEPT = "kept: "
# The groups of slow tests that take longest.
LONGEST = ("engine", "own engine", "foreign images", "torch-2.13.0-cpu", "test_strangers_networks", "test_references")
# The marker's limit is 3 s. A busy machine takes up to twice as long for the same work.
SLOW_SECONDS = 6.0


def pytest_configure() -> None:
    # pytest-xdist gives its workers the terminal's width, and then what a command prints into a pipe would be folded.
    os.environ.pop("COLUMNS", None)
    os.environ.setdefault("DLBENCH_TURN", str(turn()))
    # The CPUs of a machine have one lease. Tests that run beside one another must not wait for each other's.
    os.environ["DLBENCH_LEASES"] = tempfile.mkdtemp(prefix="dlbench-leases-")
    # Each process of tests and all that it starts are one installation, which is not the user's: what it stores has its key.
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="dlbench-data-")
    # A shell starts what it puts into the background with Ctrl-C ignored, and programs hand that on: runners would not be interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup ignores the other one: a handler that does nothing is not handed on, and this process outlives its terminal all the same
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_unconfigure() -> None:
    for variable in ("DLBENCH_LEASES", "XDG_DATA_HOME"):
        shutil.rmtree(os.environ[variable], ignore_errors=True)


def turn() -> int:
    """A number of the commit: whoever runs it again has the same tests. Without git it is the day's."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return date.today().toordinal()
    return int(commit[:8], 16)


def in_shard(nodeid: str, shard: str) -> bool:
    """Whether a test is in a part of all tests, which is called "2/8". Raises ValueError for what is no such name."""
    number, count = (int(word) for word in shard.split("/"))
    if not 1 <= number <= count:
        raise ValueError(f"DLBENCH_SHARD={shard}: there is no part {number} of {count}")
    return zlib.crc32(nodeid.encode()) % count == number - 1


def group_of(item: pytest.Item) -> str | None:
    """The tests that one process runs one after another, where several processes share the CPUs. A file may name a group of its own."""
    if item.get_closest_marker("xdist_group"):
        return None
    folder = item.path.parent.name
    if folder in ("browser", "engine"):  # one Chromium, and one engine, whose images and containers are counted
        return folder
    if folder == "contract":  # an image's environment is made once; a file may keep what it ran
        parameters = getattr(item, "callspec", None)
        return str((parameters.params if parameters else {}).get("image_name", item.path.stem))
    return None


def order_of(group: pytest.Mark | None) -> int:
    if group is None:
        return len(LONGEST) + 1
    return LONGEST.index(group.args[0]) if group.args[0] in LONGEST else len(LONGEST)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if config.pluginmanager.hasplugin("xdist") and (group := group_of(item)):
            item.add_marker(pytest.mark.xdist_group(group))
    if config.getoption("loadgroup", False):
        # Groups are begun in this order, the longest first: begun last, it would run beside nothing. What has no group fills the end.
        items.sort(key=lambda item: order_of(item.get_closest_marker("xdist_group")))
    if shard := os.environ.get("DLBENCH_SHARD"):
        others = [item for item in items if not in_shard(item.nodeid, shard)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if in_shard(item.nodeid, shard)]


def cpu_seconds() -> float:
    """What this process and the processes that it waited for have taken."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    begin = cpu_seconds()
    try:
        return (yield)
    finally:
        if item.get_closest_marker("slow") is None:
            item.user_properties.append(("cpu_seconds", cpu_seconds() - begin))


def unmarked(reports: Iterable[pytest.TestReport]) -> list[str]:
    """One line for each test that lacks the marker `slow`, the longest first."""
    taken = {report.nodeid: float(str(dict(report.user_properties).get("cpu_seconds", 0))) for report in reports}
    slow = sorted(((seconds, test) for test, seconds in taken.items() if seconds > SLOW_SECONDS), reverse=True)
    return [f"{seconds:.0f} s of CPU, and lacks the marker `slow`: {test}" for seconds, test in slow]


def left_out(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """One line for each folder of tests and reason, in the order in which they came."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in skipped:
        folder = Path(report.nodeid.partition("::")[0]).parent.name or "tests"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        what = folder if "::" in report.nodeid else f"{folder}, the whole of {Path(report.nodeid).name}"
        counts[what, reason.removeprefix(PREFIX).removeprefix("left out, because ")] += 1
    return [f"{what}: {count} left out, because {reason}" for (what, reason), count in counts.items()]


def is_kept(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Whether a test was not run because its result is known."""
    return isinstance(report.longrepr, tuple) and report.longrepr[2].startswith(PREFIX + KEPT)


def lacks_environments(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> bool:
    """Whether tests were left out because the environment of a framework could not be made."""
    return any(f"left out, because {NO_ENVIRONMENT}" in line for line in left_out(skipped))


# True where a worker of pytest-xdist died.
DIED = pytest.StashKey[bool]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note that a worker died. xdist may run its test once more, and then pytest forgets that it failed."""
    if error:
        node.config.stash[DIED] = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # A crash is no test that missed a time limit: this exit status gets no second look (tests/again.py).
    if DIED in session.config.stash:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    required = os.environ.get("DLBENCH_ENVIRONMENTS") == "required"
    if required and reporter and lacks_environments(reporter.stats.get("skipped", ())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The list, or that there is nothing on it: a green run must not be read as more than it was."""
    stats = terminalreporter.stats
    skipped = stats.get("skipped", ())
    lines = left_out(report for report in skipped if not is_kept(report))
    if deselected := len(stats.get("deselected", ())):
        lines.append(f"{deselected} not chosen on the command line")
    if slow := unmarked(stats.get("passed", ())):
        terminalreporter.section("slow")
        for line in slow:
            terminalreporter.write_line(line)
    if kept := sum(map(is_kept, skipped)):
        terminalreporter.section("kept")
        results = "1 result is" if kept == 1 else f"{kept} results are"
        terminalreporter.write_line(
            f"{results} kept: the tests passed with the same inputs and were not run; DLBENCH_KEYS=ignore runs them"
        )
    terminalreporter.section("left out")
    for line in lines or [f"nothing: every {'other ' if kept else ''}test ran"]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Results of a test need not outlive a power failure: waiting for the disk was two thirds of the time of writing a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1 that presents the fleet which DLBENCH_FLEET names."""
    from tests.stand_ins import fleet as stand_ins

    if stand_ins.compiler() is None:
        pytest.skip("left out, because there is no C compiler to make the stand-in for NVML with")
    return stand_ins.build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fleet(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Fleet], Path]:
    """Present a fleet to this process; the file it is read from. Called again, it changes under the program."""
    from tests.stand_ins import fleet as stand_ins

    stand_ins.load_library(nvml_library)
    for variable in stand_ins.CUDA_VARIABLES:
        monkeypatch.delenv(variable, raising=False)

    def present(shown: Fleet) -> Path:
        file = shown.write(tmp_path / "fleet")
        monkeypatch.setenv(stand_ins.FLEET_VARIABLE, str(file))
        return file

    return present
