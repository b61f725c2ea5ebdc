"""One attempt at a cell: the watchdog's verdicts, an engine that goes and comes back, a GPU that has to cool; in real processes."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import load_catalog
from runner.engines.base import EngineError, EngineGoneError, Prepared, Slot
from runner.engines.process.process import LocalRunning, start_process
from runner.machine import telemetry
from runner.machine.devices import Cpu, Gpu, Machine
from runner.results import store
from runner.run.attempt import Attempt, Limits, Site
from runner.run.dispatch import Job
from runner.run.schedule import CellRunner, Outcome
from tests.fixtures.plans import make_cell
from tests.fixtures.waiting import wait_for
from tests.stand_ins.fleet import FakeGpu, Fleet, uuid_of

RECORDED = (Path(__file__).parents[2] / "recorded" / "torch-2.13.0-cpu.gru-imdb.jsonl").read_text()
CELL = make_cell(image="torch-2.13.0-cpu")
SLOT = Slot("cpu", (), (), None)
PATIENT = Limits(60, 60)
REPLAY = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
HANG = "import sys, time\ndef stands_still(): open(sys.argv[1] + '.here', 'w').close(); time.sleep(60)\nstands_still()"


class Engine:
    """Runs one script in a real process; it may go away for a while."""

    name = "host"

    def __init__(self, script: str, recorded: Path) -> None:
        self.script, self.recorded = script, recorded
        self.gone_for = 0
        self.starts = 0
        self.sweeps = 0

    def unavailable(self) -> str | None:
        self.gone_for -= 1
        return "no Docker Engine answers" if self.gone_for >= 0 else None

    def prepare(self, image: Any, say: Callable[[str], None]) -> Prepared:
        return Prepared(image, "sha256:0", (sys.executable, "-c", self.script, str(self.recorded)))

    def start(
        self, prepared: Prepared, arguments: Sequence[str], slot: Slot, label: str, data: Path | None, cache: Path
    ) -> LocalRunning:
        self.starts += 1
        if self.gone_for > 0:
            raise EngineGoneError("the connection was refused")
        return start_process(prepared, [], slot, label, data, cache)

    def sweep(self) -> int:
        self.sweeps += 1
        return 0


class Observer:
    def preparing(self, image: str, line: str) -> None: ...

    def started(self, job: Job) -> None: ...

    def printed(self, job: Job, event: Any) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...


@pytest.fixture
def monitor() -> Iterator[telemetry.Monitor]:
    with telemetry.Monitor() as monitor:
        yield monitor


@pytest.fixture
def site(tmp_path: Path, monitor: telemetry.Monitor, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Site]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    def site(script: str, limits: Limits = PATIENT) -> Site:
        recorded = tmp_path / "recorded"
        recorded.write_text(RECORDED)
        engine: Any = Engine(script, recorded)
        return Site(engine, store.RunStore(tmp_path / "run"), limits, None, tmp_path / "cache", monitor)

    return site


def watched(attempt: Attempt, prepared: Prepared, meanwhile: Callable[[], None] | None = None) -> Any:
    """Run an attempt, with what happens `meanwhile`, and then its watchdog beside it as the matrix does."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(attempt.run(prepared)))
    thread.start()
    if meanwhile:
        meanwhile()
    while thread.is_alive():
        attempt.watch(time.monotonic())
        time.sleep(0.05)
    return found[0]


def sampled(attempt: Attempt) -> set[str]:
    """The GPUs that telemetry has rows of so far."""
    rows = list(attempt._recording.rows) if attempt._recording else []
    return {row["device"] for row in rows} - {"cpu"}


def row_of(tmp_path: Path) -> dict[str, Any]:
    (row,) = store.read([tmp_path / "run"], "cells").to_dict("records")
    return dict(row)


@pytest.mark.parametrize(
    ("limits", "kind", "words"),
    [
        (Limits(1, 60), "time-limit", "it had not ended after 1 s"),
        (Limits(60, 1), "hang", "it had printed nothing for 1 s"),
    ],
)
def test_a_cell_that_stands_still_is_ended_and_its_stack_kept(
    site: Callable[..., Site], tmp_path: Path, limits: Limits, kind: str, words: str
) -> None:
    here = site(HANG, limits)
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    begin = time.monotonic()
    stands_still = (tmp_path / "recorded.here").exists
    status, reason, _ = watched(attempt, here.engine.prepare(None, print), lambda: wait_for(stands_still))  # type: ignore[arg-type]
    assert time.monotonic() - begin < 50
    row = row_of(tmp_path)
    assert (status, row["error_kind"]) == ("failed", kind)
    assert words in reason
    assert "in stands_still" in row["log_tail"]
    assert "stack" in row["hint"]


def test_a_cell_that_ends_well_has_its_telemetry_beside_it(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site(f"import time; time.sleep(1.5); {REPLAY}")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]
    rows = store.read([tmp_path / "run"], "telemetry")
    assert set(rows.device) == {"cpu"}
    assert rows.memory_bytes.max() > 1 << 20
    assert store.read([tmp_path / "run"], "cells").hint.isna().all()


