"""A table of contrasts for a narrow terminal: few columns, rows under headings that name what they are of, each reason once below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.answers import export
from reports.answers.contrast import Contrast


@dataclass(frozen=True)
class Compact:
    """`numbers` are the heads of the columns that hold numbers."""

    captions: tuple[str, ...]
    heads: tuple[str, ...]
    groups: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    notes: tuple[str, ...]
    numbers: tuple[str, ...]


def in_few_columns(
    rows: Sequence[Contrast],
    shared: Sequence[export.Column],
    figures: Sequence[export.Column],
    *,
    told: Callable[[Contrast], str],
    what: str,
    caption: str = "",
) -> Compact:
    """The rows of a comparison in few columns.

    `shared` say what a row is of: what all rows say stands in a caption, the workload begins a row, and the rest is its heading. `told`
    is a sentence of a row beside its reason, and `what` says what it is about.
    """
    words = {column.head: [column.of(row) for row in rows] for column in shared}
    # Facts that all rows share are said once. One row is named by its workload.
    same = [head for head in words if len(set(words[head])) == 1 and (len(rows) > 1 or head != "workload")]
    label, *others = [head for head in ("workload", *words) if head not in same] or ["workload"]
    others = [head for head in others if head != label]
    notes = export.shared_reasons(rows, each=True)
    further = export.numbered(map(told, rows), after=len(notes))
    verdict = export.verdict(notes)
    groups: dict[str, list[tuple[str, ...]]] = {}
    for at, row in enumerate(rows):
        number = further.get(told(row))
        line = (
            words[label][at],
            *(column.of(row) for column in figures),
            *export.ratio(row.judged),
            verdict.of(row) + (f" [{number}]" if number else ""),
        )
        groups.setdefault(" · ".join(words[head][at] for head in others), []).append(line)
    said = ", ".join(f"{head} {words[head][0]}".strip() for head in same if words[head][0])
    numbers = (*(column.head for column in figures), "ratio")
    return Compact(
        tuple(filter(None, (said, caption))),
        (label, *numbers, "95 %", "verdict"),
        tuple((heading, tuple(lines)) for heading, lines in groups.items()),
        (
            *(f"[{number}] {part}" for part, number in notes.items()),
            *(f"[{number}] {what}: {part}" for part, number in further.items()),
        ),
        numbers,
    )
