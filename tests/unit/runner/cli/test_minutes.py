"""What `--minutes` holds, and what `make matrix` says of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT, Image
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from runner.engines.base import Engine
from runner.run import begin
from runner.run.options import Options
from runner.run.outlook import print_plan
from runner.run.prospect import Prospect
from tests.fixtures.commands import runner
from tests.stand_ins.fleet import FakeGpu, Fleet


class NothingBuilt(Engine):
    """An engine that runs every image and has none of them."""

    name = "nothing-built"

    def parts(self, image: Image) -> dict[str, int]:
        return {image.name: image.download_bytes}


@pytest.fixture
def eight_gpus(fleet: Callable[[Fleet], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prospect:
    h100 = FakeGpu(name="NVIDIA H100 80GB HBM3", capability="9.0", memory_bytes=80 << 30)
    fleet(Fleet((h100,) * 8, driver="595.10"))
    monkeypatch.setattr(begin, "choose", lambda *_: (NothingBuilt(), "a stand-in"))
    return begin.look_ahead(Options(out=tmp_path))


def planned(prospect: Prospect, minutes: float, capsys: pytest.CaptureFixture[str]) -> Mapping[str, object]:
    print_plan(prospect, True, minutes)
    told: Mapping[str, object] = json.loads(capsys.readouterr().out)
    return told


def test_on_eight_gpus_the_first_minutes_hold_the_newest_image_of_each_framework(
    eight_gpus: Prospect, capsys: pytest.CaptureFixture[str]
) -> None:
    told = planned(eight_gpus, 20, capsys)
    cells = {cell["cell_id"]: cell for cell in told["cells"]}  # type: ignore[attr-defined]
    held = [cells[entry["cell_id"]] | entry for entry in told["held"]]  # type: ignore[attr-defined]
    assert {cell["device_kind"] for cell in held} == {"cuda"}
    first = [cell for cell in held if cell["framework"] in FIRST_FRAMEWORKS and cell["workload"] in ROSETTA]
    images = {cell["framework"]: cell["image"] for cell in first}
    assert images == {
        "torch": "torch-2.15.0-cu132",
        "tensorflow": "tensorflow-2.21.0-cu128",
        "jax": "jax-0.12.0.1-cu132",
    }
    assert [name for name in dict.fromkeys(cell["framework"] for cell in held) if name in images] == list(images)
    assert max(cell["end_seconds"] for cell in held) < 20 * 60
    assert min(cell["begin_seconds"] for cell in held) > 30, "its image comes first"
    repeats = Counter((cell["cell_id"], cell["mode"] == "default") for cell in held)
    assert {count for (_, usual), count in repeats.items() if usual} == {3}, "one repeat ranks nothing"
    assert {count for (_, usual), count in repeats.items() if not usual} == {1}, (
        "one mode of each framework is repeated"
    )
    assert len(held) < len(cells)


def test_in_ten_minutes_eight_gpus_measure_while_no_image_is_made(
    eight_gpus: Prospect, capsys: pytest.CaptureFixture[str]
) -> None:
    held = planned(eight_gpus, 10, capsys)["held"]
    at = {entry["begin_seconds"] for entry in held}  # type: ignore[attr-defined]
    running = [sum(entry["begin_seconds"] == begin for entry in held) for begin in at]  # type: ignore[attr-defined]
    assert min(running) >= 6


def test_the_cells_of_one_image_run_side_by_side_on_eight_gpus(
    eight_gpus: Prospect, capsys: pytest.CaptureFixture[str]
) -> None:
    held = planned(eight_gpus, 20, capsys)["held"]
    starts = [entry["begin_seconds"] for entry in held]  # type: ignore[attr-defined]
    assert len(starts) > len(set(starts))


def test_the_text_says_what_the_minutes_hold_and_what_is_left(
    eight_gpus: Prospect, capsys: pytest.CaptureFixture[str]
) -> None:
    print_plan(eight_gpus, False, 10)
    shown = " ".join(capsys.readouterr().out.split())
    # In the units of the run's last line: so many repeats of so many cells.
    assert re.search(r"10 min hold about \d+ repeats of \d+ cells of \d framework", shown)
    assert "to prepare; what is open by then is repeated before other frameworks; left for --resume: " in shown
    assert "begins" in shown
    assert "of them go to making 2 images ready, while nothing is measured; the next such run finds them ready" in shown
    assert "they are too short for tensorflow at fp32: making 3 images ready (8.8 GB)" in shown
    assert "…" not in shown, "names are folded, not cut"
    assert 0 <= shown.index("10 min hold about") < shown.index(" skipped ")
    # Repeats that the user gave are meant as they stand.
    print_plan(replace(eight_gpus, options=eight_gpus.options.model_copy(update={"repeats": 3})), False, 10)
    assert "what is open by then" not in " ".join(capsys.readouterr().out.split())


def test_few_cells_have_more_repeats_where_none_are_given(eight_gpus: Prospect) -> None:
    def planned_repeats(cells: int, **options: object) -> int:
        plan = replace(eight_gpus.plan, cells=eight_gpus.plan.cells[:cells])
        return replace(eight_gpus, plan=plan, options=eight_gpus.options.model_copy(update=options)).repeats

    assert [planned_repeats(cells) for cells in (1, 2, 3, 6, 7, 50)] == [3, 7, 5, 5, 3, 3]
    assert planned_repeats(2, repeats=1) == 1
    assert planned_repeats(2, preset="full") == 3


def test_on_eight_gpus_a_plan_fits_a_terminal_of_80_columns_and_names_each_row_whole(
    eight_gpus: Prospect, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_plan(eight_gpus, False, 10)
    limited = capsys.readouterr().out
    print_plan(eight_gpus, False)
    whole = capsys.readouterr().out
    assert max(map(len, (*limited.splitlines(), *whole.splitlines()))) <= 80
    cells = eight_gpus.plan.cells
    assert f"all of it: {len(cells)} cells x 3 repeats to run" in limited
    assert "left for --resume: " in " ".join(limited.split())
    # A row a framework of an image: the first has the image's name, those below it stand under that.
    lines = whole.splitlines()
    images = {cell.image for cell in cells}
    assert {line.split()[0] for line in lines if line} >= images
    begun = next(at for at, line in enumerate(lines) if line.startswith("torch-2.9.1-cu128 "))
    assert [line.split()[0] for line in lines[begun + 1 : begun + 3]] == ["graph", "keras_torch"]
    # More workloads than the width holds stand in a second grid, with the rows that have one of them.
    rows = [line for line in lines if line.split() and line.split()[-1] in ("–", "1.0", "1.5", "1.8")]
    assert len(rows) > len({(cell.image, cell.framework, cell.device_kind) for cell in cells})
    assert "~" not in whole, "where every length is a guess, one line says so"
    assert whole.count("all minutes are about: a guess") == 1


def test_the_results_before_are_read_once_for_a_plan_whatever_engine_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def choose(_: object, __: object, planned: Callable[[Engine], list[Image]], ___: bool) -> tuple[Engine, str]:
        # An engine is asked what it would run.
        assert [image.name for image in planned(NothingBuilt())] == ["torch-2.13.0-cpu"]
        return NothingBuilt(), "a stand-in"

    monkeypatch.setattr(begin, "earlier_seconds", lambda out: read.append(out) or {})
    monkeypatch.setattr(begin, "choose", choose)
    begin.look_ahead(Options(out=tmp_path, gpus="none", images=("torch-2.13.0-cpu",)))
    assert read == [tmp_path]


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "1e9"])
def test_minutes_that_are_none_are_refused(given: str) -> None:
    ended = runner("matrix", "--dry-run", "--gpus", "none", "--engine", "venv", "--minutes", given)
    assert ended.returncode == 2
    assert "is not a number above 0 and at most 525600" in " ".join(ended.stderr.split())
    assert "e+" not in ended.stderr
    assert "Traceback" not in ended.stderr


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """make in the project, as a user starts it: also where make started the tests."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "MINUTES"))
    }
    return subprocess.run(["make", *words], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def test_make_matrix_says_first_that_it_takes_ten_minutes() -> None:
    assert make("limit").stdout.startswith("about 10 minutes of the matrix (MINUTES=60 for an hour, ")
    assert make("limit", "MINUTES=60").stdout.startswith("about 60 minutes ")
    assert make("limit", "MINUTES=1").stdout.startswith("about a minute of the matrix (")
    assert make("limit", "MINUTES=").stdout.startswith("all of the matrix")
    refused = make("limit", "MINUTES=ten")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "MINUTES=ten is no number" in refused.stderr
    for given in ("0", "0.0", "99999999999"):
        refused = make("limit", f"MINUTES={given}")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"MINUTES={given} is no number above 0 and at most 525600" in refused.stderr
    lines = make("-n", "matrix", "MINUTES=10").stdout.splitlines()
    assert "10 minutes" in lines[1]
    assert "runner matrix --gpus all --minutes" in lines[-1]
    assert "--minutes" not in make("-n", "matrix", "MINUTES=").stdout


def test_an_engine_is_asked_once_for_each_image_whether_it_can_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Counting(NothingBuilt):
        def unfit(self, image: Image) -> str | None:
            asked.append(image.name)
            return None

    monkeypatch.setattr(begin, "choose", lambda *_: (Counting(), "a stand-in"))
    begin.look_ahead(Options(out=tmp_path, gpus="none", images=("torch-2.13.0-cpu", "jax-0.10.2-cpu")))
    assert sorted(asked) == ["jax-0.10.2-cpu", "torch-2.13.0-cpu"]
