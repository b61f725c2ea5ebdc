"""The form of every `--format json`: one object that begins with the number of its schema. The types of the objects stand beside what
fills them; tests/json_schemas.py lists them, and makes their JSON Schemas and docs/json.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

# Larger by 1 whenever a key of any object goes away or gets another meaning. A new key leaves it as it is.
SCHEMA = 1


def print_document(document: Mapping[str, object]) -> None:
    """Print an object for a script. Its values may be dataclasses and models of pydantic, which become objects of their fields."""
    print(json.dumps({"schema": SCHEMA, **document}, indent=2, allow_nan=False, default=_fields))


def _fields(value: Any) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.model_dump(mode="json")
