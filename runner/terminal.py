"""Printing for people: sentences and tables that fit a terminal and a pipe. What is printed is made visible first."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from bench import rules
from runner.text import visible

if TYPE_CHECKING:
    from rich.console import Console


# Replacements of characters that a terminal's encoding lacks. Letters with accents and raised digits lose these.
_PLAIN_CHARACTERS = {
    "±": "+/-",
    "…": "...",
    "–": "-",
    "−": "-",
    "─": "-",
    "×": "x",
    "≈": "~",
    "≥": ">=",
    "≤": "<=",
    "→": "->",
    "·": "-",
    "µ": "u",
    "°": " deg",
    "◆": "*",
    "●": "*",
    "○": "o",
    "†": "+",
    "⟨": "<",
    "⟩": ">",
    "⏎": "|",
}
_REPLACING = "dlbench.plain"
_ASCII = "dlbench-ascii"


def _plain(character: str) -> str:
    if character in _PLAIN_CHARACTERS:
        return _PLAIN_CHARACTERS[character]
    return unicodedata.normalize("NFKD", character).replace("−", "-").encode("ascii", "ignore").decode() or "?"


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    """The replacement of characters that cannot be encoded. Bytes of a file's name that are no text stay as they are."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    if "\udc80" <= lacking[0] <= "\udcff":
        return lacking[0].encode("ascii", "surrogateescape"), error.start + 1
    return "".join(map(_plain, lacking)), error.end


def _ascii_by_another_name(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != _ASCII:
        return None
    usual = codecs.lookup("ascii")
    return codecs.CodecInfo(
        usual.encode,
        usual.decode,
        incrementalencoder=usual.incrementalencoder,
        incrementaldecoder=usual.incrementaldecoder,
        name=_ASCII,
    )


def replace_what_lacks(stream: io.TextIOWrapper) -> None:
    """Print plainer characters on this stream in place of those that its encoding lacks."""
    codecs.register_error(_REPLACING, _replaced)
    codecs.register(_ascii_by_another_name)
    # To a stream whose encoding is called ASCII Typer writes UTF-8.
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding=_ASCII if is_ascii else None, errors=_REPLACING)


def columns() -> int:
    """The width that COLUMNS gives; 0 where it gives none."""
    said = os.environ.get("COLUMNS", "")
    return rules.whole(said) or 0


def folded(line: str, *, to_stderr: bool = False, hang: int | None = None) -> str:
    """A sentence in lines of the terminal's width, broken between words; as it is in a pipe, unless COLUMNS gives a width.

    Where it is indented, its further lines are indented more; `hang` says how far these stand in.
    """
    if not (sys.stderr if to_stderr else sys.stdout).isatty() and not columns():
        return line
    width = shutil.get_terminal_size().columns
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    further = (indent and f"{indent}  ") if hang is None else " " * hang
    return textwrap.fill(line, width, subsequent_indent=further, break_on_hyphens=False, break_long_words=False)


# The least width of a table's last column: it holds sentences, which go on in the next line.
_SENTENCE = 20


def _console(to_stderr: bool = False) -> Console:
    """The console: a pipe has no width, unless COLUMNS gives one."""
    from rich.console import Console

    console = Console(stderr=to_stderr)
    if not console.is_terminal and not columns():
        return Console(stderr=to_stderr, width=10_000)
    # Rich takes a width of 0 for one.
    return console if console.width > 0 else Console(stderr=to_stderr, width=shutil.get_terminal_size().columns)


def _widths(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(heads, *lines, strict=True)]


def _fits(console: Console, heads: Sequence[str], lines: Sequence[Sequence[str]], least: int = _SENTENCE) -> bool:
    """True if all columns fit beside each other whole, with `least` of the last one."""
    widths = _widths(heads, lines)
    return sum(widths[:-1]) + min(widths[-1], max(least, len(heads[-1]))) + 2 * (len(heads) - 1) <= console.width


