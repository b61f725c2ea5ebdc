"""The four answers of the first screen: which framework, which CUDA version, which GPU, and whether the machine is healthy.

Each has at most eight words, how sure it is, and what it rests on. The rules are those of the findings: nothing is called confirmed
that an interval does not support, and one repeat confirms nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reports.answers.across import Across, Effect
from reports.answers.contrast import Contrast
from reports.answers.findings import Finding, looks_fastest, measured_once, repeats_of
from reports.answers.health import Health
from reports.data.model import Group, MeasuredCell
from reports.text import between_ratios, device_name, duration, ended, framework_name, listing, number, percent, plural
from runner.results.cells import MISSING

Confidence = Literal["confirmed", "one run", "few repeats", "tied", "not compared", "not measured", "not judged"]
MOST_WORDS = 8
ON_A_CPU = "Only the CPU was measured"


@dataclass(frozen=True)
class Answer:
    """One question with its answer. `link` is the anchor of what supports it; `bad` marks an answer that needs attention."""

    question: str
    words: str
    confidence: Confidence
    detail: str
    link: str
    bad: bool = False


def answers(
    shown: Sequence[Finding],
    where: str,
    ladders: Iterable[Across],
    devices: Iterable[Across],
    health: Health,
    measured: Sequence[MeasuredCell],
) -> tuple[Answer, ...]:
    """The four answers. `shown` are the findings of the results that the page shows first, and `where` names these.

    `ladders` are the effects of versions in all groups, `devices` those of devices; `measured` are all cells, begun or not.
    """
    # Cells that measure single operations are in no finding.
    began = [cell for cell in measured if cell.status != MISSING]
    cells = [cell for finding in shown for cell in finding.group.cells if cell.status != MISSING] or began
    # One row and no list of effects: both are walked more than once.
    return (
        _framework(shown, where, measured),
        _cuda(cells, began, [effect for table in ladders for effect in table.effects]),
        _gpu(cells, began, [effect for table in devices for effect in table.effects]),
        _healthy(health),
    )


def _healthy(health: Health) -> Answer:
    bad = any(cell.verdict in ("slow", "wrong", "failed") for cell in health.cells)
    bad = bad or any(gpu.named for fleet in health.fleets for gpu in fleet.gpus)
    # A command is told from words by its letters in the health section; a card has one kind of letters.
    # The section has all of the advice: the first screen has room for its first sentence.
    first = health.next.partition(". ")[0]
    detail = " ".join(ended(part) for part in (health.detail, first.replace("`", "")) if part)
    return Answer("Is mine healthy?", health.answer, health.confidence, detail, "health", bad)


# -- Which framework ------------------------------------------------------------------------------------------------------------


def rivals(group: Group) -> list[bool]:
    """For each ranked cell of another framework than the fastest cell's: whether it is slower beyond doubt."""
    best = group.ranked[0].cell.framework
    return [entry.apart for entry in group.ranked if entry.cell.framework != best]


def _framework(shown: Sequence[Finding], where: str, measured: Sequence[MeasuredCell]) -> Answer:
    question, link = "Which framework?", "results"
    groups = [finding.group for finding in shown if finding.group.ranked]
    if not shown and any(cell.status == "ok" for cell in measured):
        return Answer(question, "Only single operations were measured", "not compared", "", "results")
    if not groups:
        detail = "No measurement may be ranked." if any(cell.status != MISSING for cell in measured) else ""
        return Answer(question, "Not measured yet", "not measured", detail, link)
    names = {framework_name(entry.cell.framework) for group in groups for entry in group.ranked}
    if len(names) == 1 and any(cell.framework != groups[0].ranked[0].cell.framework for cell in _computed(shown)):
        return Answer(question, f"Only {names.pop()} could be ranked", "not compared", where, link)
    if len(names) == 1:
        step = groups[0].ranked[0].cell.step
        detail = f"{where}; {duration(step.value if step else None)} a step at {plural(len(groups), 'workload')}"
        detail = detail if len(groups) == 1 else where
        return Answer(question, f"Only {names.pop()} was measured", "not compared", detail, link)
    compared = [group for group in groups if rivals(group)]
    if not compared:
        detail = f"{where}; no two frameworks at one workload"
        return Answer(question, "No two frameworks are comparable", "not compared", detail, link)
    fed = [group for group in compared if not group.unsettled]
    if not fed:
        detail = f"{where}; {_starved(compared[0].unsettled)}, so more CPUs may change the order"
        return Answer(question, "Not settled: busy machine", "not judged", detail, link)
    words, confidence, detail = _winner(fed, where, len(shown))
    return Answer(question, words, confidence, "; ".join([detail, *_hungry(compared)]), link)


