"""What --dry-run shows: a grid that fits a terminal of 80 columns, and a line for each reason of what is skipped."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from runner.catalog.names import PresetName
from runner.catalog.workloads import load_workloads
from runner.plan.plan import Plan, Skip
from runner.run import outlook
from runner.run.dispatch import Job
from runner.run.options import Options
from runner.run.prospect import Prospect, lacks_fp32
from runner.text import plural
from tests.fixtures.plans import CPU, make_cell


def skip(reason: str, image: str = "torch-1-cu1", workload: str = "gru-imdb", precision: str = "fp32") -> Skip:
    return Skip(
        image=image,
        framework="torch",
        workload=workload,
        precision=precision,
        mode="default",
        device_kind="cuda",
        device_model="",
        reason=reason,
    )


def test_a_reason_is_one_line_with_its_count_the_most_frequent_first() -> None:
    untested = [skip("untested: no Julia", "flux-1-cpu")]
    twins = [skip(f"it needs a GPU; its CPU twin {name}-cpu stands in", name) for name in ("a-1", "b-1", "c-1", "d-1")]
    specified = [skip(f"{name} is not specified at bf16", workload=name) for name in ("ops", "mlp-mnist", "gru-imdb")]
    assert outlook.reasons([*untested, *specified, *twins]) == [
        "skipped 4: it needs a GPU (a-1, b-1, c-1 and 1 more; their CPU twins stand in)",
        "skipped 3: ops is not specified at bf16 (the same for mlp-mnist, gru-imdb)",
        "skipped 1: untested: no Julia (flux-1-cpu)",
    ]


def test_a_precision_that_workloads_lack_is_answered_with_the_mixed_one() -> None:
    skips = [skip(f"{name} is not specified at bf16", workload=name, precision="bf16") for name in ("ops", "gru-imdb")]
    (line,) = outlook.likely_precisions(skips)
    assert line == "2 workloads not specified at bf16: did you mean --precision amp-bf16, mixed precision?"
    assert not outlook.likely_precisions([skip("it needs a GPU", precision="bf16")])


def test_a_plan_of_wide_precisions_alone_says_that_its_rank_takes_fp32() -> None:
    def lines(*precisions: str, **other: Any) -> list[str]:
        return lacks_fp32([make_cell(precision=precision, **other) for precision in precisions])

    assert lines("amp-bf16", "tf32") == [
        "1 cell at amp-bf16 will not be ranked without parity at fp32: say --precision fp32,amp-bf16",
        "1 cell at tf32 will not be ranked without parity at fp32: say --precision fp32,tf32",
    ]
    assert not lines("amp-bf16", "fp32")
    assert not lines("bf16", workload="ops"), "operations have bounds of their own"


@pytest.mark.parametrize("columns", ["80", "200", None])
def test_the_grid_keeps_every_name_whole_on_a_terminal_and_in_a_pipe(
    columns: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    images = ("torch-2.13.0-cpu", "torch-2.13.1-cpu", "tensorflow-2.21.0-cpu")
    cells = tuple(make_cell(image=image, workload=workload) for image in images for workload in load_workloads())
    prospect: Any = SimpleNamespace(
        engine=SimpleNamespace(name="venv"),
        why_engine="engine venv: as asked",
        machine=SimpleNamespace(gpus=(), refused=(), notes=()),
        plan=Plan(cells, ()),
        options=SimpleNamespace(repeats=None, data=None, to_loss=None),
        repeats=3,
        jobs=[Job(cell, repeat) for cell in cells for repeat in (1, 2, 3)],
        durations=SimpleNamespace(seconds=lambda cell: 30.0, guessed=lambda cell: cell == cells[0]),
        expected_seconds=lambda jobs: 30.0,
        fetch_bytes=lambda: 0,
        fetches=lambda: "0.00 GB",
    )
    outlook.print_plan(prospect, False)
    shown = capsys.readouterr().out
    assert "so few cells" not in shown
    rows = [line for line in shown.splitlines() if " 1.5 " in line or line.endswith("1.5")]
    # In a narrow terminal the workloads stand in three grids.
    assert [row.split("  ")[0].split(" ")[0] for row in rows] == list(images) * (3 if columns == "80" else 1)
    assert all(workload in shown for workload in load_workloads())
    if columns:
        assert max(map(len, rows)) <= int(columns)
    assert shown.count("~1.5") == 1, "one cell was never measured here"
    assert "~ is about: a guess until a like cell has ended well here" in shown
    # A run that goes on: one repeat of one cell is left.
    outlook.print_plan(prospect, False, left=[Job(cells[-1], 3)])
    rest = capsys.readouterr().out
    assert "1 cell, 1 repeat left to run" in rest
    assert " 0.5" in rest
    assert "torch-2.13.0-cpu" not in rest
    assert "~" not in rest


@pytest.mark.parametrize(
    ("cells", "preset", "given", "repeats"),
    [
        (1, "quick", None, 3),
        (2, "quick", None, 7),
        (3, "standard", None, 5),
        (6, "quick", None, 5),
        (7, "quick", None, 3),
        (4, "full", None, 3),
        (4, "quick", 3, 3),
        (4, "quick", 1, 1),
    ],
)
def test_few_cells_have_more_repeats_where_none_are_given(
    cells: int, preset: PresetName, given: int | None, repeats: int, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(tuple(make_cell(seed=number) for number in range(cells)), ())
    machine: Any = SimpleNamespace(cpu=CPU, gpus=(), refused=(), notes=())
    engine: Any = SimpleNamespace(name="venv", parts=lambda image: {})
    images: Any = {"torch-1-cpu": None}
    durations: Any = SimpleNamespace(seconds=lambda cell: 30.0, guessed=lambda cell: False)
    options = Options(preset=preset, repeats=given)
    prospect = Prospect(options, machine, engine, "engine venv: as asked", images, plan, durations)
    assert Counter(job.cell for job in prospect.jobs) == dict.fromkeys(plan.cells, repeats)
    outlook.print_plan(prospect, False)
    shown = capsys.readouterr().out
    assert f"{plural(cells, 'cell')} x {plural(repeats, 'repeat')} to run" in shown
    assert ("(--repeats 3 takes less time)" in shown) == (given is None and repeats != 3)


def test_what_images_share_is_fetched_once() -> None:
    parts = {"one-1-cpu": {"shared": 500, "one": 10}, "other-1-cpu": {"shared": 500, "other": 2}}
    plan = Plan(tuple(make_cell(image=name) for name in parts), ())
    images: Any = {name: name for name in parts}
    engine: Any = SimpleNamespace(name="docker", parts=parts.__getitem__)
    nothing: Any = None
    prospect = Prospect(Options(), nothing, engine, "engine docker: as asked", images, plan, nothing)
    assert prospect.fetch_bytes() == 512
