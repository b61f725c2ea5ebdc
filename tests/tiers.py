"""The table in CONTRIBUTING of what each command for tests covers, from the marks in the files: `python -m tests.tiers` writes it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCUMENT = TESTS.parent / "CONTRIBUTING.md"
BEGIN, END = "<!-- tests: made by `python -m tests.tiers` -->\n", "<!-- end of tests -->"
MODULE_MARKS = re.compile(r"^pytestmark = .*pytest\.mark\.slow\b", re.MULTILINE)
TEST_MARKS = re.compile(r"^( *)@pytest\.mark\.slow\b", re.MULTILINE)
TEST = re.compile(r"^ *def test_", re.MULTILINE)
# What a test's reason for being skipped tells its reader to set, or what it compares.
VARIABLES = re.compile(r'(?:(?<=only_with\(")|(?<=drawn\("))DLBENCH_[A-Z]+|DLBENCH_[A-Z]+(?==all|\W+[!=]= "all")')


def counted(text: str) -> tuple[int, int]:
    """How many test functions a file has, and how many of them are slow."""
    count = len(TEST.findall(text))
    return count, count if MODULE_MARKS.search(text) else len(TEST_MARKS.findall(text))


def name_of(path: Path, folder: str) -> str:
    """A file's name for people: `matrix`, of tests/engine; `bench/devices`, of tests/unit."""
    name = path.stem.removeprefix("test_")
    return name if path.parent == TESTS / folder else f"{path.parent.name}/{name}"


def row(folder: str) -> str:
    """One line of the table: the files of a folder of tests by the command that runs them; a file in two columns is in part in each."""
    texts = {name_of(path, folder): path.read_text() for path in sorted((TESTS / folder).rglob("test_*.py"))}
    counts = {name: counted(text) for name, text in texts.items()}
    quick = {name for name, (count, slow) in counts.items() if slow < count}
    slow = {name for name, (_, slow) in counts.items() if slow}
    long: dict[str, list[str]] = {}
    for name, text in texts.items():
        for variable in sorted(set(VARIABLES.findall(text))):
            long.setdefault(variable, []).append(name)
    in_full = [f"`{variable}`: {', '.join(names)}" for variable, names in sorted(long.items())]
    return f"| `tests/{folder}` | {listed(quick, set(texts))} | {listed(slow, set(texts))} | {'; '.join(in_full) or '–'} |\n"


def listed(names: set[str], all_names: set[str]) -> str:
    """The shorter list: a new file of the usual kind changes no line of the table."""
    others = all_names - names
    if len(names) <= len(others):
        return ", ".join(sorted(names)) or "–"
    return f"all but {', '.join(sorted(others))}" if others else "all"


def table() -> str:
    head = "| tests | `make test` | `make test-slow` | `make test-long`, in full |\n| --- | --- | --- | --- |\n"
    return head + "".join(row(folder) for folder in ("unit", "browser", "engine", "contract"))


def written(text: str) -> str:
    """The document with the table of these tests."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