def test_a_cell_on_another_gpu_is_ended_as_soon_as_it_says_so(site: Callable[..., Site], tmp_path: Path) -> None:
    lines = RECORDED.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if '"environment"' in line)
    event = json.loads(lines[at])
    event["device"] |= {"kind": "cuda", "uuids": [uuid_of(1)]}
    here = site("import sys, time; sys.stdout.write(open(sys.argv[1]).read()); sys.stdout.flush(); time.sleep(60)")
    (tmp_path / "recorded").write_text("".join([*lines[:at], json.dumps(event) + "\n"]))
    slot = Slot("cuda", (uuid_of(0),), (), None)
    attempt = Attempt(here, Job(replace(CELL, device_kind="cuda"), 1), slot, (), lambda event: None)
    begin = time.monotonic()
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert time.monotonic() - begin < 30
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "wrong-device")
    assert reason == f"it ran on {uuid_of(1)} and was given {uuid_of(0)}"


def matrix(site: Site, seconds: float = 1.0) -> CellRunner:
    machine = Machine(Cpu("CPU", (0,), 1 << 30), (), None)
    return CellRunner(site, machine, Observer(), lambda cell: seconds)


def prepared(here: Site) -> dict[str, Prepared]:
    image = load_catalog()[CELL.image]
    return {CELL.image: here.engine.prepare(image, print)}


