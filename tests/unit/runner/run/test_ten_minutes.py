"""The ten minutes of a GPU machine, by the estimates: fp32 and the mixed precision that its GPUs are bought for, in three frameworks."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import Image, load_catalog, select_images
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from runner.catalog.workloads import load_workloads
from runner.engines.base import Engine
from runner.images.recipe import layer_bytes
from runner.machine import detect
from runner.machine.devices import Machine
from runner.plan import durations
from runner.plan.plan import Cell, plan
from runner.plan.request import Request
from runner.run import begin
from runner.run.budget import Forecast, forecast, measuring_seconds, spans_of, without
from runner.run.dispatch import Span
from runner.run.options import Options
from runner.run.prospect import Prospect, left_out, of_images
from tests.fixtures.plans import CPU, H200, with_gpu

Parts = Callable[[Image], Mapping[str, int]]


# The median of the nine cells of the CNN and the GRU in docs/h200 is 20.7 s. The guess before any cell has run is 30 s.
H200_SECONDS = 21.0


def prospect_of(machine: Machine, parts: Parts, seconds: float | None = None) -> Prospect:
    """The real catalog on this machine, with an engine that must fetch these parts of an image. `seconds`: a cell's, if known."""
    images, workloads = load_catalog(), load_workloads()
    options = Options(out=Path(), precisions=("fp32", *begin._tensor_core_precision(machine)), seed=1)
    request = Request(precisions=options.precisions, modes=options.modes)
    planned = plan(request, list(images.values()), workloads, load_frameworks(), machine, lambda _: None)
    engine = cast(Engine, SimpleNamespace(name="venv", parts=parts))
    earlier = {(*durations._alike(cell), None): seconds for cell in planned.cells} if seconds else {}
    return Prospect(
        options, machine, engine, "", images, planned, durations.Durations(workloads, earlier, cores=machine.cpu.count)
    )


def held(machine: Machine, parts: Parts = lambda image: {}, seconds: float | None = None) -> Forecast:
    """The ten minutes of the real catalog on this machine. Images that are not ready take what they are guessed to."""
    prospect = prospect_of(machine, parts, seconds)
    return forecast(prospect.agenda(), prospect.jobs, minutes=10)


def wheels(image: Image) -> Mapping[str, int]:
    """All of an image, as an environment of its own has it."""
    return {image.name: image.download_bytes}


def layers(image: Image) -> Mapping[str, int]:
    """The layers of NVIDIA's libraries, which images of Docker share, and the rest."""
    shared = {layer.digest: size for layer, size in layer_bytes(image).items()}
    return shared | {image.name: image.download_bytes - sum(shared.values())}


def fleet(model: str, capability: str, gigabytes: int, driver: str, count: int, cores: int) -> Machine:
    gpu = replace(H200, model=model, compute_capability=capability, memory_bytes=gigabytes << 30, driver=driver)
    gpus = tuple(replace(gpu, index=at, uuid=f"GPU-{at}", board=f"GPU-{at}") for at in range(count))
    return Machine(replace(CPU, cpus=tuple(range(cores)), memory_bytes=64 << 30), gpus, None)


# With the fewest cores that such a machine is sold with.
FLEETS = {
    "1 x H100": fleet("NVIDIA H100 80GB HBM3", "9.0", 80, "580.159.03", 1, 16),
    "4 x A100": fleet("NVIDIA A100-SXM4-80GB", "8.0", 80, "550.127.08", 4, 48),
    "2 x T4": fleet("Tesla T4", "7.5", 15, "550.127.08", 2, 8),
    "1 x RTX 4090": fleet("NVIDIA GeForce RTX 4090", "8.9", 24, "570.133.20", 1, 8),
}


EIGHT = Machine(CPU, tuple(replace(H200, index=at, uuid=f"GPU-{at}", board=f"GPU-{at}") for at in range(8)), None)


def reached(spans: Iterable[Span]) -> set[tuple[str, str]]:
    return {(span.job.cell.framework, span.job.cell.precision) for span in spans}


def busy_share(spans: Sequence[Span], gpus: int) -> float:
    return sum(span.end - span.begin for span in spans) / (gpus * measuring_seconds(10))


def test_ten_minutes_on_eight_gpus_hold_both_precisions_of_the_three_frameworks_three_times() -> None:
    spans = held(EIGHT).spans
    repeats = Counter((at.job.cell.framework, at.job.cell.workload, at.job.cell.precision) for at in spans)
    for framework in FIRST_FRAMEWORKS:
        for workload in ROSETTA:
            for precision in ("fp32", "amp-bf16"):
                assert repeats[framework, workload, precision] >= 3, (framework, workload, precision)
    # Eight GPUs measure for more than nine tenths of the time until the last cell ends.
    end = max(at.end for at in spans)
    assert sum(at.end - at.begin for at in spans) > 0.9 * 8 * end


