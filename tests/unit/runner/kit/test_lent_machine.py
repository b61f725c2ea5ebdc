"""The kit on the machine of docs/first-gpu.md, by a simulated clock: what its owner has when the machine is taken away.

The kit's own plan, time limits, resumption and archive are at work. No process is started: a step takes as long as its like took on the
H200 of docs/h200, or as long as is guessed here, and leaves a parcel.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from bench.rules import LAYOUTS
from runner.engines.process import installed
from runner.kit import doing, measure, results_folder
from runner.kit.archive import read
from runner.kit.doing import Doer
from runner.kit.steps import KitStep
from runner.machine.devices import Cpu, Gpu, Machine
from runner.paths import PROJECT
from runner.results.parcel import Parcel, decode

# A lent machine ends a command after ten minutes, and is taken back after thirty: the kit is started so often, with its default.
STARTS = 3
TAKEN_AWAY = (5, 9, 18, 27)

H200 = Gpu(0, "GPU-1", "NVIDIA H200", "9.0", 150 * 10**9, "580.159.04", (0,))
MACHINE = Machine(Cpu("Intel Xeon", tuple(range(16)), 16), (H200,), None)
FRAMEWORKS = {"jax": "0.11.2", "torch": "2.11.0+cu130"}
PACKAGES = {"python": "3.12.3", "path": "/usr/bin/python3", "installed": ["jax==0.11.2"], "machine": "x86_64"}

# Seconds that nobody has measured on a GPU: these are guesses.
LISTING_FRAMEWORKS, OPENING_THE_GPU = 20.0, 2.0
NO_CELL = 15.0
# Its only record ended by a fault after 20 s.
TRANSFORMER_AS_GRAPH = 30.0
DEEP_NETWORK, CURVES, COMPILED, TRANSFORMER, SMALL_NETWORK = 150.0, 60.0, 60.0, 50.0, 25.0

# (framework, workload, precision, mode)
Like = tuple[str, str, str, str]


@cache
def records() -> dict[Like, Parcel]:
    """The cells of docs/h200 that ended by themselves."""
    archives = [read(PROJECT / "docs" / "h200" / name) for name in ("fp32.tar.gz", "amp-bf16.tar.gz")]
    parcels = [(step, decode(content, step.name)) for each in archives for step, content in each.steps.items()]
    return {like(step): parcel for step, parcel in parcels if parcel.code == 0}


def like(step: KitStep) -> Like:
    cell = step.cell
    return cell.framework, cell.workload, cell.precision, cell.mode


def seconds_of(step: KitStep) -> float:
    """As recorded; of a precision without a record as at another: at tf32 the network is the same, and its windows take as long."""
    framework, workload, precision, mode = like(step)
    if step.kind != "cell":
        return NO_CELL
    if mode in LAYOUTS:  # what the default has, in the one or the other order
        mode = "default"
    for recorded in (precision, "fp32", "amp-bf16"):
        if parcel := records().get((framework, workload, recorded, mode)):
            assert parcel.wall_seconds
            return parcel.wall_seconds
    if workload.startswith(("densenet", "resnet50-imagenet")):
        return DEEP_NETWORK
    if (workload, mode) == ("gpt2-124m", "graph"):
        return TRANSFORMER_AS_GRAPH
    by_workload = {"ops": CURVES, "gpt2-124m": TRANSFORMER}
    return COMPILED if mode == "compile" else by_workload.get(workload, SMALL_NETWORK)


@dataclass
class SimulatedClock:
    """It stands in for the module `time`."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now

    def takes(self, seconds: float, answer: Any) -> Callable[..., Any]:
        def answered(*_: Any) -> Any:
            self.now += seconds
            return answer

        return answered


@dataclass
class SimulatedDoer(Doer):
    """Its steps take their time by the clock, or the time that is left."""

    clock: SimulatedClock = field(default_factory=SimulatedClock)
    pace: float = 1.0

    def _measure(self, step: KitStep, limit: float) -> None:
        whole, began = self.pace * seconds_of(step), self.clock.time()
        seconds = min(whole, limit)
        self.clock.now += seconds
        late = seconds < whole
        printed = (
            ((0.0, b'{"windows": []}'),)
            if step.kind != "cell"
            else records()["jax", "gru-imdb", "fp32", "default"].tape
        )
        parcel = Parcel(
            step.cell.id,
            step.repeat,
            self.engine.name,
            code=-9 if late else 0,
            ended_by=("time-limit", "it was stopped") if late else None,
            started_unix=began,
            wall_seconds=seconds,
            tape=() if late else printed,
        )
        self._keep(step, parcel)

    _print = _measure


