"""One attempt at a cell: the watchdog's verdicts, an engine that goes and comes back, a GPU that has to cool; in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.catalog.images import load_catalog
from runner.engines import cell_cache
from runner.engines.base import EngineError, EngineGoneError, Prepared, Slot
from runner.engines.process.process import LocalRunning, start_process
from runner.machine import telemetry
from runner.machine.devices import Cpu, Gpu, Machine
from runner.plan.plan import Cell
from runner.results import store
from runner.results.plausible import work
from runner.run import attempt as attempts
from runner.run import jit_cache
from runner.run.attempt import Attempt, Limits, Site
from runner.run.dispatch import Job
from runner.run.record import Recorder
from runner.run.schedule import CellRunner, Outcome
from tests.fixtures.events import at_pace, end_by
from tests.fixtures.plans import make_cell
from tests.fixtures.waiting import wait_for
from tests.stand_ins.fleet import FakeGpu, Fleet, uuid_of

# As of a cell that lives as long as its replay.
RECORDED = at_pace((Path(__file__).parents[2] / "recorded" / "torch-2.13.0-cpu.gru-imdb.jsonl").read_text(), 0.01)
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

    def answer(self) -> None: ...

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
    # A replay is faster than any CPU computes it.
    monkeypatch.setattr(work, "most_operations", lambda *_: None)

    def site(script: str, limits: Limits = PATIENT) -> Site:
        recorded = tmp_path / "recorded"
        recorded.write_text(RECORDED)
        engine: Any = Engine(script, recorded)
        return Site(engine, store.RunStore(tmp_path / "run"), limits, None, monitor)

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
    (row,) = store.read([tmp_path / "run"], "cells").to_pandas().to_dict("records")
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


def test_where_the_driver_must_compile_both_limits_are_longer(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site(HANG, Limits(100, 50, compiling=1000))
    usual, compiles = (Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None, more) for more in (False, True))
    began = usual._began
    assert usual._hang(began + 60) == ("hang", "it had printed nothing for 50 s and was stopped")
    assert compiles._hang(began + 1040) is None
    assert compiles._hang(began + 1200) == ("time-limit", "it had not ended after 1100 s and was stopped")


@pytest.mark.parametrize(("written", "grew"), [("'x' * 300", 300), ("''", 0)])
def test_what_the_driver_compiled_during_a_gpu_cell_is_recorded(
    site: Callable[..., Site], tmp_path: Path, written: str, grew: int
) -> None:
    kept = cell_cache.folder_of("host", CELL.image, "sha256:0") / "cuda" / "0"
    kept.mkdir(parents=True)
    (kept / "earlier").write_bytes(bytes(1000))
    here = site(f"import os; open(os.environ['CUDA_CACHE_PATH'] + '/0/now', 'w').write({written}); {REPLAY}")
    slot = Slot("cuda", (uuid_of(0),), (), None)
    attempt = Attempt(here, Job(replace(CELL, device_kind="cuda"), 1), slot, (), lambda event: None)
    watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert row_of(tmp_path)["jit_cache_grew_bytes"] == grew


def test_a_cell_that_fills_the_disk_is_ended_by_name_and_what_it_kept_is_removed(
    site: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_cache, "is_disk_short", lambda folder: any(folder.glob("big-*")))
    monkeypatch.setattr(attempts, "_MUCH_BYTES", 3 << 20)
    here = site(
        "import os, time\nfor n in range(100):\n"
        "  with open(os.environ['DLBENCH_CACHE'] + '/big-%d' % n, 'wb') as file: file.write(bytes(1 << 20))\n"
        "time.sleep(60)"
    )
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "disk")
    assert reason.startswith(f"the disk was nearly full, and the cells of {CELL.image} had put")
    assert not cell_cache.folder_of("host", CELL.image, "sha256:0").exists() or not list(
        cell_cache.folder_of("host", CELL.image, "sha256:0").iterdir()
    )


@pytest.mark.parametrize("variable", ["DLBENCH_CACHE", "TMPDIR"])
def test_a_cell_that_keeps_more_than_it_may_is_ended_by_name_on_a_disk_with_room(
    site: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setattr(cell_cache, "MOST_BYTES", 8 << 20)
    monkeypatch.setattr(attempts, "_COUNT_AFTER_BYTES", 1 << 20)
    here = site(
        f"import os, time\nwith open(os.environ['{variable}'] + '/big', 'wb') as file: file.write(bytes(16 << 20))\n"
        "time.sleep(60)"
    )
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "disk")
    assert reason.startswith(f"the cells of {CELL.image} had put 0.0 GB there, into ")
    assert not list((tmp_path / "xdg" / "dlbench" / "scratch").iterdir())
    # The next cell has the room again.
    after = site(REPLAY)
    assert (
        watched(Attempt(after, Job(CELL, 2), SLOT, (), lambda event: None), after.engine.prepare(None, print))[0]
        == "ok"
    )  # type: ignore[arg-type]


def test_no_file_of_a_cell_keeps_the_right_to_run_as_its_owner(site: Callable[..., Site]) -> None:
    here = site(
        "import os, shutil\nmine = os.environ['DLBENCH_CACHE'] + '/below'\nos.mkdir(mine)\n"
        "shutil.copy('/bin/sh', mine + '/sh')\nos.chmod(mine + '/sh', 0o6755)\nos.chmod(mine, 0o2755)\n" + REPLAY
    )
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]
    below = cell_cache.folder_of("host", CELL.image, "sha256:0") / "below"
    assert [oct(path.stat().st_mode & 0o7777) for path in (below, below / "sh")] == ["0o755", "0o755"]


def test_a_cell_of_another_bench_is_ended_and_says_which(site: Callable[..., Site], tmp_path: Path) -> None:
    events = [json.loads(line) for line in RECORDED.splitlines()]
    (ran,) = [event["code_sha256"] for event in events if event["event"] == "environment"]
    for planned, expected in ((ran, "ok"), ("f" * 64, "failed")):
        here = replace(site(f"{REPLAY}; sys.stdout.flush()"), code={(CELL.framework, CELL.workload): planned})
        here = replace(here, run=store.RunStore(tmp_path / planned[:4] / "run"))
        attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
        watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
        row = row_of(tmp_path / planned[:4])
        assert row["status"] == expected
    assert row["error_kind"] == "protocol"
    assert row["reason"].startswith(
        f"it ran a bench with the digest {ran[:12]}, and the one that was planned has ffffffffffff"
    )


def test_a_cell_with_little_on_a_full_disk_goes_on(site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_cache, "is_disk_short", lambda folder: True)
    here = site(f"import time; time.sleep(0.5); {REPLAY}")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]


def test_a_cell_that_says_it_measured_longer_than_it_lived_is_no_result(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    here = site(REPLAY)
    (tmp_path / "recorded").write_text(at_pace(RECORDED, 60.0))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "implausible")
    assert "and its process lived for" in reason


def test_sparse_files_larger_than_any_cache_say_nothing_of_what_was_compiled(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    with open(tmp_path / "cuda" / "sparse", "wb") as file:
        file.truncate(2**40 + 1)
    assert jit_cache.size(tmp_path) is None


def test_a_cache_that_cannot_be_read_says_nothing_of_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jit_cache.size(tmp_path) == 0
    (tmp_path / "cuda" / "shut").mkdir(parents=True)
    (tmp_path / "cuda" / "index").write_bytes(bytes(10))
    assert jit_cache.size(tmp_path) == 10
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as shut:
        shut.setattr(os, "scandir", refuse)
        assert jit_cache.size(tmp_path) is None
    monkeypatch.setattr(jit_cache, "_MAX_FILES", 1)
    assert jit_cache.size(tmp_path) is None


def test_only_gpus_whose_kernels_an_image_holds_as_ptx_are_given_time_to_compile(
    site: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles: dict[str, bool] = {}

    def run(attempt: Attempt, prepared: Prepared) -> tuple[str, None, float]:
        compiles[attempt.slot.device_uuids[0]] = attempt._compiles
        return "ok", None, 0.0

    monkeypatch.setattr(Attempt, "run", run)
    here = site(REPLAY)
    image = load_catalog()["tensorflow-2.21.0-cu128"]
    gpus = tuple(
        Gpu(at, f"GPU-{at}", f"GPU of {capability}", capability, 24 << 30, "570.1", (0,))
        for at, capability in enumerate(("8.9", "9.0"))
    )
    running = matrix(here)
    running.machine = Machine(Cpu("CPU", (0,), 1 << 30), gpus, None)
    cells = [replace(CELL, image=image.name, device_kind="cuda", device_model=gpu.model) for gpu in gpus]
    running.run_jobs([Job(cell, 1) for cell in cells], {image.name: here.engine.prepare(image, print)})
    assert compiles == {"GPU-0": False, "GPU-1": True}


def test_a_cell_that_ends_well_has_its_telemetry_beside_it(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site(f"import time; time.sleep(1.5); {REPLAY}")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]
    rows = store.read([tmp_path / "run"], "telemetry").to_pandas()
    assert set(rows.device) == {"cpu"}
    assert rows.memory_bytes.max() > 1 << 20
    assert store.read([tmp_path / "run"], "cells").to_pandas().jit_cache_grew_bytes.isna().all()
    assert store.read([tmp_path / "run"], "cells").to_pandas().hint.isna().all()


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


def test_a_gpu_that_was_lost_gets_no_cell_of_a_later_call_and_its_temperature_is_that_of_the_start(
    site: Callable[..., Site],
) -> None:
    here = site(REPLAY)
    gpu = Gpu(0, "GPU-0", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,))
    running = matrix(here)
    running.machine = replace(running.machine, gpus=(gpu,))
    celsius = iter([40, 80])
    running.cool_down = SimpleNamespace(temperature=lambda board: next(celsius))  # type: ignore[assignment]
    running.run_jobs([], {})
    running.run_jobs([], {})
    assert running._start_celsius == {"GPU-0": 40}
    running.lost.append("GPU-0")
    cell = replace(CELL, device_kind="cuda", device_model="NVIDIA L4")
    running.run_jobs([Job(cell, 1)], prepared(here))
    assert [(outcome.status, outcome.reason) for outcome in running.outcomes] == [
        ("failed", "every GPU that it could run on has fallen off the bus")
    ]


def test_what_does_not_fit_is_not_started_and_the_lengths_are_learned(site: Callable[..., Site]) -> None:
    here = site(REPLAY)
    running = matrix(here)
    long, short = replace(CELL, seed=2), CELL
    learned: list[tuple[Cell, float]] = []
    running.fits = lambda cell: cell != long
    running.learn = lambda cell, seconds: learned.append((cell, seconds))
    running.run_jobs([Job(long, 1), Job(short, 1)], prepared(here))
    assert [outcome.job for outcome in running.outcomes] == [Job(short, 1)]
    assert [cell for cell, seconds in learned if 0 < seconds < 100] == [short]


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
    assert store.read([tmp_path / "run"], "cells").to_pandas().empty


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


def run_on_gpu(here: Site, recorded: Path, show: Callable[[int], object]) -> tuple[str, str | None]:
    """Run a cell of three and a half seconds on one GPU: (status, reason). `show` gets the cell's process id."""
    # At this pace the first window began after 0.7 s, and the last one ended after 2.5 s.
    began = time.time() - 0.2
    events = [json.loads(line) for line in at_pace(RECORDED, 6.0).splitlines()]
    end_by(events, 3.4)
    for event in events:
        if event["event"] == "environment":
            event["device"] |= {"kind": "cuda", "uuids": [uuid_of(0)]}
            event["clock"]["unix_at_zero"] = began
    recorded.write_text("".join(json.dumps(event) + "\n" for event in events))
    slot = Slot("cuda", (uuid_of(0),), (), None)
    attempt = Attempt(here, Job(replace(CELL, device_kind="cuda"), 1), slot, (uuid_of(0),), lambda event: None)

    def meanwhile() -> None:
        wait_for(lambda: sampled(attempt) == {uuid_of(0)})
        assert attempt._running is not None
        show(attempt._running.pid() or 0)

    status, reason, _ = watched(attempt, here.engine.prepare(None, print), meanwhile)  # type: ignore[arg-type]
    return status, reason


