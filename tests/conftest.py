"""What was left out is said at the end of every run: each group of tests, how many, and why."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.stand_ins.fleet import Fleet

# pytest's words before a reason, of a test and of a whole file that could not be collected
PREFIX = "Skipped: "


def pytest_configure() -> None:
    # A shell starts what it puts into the background with Ctrl-C ignored, and programs hand that on: runners would not be interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup ignores the other one: a handler that does nothing is not handed on, and this process outlives its terminal all the same
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def left_out(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """One line for each folder of tests and reason, in the order in which they came."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in skipped:
        folder = Path(report.nodeid.partition("::")[0]).parent.name or "tests"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        what = folder if "::" in report.nodeid else f"{folder}, the whole of {Path(report.nodeid).name}"
        counts[what, reason.removeprefix(PREFIX).removeprefix("left out, because ")] += 1
    return [f"{what}: {count} left out, because {reason}" for (what, reason), count in counts.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The list, or that there is nothing on it: a green run must not be read as more than it was."""
    stats = terminalreporter.stats
    lines = left_out(stats.get("skipped", ()))
    if deselected := len(stats.get("deselected", ())):
        lines.append(f"{deselected} not chosen on the command line")
    terminalreporter.section("left out")
    for line in lines or ["nothing: every test ran"]:
        terminalreporter.write_line(line)


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

    def present(shown: Fleet) -> Path:
        file = shown.write(tmp_path / "fleet")
        monkeypatch.setenv(stand_ins.FLEET_VARIABLE, str(file))
        return file

    return present
