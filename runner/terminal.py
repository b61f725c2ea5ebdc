"""Printing for people: sentences and tables that fit a terminal and a pipe. What is printed is made visible first."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from runner.text import visible

if TYPE_CHECKING:
    from rich.console import Console


class _Lasting:
    """Standard error that nobody needs to read: once its reader is gone, what is printed goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._until_broken():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._until_broken():
            self._stream.flush()

    @contextlib.contextmanager
    def _until_broken(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # What is still buffered goes there too, or Python's exit would fail at it.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def lasting_stderr() -> Iterator[None]:
    """Within the block, a reader of standard error that ends (`2>&1 | head -1`) does not end this process."""
    with contextlib.redirect_stderr(cast(TextIO, _Lasting(sys.stderr))):
        yield


def folded(line: str, *, to_stderr: bool = False) -> str:
    """A sentence in lines of the terminal's width, broken between words; as it is in a pipe, unless COLUMNS gives a width.

    Where it is indented, its further lines are indented more.
    """
    if not (sys.stderr if to_stderr else sys.stdout).isatty() and "COLUMNS" not in os.environ:
        return line
    width = shutil.get_terminal_size().columns
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    further = indent and f"{indent}  "
    return textwrap.fill(line, width, subsequent_indent=further, break_on_hyphens=False, break_long_words=False)


# What the last column of a table needs at least: it holds sentences, which go on in the next line.
_SENTENCE = 20


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
    """Print a table of plain text; the columns `right` hold numbers.

    Nothing is cut. On a terminal only the last column is folded. Where the others do not fit, each row is a paragraph that its first
    column begins, or as many as no two rows share. In a pipe no line is broken, unless COLUMNS gives a width.
    """
    # Rich is needed only where something is printed.
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(stderr=to_stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=to_stderr, width=10_000)
    lines = [tuple(map(visible, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heads, *lines, strict=True)]
    last = min(widths[-1], max(_SENTENCE, cell_len(heads[-1])))
    if sum(widths[:-1]) + last + 2 * (len(heads) - 1) > console.width:
        first = _that_names(lines)
        for line in lines:
            parts = [f"{head} {value}" for head, value in zip(heads, line, strict=True) if value not in ("", "–")]
            del parts[: sum(value not in ("", "–") for value in line[:first])]
            _print_folded(console, " · ".join(filter(None, line[:first])), "", "    ", style="bold")
            _print_folded(console, " · ".join(parts), "  ", "  ")
        return
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
    console.file.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))