@pytest.mark.parametrize("moved", [-1e9, -60.0, 60.0, 1e9])
def test_a_cell_that_says_it_began_at_another_time_gets_the_time_that_this_host_saw(
    site: Callable[..., Site], tmp_path: Path, moved: float
) -> None:
    """Else it would choose the part of its telemetry that its energy and heat are taken from."""
    here, before = site(REPLAY), time.time()
    events = [json.loads(line) for line in RECORDED.splitlines()]
    for event in events:
        if event["event"] == "environment":
            event["clock"]["unix_at_zero"] = before + moved
    (tmp_path / "recorded").write_text("".join(json.dumps(event) + "\n" for event in events))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, _, wall = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert status == "ok"
    assert before - 0.1 <= row_of(tmp_path)["started_unix"] <= before + wall + 1.0


def test_a_cell_that_began_when_it_says_keeps_its_own_time(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "events.jsonl")
    recorder.arrivals.note({"event": "memory", "t": 3.0}, at=14.5)
    recorder.row["started_unix"] = 1001.25
    # The engine was called at 10, the process began at 11.5 at the latest.
    assert attempts._started(recorder, 10.0, 990.0) == 1001.25
    # It printed nothing: it began when its engine was called.
    assert attempts._started(Recorder(tmp_path / "none.jsonl"), 10.0, 990.0) == 1000.0