def test_an_engine_that_goes_and_comes_back_costs_no_cell(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site(REPLAY)
    here.engine.gone_for = 3  # type: ignore[attr-defined]
    running = matrix(here)
    running.run_jobs([Job(CELL, 1), Job(replace(CELL, seed=2), 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["ok", "ok"]
    assert here.engine.starts == 3  # type: ignore[attr-defined]
    assert here.engine.sweeps == 1  # type: ignore[attr-defined]


def test_a_cell_that_every_restart_cuts_off_is_not_tried_for_ever(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site(REPLAY)
    engine: Any = here.engine

    def start(*_: Any) -> LocalRunning:
        engine.starts += 1
        engine.gone_for = 1
        raise EngineGoneError("the connection was refused")

    engine.start = start
    running = matrix(here)
    running.run_jobs([Job(CELL, 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["failed"]
    assert engine.starts == 3
    assert row_of(tmp_path)["error_kind"] == "engine"


def test_an_engine_that_goes_down_again_while_it_is_asked_is_waited_for_again(site: Callable[..., Site]) -> None:
    here = site(REPLAY)
    engine: Any = here.engine
    engine.gone_for = 1

    def sweep() -> int:
        engine.sweeps += 1
        if engine.sweeps == 1:
            raise EngineGoneError("the connection was aborted")
        return 0

    engine.sweep = sweep
    running = matrix(here)
    running.run_jobs([Job(CELL, 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["ok"]
    assert engine.sweeps == 2


def test_an_engine_that_stays_away_ends_the_run_and_no_cell_has_a_row_for_it(
    site: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.schedule._ENGINE_SECONDS", 0.5)
    here = site(REPLAY)
    here.engine.gone_for = 10**6  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="it did not come back; start it, then --resume"):
        matrix(here).run_jobs([Job(CELL, 1)], prepared(here))
    assert store.read([tmp_path / "run"], "cells").empty


class Thermometer:
    """A GPU that has cooled after being asked so often."""

    def __init__(self, celsius: Sequence[float]) -> None:
        self._celsius = list(celsius)

    def temperature(self, board: str) -> float:
        return self._celsius.pop(0) if len(self._celsius) > 1 else self._celsius[0]


def test_a_gpu_is_let_cool_before_its_next_cell(site: Callable[..., Site]) -> None:
    gpu = Gpu(0, "GPU-0", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,))
    thermometer: Any = Thermometer([40, 80, 60, 42])
    running = matrix(site(REPLAY))
    running.machine = Machine(Cpu("CPU", (0,), 1 << 30), (gpu,), None)
    running.cool_down = thermometer
    begin = time.monotonic()
    running.run_jobs([], {})  # remembers 40 as the temperature at the start
    running._cool(["GPU-0"])
    assert 1.5 < time.monotonic() - begin < 30
    assert thermometer.temperature("GPU-0") == 42


def test_a_cell_killed_by_a_signal_that_nobody_explains_is_a_crash(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site("import os; os.kill(os.getpid(), 11)")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    row = row_of(tmp_path)
    assert row["error_kind"] == "crash"
    assert "SIGSEGV" in row["reason"]
    assert "Segmentation fault" in row["log_tail"], "faulthandler wrote the stack"
    assert "native code" in row["hint"]


def test_a_failure_with_a_critical_error_of_the_driver_is_told_as_that(
    site: Callable[..., Site], tmp_path: Path, fleet: Callable[[Fleet], Path]
) -> None:
    gpu = Fleet((FakeGpu(),))
    fleet(gpu)
    here = site(
        "import os, sys, time\nend = time.monotonic() + 90\n"
        "while not os.path.exists(sys.argv[1] + '.told') and time.monotonic() < end: time.sleep(0.01)\nsys.exit(1)"
    )
    slot = Slot("cuda", (uuid_of(0),), (), None)
    attempt = Attempt(here, Job(replace(CELL, device_kind="cuda"), 1), slot, (uuid_of(0),), lambda event: None)

    def driver_reports() -> None:
        wait_for(lambda: sampled(attempt) == {uuid_of(0)})
        fleet(Fleet(gpu.gpus, xids=((0, 48),)))
        wait_for(lambda: attempt._recording and attempt._recording.xids)
        (tmp_path / "recorded.told").touch()

    watched(attempt, here.engine.prepare(None, print), driver_reports)  # type: ignore[arg-type]
    row = row_of(tmp_path)
    assert row["error_kind"] == "xid"
    assert "Xid 48 (two bits of memory failed at once)" in row["reason"]
    assert row["hint"] == "reset the GPU; retire it when it comes again"


def test_a_cell_whose_gpu_falls_off_the_bus_has_no_row_and_says_which_gpu(
    site: Callable[..., Site], tmp_path: Path, fleet: Callable[[Fleet], Path]
) -> None:
    two = Fleet((FakeGpu(), FakeGpu()))
    fleet(two)
    here = site("import time; time.sleep(60)")
    slot = Slot("cuda", (uuid_of(0), uuid_of(1)), (), None)
    boards = (uuid_of(0), uuid_of(1))
    attempt = Attempt(here, Job(replace(CELL, device_kind="cuda"), 1), slot, boards, lambda event: None)

    def falls_off() -> None:
        wait_for(lambda: sampled(attempt) == set(boards))
        fleet(two.with_gpu(1, lost=1))

    begin = time.monotonic()
    assert watched(attempt, here.engine.prepare(None, print), falls_off) is None  # type: ignore[arg-type]
    assert time.monotonic() - begin < 50
    assert attempt.lost == uuid_of(1)
    assert store.read([tmp_path / "run"], "cells").empty


def test_a_cell_that_cannot_be_written_down_any_more_is_ended_and_not_left_running(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    here = site("import sys, time; sys.stdout.write(open(sys.argv[1]).read()); sys.stdout.flush(); time.sleep(60)")
    started: list[LocalRunning] = []
    start = here.engine.start

    def remembered(*arguments: Any) -> LocalRunning:
        started.append(start(*arguments))  # type: ignore[arg-type]
        return started[-1]

    here.engine.start = remembered  # type: ignore[method-assign]

    def full(event: Any) -> None:
        raise OSError(28, "No space left on device")

    attempt = Attempt(here, Job(CELL, 1), SLOT, (), full)
    with pytest.raises(OSError, match="No space left"):
        attempt.run(here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert started[0].pid() is None, "the cell goes on, and nobody reads it"


def test_an_engine_that_did_not_answer_is_asked_again_to_end_a_cell_that_hangs(
    site: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.attempt._KILL_AGAIN_SECONDS", 0.5)
    monkeypatch.setattr("runner.run.attempt._DUMP_SECONDS", 0.2)
    here = site(HANG, Limits(1, 60))
    stop, asked = LocalRunning.stop, []

    def deaf_once(running: LocalRunning) -> None:
        asked.append(running)
        if len(asked) == 1:
            raise EngineGoneError("the Docker Engine does not answer")
        stop(running)

    monkeypatch.setattr(LocalRunning, "dump", lambda running: None)
    monkeypatch.setattr(LocalRunning, "stop", deaf_once)
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    begin = time.monotonic()
    assert watched(attempt, here.engine.prepare(None, print))[0] == "failed"  # type: ignore[arg-type]
    assert time.monotonic() - begin < 20
    assert len(asked) >= 2


def test_an_engine_that_goes_down_while_images_are_made_is_waited_for_and_the_image_made(
    site: Callable[..., Site],
) -> None:
    here = site(REPLAY)
    engine: Any = here.engine
    prepare, tries = engine.prepare, []

    def goes_down_once(image: Any, say: Callable[[str], None]) -> Prepared:
        tries.append(image)
        if len(tries) == 1:
            engine.gone_for = 1
            raise EngineGoneError("building it: the connection was aborted")
        made: Prepared = prepare(image, say)
        return made

    engine.prepare = goes_down_once
    ready, failed = matrix(here).prepare([load_catalog()[CELL.image]])
    assert (list(ready), failed, len(tries)) == ([CELL.image], {}, 2)


def test_an_engine_that_stays_away_while_images_are_made_ends_the_run_and_fails_no_cell(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.schedule._ENGINE_SECONDS", 0.5)
    here = site(REPLAY)
    engine: Any = here.engine

    def goes_down(image: Any, say: Callable[[str], None]) -> Prepared:
        engine.gone_for = 10**6
        raise EngineGoneError("building it: the connection was aborted")

    engine.prepare = goes_down
    with pytest.raises(EngineError, match="it did not come back; start it, then --resume"):
        matrix(here).prepare([load_catalog()[CELL.image]])
