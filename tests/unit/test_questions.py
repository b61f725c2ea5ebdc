"""Each question of README's table: its command is planned on stand-in fleets, its results are simulated, and the page's answer is read."""

from __future__ import annotations

import json
import re
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from reports.answers import across, findings, scaling, short
from reports.answers.health import NOT_JUDGED
from reports.data.groups import workloads
from reports.data.model import MeasuredCell, StoredRun, Tables
from reports.page import results
from reports.wording import image_name
from runner.catalog.images import Image, load_catalog
from runner.cli.main import app
from runner.engines.base import Engine
from runner.paths import PROJECT
from runner.results.cells import Key
from runner.run import begin
from tests.fixtures import measured
from tests.fixtures.own_files import own_files
from tests.stand_ins.fleet import FakeGpu, Fleet

H100 = FakeGpu("NVIDIA H100 80GB HBM3", capability="9.0", memory_bytes=81559 << 20)
A100 = FakeGpu("NVIDIA A100-SXM4-80GB", capability="8.0", memory_bytes=81920 << 20, island="sw")
T4 = FakeGpu("Tesla T4", capability="7.5", memory_bytes=15360 << 20)
R4090 = FakeGpu("NVIDIA GeForce RTX 4090", capability="8.9", memory_bytes=24564 << 20, ecc=None)
FLEETS = {
    "1 x H100": Fleet((H100,), driver="580.159.03"),
    "4 x A100": Fleet((A100,) * 4, driver="550.127.08", cuda_driver=12040),
    "2 x T4": Fleet((T4,) * 2, driver="550.127.08", cuda_driver=12040),
    "1 x RTX 4090": Fleet((R4090,), driver="570.133.20", cuda_driver=12080),
}
NO_ANSWER = re.compile(
    r"never changed alone|one run|measured once|No verdict|Only .* was measured|No two|Not measured|not compared"
)


class NothingBuilt(Engine):
    """An engine that runs every image and has none of them."""

    name = "nothing-built"

    def parts(self, image: Image) -> dict[str, int]:
        return {image.name: image.download_bytes}


@dataclass(frozen=True)
class Page:
    """The parts of a page that answer the questions of the table."""

    tables: Tables
    answers: Mapping[str, short.Answer]

    def card(self, question: str) -> str:
        answer = self.answers[question]
        return f"{answer.confidence}: {answer.words}"

    @property
    def effects(self) -> list[across.Effect]:
        return [effect for ladder in across.ladders(self.tables).values() for effect in ladder.effects]


# -- The results of a plan, simulated ----------------------------------------------------------------------------------------------


def level(cell: Mapping[str, Any]) -> float:
    """The true step time: each framework, version, mode, precision and number of devices has a factor of its own."""
    factors = {"fp32": 1.0, "tf32": 0.8, "amp-bf16": 0.6, "amp-fp16": 0.62}
    own = [zlib.crc32(str(cell[name]).encode()) % 7 / 10 for name in ("framework", "image", "mode")]
    return 0.02 * (1 + sum(own)) * factors.get(cell["precision"], 1.0)


def simulated(cell: Mapping[str, Any], repeats: int, image: Image | None, random: np.random.Generator) -> MeasuredCell:
    drawn = [level(cell) * np.exp(random.normal(0, 0.002) + random.normal(0, 0.003, 20)) for _ in range(repeats)]
    made = measured.cell("run", cell["framework"], cell["workload"], drawn, cell["cell_id"], device=cell["device_kind"])
    key = Key(**{name: cell[name] for name in ("workload", "precision", "preset", "device_kind", "device_model", "devices", "batch")},
              data_source="generated", scaling=cell["scaling"])  # fmt: skip
    version = {"framework_version": image.version_of(cell["framework"])} if image else {}
    versions = {"cuda_version": image.cuda or "", "cudnn_version": image.cudnn or ""} if image else {}
    label = image_name(cell["image"], cell["framework"])
    return replace(
        made, image=cell["image"], mode=cell["mode"], key=key, label=label, row={**made.row, **version, **versions}
    )


def page_of(plan: Mapping[str, Any]) -> Page:
    random, catalog = np.random.default_rng(1), load_catalog()
    # Two workloads answer each of the questions: all of them would only take longer.
    two = list(dict.fromkeys(cell["workload"] for cell in plan["cells"]))[:2]
    asked = [cell for cell in plan["cells"] if cell["workload"] in two]
    cells = [simulated(cell, plan["repeats"], catalog.get(cell["image"]), random) for cell in asked]
    run = StoredRun("run", {"run_id": "run", "created": "2026-11-01T08:00:00+00:00"})
    tables = Tables((run,), workloads(cells), (), {}, {})
    devices = [table for workload in tables.ranked for table in across.devices(workload, tables.cells)]
    shown = findings.findings(tables)
    first = {column.anchor for column in results.slices(shown, tables)[0].columns}
    found = short.answers(
        [of for of in shown if of.group.anchor in first],
        "",
        across.ladders(tables).values(),
        devices,
        NOT_JUDGED,
        tables.cells,
    )
    return Page(tables, {answer.question: answer for answer in found})


# -- The answer to each question ----------------------------------------------------------------------------------------------------


def which_framework(page: Page, plan: Mapping[str, Any]) -> str:
    return page.card("Which framework?")