@pytest.mark.parametrize("slower", [1.0, 1.5, 2.3])
@pytest.mark.parametrize("parts", [wheels, layers], ids=["environments", "an engine"])
@pytest.mark.parametrize("name", FLEETS)
def test_ten_minutes_with_cold_caches_end_with_a_verdict(name: str, parts: Parts, slower: float) -> None:
    """Two frameworks, or the two precisions of one, have repeats. Images take so many times as long as is guessed; the run learns it."""
    prospect = prospect_of(FLEETS[name], parts)
    assert {cell.precision for cell in prospect.plan.cells} >= {"fp32", "amp-fp16" if "T4" in name else "amp-bf16"}
    agenda, now, waiting, ready = prospect.agenda(), 0.0, list(prospect.jobs), frozenset[str]()
    repeats: Counter[Cell] = Counter()
    done: dict[Cell, list[int]] = {}
    while step := agenda.next_step(waiting, ready, measuring_seconds(10) - now, done):
        if step.image is not None:
            cost = agenda.cost(step.image, agenda.unready(ready))
            took = slower * durations.Durations({}, {}, cores=prospect.machine.cpu.count).preparing(step.image, cost)
            agenda.durations.prepared.append(durations.Preparation(step.image, cost, took))
            now, ready = now + took, ready | {step.image}
        spans = spans_of(step.jobs, agenda.machine, agenda.durations.seconds)
        now += max(span.end for span in spans)
        repeats.update(job.cell for job in step.jobs)
        for job in step.jobs:
            done.setdefault(job.cell, []).append(job.repeat)
        waiting = without(waiting, step.jobs)
    assert now <= measuring_seconds(10)
    cnn = {
        (cell.framework, cell.precision) for cell, count in repeats.items() if count > 1 and cell.workload == ROSETTA[0]
    }
    assert any(len({framework for framework, at in cnn if at == precision}) > 1 for _, precision in cnn) or any(
        len({at for name, at in cnn if name == framework}) > 1 for framework, _ in cnn
    ), repeats


def repeats_of_the_fastest(spans: Iterable[Span]) -> dict[tuple[str, str, str], int]:
    """(framework, workload, precision) -> the repeats of its mode that has the most."""
    most: dict[tuple[str, str, str], int] = {}
    for cell, count in Counter(at.job.cell for at in spans).items():
        key = cell.framework, cell.workload, cell.precision
        most[key] = max(most.get(key, 0), count)
    return most


def test_ten_minutes_on_one_gpu_hold_both_precisions_of_the_three_frameworks_twice() -> None:
    cnn, gru = ROSETTA
    guessed = repeats_of_the_fastest(held(with_gpu()).spans)
    both = {(framework, precision) for framework in FIRST_FRAMEWORKS for precision in ("fp32", "amp-bf16")}
    assert min(guessed[framework, cnn, precision] for framework, precision in both) >= 2
    assert max(guessed[framework, cnn, "fp32"] for framework in FIRST_FRAMEWORKS) == 3
    assert not any(workload == gru for _, workload, _ in guessed), (
        "a column that two repeats do not fit of is not begun"
    )
    # With a cell's length on the H200 the GRU follows at fp32, twice as well.
    known = repeats_of_the_fastest(held(with_gpu(), seconds=H200_SECONDS).spans)
    assert min(known[framework, cnn, precision] for framework, precision in both) >= 2
    assert min(known[framework, gru, "fp32"] for framework in FIRST_FRAMEWORKS) >= 2


def test_the_forecast_repeats_one_mode_of_each_framework_as_the_run_does() -> None:
    repeats = Counter(at.job.cell for at in held(with_gpu()).spans)
    assert {cell.mode for cell, count in repeats.items() if count > 1} == {"default"}
    assert {cell.mode for cell in repeats} == {"default", "graph", "xla"}


def test_with_no_image_ready_one_gpu_compares_two_precisions_or_two_frameworks_with_repeats() -> None:
    alone, sharing = held(with_gpu(), wheels).spans, held(with_gpu(), layers).spans
    repeats = repeats_of_the_fastest(alone)
    assert [repeats["torch", ROSETTA[0], precision] for precision in ("fp32", "amp-bf16")] == [3, 3]
    # One repeat of each at both precisions would compare nothing.
    shared = repeats_of_the_fastest(sharing)
    assert [shared[name, ROSETTA[0], "fp32"] for name in FIRST_FRAMEWORKS[:2]] == [2, 2]


def test_on_eight_gpus_an_engine_whose_images_share_layers_reaches_three_frameworks_with_none_ready() -> None:
    sharing, alone = held(EIGHT, layers).spans, held(EIGHT, wheels).spans
    assert {(name, precision) for name in FIRST_FRAMEWORKS for precision in ("fp32", "amp-bf16")} <= reached(sharing)
    # Environments share nothing: to make three takes longer than the ten minutes.
    agenda = prospect_of(EIGHT, wheels).agenda()
    images = {cell.image for cell in agenda.groups[0]}
    assert agenda.preparing(images, agenda.unready(())) > measuring_seconds(10)
    assert "jax" not in {name for name, _ in reached(alone)}
    assert 0.1 < busy_share(alone, 8) < busy_share(sharing, 8) < 0.25


