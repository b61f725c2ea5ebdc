"""GPUs under full load: which is weak, what stands beside it, and what becomes of a load that goes wrong. Below NVML's stand-in."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.catalog.workloads import load_workloads
from runner.engines.base import Launch, ReadyImage
from runner.engines.process.host import HostEngine, HostImage
from runner.engines.process.process import LocalRunning
from runner.errors import ExitCode
from runner.machine.detect import detect
from runner.plan.durations import Durations
from runner.plan.plan import Plan
from runner.results.store import SCHEMA_VERSION, RunStore, StoreError
from runner.run.dispatch import Job
from runner.run.options import Options, UsageError
from runner.run.prospect import Prospect
from runner.text import print_document
from runner.verify import output
from runner.verify import verification_run as verify
from runner.verify.probes import load
from runner.verify.probes.load import GpuLoads, fleets_of_loads, groups_of_loads, load_each, read_loads
from runner.verify.verification import Verification
from runner.verify.verification_run import document
from tests.fixtures.plans import make_cell
from tests.stand_ins.fleet import FakeGpu, Fleet

# A device that does so many FLOP/s, but the one that it is told, which does nine tenths of them.
PROBE = """
import json, os, sys, time
module, framework, device, seconds, start = sys.argv[1:6]
assert (module, framework, device) == ("bench.load", "torch", "cuda")
time.sleep(max(0.0, float(start) - time.time()))
rate = 900e12 * (0.9 if os.environ["CUDA_VISIBLE_DEVICES"].startswith("GPU-00000002") else 1)
begin = time.time()
time.sleep(float(seconds))
rates = [rate * (1 + 0.001 * at) for at in range(-3, 4)]
rates = [each * (1 + int(os.environ["CUDA_VISIBLE_DEVICES"][10:12]) / 5000) for each in rates]
load = {"name": "bf16 product", "unit": "FLOP/s", "begin_unix": begin, "end_unix": time.time(), "rates": rates}
print(json.dumps({"loads": [load]}))
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("DLBENCH_LEASES", str(tmp_path / "leases"))
    monkeypatch.setattr(load, "SECONDS", 0.5)
    monkeypatch.setattr(load, "LEAD_SECONDS", 0.5)


class Engine(HostEngine):
    """The engine `host`, with a script in the place of the interpreter."""

    def __init__(self, script: Path) -> None:
        super().__init__()
        self.script = script

    def prepare(self, image: object, say: Callable[[str], None]) -> ReadyImage:
        return ReadyImage(image, "sha256:0", (sys.executable, str(self.script), "bench"))  # type: ignore[arg-type]


def prospect_of(tmp_path: Path, script: str) -> Prospect:
    path = tmp_path / "probe.py"
    path.write_text(script)
    machine = detect("all")
    cell = make_cell(image="host", device_kind="cuda", device_model=machine.gpus[0].model)
    image = HostImage.model_construct(name="host", folder=PROJECT, installed_sha256="0" * 64)
    return Prospect(Options(), machine, Engine(path), "", {"host": image}, Plan((cell,), ()), Durations({}, {}))


def runs_of(tmp_path: Path, fleet: Fleet) -> list[RunStore]:
    runs = []
    for number, uuid in enumerate(fleet.uuids()):
        run = RunStore(tmp_path / f"run-{number}")
        run.folder.mkdir(parents=True)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run.run_id,
            "created": "2026-11-21T00:00:00+00:00",
            "argv": [],
            "seed": 1,
            "preset": "quick",
            "repeats": 1,
            "engine": "host",
            "devices": [{"uuid": uuid}],
            "host": {"cpu_model": "AMD EPYC", "cpu_count": 2, "memory_bytes": 1, "kernel": "6"},
            "plan": [],
            "bench_sha256": "0" * 64,
            "runner_version": "0.1.0",
        }
        run.write_manifest(manifest)
        runs.append(run)
    return runs


@pytest.fixture
def gpus(fleet: Callable[[Fleet], Path]) -> Fleet:
    healthy = FakeGpu(name="NVIDIA H200", sm_megahertz=1980, power_watts=690.0)
    shown = Fleet((healthy,) * 5).with_gpu(2, sm_megahertz=1400, power_watts=450.0, celsius=88, throttle=0x40)
    fleet(shown)
    return shown


