"""What leads from a figure to its samples: telemetry over time, what ran beside it, versions, how often which time came."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

import reports.page.render
from reports.data import tables, telemetry
from reports.data.model import MeasuredCell, Repeat, Tables
from reports.page import trust_charts
from runner.results.store import TABLES, RunStore
from tests.fixtures import synthetic

BOARDS = [f"GPU-{at}" for at in range(10)]


def watched(folder: Path, gpus: int = 1) -> Path:
    """A run whose first cell was sampled on so many GPUs."""
    run = synthetic.make_run(folder)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    rows["telemetry"] = synthetic.telemetry_rows(rows["samples"], BOARDS[:gpus])
    rows["cells"][0] |= {"throttled": True, "throttled_by": ["hardware thermal slowdown"]}
    RunStore(run).write_repeat(entry["id"], 1, rows)
    return run


def first(data: Tables) -> tuple[MeasuredCell, Repeat]:
    cell = next(cell for cell in data.cells if cell.image.startswith("torch") and cell.key.workload == "cnn-cifar10")
    return cell, cell.repeats[0]


def test_each_device_has_its_lines_on_the_clock_of_the_samples(tmp_path: Path) -> None:
    _, repeat = first(tables.load([watched(tmp_path / "run")]))
    lines = {(one.device, one.name): one for one in repeat.signals}
    power, clock = lines["GPU-0", "power"], lines["GPU-0", "clock"]
    assert (power.low, power.high, power.unit) == (90, 650, "W")
    # It works from the first step on, and not before.
    assert power.values[power.seconds < 6].max() == 90
    assert power.values[power.seconds > 6.5].min() == 650
    assert (clock.low, clock.high) == (1410, 1980)
    held = lines["GPU-0", telemetry.HELD_BACK]
    assert set(held.values) == {1410.0}
    assert held.seconds[0] > power.seconds[-1] / 2  # from the last third on; idle clocks at the begin do not count
    busy = lines["cpu", "CPUs busy"]
    assert busy.values[0] == pytest.approx(0.9)
    assert busy.values[-1] == pytest.approx(1.9)


def test_a_line_is_thinned_to_means_and_keeps_its_extremes() -> None:
    frame = pd.DataFrame(
        [
            {"device": "GPU-0", "seconds": at / 10, "temperature_celsius": 99 if at == 5000 else 40}
            for at in range(10_000)
        ]
    ).reindex(columns=[name for name, _ in TABLES["telemetry"]])
    (line,) = telemetry.signals(frame, 50)
    assert len(line.values) == 50
    assert line.values.max() == pytest.approx(40 + 59 / 200)
    assert (line.low, line.high) == (40, 99)
    assert [telemetry.values_each(count) for count in (1, 1000, 100_000)] == [240, 25, 24]


def test_a_counter_that_falls_and_a_clock_that_stands_say_nothing() -> None:
    rows = [(0.0, 1.0), (1.0, 2.0), (1.0, 2.5), (2.0, 1.5), (3.0, 3.5)]
    frame = pd.DataFrame([{"device": "cpu", "seconds": at, "cpu_seconds": used} for at, used in rows])
    (line,) = telemetry.signals(frame.reindex(columns=[name for name, _ in TABLES["telemetry"]]), 50)
    assert line.values.tolist() == [1.0, 2.0]


def test_the_plot_has_windows_frequencies_and_a_row_for_each_unit(tmp_path: Path) -> None:
    cell, repeat = first(tables.load([watched(tmp_path / "run", gpus=10)]))
    figure = trust_charts.sequence(cell, repeat)
    assert figure is not None
    (bars,) = (trace for trace in figure["data"] if trace["type"] == "bar")
    steady = repeat.steady_step_seconds
    assert 0.9 * len(steady) < sum(bars["y"]) <= len(steady)
    titles = [axis["title"]["text"] for name, axis in figure["layout"].items() if name.startswith("yaxis")]
    assert {"milliseconds a step", "W", "°C", "MHz", "% busy", "GiB", "CPUs"} == set(titles) - {""}
    drawn = {trace["name"].split()[0] for trace in figure["data"] if trace.get("name", "").startswith("GPU")}
    assert len(drawn) == telemetry.MOST_DEVICES
    assert "10 GPUs, 8 of them drawn" in telemetry.described(repeat)
    crosses = [trace for trace in figure["data"] if trace.get("meta", {}).get("tint") == "--bad"]
    assert crosses
    assert "clock was held back" in telemetry.described(repeat)
    spans = sorted(axis["domain"] for name, axis in figure["layout"].items() if name.startswith("yaxis"))
    assert all(0 <= low < high <= 1 for low, high in spans)


def test_what_ran_at_the_same_time_is_told_of_both_and_only_of_one_run(tmp_path: Path) -> None:
    times = {"torch-2.13.0-cpu": (100.0, 30.0), "jax-0.10.2-cpu": (120.0, 5.0), "tensorflow-2.21.0-cpu": (130.0, 9.0)}
    runs = []
    for name in ("one", "other"):
        run = synthetic.make_run(tmp_path / name)
        for image, workload in synthetic.LEVELS:
            rows = synthetic.ended(entry := synthetic.cell(image, workload), 1, 40)
            begin, wall = times[image]
            later = 1000.0 if workload == "gru-imdb" else 0.0
            rows["cells"][0] |= {"started_unix": begin + later, "wall_seconds": wall}
            RunStore(run).write_repeat(entry["id"], 1, rows)
        runs.append(run)
    data = tables.load(runs)
    found = telemetry.beside(data)
    cells = {(cell.image, cell.key.workload, cell.run_id): cell for cell in data.cells}
    torch, jax = cells["torch-2.13.0-cpu", "cnn-cifar10", "one"], cells["jax-0.10.2-cpu", "cnn-cifar10", "one"]
    ((only,), more) = found[torch.anchor, 1]
    assert (only.cell, only.seconds, more) == (jax, 5.0, 0)
    ((other,), _) = found[jax.anchor, 1]
    assert (other.cell, other.seconds) == (torch, 5.0)
    assert (cells["tensorflow-2.21.0-cpu", "cnn-cifar10", "one"].anchor, 1) not in found  # it began as the other ended


def test_the_page_shows_versions_telemetry_neighbours_and_why_a_clock_was_held_back(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    reports.page.render.render([watched(tmp_path / "run")], output)
    page = output.read_text("utf-8")
    section = page[page.index('id="provenance"') :]
    said = ("PyTorch 2.13.0, Python 3.11.7", "power 90.0 to 650 W", "At the same time ran", "hardware thermal slowdown")
    for words in said:
        assert words in section, words
    assert "Throttled: the device slowed itself down while it ran PyTorch 2.13.0" in page


def test_a_hostile_device_stays_text(tmp_path: Path) -> None:
    name = "<script>window.hacked=1</script>\u202e\x1b[31m" + "W" * 1_000_000
    run = synthetic.make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    rows["telemetry"] = synthetic.telemetry_rows(rows["samples"], [name])
    RunStore(run).write_repeat(entry["id"], 1, rows)
    figure = trust_charts.sequence(*first(tables.load([run])))
    assert figure is not None
    said = json.dumps(figure, ensure_ascii=False)
    assert "&lt;script&gt;" in said
    assert not {"<script", "\u202e", "\x1b"} & {part for part in ("<script", "\u202e", "\x1b") if part in said}
    assert len(said) < 100_000


def test_a_run_of_before_telemetry_is_shown_without_it(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    for path in (run / "telemetry").glob("*.parquet"):
        path.unlink()
    cell, repeat = first(tables.load([run]))
    assert repeat.signals == ()
    assert telemetry.described(repeat) == ""
    figure = trust_charts.sequence(cell, repeat)
    assert figure is not None
    assert not any(math.isnan(end) for end in figure["layout"]["yaxis"]["range"])