def which_cuda(page: Page, plan: Mapping[str, Any]) -> str:
    return page.card("Which CUDA version?")


def which_release(page: Page, plan: Mapping[str, Any]) -> str:
    """The steps of the ladder, of which each says what it changed."""
    steps = {effect.of for effect in page.effects}
    assert all("PyTorch" in step and "CUDA" in step for step in steps), "two things change from one PyTorch to the next"
    return f"{len(steps)} steps" if steps else "not compared"


def what_precision(page: Page, plan: Mapping[str, Any]) -> str:
    changed = across.changes(page.tables, across.ladders(page.tables), across.effects(page.tables))
    return "\n".join(line for line in changed if "fp32 → " in line) or "not compared"


def how_it_scales(page: Page, plan: Mapping[str, Any]) -> str:
    counts = {point.devices for of in scaling.scalings(page.tables) for point in of.points}
    return f"{sorted(counts)}" if len(counts) > 1 else "not compared"


def to_a_loss(page: Page, plan: Mapping[str, Any]) -> str:
    """The frameworks that would be compared, each often enough to be ranked; the curves that decide are simulated in test_to_loss.py."""
    trained = {cell["framework"] for cell in plan["cells"]}
    return f"{len(trained)} frameworks, {plan['repeats']} seeds" if len(trained) > 1 else "not compared"


def what_is_planned(page: Page, plan: Mapping[str, Any]) -> str:
    return (
        f"{len(plan['cells'])} cells, {len(plan['skipped'])} skipped"
        if plan["cells"] and plan["skipped"]
        else "Not measured"
    )


PLANNED: Mapping[str, Callable[[Page, Mapping[str, Any]], str]] = {
    "Which framework is fastest here?": which_framework,
    "What would be run, and what not, and why?": what_is_planned,
    "Which image trains my own network fastest?": which_framework,
    "Which CUDA version?": which_cuda,
    "Which release of PyTorch, with its CUDA?": which_release,
    "What does mixed precision gain?": what_precision,
    "Which framework trains to a loss first?": to_a_loss,
    "How does it scale?": how_it_scales,
}
# These need more than a plan: a person's own installation, other machines, or stored runs. The file runs each of them to its answer.
ELSEWHERE = {
    "Is the image of my vendor, or my own, faster?": "engine/test_foreign_images.py",
    "Is this installation as fast as it should be?": "contract/test_verify_faults.py",
    "Which of these GPUs is the weak one?": "unit/runner/verify/test_each_gpu.py",
    "The same on many machines, over ssh, Slurm or Ray?": "unit/runner/nodes/test_driven.py",
    "Is my number normal among others' machines?": "unit/runner/verify/test_known_spread.py",
    "Did an update make it slower?": "unit/reports/answers/test_comparison.py",
    "Which package made it slower?": "unit/runner/blame/test_ladder.py",
    "What changed over the months?": "unit/reports/answers/test_run_history.py",
    "How does another framework write this network?": "unit/runner/cli/test_commands.py",
    "What is missing for GPUs in containers?": "unit/runner/doctor/test_diagnosis.py",
    "What does a GPU machine without a network do?": "unit/runner/kit/test_kit.py",
}
# One GPU cannot scale.
NEEDS_SEVERAL = {"How does it scale?"}


def rows() -> dict[str, list[str]]:
    """Question -> the words of the first command beside it, in README's table."""
    table = (
        (PROJECT / "README.md")
        .read_text(encoding="utf-8")
        .partition("| question | command |\n")[2]
        .partition("\n\n")[0]
    )
    found = re.findall(r"^\| ([^|]+\?) \| `([^`]+)`", table, re.M)
    return {question: shlex.split(command) for question, command in found}


def test_every_question_of_the_table_is_run_to_its_answer() -> None:
    assert list(rows()) == [question for question in rows() if question in PLANNED or question in ELSEWHERE]
    assert rows().keys() == PLANNED.keys() | ELSEWHERE.keys()
    assert [file for file in ELSEWHERE.values() if not (PROJECT / "tests" / file).is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("machine", FLEETS)
@pytest.mark.parametrize("question", PLANNED)
def test_the_command_beside_a_question_answers_it(
    question: str,
    machine: str,
    fleet: Callable[[Fleet], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if question in NEEDS_SEVERAL and len(FLEETS[machine].gpus) == 1:
        return
    fleet(FLEETS[machine])
    monkeypatch.setattr(begin, "choose", lambda *_: (NothingBuilt(), "a stand-in"))
    monkeypatch.chdir(tmp_path)
    for name, text in own_files().items():
        (tmp_path / name).write_text(text)
    plan = dry_run(own_network(rows()[question][1:]), tmp_path)
    said = PLANNED[question](page_of(plan), plan)
    assert not NO_ANSWER.search(said), said


def own_network(words: Sequence[str]) -> list[str]:
    """The command with a file of docs/own-networks.md for the reader's own."""
    return [f"./{next(iter(own_files()))}" if word == "./my_net.py" else word for word in words]


def dry_run(words: Sequence[str], folder: Path) -> Mapping[str, Any]:
    extra = [*(() if "--dry-run" in words else ("--dry-run",)), "--format", "json", "--out", str(folder)]
    ended = CliRunner().invoke(app, [*words, *extra])
    assert ended.exit_code == 0, ended.output
    told: Mapping[str, Any] = json.loads(ended.stdout)
    return told
