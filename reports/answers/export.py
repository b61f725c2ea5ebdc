"""Tables as text: Markdown, CSV, and for a terminal. A cell's output stays text in each of them."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from reports.answers.contrast import Contrast
from reports.data.model import MeasuredCell
from reports.wording import between_ratios, duration, number, step_interval, too_wide, wide_ratio
from runner.results.on_disk.roles import NamedCell
from runner.results.rank.ranking import Verdict
from runner.results.statistics import Estimate
from runner.text import visible

# Characters with a meaning in a line of Markdown. A sign that may begin a tag or an entity becomes an entity.
_MARKDOWN = re.compile(r"([\\`*_\[\]>|#~!])")
# Words that GitHub makes a link, or a message to a person, without markup: a backslash before it does not help, a comment inside does.
_LIVE = re.compile(r"@(?=\S)|:(?=//)|www(?=\.)|(?<=\\)#(?=\d)|\bGH(?=-\d)", re.IGNORECASE)
# A spreadsheet reads a text that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Table:
    """The heads of the columns, and rows of words. `caption` says what holds for every row; `notes` what several rows refer to."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()


# Bytes: the most of a comment of GitHub, and room for the sentence on the rest, with a link.
_MOST_OF_A_COMMENT, _SENTENCE = 65_536, 600
_ADDRESS = re.compile(r"https?://[\w.:/-]{3,300}/\d+")


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, and what a row says in it. A column that `narrows` goes into the caption if all rows say the same."""

    head: str
    of: Callable[[Any], str]
    narrows: bool = False


def table(columns: Sequence[Column], rows: Sequence[Any], notes: Mapping[str, int] | None = None) -> Table:
    """The rows as people read them. `notes` are sentences and their numbers, by which rows refer to them."""
    words = [[column.of(row) for column in columns] for row in rows]
    same = {
        column.head: words[0][at]
        for at, column in enumerate(columns)
        if column.narrows and len({line[at] for line in words}) == 1
    }
    caption = ", ".join(f"{head} {value}" for head, value in same.items() if value)
    shown = [at for at, column in enumerate(columns) if column.head not in same]
    below = tuple(f"[{number_}] {sentence}" for sentence, number_ in (notes or {}).items())
    heads = tuple(columns[at].head for at in shown)
    return Table(heads, tuple(tuple(line[at] for at in shown) for line in words), caption, below)


def escaped(value: str, longest: int = 200) -> str:
    """A text that Markdown shows as it is, on one line. Nothing in it is a link, and no person in it gets a message."""
    plain = " ".join(visible(value, longest).split()).replace("&", "&amp;").replace("<", "&lt;")
    shown = _MARKDOWN.sub(r"\\\1", plain)
    return _LIVE.sub(r"\g<0><!-- -->", shown)


def markdown(table: Table) -> str:
    """A Markdown table, as GitHub reads it, under its caption."""
    lines = [[escaped(word) for word in line] for line in (table.heads, *table.rows)]
    lines.insert(1, ["---"] * len(table.heads))
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "\n".join(f"- {escaped(note, 400)}" for note in table.notes)
    return "\n\n".join(filter(None, (escaped(table.caption, 400), drawn, notes)))


def in_a_comment(text: str) -> str:
    """Markdown as a comment on GitHub takes it: longer text ends after a whole line, and a sentence says how many are skipped, and why."""
    if len(text.encode()) <= _MOST_OF_A_COMMENT:
        return text
    room, kept = _MOST_OF_A_COMMENT - _SENTENCE, []
    lines = text.splitlines()
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    left = f"{len(lines) - len(kept)} more lines do not fit a comment of GitHub: {_job()}the text, the CSV and the page have all of them."
    # A block of code is closed.
    kept += ["```"] * (sum(line.startswith("```") for line in kept) % 2)
    return "\n".join([*kept, "", left, ""])


def _job() -> str:
    """A link to the job that this process is a part of, on GitHub or GitLab; empty elsewhere."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (os.environ.get(name, "") for name in names)
    address = os.environ.get("CI_JOB_URL", "") or f"{server}/{repository}/actions/runs/{run}"
    return f"[this job]({address}), " if _ADDRESS.fullmatch(address) else ""