SLOW_REPLAY = f"import time; time.sleep(3.5); {REPLAY}"
WORKING = Fleet((FakeGpu(),))
IDLE = Fleet((FakeGpu(utilisation=0),))


def test_a_gpu_cell_is_proved_by_its_process_on_the_gpu_and_names_who_else_was_there(
    site: Callable[..., Site], tmp_path: Path, fleet: Callable[[Fleet], Path]
) -> None:
    fleet(WORKING)
    with subprocess.Popen(["sleep", "60"]) as somebody:
        both = lambda pid: fleet(WORKING.with_gpu(0, processes=f"{pid}:7 {somebody.pid}:{1 << 30}"))  # noqa: E731
        assert run_on_gpu(site(SLOW_REPLAY), tmp_path / "recorded", both) == ("ok", None)
        somebody.kill()
    row = row_of(tmp_path)
    assert row["device_proof"] == "proved by NVML"
    assert [text.split(" of ")[0] for text in row["foreign_processes"]] == [f"sleep (process {somebody.pid}"]


@pytest.mark.parametrize("shown", ["no process", "a process"])
def test_a_gpu_cell_whose_gpu_was_idle_fails_also_where_it_opened_the_gpu(
    site: Callable[..., Site], tmp_path: Path, fleet: Callable[[Fleet], Path], shown: str
) -> None:
    fleet(IDLE)
    opens = lambda pid: fleet(IDLE.with_gpu(0, processes=f"{pid}:7")) if shown == "a process" else None  # noqa: E731
    status, reason = run_on_gpu(site(SLOW_REPLAY), tmp_path / "recorded", opens)
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "wrong-device")
    assert reason == (
        f"it says that it ran on {uuid_of(0)}, which was idle: its utilisation was 0, its power 60 W, and 60 W at the lowest; "
        f"NVML showed {shown} of the cell on it"
    )


