"""What the documents name is there: files, commands and their options, the wings in their order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from runner.catalog.images import Image
from runner.cli.help import EXAMPLES
from runner.cli.main import app
from runner.engines.base import Engine
from runner.results.store import RunStore
from runner.run import begin
from runner.run.options import Options
from runner.verify.references.measured import reference_of
from runner.verify.references.saved import to_bytes
from tests.fixtures import stored, synthetic
from tests.fixtures.own_files import own_files
from tests.stand_ins.fleet import FakeGpu, Fleet
from tests.unit.test_import_graph import WINGS

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(path.relative_to(PROJECT).as_posix() for path in (*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md")))
# docs/cli.md is made from the help texts: an option there is one by itself.
COMMANDS_OF = "docs/cli.md"
# As the Makefile does it.
MAKE_COMMANDS = [sys.executable, "-m", "typer", "runner.cli.main", "utils", "docs", "--name", "runner"]
# A file's path in code marks: `bench/contract.py`. With a "<" or a "*" it is a pattern.
PATH = re.compile(r"`((?:bench|runner|reports|images|tests|docs)/[\w./-]+|\.ci/[\w-]+)`")
LINK = re.compile(r"(?:\]\(|src=\")(?!http)([^)\"#]+)")


def text_of(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_names_is_there(name: str) -> None:
    named, linked = PATH.findall(text_of(name)), LINK.findall(text_of(name))
    folder = (PROJECT / name).parent
    assert [path for path in named if not (PROJECT / path).exists()] == []
    assert [path for path in linked if not (folder / path).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_heading_that_a_document_links_to_is_there(name: str) -> None:
    for file, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", text_of(name)):
        path = (PROJECT / name).parent / file if file else PROJECT / name
        heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads], f"{file}#{anchor}"


def test_every_document_can_be_reached_from_the_readme() -> None:
    linked = set(LINK.findall(text_of("README.md")))
    assert {name for name in DOCUMENTS if name != "README.md"} <= linked
    assert len(text_of("README.md").splitlines()) <= 140


def test_the_page_of_all_commands_is_what_their_help_says() -> None:
    made = subprocess.run(MAKE_COMMANDS, capture_output=True, text=True, cwd=PROJECT, check=True).stdout
    assert text_of(COMMANDS_OF) == made, "`make docs` makes it again"


def commands_in(text: str) -> list[list[str]]:
    """The words of every `runner ...` in code marks, or at the beginning of a line."""
    quoted = re.findall(r"`runner ([^`]+)`", text) + re.findall(r"^runner ([^#\n]+)", text, re.MULTILINE)
    return [command.split() for command in quoted]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in (COMMANDS_OF, "CHANGELOG.md")])
def test_every_command_and_option_that_a_document_names_is_one(name: str) -> None:
    commands = commands_in(text_of(name))
    assert len(commands) > 10 or name != "README.md"
    wrong = []
    for words in commands:
        command: Any = typer.main.get_command(app)
        rest = list(words)
        while rest and rest[0] in getattr(command, "commands", ()):
            command = command.commands[rest.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        unknown = [word for word in rest if word.startswith("-") and word not in options]
        if unknown or hasattr(command, "commands"):
            wrong.append(" ".join(words))
    assert wrong == []


def test_the_map_has_the_wings_in_the_order_of_their_imports() -> None:
    _, _, rest = text_of("CONTRIBUTING.md").partition("    runner/   ")
    part = rest.partition("    reports/")[0]
    assert tuple(re.findall(r"\b(\w+)/ ", part.replace("/\n", "/ ").replace("docker/, process/", ""))) == WINGS


IMAGE = "torch-2.13.0-cpu"
# What a document writes in place of the reader's own.
READERS_OWN = {
    "RUN": "a", "RUN...": "a b c", "OTHER": "b", "MONDAY": "a", "TUESDAY": "b", "WEDNESDAY": "c", "<image>": IMAGE,
    "'<name>-*'": "'torch-*'", "A,B": f"{IMAGE},jax-0.10.2-cpu", "12.6 12.8": "12.6 12.8 --runs a",
    "/path/to/its/python": sys.executable, "FILE": "{out}/file.parquet", "report.html": "{out}/report.html",
    "FOLDER/*": "a b c", "FOLDER": str(PROJECT / "images"), "old": "lab", "./my_net.py": "{out}/my_net.py",
}  # fmt: skip
# These need an engine, a network, a registry or a kit's archive, or write files of the project: the file of their own tests.
ELSEWHERE = {
    "gpu-kit": "tests/unit/test_wheel.py",
    "agent": "tests/unit/runner/nodes/test_node_agent.py",
    "blame": "tests/unit/runner/blame/test_ladder.py",
    "doctor": "tests/engine/test_doctor.py",
    "import": "tests/contract/test_kit.py",
    "images build": "tests/engine/test_build.py",
    "images ci-matrix": "tests/unit/runner/images/test_registry.py",
    "images export": "tests/engine/test_registry.py",
    "matrix --images 'torch-2.13.0-cpu,docker:REPOSITORY:TAG'": "tests/engine/test_foreign_images.py",
    "matrix --images 'torch-2.13.0-cpu,docker:my-image:1'": "tests/engine/test_foreign_images.py",
    "verify --image docker:my-image:1": "tests/engine/test_foreign_images.py",
    "images show docker:my-image:1": "tests/engine/test_foreign_images.py",
    "images files": "tests/unit/runner/images/test_compose.py",
    "images lock": "tests/unit/runner/images/test_consistency.py",
    "images new": "tests/unit/bench/test_recipe.py",
    "images reproduce": "tests/engine/test_reproduce.py",
    "images pin": "tests/unit/runner/images/test_workflows.py",
    "images push": "tests/engine/test_image_jobs.py",
    "images try": "tests/unit/runner/images/test_tried.py",
    "history --otava": "tests/unit/reports/answers/test_other_formats.py",
    "images update": "tests/unit/runner/images/test_update.py",
    "matrix --nodes": "tests/unit/runner/nodes/test_driver.py",
    "nodes": "tests/unit/runner/nodes/test_fleet.py",
    "reference judge": "tests/unit/runner/verify/test_contributed.py",
    "reference index": "tests/unit/runner/verify/test_known_spread.py",
    "report --to-loss": "tests/unit/reports/answers/test_to_loss.py",
    "share": "tests/unit/runner/kit/test_share.py",
    "verify --level": "tests/unit/runner/doctor/test_preflight.py",
    "verify --references": "tests/unit/runner/verify/test_known_spread.py",
    "verify --each-gpu --nodes": "tests/unit/runner/verify/test_verify_measures.py",
}


# These only read here: with --dry-run, or of the runs that are made below. A new command is in neither list until somebody decides.
READS = (
    *("compare", "completion", "gpus", "history", "list", "matrix", "reference", "report", "rosetta", "verify"),
    *("images check", "images ci-matrix", "images list", "images prune", "images show"),
)


class NothingBuilt(Engine):
    """An engine that runs every image and has none of them."""

    name = "nothing-built"

    def parts(self, image: Image) -> dict[str, int]:
        return {image.name: image.download_bytes}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, the first with two CUDA versions, and a reference."""
    out = tmp_path_factory.mktemp("results")
    options = Options(out=out).model_dump(mode="json")
    for draw, name in enumerate("abc"):
        synthetic.make_run(out / name, repeats=2, windows=12, draw=draw, manifest={"options": options})
    for cuda in ("12.6", "12.8"):
        for repeat in (1, 2):
            rows = synthetic.ended(synthetic.cell(IMAGE, "cnn-cifar10"), repeat, 12, 0.7, 0)
            rows["cells"][0].update(cuda_version=cuda, image=f"torch-cu{cuda}")
            stored.write_repeat(out / "a", synthetic.digest(cuda)[:16], repeat, rows)
    run = RunStore(out / "a")
    manifest = run.manifest()
    entry = next(entry for entry in manifest["plan"] if (entry["image"], entry["workload"]) == (IMAGE, "cnn-cifar10"))
    manifest["plan"] += [
        entry | {"id": synthetic.digest(cuda)[:16], "image": f"torch-cu{cuda}"} for cuda in ("12.6", "12.8")
    ]
    run.write_manifest(manifest)
    (out / "my_net.py").write_text(own_files()["residual_torch.py"])
    (out / "lab.reference.parquet").write_bytes(to_bytes(reference_of([out / "a"], "lab", "1").reference))
    return out