def _computed(shown: Sequence[Finding]) -> list[MeasuredCell]:
    """The cells that ended well, ranked or not."""
    return [cell for finding in shown for cell in finding.group.cells if cell.status == "ok"]


def _starved(cells: Iterable[MeasuredCell]) -> str:
    return f"{listing(dict.fromkeys(framework_name(cell.framework) for cell in cells))} got less than half of the CPUs"


def _hungry(compared: Sequence[Group]) -> Iterator[str]:
    """What an answer leaves out for want of CPUs, and which of the figures below it are worse for that."""
    if open_ := [group for group in compared if group.unsettled]:
        yield f"not settled at {listing(group.key.workload for group in open_)}: busy machine"
    if few := [entry.cell for group in compared for entry in group.ranked if entry.cell.cpu_share is not None]:
        yield _starved(few)


def _winner(compared: Sequence[Group], where: str, workloads: int) -> tuple[str, Confidence, str]:
    """(words, how sure, detail): the framework that wins most of these groups, that several win as many, or that none does.

    `workloads` counts the groups that are shown: of some of them there may be nothing to compare.
    """
    clear = [group for group in compared if _is_won(group)]
    wins = Counter(group.ranked[0].cell.framework for group in clear)
    if not wins:
        if _once(compared[0]):
            detail = f"{where}; the fastest is unsteady, or another framework is too near for one repeat"
            return f"Not settled: {_repeats(compared[:1])}", _unsure(compared[:1]), detail
        if any(entry.open for entry in compared[0].ranked):
            return (
                f"Not settled: {_repeats(compared[:1])}",
                "few repeats",
                f"{where}; the intervals of those marked ≈ are wide",
            )
        return _tied(compared[0]), "tied", f"{where}; ties are marked ≈"
    most = max(wins.values())
    confidence: Confidence = _unsure(clear) if any(_once(group) for group in clear) else "confirmed"
    if list(wins.values()).count(most) > 1:
        won = [f"{framework_name(group.ranked[0].cell.framework)} at {group.key.workload}" for group in clear]
        return "No framework wins everywhere", confidence, f"{where}; {listing(won[:3])}"
    top = max(wins, key=lambda framework: wins[framework])
    own = [group for group in clear if group.ranked[0].cell.framework == top]
    of = f", {most} of {workloads}" if workloads > 1 else ""
    if any(_once(group) for group in own):
        return (
            _short(f"{framework_name(top)} looks fastest", of),
            _unsure(own),
            f"{where}; {_repeats(own)}: another run may differ",
        )
    return _short(f"{framework_name(top)} is fastest", of), "confirmed", f"{where}; {_behind(own[0])}"


def _repeats(groups: Sequence[Group]) -> str:
    return repeats_of(entry.cell for group in groups for entry in group.ranked)


def _unsure(groups: Sequence[Group]) -> Confidence:
    """How sure an answer is that rests on groups in which some cells were measured once."""
    return "one run" if _repeats(groups) == "measured once" else "few repeats"


def _once(group: Group) -> bool:
    return bool(measured_once(entry.cell for entry in group.ranked))


def _is_won(group: Group) -> bool:
    """Whether the fastest cell's framework may be called the fastest of a group."""
    return looks_fastest(group) if _once(group) else all(rivals(group))


def _short(words: str, more: str) -> str:
    return words + more if len((words + more).split()) <= MOST_WORDS else words


def _behind(group: Group) -> str:
    """How far the next framework is behind the fastest one."""
    best = group.ranked[0].cell.framework
    entry = next(entry for entry in group.ranked if entry.cell.framework != best)
    return f"{framework_name(entry.cell.framework)} takes {number(entry.ratio.value)} × ({between_ratios(entry.ratio)})"


def _tied(group: Group) -> str:
    best = group.ranked[0].cell.framework
    level = dict.fromkeys(framework_name(entry.cell.framework) for entry in group.ranked if not entry.apart)
    others = [name for name in level if name != framework_name(best)]
    words = f"{framework_name(best)} and {others[0]} are tied" if len(others) == 1 else ""
    fits = words and len(words.split()) <= MOST_WORDS
    return words if fits else f"{framework_name(best)} and {plural(len(others), 'other')} tied"


# -- Which CUDA version -----------------------------------------------------------------------------------------------------------


def _no_gpu(question: str, link: str, began: Sequence[MeasuredCell]) -> Answer:
    """What is said of GPUs where the results that the page shows first have none."""
    if not began:
        return Answer(question, "Not measured yet", "not measured", "", link)
    ran = any(cell.key.device_kind == "cuda" for cell in began)
    return Answer(question, "No GPU ran a ranked workload" if ran else ON_A_CPU, "not compared", "", link)