def test_the_outlook_says_what_images_cost_what_the_next_run_holds_and_what_makes_them_ready() -> None:
    prospect = prospect_of(with_gpu(), wheels)
    spent, short = of_images(prospect, prospect.jobs, held(with_gpu(), wheels), 10)
    assert spent.startswith(
        "about 5 min of them go to making 1 image ready, while nothing is measured; the next such run"
    )
    assert short.startswith("they are too short for tensorflow at fp32, tensorflow at amp-bf16, jax at fp32, jax at ")
    assert (
        "making 3 images ready (10.6 GB) takes about 12 min; `runner matrix --engine venv --images torch-2.9.1-cu128 "
        in short
    )
    assert list(of_images(prospect_of(with_gpu(), lambda image: {}), prospect.jobs, held(with_gpu()), 10)) == []


def test_the_outlook_names_the_networks_and_precisions_that_are_not_begun() -> None:
    prospect, gru = prospect_of(with_gpu(), lambda image: {}), ROSETTA[1]
    (line,) = left_out(prospect, held(with_gpu()))
    assert line.endswith(f"compare frameworks in: {gru} at fp32, {gru} at amp-bf16")
    assert list(left_out(prospect_of(EIGHT, lambda image: {}), held(EIGHT))) == []


def test_the_command_that_makes_images_ready_plans_a_cell_of_each_of_them() -> None:
    prospect = prospect_of(with_gpu(), wheels)
    (command,) = re.findall(
        "`runner matrix (.*)`", "".join(of_images(prospect, prospect.jobs, held(with_gpu(), wheels), 10))
    )
    words = shlex.split(command)
    given: dict[str, list[str]] = {}
    for name, value in zip(words[::2], words[1::2], strict=True):
        given.setdefault(name, []).extend(value.split(","))
    assert given["--repeats"] == ["1"]
    request = Request(
        images=tuple(given["--images"]),
        frameworks=tuple(given["--frameworks"]),
        workloads=tuple(given["--workloads"]),
        modes=tuple(given["--modes"]),
    )
    chosen = select_images(load_catalog(), given["--images"])
    cells = plan(request, chosen, load_workloads(), load_frameworks(), with_gpu(), lambda _: None).cells
    assert {cell.image for cell in cells} == {cell.image for cell in prospect.agenda().groups[0]}
    assert len(cells) == 3


@pytest.mark.parametrize(
    ("capability", "precisions"), [("9.0", ["amp-bf16"]), ("8.0", ["amp-bf16"]), ("7.0", ["amp-fp16"]), ("6.1", [])]
)
def test_the_second_precision_is_the_one_that_the_gpu_has_units_for(capability: str, precisions: list[str]) -> None:
    assert begin._tensor_core_precision(with_gpu(compute_capability=capability)) == precisions


def test_it_is_asked_for_only_where_time_is_short_and_nobody_named_a_precision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(detect, "detect", lambda *_: with_gpu())

    def stop(options: Options, *_: object) -> None:
        raise _AskedError(options.precisions)

    monkeypatch.setattr(begin, "choose", lambda engine, settings, planned, gpus: planned(SimpleNamespace(name="venv")))
    monkeypatch.setattr(begin, "_prospect", stop)
    for options, minutes, precisions in (
        (Options(out=tmp_path), 10.0, ("fp32", "amp-bf16")),
        (Options(out=tmp_path), None, ("fp32",)),
        (Options(out=tmp_path, precisions=("fp32",)), 10.0, ("fp32",)),
    ):
        with pytest.raises(_AskedError) as asked:
            begin.look_ahead(options, minutes)
        assert asked.value.args[0] == precisions


class _AskedError(Exception):
    """Stands in for the plan, and ends the look ahead with the precisions that were asked for."""


def test_a_run_that_chose_a_second_precision_is_gone_on_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(detect, "detect", lambda *_: Machine(CPU, (H200,), None))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = Options(out=tmp_path / "results", engine="venv", workloads=("gru-imdb",), images=("torch-2.13.0-*",))
    begun, run = begin.start(options, ["runner"], minutes=10)
    assert {cell.precision for cell in begun.plan.cells} == {"fp32", "amp-bf16"}
    resumed, _ = begin.resume(run.run_id, Options(out=tmp_path / "results"))
    assert resumed.plan.cells == begun.plan.cells


@pytest.mark.parametrize("seconds", [15, 21, 30, 40, 50, 60, 75, 90, 110, 130, 160, 200])
def test_with_images_ready_no_column_of_a_gpu_holds_one_framework_only(seconds: float) -> None:
    columns: dict[tuple[str, str], set[str]] = {}
    for span in held(with_gpu(), seconds=seconds).spans:
        cell = span.job.cell
        if cell.device_kind == "cuda":
            columns.setdefault((cell.workload, cell.precision), set()).add(cell.framework)
    assert columns
    assert {column: names for column, names in columns.items() if len(names) == 1} == {}