def as_typed(documented: str, out: Path) -> list[str]:
    """A documented command with a reader's own words in it, changed so that it measures nothing."""
    command = documented
    for word, own in READERS_OWN.items():
        command = re.sub(rf"(?<![\w/-]){re.escape(word)}(?![\w.])", own.format(out=out), command)
    words = shlex.split(command.replace("NAME", IMAGE if command.startswith("images") else "lab"))
    if words[0] == "matrix" or words[:2] == ["images", "prune"]:
        words.append("--dry-run")
    if words[0] == "verify" and "--run" not in words:
        words += ["--run", "a"]
    if words[:2] == ["reference", "save"]:
        words.append("--replace")
    if words == ["report"]:
        words += ["-o", f"{out}/report.html"]
    if words[0] in ("matrix", "report", "compare", "history", "verify") or "save" in words or "--run" in words:
        words += ["--out", str(out)]
    return words


def documented() -> list[str]:
    """Every command of the documents once; a bare name in a sentence is none where the command takes a word."""
    names = [name for name in DOCUMENTS if name not in (COMMANDS_OF, "CHANGELOG.md")]
    commands = {" ".join(words) for name in names for words in commands_in(text_of(name))}
    return sorted(commands - {"compare", "rosetta", "reference show", "reference diff", "list"})


