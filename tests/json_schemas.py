"""The JSON Schema of each command's `--format json`, from the types of the objects, and docs/json.md. `make docs` writes both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from reports.answers.answers_table import ReportDocument
from reports.answers.comparison import ComparisonDocument
from reports.answers.run_history import HistoryDocument
from runner.cli.blame import BlameDocument
from runner.cli.images.list import ListedImages, ShownImages
from runner.cli.machines import GpusDocument, NodesDocument
from runner.doctor.diagnosis import DoctorDocument
from runner.doctor.preflight import PreflightDocument
from runner.paths import PROJECT
from runner.run.outlook import PlanDocument
from runner.run.summary import RunDocument
from runner.text import SCHEMA
from runner.verify.references.display import DiffDocument, PublishedDocument, ReferenceDocument, ReferencesDocument
from runner.verify.verification_run import VerificationDocument

PAGE = PROJECT / "docs" / "json.md"
SCHEMAS = PROJECT / "docs" / "schemas"

# A command's words -> the object that it prints.
DOCUMENTS: Mapping[str, Any] = {
    "matrix": RunDocument,
    "matrix --dry-run": PlanDocument,
    "report": ReportDocument,
    "compare": ComparisonDocument,
    "history": HistoryDocument,
    "blame": BlameDocument,
    "verify": VerificationDocument,
    "verify --level": PreflightDocument,
    "reference list": ReferencesDocument,
    "reference show": ReferenceDocument,
    "reference show published": PublishedDocument,
    "reference diff": DiffDocument,
    "gpus": GpusDocument,
    "nodes": NodesDocument,
    "doctor": DoctorDocument,
    "images list": ListedImages,
    "images show": ShownImages,
}

# The lines before the first and after the last word of the page's table of words.
_BEFORE = f"""\
<!-- Made by `make docs` from the types of the code. -->
# JSON for scripts

With `--format json` a command prints one object to standard output, and nothing else there. Its first key is `schema`,
now {SCHEMA}: the number grows when any key of any command goes away or gets another meaning. A new key leaves it as it is,
so pass over keys that you do not know.

Numbers are JSON's: there is no NaN and no Infinity. Times are seconds, and a ratio is that of step times. `null` was not
recorded, or cannot be said. The exit codes are those of the text. `runner images ci-matrix` prints the matrix of a GitHub
workflow, whose form is GitHub's.

One key means one thing in all commands:

| key | what it is |
| --- | --- |
"""

_WORDS = {
    "`image` to `batch`": "the ten keys that name a cell, alike in `compare`, `history`, `reference` and `matrix --dry-run`; "
    "`device_model` and `devices` are the device and how many",
    "`cell_id`": "the digest of a cell's content: equal in two runs where the cell is",
    "`run_id`": "the id of a run; `a_runs` and `b_runs` have several, with a space between",
    "`cells`": "a list of cells; a number of them is `cell_count`",
    "`repeats`, `sessions`": "numbers of them",
    "`verdict`": "what is said of a row. `compare` and `history`: how `b` is beside `a`; `report`: how a cell is beside the first of its "
    "group, in the words `slower`, `faster`, `same`, `open` and `fails since`. `verify` and `reference diff`: "
    "[how a cell is beside its reference](verify.md)",
    "`ratio`, `ratio_low`, `ratio_high`": "a ratio of step times, above 1 where `b`, or the measured cell, takes longer, and the ends "
    "of its interval",
    "`level`": "how many of such intervals hold the true value: 0.95 where sides are compared, 0.9 beside a reference "
    "([why](verify.md))",
    "`margin`": "the smallest change that matters, as a share",
    "`reason`": "a sentence: why a row has its verdict, a cell was skipped or failed, a GPU is not used",
    "`differences`": "what else differs between the two sides, as text",
    "`remarks`": "sentences about the whole",
    "`device`": "in a fleet the UUID of a GPU, or a node; in `facts`, which are as a reference's file has them, what the host saw of "
    "the GPU",
}


class _AsDumped(GenerateJsonSchema):
    """A model whose serializer only leaves out empty fields has the schema of its fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def ser_schema(self, schema: Any) -> Any:
        return None if schema["type"] == "function-wrap" else super().ser_schema(schema)


def schema_of(command: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints. It allows further keys."""
    made = TypeAdapter(DOCUMENTS[command]).json_schema(mode="serialization", schema_generator=_AsDumped)
    definitions = made.pop("$defs", {})
    for one in (made, *definitions.values()):
        one.pop("additionalProperties", None)
    made["properties"] = {"schema": {"const": SCHEMA}} | made["properties"]
    made["required"] = ["schema", *made["required"]]
    # A name with the version. The project has no address of its own to put there.
    name = f"urn:dlbench-matrix:schema:{SCHEMA}:{file_of(command).stem}"
    title = f"runner {command} --format json"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": name, "title": title}
    return head | {name: value for name, value in made.items() if name != "title"} | {"$defs": definitions}


def file_of(command: str) -> Path:
    return SCHEMAS / f"{command.replace(' --', ' ').replace(' ', '-')}.json"


def made() -> dict[Path, str]:
    """Each file, with the text that it should hold."""
    schemas = {command: schema_of(command) for command in DOCUMENTS}
    files = {file_of(command): json.dumps(schema) + "\n" for command, schema in schemas.items()}
    return files | {PAGE: "\n".join(_page(schemas))}


def _page(schemas: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    yield _BEFORE + "".join(f"| {word} | {meaning} |\n" for word, meaning in _WORDS.items())
    objects: dict[str, dict[str, Any]] = {}
    for command, schema in schemas.items():
        objects |= schema["$defs"]
        yield f"## {command}\n\n{_described(schema)} [Schema](schemas/{file_of(command).name})\n"
    yield "## The objects\n"
    yield from (f"### {name}\n\n{_described(objects[name])}\n" for name in sorted(objects))


def _described(schema: Mapping[str, Any]) -> str:
    """The sentences of an object's type, and its keys with the types of their values."""
    said = " ".join(schema.get("description", "").split())
    keys = (f"`{name}` {type_of(value)}" for name, value in schema.get("properties", {}).items() if name != "schema")
    return f"{said}\n\n{'; '.join(keys)}." if keys else said


def type_of(schema: Mapping[str, Any]) -> str:
    """The type of a value in words: `string`, `list of Gpu`, `number or null`."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(type_of, schema["anyOf"])))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema or "const" in schema:
        return " \\| ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}" if "items" in schema else "list"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object with values of {type_of(schema['additionalProperties'])}"
    return str(schema.get("type", "any value"))


def write() -> None:
    SCHEMAS.mkdir(exist_ok=True)
    files = made()
    for path in set(SCHEMAS.glob("*.json")) - set(files):
        path.unlink()
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