def test_the_weak_gpu_is_named_under_load_with_its_clock_its_power_and_what_holds_it_back(
    gpus: Fleet, tmp_path: Path
) -> None:
    runs = runs_of(tmp_path, gpus)
    load_each(prospect_of(tmp_path, PROBE), runs)
    loads = read_loads([run.folder for run in runs])
    assert [gpu.uuid for gpu in loads] == gpus.uuids()
    assert {each.round for gpu in loads for each in gpu.loads} == {"alone", "all at once"}
    findings = [found for found, _ in fleets_of_loads(groups_of_loads(loads), 1)]
    assert [finding.name for finding in findings] == ["load bf16 product, alone,", "load bf16 product, all at once,"]
    for finding in findings:
        (slow,) = finding.fleet.slow
        assert slow.device == gpus.uuids()[2]
        assert slow.ratio == pytest.approx(1 / 0.9, rel=0.002)
    verification = Verification((), tuple(findings))
    assert verification.exit_code == 1
    lines = list(output.details(verification))
    assert any("TFLOP/s, 1400 MHz, 450 W, 88 °C, held back by hardware thermal slowdown" in line for line in lines)
    assert any("the fleet's medians: 900.2 TFLOP/s, 1980 MHz, 690 W" in line for line in lines), lines
    print_document(document(verification))