def _cuda(cells: Sequence[MeasuredCell], began: Sequence[MeasuredCell], effects: Sequence[Effect]) -> Answer:
    question, link = "Which CUDA version?", "ladder"
    measured = [cell for cell in cells if cell.key.device_kind == "cuda"]
    if not measured:
        return _no_gpu(question, link, began)
    versions = {_major_minor(cell) for cell in measured} - {""}
    if len(versions) < 2:
        words = f"Only CUDA {listing(versions)} was measured" if versions else "No CUDA version was recorded"
        return Answer(question, words, "not compared", "", link)
    alone = [effect.contrast for effect in effects if effect.apart and effect.of.startswith("CUDA ")]
    if not alone:
        detail = "No two images differ in CUDA alone: each changes the framework too."
        return Answer(question, "CUDA never changed alone", "not compared", detail, link)
    ratios = [row.ratio.value for row in alone if row.ratio]
    detail = f"CUDA alone, {plural(len(alone), 'pair')}: {_range(ratios)} time"
    real = [row for row in alone if row.real]
    faster = sum(not row.longer for row in real)
    if not real and all(len(row.before.repeats) < 2 or len(row.after.repeats) < 2 for row in alone):
        return Answer(question, "No verdict: measured once", "one run", detail, link)
    if not real:
        same = all(row.verdict == "same" for row in alone)
        words = "No difference beyond 5 %" if same else "No clear difference"
        return Answer(question, words, "confirmed" if same else "tied", detail, link)
    if 0 < faster < len(real):
        return Answer(question, "No version wins everywhere", "confirmed", detail, link)
    words = f"{'Newer' if faster else 'Older'} CUDA is faster, {len(real)} of {plural(len(alone), 'pair')}"
    return Answer(question, words, "confirmed", detail, link)


def _major_minor(cell: MeasuredCell) -> str:
    return ".".join(str(cell.row.get("cuda_version") or "").split(".")[:2])


def _range(ratios: Sequence[float]) -> str:
    if not ratios:
        return "no"
    ends = dict.fromkeys(_signed(ratio - 1) for ratio in (min(ratios), max(ratios)))
    return " to ".join(ends)


def _signed(share: float) -> str:
    return ("−" if share < 0 else "+") + percent(abs(share), 2)


# -- Which GPU --------------------------------------------------------------------------------------------------------------------


def _gpu(cells: Sequence[MeasuredCell], began: Sequence[MeasuredCell], effects: Sequence[Effect]) -> Answer:
    question, link = "Which GPU?", "results"
    if not any(cell.key.device_kind == "cuda" for cell in cells):
        return _no_gpu(question, link, began)
    # Two models -> the rows of both, each with how many times as fast the second is. Which of them a row begins with is its own affair.
    pairs: dict[tuple[str, str], list[tuple[Contrast, float]]] = {}
    for effect in effects:
        row = effect.contrast
        if row.ratio and all(side.cells[0].key.device_kind == "cuda" for side in (row.before, row.after)):
            before, after = (side.cells[0].key.device_model for side in (row.before, row.after))
            if before <= after:
                pairs.setdefault((before, after), []).append((row, 1 / row.ratio.value))
            else:
                pairs.setdefault((after, before), []).append((row, row.ratio.value))
    if not pairs:
        single = {device_name(cell.key.device_model) for cell in cells}
        words = f"Only {single.pop()} was measured" if len(single) == 1 else "No two GPUs ran the same"
        return Answer(question, words, "not compared", "", link)
    (first, second), most = max(pairs.items(), key=lambda item: len(item[1]))
    rows = [row for row, _ in most]
    middle = math.exp(float(np.median(np.log([speed for _, speed in most]))))
    fast, slow = (second, first) if middle > 1 else (first, second)
    speeds = sorted(speed if middle > 1 else 1 / speed for _, speed in most)
    agree = sum(row.real and (speed > 1) == (middle > 1) for row, speed in most)
    detail = f"median of {plural(len(rows), 'pair')}, {number(speeds[0])} to {number(speeds[-1])}"
    detail += f"; {plural(len(pairs) - 1, 'more pair')} of models in the details" if len(pairs) > 1 else ""
    words = f"{device_name(fast)}: {number(max(middle, 1 / middle))}\u00a0× an {device_name(slow)}"
    if any(len(side.repeats) < 2 for row in rows for side in (row.before, row.after)):
        return Answer(question, _brief(words), "one run", detail, link)
    if 2 * agree <= len(rows):
        return Answer(question, _brief(f"{device_name(fast)} and {device_name(slow)} are tied"), "tied", detail, link)
    return Answer(question, _brief(words), "confirmed", f"{detail}; {agree} of {len(rows)} confirmed", link)


def _brief(words: str) -> str:
    """At most eight words: a model's name may have many."""
    return " ".join(words.split(" ")[:MOST_WORDS])