@dataclass(frozen=True)
class Lent:
    """The measurement of a lent machine. Steps are in the order of their ends, those that were cut off are names."""

    # Step -> the minute of its end.
    ends: dict[KitStep, float]
    planned: list[KitStep]
    cut_off: set[str]

    def repeated(self, repeat: int, minute: float) -> set[Like]:
        """The cells that have had this repeat by then."""
        return {
            like(step)
            for step, end in self.ends.items()
            if (step.kind, step.repeat) == ("cell", repeat) and end <= minute
        }


def lend(folder: Path, pace: float = 1.0) -> Lent:
    """Start the kit as often as the time allows, on a machine on which all takes so much longer than on the recorded one."""
    clock, out = SimulatedClock(), folder / "results"
    entries = [{"framework": name, "version": each, "device_kinds": ["cuda"]} for name, each in FRAMEWORKS.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("DLBENCH_LEASES", str(folder / "leases"))
        patch.setattr(measure.signal, "signal", lambda *_: None)
        patch.setattr(measure, "time", clock)
        patch.setattr(doing, "time", clock)
        patch.setattr(measure, "Doer", partial(SimulatedDoer, clock=clock, pace=pace))
        patch.setattr(measure, "detect", lambda _: MACHINE)
        patch.setattr(installed, "packages", clock.takes(0.0, PACKAGES))
        patch.setattr(installed, "frameworks", clock.takes(pace * LISTING_FRAMEWORKS, (entries, [])))
        patch.setattr(installed, "opened", clock.takes(pace * OPENING_THE_GPU, ([H200.uuid], "")))
        codes = [measure.main(["--out", str(out)]) for _ in range(STARTS)]
    # Each start leaves steps to the next.
    assert codes == [1] * STARTS
    assert {json.loads(path.read_bytes())["status"] for path in out.glob("steps/*.said")} == {"ok"}
    archive = read(out / results_folder.ARCHIVE)
    parcels = {step: decode(content, step.name) for step, content in archive.steps.items()}
    ends = {step: (each.started_unix + each.wall_seconds - 1e9) / 60 for step, each in parcels.items()}
    in_order = dict(sorted(ends.items(), key=lambda pair: pair[1]))
    return Lent(in_order, list(archive.facts.steps()), {path.stem for path in out.glob("steps/*.cut-off")})


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Lent:
    return lend(tmp_path_factory.mktemp("lent"))


def first_group(*precisions: str) -> set[Like]:
    return set(itertools.product(FRAMEWORKS, ("cnn-cifar10", "gru-imdb"), precisions, ("default",)))


def group_of(step: KitStep) -> str:
    """The row of the page that tells when the step ends."""
    if step.kind != "cell":
        return step.kind
    if like(step) in first_group(step.cell.precision):
        return "once" if step.repeat == 1 else f"repeats at {step.cell.precision}"
    if step.cell.mode in LAYOUTS:
        return "layouts"
    return "compile" if step.cell.mode == "compile" else "graph"


def test_a_reference_is_there_at_minute_eight_and_three_starts_have_twelve_cells_with_three_repeats(lent: Lent) -> None:
    assert lent.repeated(3, minute=8)
    assert len(lent.repeated(3, minute=27)) >= 12
    # Each cell of the first group is measured once, then one precision after another is complete.
    assert lent.repeated(1, minute=5.5) == first_group("fp32", "amp-bf16", "tf32")
    assert lent.repeated(3, minute=9) == first_group("fp32")
    assert lent.repeated(3, minute=18) == first_group("fp32", "amp-bf16", "tf32")


def test_a_machine_on_which_all_takes_half_as_long_again_has_twelve_as_well(tmp_path: Path) -> None:
    assert lend(tmp_path, pace=1.5).repeated(3, minute=27) >= first_group("fp32", "amp-bf16", "tf32")


def test_a_start_goes_on_where_the_one_before_stopped(lent: Lent) -> None:
    names = [step.name for step in lent.planned]
    assert [step.name for step in lent.ends] == names[: len(lent.ends)]
    # Those of the first starts were done by the next.
    assert lent.cut_off
    assert lent.cut_off <= set(names[: len(lent.ends) + 1])


def test_the_page_says_when_each_group_ends_and_what_there_is_when_the_machine_is_taken_away(lent: Lent) -> None:
    page = (PROJECT / "docs" / "gpu-kit.md").read_text()
    groups = {name: list(steps)[-1] for name, steps in itertools.groupby(lent.ends, key=group_of)}
    # The last one is not at its end.
    assert groups.popitem()[0] == "graph"
    minutes = [f"{lent.ends[last]:.1f}" for last in groups.values()]
    assert re.findall(r"^\| .* \| (\d+\.\d) \|$", page, re.MULTILINE) == minutes
    rows = re.findall(r"^\| (\d+) min \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    simulated = [(minute, *(len(lent.repeated(repeat, minute)) for repeat in (1, 3))) for minute in TAKEN_AWAY]
    assert [tuple(map(int, row)) for row in rows] == simulated