def test_all_gpus_begin_at_once_in_the_second_round(
    gpus: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[tuple[str, float, float]] = []
    start_here = Engine.start

    def start(self: Engine, launch: Launch) -> LocalRunning:
        began.append((launch.slot.device_uuids[0], float(launch.arguments[3]), time.time()))
        return start_here(self, launch)

    monkeypatch.setattr(Engine, "start", start)
    load_each(prospect_of(tmp_path, PROBE), runs_of(tmp_path, gpus))
    alone, together = began[:5], began[5:]
    assert [uuid for uuid, _, _ in alone] == gpus.uuids()
    assert {when for _, when, _ in alone} == {0.0}
    assert {uuid for uuid, _, _ in together} == set(gpus.uuids())
    (moment,) = {when for _, when, _ in together}
    assert all(begin < moment for _, _, begin in together)


def test_too_few_gpus_are_shown_and_not_judged(fleet: Callable[[Fleet], Path], tmp_path: Path) -> None:
    two = Fleet((FakeGpu(name="NVIDIA H200"),) * 2)
    fleet(two)
    runs = runs_of(tmp_path, two)
    load_each(prospect_of(tmp_path, PROBE), runs)
    ((first, _), _) = fleets_of_loads(groups_of_loads(read_loads([run.folder for run in runs])), 1)
    assert "at least 4 are needed" in first.fleet.why_not
    assert [line[:12] for line in first.beside] == [uuid[:12] for uuid in two.uuids()]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit('torch has no load here')", "torch has no load here"),
        ("print('{}')", "loads: it is missing"),
        ("print('no json')", "Invalid JSON"),
        (PROBE.replace("rate * (1", "-rate * (1"), "greater than 0"),
        (PROBE.replace('"FLOP/s"', '"apples"'), "unit"),
    ],
)
def test_a_load_that_goes_wrong_is_said_and_leaves_no_file(
    script: str, words: str, gpus: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = runs_of(tmp_path, gpus)
    load_each(prospect_of(tmp_path, script), runs)
    said = capsys.readouterr().err
    assert "the GPUs were not loaded" in said
    assert words.lower() in said.lower()
    assert read_loads([run.folder for run in runs]) == []


def test_one_probe_that_fails_ends_those_of_the_other_gpus_and_is_the_one_that_is_named(
    gpus: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = "import os, sys\ngpu = os.environ['CUDA_VISIBLE_DEVICES'][:12]\n"
    fails += "if float(sys.argv[5]) and gpu == 'GPU-00000003': sys.exit('no memory')\n"
    hangs = "import sys, time\nif float(sys.argv[5]): time.sleep(60)\n"
    begin = time.monotonic()
    load_each(prospect_of(tmp_path, fails + hangs + PROBE), runs_of(tmp_path, gpus))
    assert time.monotonic() - begin < 30
    assert "no memory" in capsys.readouterr().err


def test_an_interrupted_load_leaves_no_process(gpus: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[LocalRunning] = []
    events = LocalRunning.events

    def interrupted(running: LocalRunning) -> Iterator[bytes]:
        if running in started:
            yield from events(running)
            return
        started.append(running)
        if len(started) == 7:
            raise KeyboardInterrupt
        yield from events(running)

    monkeypatch.setattr(LocalRunning, "events", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_each(
            prospect_of(tmp_path, "import sys, time\nif float(sys.argv[5]): time.sleep(60)\n" + PROBE),
            runs_of(tmp_path, gpus),
        )
    assert [running.pid() for running in started] == [None] * len(started)


def test_gpus_that_others_took_meanwhile_are_said_not_to_be_loaded(
    gpus: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prospect = prospect_of(tmp_path, PROBE)
    load_each(replace(prospect, machine=replace(prospect.machine, gpus=())), runs_of(tmp_path, gpus))
    assert "the GPUs were not loaded: none is free any more" in capsys.readouterr().err
    load_each(replace(prospect, plan=Plan((), ())), runs_of(tmp_path / "again", gpus))
    assert "the GPUs were not loaded: no framework here has a load" in capsys.readouterr().err


def test_the_gpus_of_each_model_are_measured_in_one_run_and_then_all_are_loaded(
    fleet: Callable[[Fleet], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_models = Fleet((FakeGpu(name="NVIDIA H200"), FakeGpu(), FakeGpu(name="NVIDIA H200")))
    fleet(two_models)
    first, second, third = two_models.uuids()
    prospect, runs, order = prospect_of(tmp_path, PROBE), runs_of(tmp_path, two_models)[:2], []

    def measure(options: Options, *more: object) -> tuple[Prospect, RunStore, float, ExitCode]:
        assert options.each_gpu
        order.append(options.gpus)
        return replace(prospect, plan=Plan((), ())), runs[len(order) - 1], 0.0, ExitCode.OK

    def loads(of: Prospect, stored: list[RunStore]) -> None:
        order.append("loads")
        assert [run.folder for run in stored] == [run.folder for run in runs]
        assert len(of.machine.gpus) == 3

    monkeypatch.setattr(verify, "look_ahead", lambda options: prospect)
    monkeypatch.setattr(verify, "_measure", measure)
    monkeypatch.setattr(verify, "load_each", loads)
    folders, _ = verify.measure_here(Options(), [], lambda folder: folder, each_gpu=True)
    assert folders == [run.folder for run in runs]
    assert order == [f"{first},{third}", second, "loads"]


def test_the_loads_of_all_gpus_of_a_run_are_kept_in_it(gpus: Fleet, tmp_path: Path) -> None:
    (run, *_) = runs_of(tmp_path, gpus)
    run.write_manifest({**run.manifest(), "devices": [{"uuid": uuid} for uuid in gpus.uuids()]})
    load_each(prospect_of(tmp_path, PROBE), [run])
    assert [kept.uuid for kept in read_loads([run.folder])] == gpus.uuids()


def test_gpus_that_are_compared_take_the_time_of_one_after_another(gpus: Fleet, tmp_path: Path) -> None:
    prospect = replace(prospect_of(tmp_path, PROBE), durations=Durations(load_workloads(), {}))
    (cell,) = prospect.plan.cells
    jobs = [Job(replace(cell, device_uuid=uuid), 1) for uuid in gpus.uuids()]
    together = [Job(replace(cell, seed=at), 1) for at in range(5)]
    assert prospect.expected_seconds(jobs) == pytest.approx(5 * prospect.expected_seconds(together))
    assert prospect.expected_seconds(together) > 0


def test_each_gpu_without_a_gpu_speaks_of_the_gpus_and_not_of_the_frameworks() -> None:
    with pytest.raises(
        UsageError, match=r"there is none here \(GPUs were excluded by --gpus none\); leave the option out"
    ):
        verify.measure_here(Options(gpus="none", engine="host"), [], lambda folder: folder, each_gpu=True)


def test_a_stored_load_that_no_run_writes_is_named(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text(json.dumps({"framework": "torch"}))
    with pytest.raises(StoreError, match=r"load.json: image: it is missing; remove the file, or restore it"):
        read_loads([tmp_path])
    assert read_loads([tmp_path / "elsewhere"]) == []


def test_gpus_of_two_models_are_not_compared() -> None:
    one = {"round": "alone", "name": "copy", "unit": "bytes/s", "rate": 1e12}
    one |= {"sm_megahertz": None, "power_watts": None, "celsius": None, "held_back_by": ()}
    gpu = GpuLoads.model_validate(
        {"framework": "torch", "image": "host", "uuid": "GPU-1", "model": "A", "loads": [one]}
    )
    findings = [
        found
        for found, _ in fleets_of_loads(
            groups_of_loads([gpu, gpu.model_copy(update={"uuid": "GPU-2", "model": "B"})]), 1
        )
    ]
    assert [(finding.device_model, finding.fleet.devices) for finding in findings] == [("A", 1), ("B", 1)]
    assert replace(findings[0], name="").middle == "1000 GB/s"
