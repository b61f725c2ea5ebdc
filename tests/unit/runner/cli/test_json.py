"""Every `--format json` is described: a schema of each, made from the types, a page, and one meaning a key."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from runner.cli.main import app
from runner.results.store import RunStore
from runner.run import summary
from runner.text import SCHEMA, print_document
from tests import json_schemas
from tests.fixtures.json_documents import valid
from tests.fixtures.synthetic import make_run
from tests.json_schemas import DOCUMENTS, schema_of, type_of


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each command by its words, from typer's tree."""
    if not hasattr(command, "commands"):
        yield path
        return
    for name in command.commands:
        yield from commands(command.commands[name], (*path, name))


def test_every_command_that_prints_json_has_a_schema_and_no_other() -> None:
    every = list(commands(typer.main.get_command(app)))
    helps = {" ".join(words): CliRunner().invoke(app, [*words, "--help"]).stdout for words in every}
    printing = {name for name, text in helps.items() if re.search(r"--format <[^>]*json", text)}
    assert {name.partition(" --")[0].removesuffix(" published") for name in DOCUMENTS} == printing


def test_the_schemas_and_their_page_are_those_of_the_types() -> None:
    made = json_schemas.made()
    assert {path: path.read_text(encoding="utf-8") for path in made} == made, "`make docs` makes them again"
    assert set(json_schemas.SCHEMAS.iterdir()) == {path for path in made if path.suffix == ".json"}


