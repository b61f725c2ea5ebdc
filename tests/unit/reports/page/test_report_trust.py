"""What leads from a figure to its samples: telemetry over time, what ran beside it, versions, how often which time came."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import reports.page.render
from reports.data import tables, telemetry_signals
from reports.data.model import NO_TELEMETRY, MeasuredCell, Repeat, Tables
from reports.page.results import sequence
from runner.cli.main import app
from runner.results.on_disk.schema import arrow_schema
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import samples, whole

BOARDS = [f"GPU-{at}" for at in range(10)]


def watched(folder: Path, gpus: int = 1) -> Path:
    """A run whose first cell was sampled on so many GPUs."""
    run = synthetic.make_run(folder)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    rows["telemetry"] = synthetic.telemetry_rows(rows["samples"], BOARDS[:gpus])
    rows["cells"][0] |= {"throttled": True, "throttled_by": ["hardware thermal slowdown"]}
    stored.write_repeat(run, entry["id"], 1, rows)
    return run


def first(data: Tables) -> tuple[MeasuredCell, Repeat]:
    cell = next(cell for cell in data.cells if cell.image.startswith("torch") and cell.key.workload == "cnn-cifar10")
    return cell, cell.repeats[0]


def test_a_first_step_that_holds_the_drivers_compilation_says_so(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    for repeat, grew in ((1, 5_000_000), (2, 0), (3, None)):
        rows = synthetic.ended(entry, repeat, 40)
        rows["cells"][0]["jit_cache_grew_bytes"] = grew
        stored.write_repeat(run, entry["id"], repeat, rows)
    cell, _ = first(tables.load([run]))
    assert cell.compiled_repeats == 1
    reports.page.render.render([run], tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    said = f"driver compiled in 1 of {len(cell.repeats)}"
    assert page.count(said) == 2, "beside the first step of both tables"
    assert page.count("Where NVIDIA's driver compiled kernels from PTX") == 1


def test_what_the_host_saw_on_a_cells_gpu_stands_in_its_provenance(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    unproved = "not proved: GPU-1: NVML showed no process of the cell on it"
    for repeat, proof, foreign in (
        (1, "proved by NVML", ["<b>eve</b> (process 7)"]),
        (2, unproved, []),
        (3, None, None),
    ):
        rows = synthetic.ended(entry, repeat, 40)
        rows["cells"][0] |= {"device_proof": proof, "foreign_processes": foreign}
        stored.write_repeat(run, entry["id"], repeat, rows)
    cell, _ = first(tables.load([run]))
    assert cell.device_proof == unproved
    assert cell.foreign_processes == ("<b>eve</b> (process 7)",)
    reports.page.render.render([run], tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    assert f'<dt>On its GPU</dt><dd class="warn">{unproved}</dd>' in page
    assert '<dt>Others on its GPU</dt><dd class="warn">&lt;b&gt;eve&lt;/b&gt; (process 7)</dd>' in page
    assert "Disturbed: other processes computed on the GPU of" in page


def test_the_clocks_of_a_runs_gpus_stand_in_its_provenance(tmp_path: Path) -> None:
    devices = [
        {"index": 0, "model": "NVIDIA <L4>", "locked_sm_megahertz": 1500},
        {"index": 1, "max_sm_megahertz": 2040},
    ]
    run = synthetic.make_run(tmp_path / "run", manifest={"devices": devices})
    reports.page.render.render([run], tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    assert "<dt>GPU 0 (NVIDIA &lt;L4&gt;)</dt><dd>clocks locked at 1500 MHz</dd>" in page
    assert "<dd>clocks float, at most 2040 MHz</dd>" in page


def test_each_device_has_its_lines_on_the_clock_of_the_samples(tmp_path: Path) -> None:
    _, repeat = first(tables.load([watched(tmp_path / "run")]))
    lines = {(one.device, one.name): one for one in repeat.signals}
    power, clock = lines["GPU-0", "power"], lines["GPU-0", "clock"]
    assert (power.low, power.high, power.unit) == (90, 650, "W")
    # It works from the first step on, and not before.
    assert power.values[power.seconds < 6].max() == 90
    assert power.values[power.seconds > 6.5].min() == 650
    assert (clock.low, clock.high) == (1410, 1980)
    held = lines["GPU-0", telemetry_signals.HELD_BACK]
    assert set(held.values) == {1410.0}
    assert held.seconds[0] > power.seconds[-1] / 2  # from the last third on; idle clocks at the begin do not count
    busy = lines["cpu", "CPUs busy"]
    assert busy.values[0] == pytest.approx(0.9)
    assert busy.values[-1] == pytest.approx(1.9)


def test_a_line_is_thinned_to_means_and_keeps_its_extremes() -> None:
    rows = [
        {"device": "GPU-0", "seconds": at / 10, "temperature_celsius": 99 if at == 5000 else 40} for at in range(10_000)
    ]
    (line,) = telemetry_signals.signals(pa.Table.from_pylist(rows, schema=arrow_schema("telemetry")), 50)
    assert len(line.values) == 50
    assert line.values.max() == pytest.approx(40 + 59 / 200)
    assert (line.low, line.high) == (40, 99)
    assert [telemetry_signals.values_each(count) for count in (1, 1000, 100_000)] == [240, 25, 24]


def test_a_counter_that_falls_and_a_clock_that_stands_say_nothing() -> None:
    rows = [(0.0, 1.0), (1.0, 2.0), (1.0, 2.5), (2.0, 1.5), (3.0, 3.5)]
    cpu = [{"device": "cpu", "seconds": at, "cpu_seconds": used} for at, used in rows]
    (line,) = telemetry_signals.signals(pa.Table.from_pylist(cpu, schema=arrow_schema("telemetry")), 50)
    assert line.values.tolist() == [1.0, 2.0]


def test_the_samples_are_windows_and_a_line_for_each_quantity(tmp_path: Path) -> None:
    cell, repeat = first(tables.load([watched(tmp_path / "run", gpus=10)]))
    chart = sequence(cell, repeat, 400)
    assert chart is not None
    found = samples(chart.svg)
    warm_up, steady = found["points"]
    assert len(warm_up[0]) == repeat.windows.stage.count("warm-up")
    assert steady[1] == pytest.approx(1e3 * repeat.steady_step_seconds, abs=1e-3 * max(steady[1]))
    assert steady[0] == sorted(steady[0])
    assert found["levels"] == pytest.approx([1e3 * float(np.median(repeat.steady_step_seconds))], rel=1e-4)
    assert {signal["unit"] for signal in found["signals"]} == {"W", "°C", "MHz", "% busy", "GiB", "CPUs"}
    drawn = {signal["name"].split()[0] for signal in found["signals"] if signal["name"].startswith("GPU")}
    assert len(drawn) == telemetry_signals.MOST_DEVICES
    assert "10 GPUs, 8 of them drawn" in telemetry_signals.described(repeat)
    assert [signal["unit"] for signal in found["signals"] if signal.get("held")]
    assert "clock was held back" in telemetry_signals.described(repeat)
    shown = {"cpu", *drawn}
    lines = [signal for signal in repeat.signals if signal.device in shown]
    for signal, line in zip(found["signals"], lines, strict=True):
        assert signal["y"] == pytest.approx(line.values.tolist(), abs=1e-3 * max(abs(line.values)))


def test_packed_samples_are_thinned_and_small(tmp_path: Path) -> None:
    cell, repeat = first(tables.load([watched(tmp_path / "run", gpus=2)]))
    chart = sequence(cell, repeat, 40)
    assert chart is not None
    assert max(len(stage[0]) for stage in samples(chart.svg)["points"]) <= 40
    assert len(chart.svg) < 4000


def test_what_ran_at_the_same_time_is_told_of_both_and_only_of_one_run(tmp_path: Path) -> None:
    times = {
        "torch-2.13.0-cpu": (100.0, 300.0),
        "jax-0.10.2-cpu": (300.0, 50.0),
        "tensorflow-2.21.0-cpu": (400.0, 90.0),
    }
    runs = []
    for name in ("one", "other"):
        run = synthetic.make_run(tmp_path / name)
        for image, workload in synthetic.LEVELS:
            rows = synthetic.ended(entry := synthetic.cell(image, workload), 1, 40)
            begin, wall = times[image]
            later = 1000.0 if workload == "gru-imdb" else 0.0
            rows["cells"][0] |= {"started_unix": begin + later, "wall_seconds": wall}
            stored.write_repeat(run, entry["id"], 1, rows)
        runs.append(run)
    data = tables.load(runs)
    found = telemetry_signals.beside(data)
    cells = {(cell.image, cell.key.workload, cell.run_id): cell for cell in data.cells}
    torch, jax = cells["torch-2.13.0-cpu", "cnn-cifar10", "one"], cells["jax-0.10.2-cpu", "cnn-cifar10", "one"]
    ((only,), more) = found[torch.anchor, 1]
    assert (only.cell, only.seconds, more) == (jax, 50.0, 0)
    ((other,), _) = found[jax.anchor, 1]
    assert (other.cell, other.seconds) == (torch, 50.0)
    assert (cells["tensorflow-2.21.0-cpu", "cnn-cifar10", "one"].anchor, 1) not in found  # it began as the other ended


def test_the_page_shows_versions_telemetry_neighbours_and_why_a_clock_was_held_back(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    reports.page.render.render([watched(tmp_path / "run")], output)
    page = whole(output)
    section = page[page.index('id="measurements"') :]
    said = ("PyTorch 2.13.0, Python 3.11.7", "power 90.0 to 650 W", "At the same time ran", "hardware thermal slowdown")
    for words in said:
        assert words in section, words
    assert "Throttled: the device slowed itself down while it ran PyTorch 2.13.0" in page


def test_a_hostile_device_stays_text(tmp_path: Path) -> None:
    name = "<script>window.hacked=1</script>\u202e\x1b[31m" + "W" * 200_000
    run = synthetic.make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    rows["telemetry"] = synthetic.telemetry_rows(rows["samples"], [name])
    stored.write_repeat(run, entry["id"], 1, rows)
    chart = sequence(*first(tables.load([run])), 400)
    assert chart is not None
    said = chart.svg + json.dumps(samples(chart.svg)["signals"], ensure_ascii=False)
    assert "<script" not in chart.svg  # the names lie packed
    assert not [part for part in ("\u202e", "\x1b") if part in said]
    assert len(said) < 100_000


def test_a_run_of_before_telemetry_is_shown_without_it(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    stored.change(run, "telemetry", lambda _: None)
    cell, repeat = first(tables.load([run]))
    assert repeat.signals == ()
    assert telemetry_signals.described(repeat) == ""
    chart = sequence(cell, repeat, 400)
    assert chart is not None
    found = samples(chart.svg)
    assert found["signals"] == []
    assert found["top"] > found["levels"][0]


@pytest.mark.parametrize(
    ("proof", "shown"), [("not proved: what it ran in has no lock", True), ("proved by the lock", False), (None, False)]
)
def test_a_version_that_no_lock_proves_says_so_beside_it(tmp_path: Path, proof: str | None, shown: bool) -> None:
    run = synthetic.make_run(tmp_path / "run", changes={"version_proof": proof})
    reports.page.render.render([run], tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    assert ("the first is not proved: what it ran in has no lock;" in page) == shown


def test_a_limit_that_the_engine_did_not_apply_is_named_beside_the_figure(tmp_path: Path) -> None:
    isolation = {
        "engine": "Podman Engine 4.3.1",
        "rootless": True,
        "limits": {"memory": [1024, 0], "network": ["none", "none"]},
    }
    run = synthetic.make_run(tmp_path / "run", changes={"isolation_json": json.dumps(isolation)})
    reports.page.render.render([run], tmp_path / "report.html")
    sentence = "Podman Engine 4.3.1, rootless did not apply these limits to its container: memory."
    assert sentence in whole(tmp_path / "report.html")


def test_a_gpu_s_figure_without_any_telemetry_says_so_and_one_with_some_does_not(tmp_path: Path) -> None:
    """Nothing was seen of the GPU, so its judges of throttling and idleness had nothing to go by."""
    run = synthetic.add_scaling(synthetic.make_run(tmp_path / "run"), {1: 0.01}, repeats=2)
    entry = synthetic.scaled_cell(1)

    def sentences() -> tuple[list[str], bool]:
        data = tables.load([run])
        (cell,) = (cell for cell in data.cells if cell.key.device_kind == "cuda")
        said = [words for words in cell.caveats if words.startswith(NO_TELEMETRY)]
        reports.page.render.render([run], tmp_path / "report.html")
        page = f"{NO_TELEMETRY} of the GPU of" in whole(tmp_path / "report.html")
        text = CliRunner().invoke(app, ["report", str(run), "--text"]).stdout
        assert ("no telemetry: 1 of " in text) is page
        return said, page

    assert sentences() == (
        [f"{NO_TELEMETRY} in 2 of 2 repeats: nothing shows whether its GPU was throttled or idle."],
        True,
    )
    told = {"throttled": False, "energy_joules": 9.5}
    for repeat, left in ((1, 1), (2, 0)):
        (row,) = stored.rows_of(run, "cells", entry["id"], repeat)
        stored.change(run, "cells", lambda other, row=row: {**other, **told} if other == row else other)
        assert len(sentences()[0]) == left