def comma_separated(records: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a head, of records that have the same fields. None is an empty field."""
    out = io.StringIO()
    if records:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(records[0])
        writer.writerows([_plain(value) for value in record.values()] for record in records)
    return out.getvalue()


def _plain(value: Any) -> Any:
    """The field, such that no spreadsheet computes it."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return "'" + shown if shown.startswith(_FORMULA) else shown


def step(estimate: Estimate | None) -> str:
    """A step time with its interval."""
    if estimate is None:
        return "–"
    return duration(estimate.value) + (f" ({step_interval(estimate)})" if estimate.low is not None else "")


def step_alone(estimate: Estimate | None) -> str:
    """A step time in milliseconds, without its unit."""
    return "–" if estimate is None else number(1e3 * estimate.value)


def ratio(estimate: Estimate | None) -> tuple[str, str]:
    """A ratio, and its interval in few characters."""
    if estimate is None:
        return "–", ""
    if estimate.low is None or estimate.high is None:
        return number(estimate.value), ""
    if too_wide(estimate.low, estimate.high):
        return number(estimate.value), wide_ratio(estimate.low, estimate.high, "too few to tell").partition(";")[0]
    return number(estimate.value), f"{number(estimate.low)}–{number(estimate.high)}"


def numbered(sentences: Iterable[str], after: int) -> dict[str, int]:
    """Each sentence once with a number, counted on from `after`."""
    return {sentence: at for at, sentence in enumerate(dict.fromkeys(filter(None, sentences)), start=after + 1)}


def _beside(row: Contrast) -> str:
    ratio = row.beside
    return "–" if ratio is None else f"{number(ratio.value, 4)} × ({between_ratios(ratio)})"


# Of everything that has a `cell`: a contrast, or a cell without a partner.
CELL = (
    Column("cell", lambda row: row.cell.name),
    Column("workload", lambda row: row.cell.key.workload),
    Column("device", lambda row: row.cell.key.device, narrows=True),
    Column("precision", lambda row: row.cell.key.precision, narrows=True),
    Column("preset", lambda row: row.cell.key.preset, narrows=True),
)


# A reason has parts. A short one is written in each row.
_BETWEEN_PARTS = "; "
_SHORT = 25


def shared_reasons(rows: Iterable[Contrast], *, each: bool = False) -> dict[str, int]:
    """The parts of reasons that several verdicts have, with numbers: said once below a table, they do not drown what differs.

    `each`: a long part of one verdict as well, and a short one of several.
    """
    having: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        for part in filter(None, row.reason.split(_BETWEEN_PARTS)):
            having.setdefault(part, []).append(at)
    several = {part: len(places) > 1 for part, places in having.items()}
    below = (
        part
        for part in having
        if (several[part] or len(part) > _SHORT if each else several[part] and len(part) > _SHORT)
    )
    return {part: number_ for number_, part in enumerate(below, start=1)}


def verdict(notes: Mapping[str, int]) -> Column:
    """The verdict of a contrast with its reason: of the parts that are among the notes the numbers only."""

    def words(row: Contrast) -> str:
        parts = list(filter(None, row.reason.split(_BETWEEN_PARTS)))
        numbers = "".join(f" [{notes[part]}]" for part in parts if part in notes)
        own = _BETWEEN_PARTS.join(part for part in parts if part not in notes)
        return row.words + numbers + (f": {own}" if own else "")

    return Column("verdict", words)


RATIO = (
    Column("ratio", lambda row: "–" if row.ratio is None else f"{number(row.ratio.value, 4)} ×"),
    Column("95 % interval", lambda row: between_ratios(row.ratio)),
)


def contrast_columns(
    before: str, after: str, *, beside: bool = False, notes: Mapping[str, int] | None = None
) -> tuple[Column, ...]:
    """Both sides of a contrast, its ratio, its ratio `beside` what moved all rows, and its verdict."""
    common = (Column("beside what moved all", _beside),) if beside else ()
    return (
        Column(f"{before}, a step", lambda row: step(row.before.step)),
        Column(f"{after}, a step", lambda row: step(row.after.step)),
        *RATIO,
        *common,
        verdict(notes or {}),
    )


class ContrastRecord(NamedCell):
    """Two sides and how `b` is beside `a`: seconds a step, the ratio b to a of step times, and the verdict.

    `differences` are the recorded facts that differ; `machine_changes` is what was seen of the machine meanwhile, and differs.
    """

    a_runs: str
    b_runs: str
    a_repeats: int
    b_repeats: int
    a_seconds: float | None
    b_seconds: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    beside: float | None
    beside_low: float | None
    beside_high: float | None
    p_holm: float | None
    verdict: Verdict
    reason: str
    differences: str
    machine_changes: str


def of_cell(cell: MeasuredCell) -> NamedCell:
    """The fields that name a cell in a flat record."""
    outside_key, names = ("image", "framework", "mode"), NamedCell.__annotations__
    return cast(NamedCell, {name: getattr(cell if name in outside_key else cell.key, name) for name in names})


def contrast(row: Contrast) -> ContrastRecord:
    """A contrast as a flat record."""
    ratio, before, after = row.ratio, row.before.step, row.after.step
    return {
        **of_cell(row.cell),
        "a_runs": " ".join(dict.fromkeys(other.run_id for other in row.before.cells)),
        "b_runs": " ".join(dict.fromkeys(other.run_id for other in row.after.cells)),
        "a_repeats": len(row.before.repeats),
        "b_repeats": len(row.after.repeats),
        "a_seconds": before.value if before else None,
        "b_seconds": after.value if after else None,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "beside": row.beside.value if row.beside else None,
        "beside_low": row.beside.low if row.beside else None,
        "beside_high": row.beside.high if row.beside else None,
        "p_holm": row.p,
        "verdict": row.verdict,
        "reason": row.reason,
        "differences": "; ".join(map(str, row.differences)),
        "machine_changes": "; ".join(map(str, row.observed)),
    }


# A table of contrasts for a narrow terminal: few columns, rows under headings that name what they are of, each reason once below.


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
    shared: Sequence[Column],
    figures: Sequence[Column],
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
    notes = shared_reasons(rows, each=True)
    further = numbered(map(told, rows), after=len(notes))
    judged = verdict(notes)
    groups: dict[str, list[tuple[str, ...]]] = {}
    for at, row in enumerate(rows):
        number = further.get(told(row))
        line = (
            words[label][at],
            *(column.of(row) for column in figures),
            *ratio(row.judged),
            judged.of(row) + (f" [{number}]" if number else ""),
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