def test_a_gpu_cell_whose_process_a_driver_hides_is_not_proved_and_does_not_fail(
    site: Callable[..., Site], tmp_path: Path, fleet: Callable[[Fleet], Path]
) -> None:
    fleet(WORKING)
    assert run_on_gpu(site(SLOW_REPLAY), tmp_path / "recorded", lambda pid: None) == ("ok", None)
    assert row_of(tmp_path)["device_proof"] == f"not proved: {uuid_of(0)}: NVML showed no process of the cell on it"


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
    assert store.read([tmp_path / "run"], "cells").to_pandas().empty


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


def test_a_cell_that_ended_well_while_the_runner_stood_still_is_ok(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-Z, a debugger, or a laptop that slept: the limit is over when the watchdog looks again."""
    monkeypatch.setattr(attempts, "_GAP_SECONDS", 0.5)
    monkeypatch.setattr(attempts, "_DUMP_SECONDS", 0.1)
    here = site(f"import time; time.sleep(1.5); {REPLAY}", Limits(1, 1))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    # The thread reads what the cell prints, as a runner that goes on does.
    ended = watched(attempt, here.engine.prepare(None, print), lambda: time.sleep(1.4))  # type: ignore[arg-type]
    assert ended[:2] == ("ok", None)


class LateRunning(LocalRunning):
    """A cell whose engine stands still for a while: it hands over what the cell printed too late, and does nothing that it is told."""

    def events(self) -> Iterator[bytes]:
        time.sleep(1.5)
        yield from super().events()

    def stop(self) -> None:
        raise EngineError("no Docker Engine answers")

    dump = stop


def late(running: LocalRunning) -> LocalRunning:
    running.__class__ = LateRunning
    return running


def test_a_cell_that_ended_well_while_its_engine_stood_still_is_ok(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_DUMP_SECONDS", 0.1)
    here = site(REPLAY, Limits(1, 60))
    start = here.engine.start
    here.engine.start = lambda *given: late(start(*given))  # type: ignore[method-assign, arg-type, return-value]
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[:2] == ("ok", None)  # type: ignore[arg-type]
    assert attempt._kill_at is not None, "the watchdog ended it"


@pytest.mark.parametrize("still", [False, True])
def test_reports_that_come_at_the_end_are_no_lie_only_where_the_engine_stood_still(
    site: Callable[..., Site], tmp_path: Path, still: bool
) -> None:
    here = site(f"import time; time.sleep(3.7); {REPLAY}")
    # Its windows last for 2.3 s, and end after 3.3 s.
    events = [json.loads(line) for line in at_pace(RECORDED, 8.0).splitlines()]
    end_by(events, 3.5)
    (tmp_path / "recorded").write_text("".join(json.dumps(event) + "\n" for event in events))
    never = threading.Event()
    here.engine.answer = never.wait if still else lambda: None  # type: ignore[method-assign, assignment, return-value]
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    never.set()
    assert (status, reason is None) == (("ok", True) if still else ("failed", False)), reason
    assert still or "s after they ended, in bursts or at its end" in reason


def test_the_time_in_which_an_engine_starts_a_cell_is_none_of_the_cells(site: Callable[..., Site]) -> None:
    here = site(REPLAY, Limits(2, 2))
    start = here.engine.start

    def frozen(*given: Any) -> LocalRunning:
        time.sleep(2.5)
        running: Any = start(*given)
        return running

    here.engine.start = frozen  # type: ignore[method-assign, assignment]
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, _, wall = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert status == "ok"
    assert wall > 2.5


def test_a_cell_that_lingers_after_its_end_is_a_hang(site: Callable[..., Site], tmp_path: Path) -> None:
    here = site(f"import time; {REPLAY}; sys.stdout.flush(); time.sleep(60)", Limits(1, 60))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status = watched(attempt, here.engine.prepare(None, print))[0]  # type: ignore[arg-type]
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "time-limit")


def test_an_interrupt_under_an_engine_that_does_not_answer_ends_within_5_seconds(
    site: Callable[..., Site],
) -> None:
    here = site(HANG)
    engine: Any = here.engine
    never = threading.Event()
    start = engine.start

    def hung(*given: Any) -> LocalRunning:
        running = start(*given)
        running.end = running.stop
        running.stop = never.wait
        cells.append(running)
        return running

    cells: list[Any] = []
    engine.start, engine.sweep, engine.unavailable = hung, never.wait, never.wait
    running = matrix(here)
    begin = 0.0

    def interrupt() -> None:
        nonlocal begin
        wait_for(lambda: cells)
        begin = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            running.run_jobs([Job(CELL, 1)], prepared(here))
        running.sweep()
        assert time.monotonic() - begin < 5
        assert running.hung
    finally:
        never.set()
        for cell in cells:
            cell.end()


def test_an_interrupt_waits_for_a_slow_engine_that_answers(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.schedule._PATIENCE_SECONDS", 0.1)
    swept: list[float] = []
    here = site(REPLAY)
    running = matrix(here)
    here.engine.sweep = lambda: (time.sleep(0.5), swept.append(0.5))  # type: ignore[method-assign, assignment, func-returns-value, return-value]
    running.stop()
    running.sweep()
    assert (swept, running.hung) == ([0.5], False)
