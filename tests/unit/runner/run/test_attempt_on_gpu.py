"""One attempt at a GPU cell: the GPU that it used, kernels that the driver must compile, a GPU that is hot or lost; in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.catalog.images import load_catalog
from runner.engines import cell_cache
from runner.engines.base import ReadyImage, Slot
from runner.machine.devices import Cpu, Gpu, Machine
from runner.run import schedule
from runner.run.attempt import Attempt, AttemptContext, Limits
from runner.run.dispatch import Job
from tests.fixtures.attempts import (
    CELL,
    HANG,
    RECORDED,
    REPLAY,
    SLOT,
    matrix,
    prepared,
    row_of,
    run_in,
    sampled,
    watched,
)
from tests.fixtures.events import at_pace, end_by
from tests.fixtures.waiting import wait_for
from tests.stand_ins.fleet import FakeGpu, Fleet, uuid_of


def test_where_the_driver_must_compile_both_limits_are_longer(
    site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    here = site(HANG, Limits(100, 50, compiling=1000))
    usual, compiles = (Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None, more) for more in (False, True))
    began = usual._began
    assert usual._hang(began + 60) == ("hang", "it had printed nothing for 50 s and was stopped")
    assert compiles._hang(began + 1040) is None
    assert compiles._hang(began + 1200) == ("time-limit", "it had not ended after 1100 s and was stopped")


@pytest.mark.parametrize(("written", "grew"), [("'x' * 300", 300), ("''", 0)])
def test_what_the_driver_compiled_during_a_gpu_cell_is_recorded(
    site: Callable[..., AttemptContext], tmp_path: Path, written: str, grew: int
) -> None:
    kept = cell_cache.folder_of("host", CELL.image, "sha256:0") / "cuda" / "0"
    kept.mkdir(parents=True)
    (kept / "earlier").write_bytes(bytes(1000))
    here = site(f"import os; open(os.environ['CUDA_CACHE_PATH'] + '/0/now', 'w').write({written}); {REPLAY}")
    slot = Slot("cuda", (uuid_of(0),), (), None)
    attempt = Attempt(here, Job(replace(CELL, device_kind="cuda"), 1), slot, (), lambda event: None)
    watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert row_of(tmp_path)["jit_cache_grew_bytes"] == grew


def test_sparse_files_larger_than_any_cache_say_nothing_of_what_was_compiled(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    with open(tmp_path / "cuda" / "sparse", "wb") as file:
        file.truncate(2**40 + 1)
    assert cell_cache.jit_cache_size(tmp_path) is None


def test_a_cache_that_cannot_be_read_says_nothing_of_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cell_cache.jit_cache_size(tmp_path) == 0
    (tmp_path / "cuda" / "shut").mkdir(parents=True)
    (tmp_path / "cuda" / "index").write_bytes(bytes(10))
    assert cell_cache.jit_cache_size(tmp_path) == 10
    opened = os.open

    def refuse(path: Any, *rest: Any, **named: Any) -> int:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *rest, **named)

    with monkeypatch.context() as shut:
        shut.setattr(os, "open", refuse)
        assert cell_cache.jit_cache_size(tmp_path) is None
    monkeypatch.setattr(cell_cache, "_MAX_FILES", 1)
    assert cell_cache.jit_cache_size(tmp_path) is None


def test_only_gpus_whose_kernels_an_image_holds_as_ptx_are_given_time_to_compile(
    site: Callable[..., AttemptContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles: dict[str, bool] = {}

    def run(attempt: Attempt, prepared: ReadyImage) -> tuple[str, None, float]:
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


def test_a_cell_on_another_gpu_is_ended_as_soon_as_it_says_so(
    site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
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


def test_a_gpu_that_was_lost_gets_no_cell_of_a_later_call_and_its_temperature_is_that_of_the_start(
    site: Callable[..., AttemptContext],
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


FAILS = """import json
print(json.dumps(dict(event="error", t=1.0, v=1, kind="no-device", message="torch 2.11 {why}", traceback="")))
print(json.dumps(dict(event="end", t=1.0, v=1, status="failed", stop="none", noise=None, steps=0)))
raise SystemExit(1)"""


@pytest.mark.parametrize(
    ("why", "starts", "closed"),
    [
        ("finds no GPU: cuInit says 802 CUDA_ERROR_SYSTEM_NOT_READY; start nvidia-fabricmanager", 1, True),
        ("finds no GPU: libcuda.so.1: cannot open shared object file; start the container with a GPU", 1, True),
        # It may pass, so the cell begins once more.
        ("finds no GPU: cuInit says 999 CUDA_ERROR_UNKNOWN; often nvidia_uvm is not loaded", 2, True),
        # Another process has the GPU for itself, or has filled its memory, and may end at any time: each cell asks for itself.
        ("finds no GPU: cuDevicePrimaryCtxRetain says 46 CUDA_ERROR_DEVICE_UNAVAILABLE; wait", 6, None),
        ("finds no GPU: cuDevicePrimaryCtxRetain says 2 CUDA_ERROR_OUT_OF_MEMORY; the GPU's memory is full", 6, None),
        # The image's own libcuda may be the reason, and another image has another one.
        ("finds no GPU: cuInit says 804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE; take `compat` out", 1, False),
        ("(CUDA 13.0) opens no GPU, and the CUDA driver does: the driver is of CUDA 12.2 and too old", 1, False),
    ],
)
def test_after_an_error_of_cuda_that_stays_no_cell_starts_on_the_gpu_or_of_the_image(
    site: Callable[..., AttemptContext],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
    starts: int,
    closed: bool | None,
) -> None:
    monkeypatch.setattr(schedule, "_PASSING_SECONDS", 0.1)
    here = site(FAILS.format(why=why))
    running = matrix(here)
    running.machine = replace(running.machine, gpus=(Gpu(0, "GPU-0", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,)),))
    cell = replace(CELL, device_kind="cuda", device_model="NVIDIA L4")
    running.run_jobs([Job(cell, repeat) for repeat in (1, 2, 3)], prepared(here))
    assert here.engine.starts == starts  # type: ignore[attr-defined]
    assert running.has_gpus() is (closed is not True)
    rows = run_in(tmp_path).rows("cells").to_pandas()
    assert list(rows.error_kind) == ["no-device"] * 3
    said = (
        f"no GPU that it could run on can be opened any more: {why.removeprefix('finds no GPU: ')}" if closed else why
    )
    assert [outcome.reason.endswith(said) for outcome in running.outcomes if outcome.reason] == [not closed, True, True]
    assert bool(running.unable) is (closed is False)
    assert running.no_device, "without any good cell the run ends with 2"


@pytest.mark.parametrize(
    ("call", "closed"), [("cuInit", {"GPU-0", "GPU-1"}), ("cuDevicePrimaryCtxRetain", set())], ids=["driver", "gpu"]
)
def test_where_one_of_several_gpus_does_not_open_the_others_stay(
    site: Callable[..., AttemptContext], monkeypatch: pytest.MonkeyPatch, call: str, closed: set[str]
) -> None:
    monkeypatch.setattr(schedule, "_PASSING_SECONDS", 0.1)
    here = site(FAILS.format(why=f"finds no GPU: {call} says 999 CUDA_ERROR_UNKNOWN; `dmesg` may tell more"))
    running = matrix(here)
    gpus = tuple(Gpu(at, f"GPU-{at}", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,)) for at in (0, 1))
    running.machine = replace(running.machine, gpus=gpus)
    running.run_jobs([Job(replace(CELL, device_kind="cuda", device_model="NVIDIA L4", devices=2), 1)], prepared(here))
    assert running.closed.keys() == closed
    assert running.no_device
    assert [outcome.status for outcome in running.outcomes] == ["failed"]


def test_an_error_of_cuda_that_passes_leaves_no_row_and_closes_no_gpu(
    site: Callable[..., AttemptContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_PASSING_SECONDS", 0.1)
    fails = FAILS.format(why="finds no GPU: cuInit says 999 CUDA_ERROR_UNKNOWN")
    here = site(
        "import os, sys\nfirst = sys.argv[1] + '.first'\nif os.path.exists(first): sys.exit(7)\nopen(first, 'w').close()\n"
        + fails
    )
    running = matrix(here)
    running.machine = replace(running.machine, gpus=(Gpu(0, "GPU-0", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,)),))
    running.run_jobs([Job(replace(CELL, device_kind="cuda", device_model="NVIDIA L4"), 1)], prepared(here))
    assert here.engine.starts == 2  # type: ignore[attr-defined]
    assert running.has_gpus()
    (outcome,) = running.outcomes
    assert "exit code 7" in str(outcome.reason)
    assert len(run_in(tmp_path).rows("cells").to_pandas()) == 1


class Thermometer:
    """A GPU that has cooled after being asked so often."""

    def __init__(self, celsius: Sequence[float]) -> None:
        self._celsius = list(celsius)

    def temperature(self, board: str) -> float:
        return self._celsius.pop(0) if len(self._celsius) > 1 else self._celsius[0]


def test_a_gpu_is_let_cool_before_its_next_cell(site: Callable[..., AttemptContext]) -> None:
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


def test_a_failure_with_a_critical_error_of_the_driver_is_told_as_that(
    site: Callable[..., AttemptContext], tmp_path: Path, fleet: Callable[[Fleet], Path]
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


def run_on_gpu(here: AttemptContext, recorded: Path, show: Callable[[int], object]) -> tuple[str, str | None]:
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


SLOW_REPLAY = f"import time; time.sleep(3.5); {REPLAY}"
WORKING = Fleet((FakeGpu(),))
IDLE = Fleet((FakeGpu(utilisation=0),))


def test_a_gpu_cell_is_proved_by_its_process_on_the_gpu_and_names_who_else_was_there(
    site: Callable[..., AttemptContext], tmp_path: Path, fleet: Callable[[Fleet], Path]
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
    site: Callable[..., AttemptContext], tmp_path: Path, fleet: Callable[[Fleet], Path], shown: str
) -> None:
    fleet(IDLE)
    opens = lambda pid: fleet(IDLE.with_gpu(0, processes=f"{pid}:7")) if shown == "a process" else None  # noqa: E731
    status, reason = run_on_gpu(site(SLOW_REPLAY), tmp_path / "recorded", opens)
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "wrong-device")
    assert reason == (
        f"it reports a run on {uuid_of(0)}, which was idle: its utilisation was 0, its power 60 W, and 60 W at the lowest; "
        f"NVML showed {shown} of the cell on it"
    )


def test_a_gpu_cell_whose_process_a_driver_hides_is_not_proved_and_does_not_fail(
    site: Callable[..., AttemptContext], tmp_path: Path, fleet: Callable[[Fleet], Path]
) -> None:
    fleet(WORKING)
    assert run_on_gpu(site(SLOW_REPLAY), tmp_path / "recorded", lambda pid: None) == ("ok", None)
    assert row_of(tmp_path)["device_proof"] == f"not proved: {uuid_of(0)}: NVML showed no process of the cell on it"


def test_a_cell_whose_gpu_falls_off_the_bus_has_no_row_and_says_which_gpu(
    site: Callable[..., AttemptContext], tmp_path: Path, fleet: Callable[[Fleet], Path]
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
    assert run_in(tmp_path).rows("cells").to_pandas().empty
