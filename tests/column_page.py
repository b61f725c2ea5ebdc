"""docs/columns.md, from the metadata that each table's fields have. `make docs` writes it."""

from __future__ import annotations

from collections.abc import Iterator

from runner.paths import PROJECT
from runner.results.on_disk.schema import ANSWERS, TABLES, arrow_schema

PAGE = PROJECT / "docs" / "columns.md"

_BEFORE = """\
<!-- Made by `make docs` from the schemas of the tables. -->
# Columns

Each table of a run is one Parquet file, `tables/<table>.parquet` ([what a run leaves](results-format.md)). Of each column its Arrow type,
its unit and what it holds; the file has the last two as metadata of the field:

```python
import pyarrow.parquet as pq

for field in pq.read_schema("tables/answers.parquet"):
    print(field.name, field.metadata[b"unit"].decode(), field.metadata[b"description"].decode())
```

A time inside a cell counts from the start of the cell's process. A column may be null unless it names the row.
"""


def text() -> str:
    return "\n".join([_BEFORE, *_tables()])


def _tables() -> Iterator[str]:
    for table in (ANSWERS, *TABLES):
        yield f"## {table}\n\n| column | type | unit | what it holds |\n| --- | --- | --- | --- |"
        for field in arrow_schema(table):
            metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
            kind = str(field.type).replace("item: ", "").replace("<element: ", "<")
            yield f"| `{field.name}` | {kind} | {metadata['unit']} | {metadata['description']} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