def fits(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """True if `print_table` prints a table of these rows, and no paragraphs."""
    return _fits(_console(), heads, [tuple(map(visible, row)) for row in rows])


# The least width of the last column of a table with headings between its rows: it holds few words.
_WORDS = 12


Groups = Sequence[tuple[str, Sequence[Sequence[str]]]]


def _indented(groups: Groups) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Headings with their rows, which stand further right where there are headings."""
    indent = "  " if any(heading for heading, _ in groups) else ""
    return [
        (visible(heading), [(indent + visible(row[0]), *map(visible, row[1:])) for row in rows])
        for heading, rows in groups
    ]


def groups_fit(heads: Sequence[str], groups: Groups) -> bool:
    """True if `print_grouped` has room for every column."""
    return _fits(_console(), heads, [row for _, rows in _indented(groups) for row in rows], _WORDS)


def print_grouped(heads: Sequence[str], groups: Groups, right: Collection[str] = ()) -> None:
    """Print a table whose rows stand under headings, which take no room from the columns."""
    console, named = _console(), _indented(groups)
    widths = _widths(heads, [row for _, rows in named for row in rows])
    before = sum(widths[:-1]) + 2 * (len(heads) - 1)
    room = min(widths[-1], max(_WORDS, console.width - before))
    numbers = {at for at, head in enumerate(heads) if head in right}
    for line in [*_drawn(heads, widths, numbers, room), "─" * (before + room)]:
        print(line)
    for heading, rows in named:
        if heading:
            _print_folded(console, heading, "", "    ", style="bold")
        for row in rows:
            for line in _drawn(row, widths, numbers, room):
                print(line)


def _drawn(row: Sequence[str], widths: Sequence[int], numbers: Collection[int], room: int) -> Iterator[str]:
    """A row in columns of these widths, of which `numbers` are aligned to the right. The last one goes on in further lines."""
    from rich.cells import cell_len

    def padded(at: int) -> str:
        spaces = " " * (widths[at] - cell_len(row[at]))
        return spaces + row[at] if at in numbers else row[at] + spaces

    begin = "".join(f"{padded(at)}  " for at in range(len(row) - 1))
    words = textwrap.wrap(row[-1], room, break_on_hyphens=False, break_long_words=False) or [""]
    yield (begin + words[0]).rstrip()
    yield from (" " * cell_len(begin) + line for line in words[1:])


def _that_names(lines: Sequence[Sequence[str]]) -> int:
    """How many of the first columns differ in all rows: a paragraph begins with them. One where no number of them does."""
    for count in range(1, len(lines[0]) if lines else 1):
        if len({tuple(line[:count]) for line in lines}) == len(lines):
            return count
    return 1


def _print_folded(console: Console, text: str, indent: str, further: str, style: str = "") -> None:
    from rich.text import Text

    width = max(20, console.width)
    for part in textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False, break_long_words=False
    ):
        console.print(Text(part, style=style), soft_wrap=True)


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = (), to_stderr: bool = False
) -> None:
    """Print a table of plain text; the columns `right` hold numbers."""
    for line in table_lines(heads, rows, right=right, to_stderr=to_stderr):
        print(line, file=sys.stderr if to_stderr else sys.stdout)


def table_lines(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    to_stderr: bool = False,
    brief: bool = False,
) -> list[str]:
    """The lines of such a table. `brief`: its last column holds few words.

    Nothing is cut. On a terminal only the last column is folded. Where the others do not fit, each row is a paragraph that its first
    column begins, or as many as no two rows share. In a pipe no line is broken, unless COLUMNS gives a width.
    """
    # Rich is needed only where something is printed.
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    console = _console(to_stderr)
    lines = [tuple(map(visible, row)) for row in rows]
    if not _fits(console, heads, lines, _WORDS if brief else _SENTENCE):
        first = _that_names(lines)
        with console.capture() as printed:
            for line in lines:
                parts = [f"{head} {value}" for head, value in zip(heads, line, strict=True) if value not in ("", "–")]
                del parts[: sum(value not in ("", "–") for value in line[:first])]
                _print_folded(console, " · ".join(filter(None, line[:first])), "", "    ", style="bold")
                _print_folded(console, " · ".join(parts), "  ", "  ")
        return printed.get().splitlines()
    columns = [
        Column(
            Text(head),
            overflow="fold",
            justify="right" if head in right else "left",
            no_wrap=at < len(heads) - 1,
        )
        for at, head in enumerate(heads)
    ]
    drawn = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for line in lines:
        drawn.add_row(*map(Text, line))
    # The last column is as wide as its longest sentence: a pipe needs no spaces behind the others.
    with console.capture() as printed:
        console.print(drawn)
    return [line.rstrip() for line in printed.get().splitlines()]