def shape(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """The kind of a value, whichever of its words or objects it has: a verdict is a text, and a row an object."""
    if "anyOf" in schema:
        return " or ".join(sorted({shape(one, definitions) for one in schema["anyOf"] if one != {"type": "null"}}))
    if "$ref" in schema:
        return "object"
    if "enum" in schema or "const" in schema:
        return (
            "string" if all(isinstance(word, str) for word in schema.get("enum", [schema.get("const")])) else "number"
        )
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {shape(schema['items'], definitions)}"
    return type_of(schema).replace("integer", "number")


def test_a_key_means_one_thing_in_all_commands() -> None:
    """A key with values of two kinds has two meanings. Facts are as a reference's file has them."""
    shapes: dict[str, dict[str, str]] = {}
    for command in DOCUMENTS:
        schema = schema_of(command)
        for name, one in {command: schema, **schema["$defs"]}.items():
            for key, value in one.get("properties", {}).items():
                if name != "Facts":
                    shapes.setdefault(key, {})[name] = shape(value, schema["$defs"])
    assert {key: named for key, named in shapes.items() if len(set(named.values())) > 1} == {}


# -- Real outputs --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with a failed cell, one with repeats of one session, a reference of two of them, and a folder without any."""
    folder = tmp_path_factory.mktemp("json")
    for at, day in enumerate(("monday", "tuesday", "wednesday")):
        make_run(
            folder / "results" / day,
            repeats=3,
            windows=12,
            draw=at,
            slower={("torch-2.13.0-cpu", "gru-imdb"): 1 + at / 5},
        )
    make_run(folder / "few" / "once", windows=3)
    make_run(folder / "lost" / "before", repeats=2, windows=12)
    make_run(folder / "lost" / "since", repeats=2, windows=12, changes={"status": "failed", "error_kind": "parity"})
    for name, runs in (("lab", ("monday", "tuesday")), ("other", ("wednesday",))):
        saved = ask(folder, "reference save", *runs, "--name", name, "--out", str(folder / "results"))
        assert saved.exit_code == 0, saved.stderr
    return folder


def ask(folder: Path, command: str, *words: str) -> Any:
    return CliRunner().invoke(app, [*command.split(), *words], env={"DLBENCH_REFERENCES": str(folder / "shelf")})


HERE = ("--gpus", "none", "--engine", "venv", "--workloads", "cnn-cifar10")
# Command -> its cases: the options, with {} for the folder. Where a command needs more than stored runs, its own tests hold it.
CASES: Mapping[str, tuple[str, ...]] = {
    "matrix --dry-run": (
        " ".join(HERE),
        f"{' '.join(HERE)} --minutes 10",
        "--gpus none --engine venv --images cntk-* --workloads gru-imdb",
    ),
    "compare": (
        "monday wednesday --out {}/results",
        "torch jax --runs monday --out {}/results",
        "torch tensorflow --runs monday --out {}/results",
        "{}/few/once {}/results/monday",
        "torch jax --runs once --out {}/few",
        "before since --out {}/lost",
    ),
    "report": (
        "monday --out {}/results",
        "monday tuesday --out {}/results",
        "once --out {}/few",
        "since --out {}/lost",
    ),
    "history": ("--out {}/results", "--out {}/few", "--out {}/lost", "monday --out {}/results"),
    "verify": (
        "--run monday --out {}/results",
        "--run wednesday --reference lab --out {}/results",
        "--run once --out {}/few",
        "--run since --out {}/lost --references {}/nothing",
        "--each-gpu --run monday --out {}/results",
    ),
    "reference list": ("", "--references {}/nothing"),
    "reference show": ("lab", "other --workload gru-imdb"),
    "reference show published": ("published", "published --workload cnn-cifar10 --run monday --out {}/results"),
    "reference diff": ("other lab", "lab other"),
    "gpus": ("",),
    "images list": ("",),
    "images show": ("torch-2.13.0-cpu cntk-2.7-cpu",),
}
ELSEWHERE = {
    "matrix": "test_cli.py",
    "nodes": "test_fleet.py",
    "doctor": "test_diagnosis.py",
    "verify --level": "test_preflight.py",
    "blame": "test_ladder_document.py",
}


@pytest.mark.parametrize(("command", "words"), [(name, words) for name, cases in CASES.items() for words in cases])
def test_what_is_printed_is_as_its_schema_says(place: Path, command: str, words: str) -> None:
    option = "--dry-run" if command.endswith("--dry-run") else ""
    spoken = command.removesuffix(" --dry-run").removesuffix(" published")
    ended = ask(place, spoken, *f"{option} {words} --format json".replace("{}", str(place)).split())
    assert ended.exit_code in (0, 1, 3, 4)
    assert not isinstance(ended.exception, Exception), ended.exception
    assert valid(command, ended.stdout)["schema"] == SCHEMA


def test_a_run_and_one_without_a_repeat_are_as_their_schema_says(place: Path, tmp_path: Path, capsys: Any) -> None:
    for folder in (place / "results" / "monday", place / "lost" / "since"):
        print_document(summary.document(RunStore(folder)))
        assert valid("matrix", capsys.readouterr().out)["results"]


def test_the_report_s_json_and_csv_say_what_its_table_says(place: Path) -> None:
    words = ("monday", "--out", str(place / "results"), "--format")
    told = valid("report", ask(place, "report", *words, "json").stdout)
    cells = [cell for group in told["answers"] for cell in group["cells"]]
    assert len(cells) == 6
    assert [group["headline"] for group in told["answers"]] == [
        line.removesuffix(".")
        for line in ask(place, "report", *words, "text").stdout.splitlines()
        if line.endswith((" fastest.", " 5\u00a0%.", "2.21.0 failed."))
    ]
    rows = list(csv.DictReader(io.StringIO(ask(place, "report", *words, "csv").stdout)))
    assert [row["cell_id"] for row in rows] == [cell["cell_id"] for cell in cells]
    assert [row["verdict"] for row in rows] == [cell["verdict"] or "" for cell in cells]
    (failed,) = (cell for cell in cells if cell["status"] == "failed")
    assert "out-of-memory" in failed["reason"]
    assert failed["ratio"] is failed["verdict"] is None


def test_every_document_is_held_against_its_schema_somewhere() -> None:
    assert {*CASES, *ELSEWHERE} == set(DOCUMENTS)
    for name, file in ELSEWHERE.items():
        (test,) = Path(__file__).parents[1].rglob(file)
        assert f'valid("{name}", ' in test.read_text(encoding="utf-8"), file


@pytest.mark.parametrize(
    "change",
    [lambda told: told | {"new": 1}, lambda told: told.pop("gpus") and told, lambda told: told | {"schema": 0}],
)
def test_a_key_too_many_one_too_few_and_another_number_are_seen(change: Callable[[dict[str, Any]], Any]) -> None:
    told = {"schema": SCHEMA, "gpus": [], "refused_gpus": [], "why_no_gpu": None, "remarks": []}
    assert valid("gpus", json.dumps(told))
    with pytest.raises(jsonschema.ValidationError):
        valid("gpus", json.dumps(change(told)))