def examples() -> list[str]:
    """Every command of the examples in the help, once."""
    lines = [part.strip() for each in EXAMPLES.values() for _, line in each for part in line.split("&&")]
    return sorted({line.removeprefix("runner ") for line in lines if line.startswith("runner ") and ">" not in line})


@pytest.mark.slow
def test_every_command_that_a_document_names_is_run(
    measured: Path, fleet: Callable[[Fleet], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(Fleet((FakeGpu(name="NVIDIA H100 80GB HBM3", capability="9.0", memory_bytes=80 << 30),) * 4, driver="595.10"))
    monkeypatch.setattr(begin, "choose", lambda *_: (NothingBuilt(), "a stand-in"))
    monkeypatch.setenv("DLBENCH_REFERENCES", str(measured))
    # A report of several runs is written here, and not beside the sources that other tests watch.
    monkeypatch.chdir(measured)
    commands = sorted({*documented(), *examples()})
    assert len(commands) > 80
    wrong = {}
    for command in commands:
        words = as_typed(command, measured)
        if elsewhere := next((file for name, file in ELSEWHERE.items() if f"{command} ".startswith(f"{name} ")), None):
            assert (PROJECT / elsewhere).is_file(), command
            continue
        assert f"{command} ".startswith(tuple(f"{name} " for name in READS)), f"{command}: say which test runs it"
        ended = CliRunner().invoke(app, words)
        # 2 without a complaint: undecided. A run that can be resumed has the plan of one machine, so its refusal is as good. So is that of
        # what a command would measure beside the --run that keeps it from measuring: every word of it has been read.
        refusals = ": today's plan has other cells", "says what to measure, and --run measures nothing"
        fine = ended.exit_code in (0, 1) or not ended.stderr or any(refusal in ended.stderr for refusal in refusals)
        if not fine or not isinstance(ended.exception, SystemExit | None):
            wrong[command] = f"{ended.exit_code}: {ended.stderr[-300:]} {ended.exception!r}"
    assert wrong == {}
