"""The four answers of the first screen: which framework, which CUDA version, which GPU, and whether the machine is healthy; without a
GPU by how much one framework leads, and where the order turns.

Each has at most eight words, how sure it is, and what it rests on. The rules are those of the findings: nothing is called confirmed
that an interval does not support, and one repeat confirms nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reports.answers import standing_words, to_loss
from reports.answers.across import Across
from reports.answers.contrast import Contrast
from reports.answers.findings import Finding, in_runs, repeats_of
from reports.answers.health import NOT_JUDGED, Health
from reports.answers.standing import Standing, is_won_among, questions_of
from reports.data.model import Group, MeasuredCell, Ranked
from reports.wording import device_name, duration, ended, framework_name, listing, number, plural, times
from runner.results.cells import MISSING

Confidence = Literal["confirmed", "one run", "same", "open", "not compared", "not measured", "not judged"]
MOST_GROUPS = 2  # workloads of which a card says what is known
# Words of the first answer, which names the leaders of each workload across the page; the others stand on cards.
MOST_OF_HEADLINE = 16
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

    @property
    def is_one(self) -> bool:
        """False if these runs have nothing that answers the question."""
        return self.bad or self.confidence not in ("not compared", "not measured", "not judged")


def answers(
    shown: Sequence[Finding],
    where: str,
    ladders: Iterable[Across],
    devices: Iterable[Across],
    health: Health,
    measured: Sequence[MeasuredCell],
) -> tuple[Answer, ...]:
    """The four answers, and one more where a loss was stated.

    `shown` are the findings of the results that the page shows first, and `where` names these.

    `ladders` are the effects of versions in all groups, `devices` those of devices; `measured` are all cells, begun or not.
    """
    # Cells that measure single operations are in no finding.
    began = [cell for cell in measured if cell.status != MISSING]
    cells = [cell for finding in shown for cell in finding.group.cells if cell.status != MISSING] or began
    first = _framework(shown, where, measured)
    if any(cell.key.device_kind == "cuda" for cell in cells) or not began:
        of_gpus = (_cuda(cells, began, tuple(ladders)), _gpu(cells, began, tuple(devices)))
        return (first, *of_gpus, *_to_loss(shown), _healthy(health, began))
    # A machine without a GPU answers other questions, not the same ones with nothing.
    compared = [(finding.group, finding.standing) for finding in shown if finding.standing]
    compared = [(group, of) for group, of in compared if len({entry.cell.framework for entry in group.ranked}) > 1]
    return (first, _by_how_much(compared), _turning(compared), *_to_loss(shown), _healthy(health, began))


def _to_loss(shown: Sequence[Finding]) -> Iterator[Answer]:
    """Which framework is faster to the loss that the user stated, in the first group that has an answer; nothing without a stated loss."""
    found = [(finding.group, answer) for finding in shown for answer in finding.losses]
    for group, answer in found[:1]:
        of, question = answer.standing, "Which is faster to the loss?"
        if partly := to_loss.in_short(answer):
            said = f"{answer.title}: {answer.headline}. {answer.detail}"
            yield Answer(question, partly[0], partly[1], said, group.anchor)
            continue
        if of is None or not (of.same or of.open or of.slower):
            yield Answer(
                question, "The order is unknown", "not compared", f"{answer.title}. {answer.detail}", group.anchor
            )
            continue
        names = list(dict.fromkeys(framework_name(entry.cell.framework) for entry in of.level))
        confidence: Confidence = "open" if of.open or of.starved else "confirmed" if of.slower else "same"
        if confidence == "open":
            words = _few("Open between", names, "", "and")
        else:
            compared = sum(row.entry is not None for row in answer.rows)
            among = f" of the {compared} compared" if compared < len(answer.rows) else ""
            words = _few("", names, ("is fastest" if len(names) == 1 else "are equally fast") + among, "and")
        yield Answer(question, words, confidence, f"{answer.title}: {answer.headline}. {answer.detail}", group.anchor)


def _by_how_much(compared: Sequence[tuple[Group, Standing]]) -> Answer:
    question, link = "By how much?", "results"
    if not compared:
        return Answer(question, "No two frameworks are comparable", "not compared", "", link)
    lead = standing_words.by_how_much(compared)
    repeated = any(of.repeated for _, of in compared)
    confidence: Confidence = "confirmed" if lead.told else "open" if repeated else "one run"
    words = lead.words if len(lead.words.split()) <= standing_words.MOST_WORDS else lead.words.removesuffix(" as long")
    return Answer(question, words, confidence, lead.detail, link)


def _turning(compared: Sequence[tuple[Group, Standing]]) -> Answer:
    """At which workload the order of two frameworks turns."""
    question, link = "Where does the order turn?", "results"
    groups = [group for group, of in compared if of.repeated]
    if len(compared) < 2:
        few = "One workload was compared" if compared else "No two frameworks are comparable"
        return Answer(question, few, "not compared", "", link)
    if len(groups) < 2:
        return Answer(question, "Open: too few repeats", "one run", "", link)
    if found := standing_words.turns(groups):
        detail = "; ".join(
            [*map(standing_words.in_words, found[:2]), *([f"{len(found) - 2} more pairs"] if len(found) > 2 else [])]
        )
        names = [framework_name(name) for name in (found[0].first, found[0].second)]
        return Answer(question, _few("", names, "change places", "and"), "confirmed", detail, link)
    places = [group.key.workload for group, of in compared if of.open or of.rivals or not of.repeated]
    if places:
        words = f"Perhaps at {places[0]}" if len(places) == 1 else f"Perhaps, at {len(places)} of {len(compared)}"
        return Answer(question, words, "open", f"the order is open at {listing(places[:MOST_GROUPS])}", link)
    detail = f"no two frameworks change places beyond doubt at {listing(group.key.workload for group in groups[:MOST_GROUPS])}"
    return Answer(question, f"Nowhere seen, at {plural(len(groups), 'workload')}", "open", detail, link)


def _healthy(health: Health, began: Sequence[MeasuredCell]) -> Answer:
    """The speed of the machine against what it should be. Without a reference parity still says if it computes the right thing."""
    bad = any(cell.verdict in ("slow", "wrong", "failed") for cell in health.cells)
    bad = bad or any(gpu.named for fleet in health.fleets for gpu in fleet.gpus)
    # A command is told from words by its letters in the health section; a card has one kind of letters.
    # The section has all of the advice: the first screen has room for its first sentence.
    first = health.next.partition(". ")[0]
    detail = " ".join(ended(part) for part in (health.detail, first.replace("`", "")) if part)
    words = health.answer
    if words == NOT_JUDGED.answer and began and all(_proved(cell) for cell in began):
        each = f"All {len(began)} compute" if len(began) > 1 else "It computes"
        words, detail = (
            f"{each} the right thing; speed unjudged",
            f"Speed is not judged: no reference. {detail}".strip(),
        )
    return Answer("Is mine healthy?", words, health.confidence, detail, "health", bad)


def _proved(cell: MeasuredCell) -> bool:
    """True if all that ran of a cell ended well and passed parity, at fp32 too where its own bounds are too wide."""
    return cell.status == "ok" and cell.parity_passed is True and not cell.unproved


# -- Which framework ------------------------------------------------------------------------------------------------------------


def _framework(shown: Sequence[Finding], where: str, measured: Sequence[MeasuredCell]) -> Answer:
    question, link = "Which framework?", "results"
    standings = [(finding.group, finding.standing) for finding in shown if finding.standing]
    if not shown and any(cell.status == "ok" for cell in measured):
        return Answer(question, "Only single operations were measured", "not compared", "", "results")
    if not standings:
        if why := Counter(cell.unranked for cell in measured if not cell.unsound and cell.unranked).most_common(1):
            return Answer(question, "Nothing could be ranked", "not compared", ended(why[0][0]), link)
        detail = "No measurement may be ranked." if any(cell.status != MISSING for cell in measured) else ""
        return Answer(question, "Not measured yet", "not measured", detail, link)
    names = {framework_name(entry.cell.framework) for group, _ in standings for entry in group.ranked}
    if len(names) == 1:
        alone = standings[0][1].first.cell
        tried = [cell for finding in shown for cell in finding.group.cells if cell.status != MISSING]
        if any(cell.framework != alone.framework for cell in tried):
            detail = "; ".join((where, *_outside(standings)))
            return Answer(question, f"Only {names.pop()} could be ranked", "not compared", detail, link)
        if len(standings) == 1 and (images := len({cell.image for cell in _computed(shown)})) > 1:
            return _of_images(standings[0][1], f"{images} images of {names.pop()}", where)
        step = duration(alone.step.value if alone.step else None)
        detail = f"{where}; {step} a step at {plural(1, 'workload')}" if len(standings) == 1 else where
        return Answer(question, f"Only {names.pop()} was measured", "not compared", detail, link)
    compared = [(group, of) for group, of in standings if len({entry.cell.framework for entry in group.ranked}) > 1]
    if not compared:
        detail = f"{where}; no two frameworks at one workload"
        return Answer(question, "No two frameworks are comparable", "not compared", detail, link)
    words, confidence = _leader(compared)
    return Answer(
        question, words, confidence, "; ".join(filter(None, [where, *_each(compared), *_hungry(compared)])), link
    )


def _open_or_once(of: Standing) -> Confidence:
    return "open" if of.repeated else "one run"


def _of_images(of: Standing, images: str, where: str) -> Answer:
    """The answer of a run that measured one framework in several images."""
    words, confidence = f"Open among {images}", _open_or_once(of)
    if of.repeated and not (of.open or of.rivals):
        words, confidence = f"{images} are equally fast", "same"
        if len(of.level) == 1:
            words, confidence = f"{of.level[0].cell.image} is fastest of {images}", "confirmed"
    return Answer("Which framework?", words, confidence, f"{where}: {standing_words.headline(of)}", "results")


def _computed(shown: Sequence[Finding]) -> list[MeasuredCell]:
    """The cells that ended well, ranked or not."""
    return [cell for finding in shown for cell in finding.group.cells if cell.status == "ok"]


def _leader(compared: Sequence[tuple[Group, Standing]]) -> tuple[str, Confidence]:
    """(words, how sure): the framework that is fastest at these groups, or those that may be, by workload.

    A statement on several groups is tested on all of them together, and is as sure as its weakest part. A group in which every cell was
    measured once is no evidence.
    """
    standings = [of for _, of in compared]
    faster = [{rival.cell.framework: None for rival in of.rivals if rival.faster} for of in standings]
    # Those that are faster at each of the workloads; at one of several, the order of that one is open.
    if every := [name for name in faster[0] if all(name in of_one for of_one in faster)]:
        names = [framework_name(name) for name in every]
        return _few("", names, f"look{'s' * (len(names) == 1)} fastest, but not ranked", "and"), "open"
    if not any(of.repeated for of in standings):
        return _looks(standings), "one run"
    words, confidence = _leader_of_ranked(compared)
    if any(of.rivals or of.failed for of in standings) and len(compared) == 1 and confidence == "confirmed":
        return _short(words, " of the ranked"), "open" if standings[0].rivals else confidence
    return words, confidence


def _leader_of_ranked(compared: Sequence[tuple[Group, Standing]]) -> tuple[str, Confidence]:
    """The same of the cells that are ranked."""
    standings, count = [of for _, of in compared], len(compared)
    # Of several workloads, one at which a cell that is not ranked may be as fast is open.
    sure = [count == 1 or not of.rivals for of in standings]
    won = [is_won and may for is_won, may in zip(is_won_among(standings), sure, strict=True)]
    wins = Counter(of.first.cell.framework for of, is_won in zip(standings, won, strict=True) if is_won)
    # A framework is out where it is slower in one group, beyond doubt even where that is asked of all groups.
    outs = [
        of.surely_out(questions) if of.repeated and may else {}
        for of, may, questions in zip(standings, sure, questions_of(standings), strict=True)
    ]
    out = {name for each in outs for name in each}
    most = max(wins, key=wins.__getitem__, default="")
    if 2 * wins[most] > count and most not in out:
        rivals = any(of.rivals_once_beside for of in standings)
        more = " of those repeated" if rivals else f", {wins[most]} of {count}" if count > 1 else ""
        return _short(f"{framework_name(most)} is fastest", more), "confirmed"
    if count > 1:
        return _by_workload(compared, won, outs)
    of = standings[0]
    names = [framework_name(name) for name in dict.fromkeys(entry.cell.framework for entry in of.level)]
    if of.alone:
        once = [framework_name(name) for name in dict.fromkeys(entry.cell.framework for entry in of.faster_once)]
        if once:
            return _few("", once, f"look{'s' * (len(once) == 1)} fastest, after one repeat", "and"), "one run"
        return f"Only {names[0]} has repeats", "one run"
    if not of.open:
        return _few("", names, "are equally fast", "and"), "confirmed" if out else "same"
    if out:
        return _few("", names, "leads", "or"), "confirmed"
    return _few("Open between", names, "", "and"), "open"


def _by_workload(
    compared: Sequence[tuple[Group, Standing]], won: Sequence[bool], outs: Sequence[Mapping[str, Ranked]]
) -> tuple[str, Confidence]:
    """The frameworks that may be the fastest of each workload, or over all of them together."""
    may: list[list[str]] = []
    for (_, of), is_won, out in zip(compared, won, outs, strict=True):
        level = dict.fromkeys(entry.cell.framework for entry in (*of.level, *of.slower))
        may.append([of.first.cell.framework] if is_won else [name for name in level if name not in out])
    told = [is_won or bool(out) for is_won, out in zip(won, outs, strict=True)]
    parts = [
        f"{group.key.workload}: {standing_words.alternatives([framework_name(name) for name in names]) if sure else 'open'}"
        for (group, _), names, sure in zip(compared, may, told, strict=True)
    ]
    words = "; ".join(parts)
    if (all(told) or any(won)) and len(words.split()) <= MOST_OF_HEADLINE:
        return words, "confirmed" if all(told) else "open"
    if sum(told) == 1 and not any(won):
        part = next(part for part, sure in zip(parts, told, strict=True) if sure)
        if len(part.split()) <= standing_words.MOST_WORDS:
            return part, "confirmed"
    names = [framework_name(name) for name in dict.fromkeys(name for each in may for name in each)]
    # Some framework is out at every workload, so the fastest of each is one of the others.
    if all(told) and set(outs[0]).intersection(*outs[1:]):
        return _first(parts), "confirmed"
    if all(told):
        # Each of the others is out at some workload.
        left = [framework_name(name) for name in may[0] if all(name in each for each in may)]
        if not left:
            return "No framework leads everywhere", "confirmed"
        return _few(
            "", left, "alone may lead everywhere" if len(left) == 1 else "may lead everywhere", "or"
        ), "confirmed"
    if not any(of.open or of.rivals or of.alone or not of.repeated for _, of in compared):
        return _few("", names, "are equally fast", "and"), "same"
    return _few("Open between", names, "", "and"), "open"


def _first(parts: Sequence[str]) -> str:
    """As many workloads with their leaders as the headline has room for, and how many more there are; one at least."""
    for many in range(len(parts) - 1, 0, -1):
        said = "; ".join([*parts[:many], plural(len(parts) - many, "more workload")])
        if many == 1 or len(said.split()) <= MOST_OF_HEADLINE:
            return said
    return parts[0]


def _looks(compared: Sequence[Standing]) -> str:
    """The answer if every cell was measured once: the framework that looks fastest, or those that do."""
    near = [of.frameworks for of in compared]
    top = [name for name in near[0] if all(name in names for names in near)]
    if not top:
        return "No framework leads everywhere"
    return _few("", [framework_name(name) for name in top], "looks fastest", "or")


def _few(before: str, names: Sequence[str], after: str, last: str) -> str:
    """Names in at most eight words: of many the first, and how many more there are, or only how many there are."""
    for many in range(len(names), 0, -1):
        shown = [*names[:many], *([f"{len(names) - many} more"] if many < len(names) else [])]
        said = " ".join(
            filter(None, (before, listing(shown) if last == "and" else standing_words.alternatives(shown), after))
        )
        if len(said.split()) <= standing_words.MOST_WORDS:
            return said
    count = plural(len(names), "framework")
    return " ".join(filter(None, (before, count if last == "and" else f"One of {count}", after)))


def _each(compared: Sequence[tuple[Group, Standing]]) -> Iterator[str]:
    """The leaders of each workload, of as many as a card has room for."""
    # Of more workloads than these the words name the leaders already, and have two lines.
    shown = MOST_GROUPS if len(compared) <= MOST_GROUPS else 1
    for (group, of), questions in list(zip(compared, questions_of([of for _, of in compared]), strict=True))[:shown]:
        nearest = standing_words.nearest_in_short(of, questions) if len(compared) > MOST_GROUPS and of.repeated else ""
        yield f"{group.key.workload}: {f'then {nearest}' if nearest else standing_words.in_short(of, questions)}"
    yield from _outside(compared)
    ranked = [entry.cell for group, _ in compared for entry in group.ranked]
    lost = dict.fromkeys(f"{cell.label}: {cell.lost}" for cell in ranked if cell.lost)
    stalled = dict.fromkeys(f"{cell.label}: {cell.left_out}" for cell in ranked if cell.left_out)
    yield from (*list(lost)[:2], *list(stalled)[:2])
    rivals = (entry for _, of in compared if of.repeated for entry in of.rivals_once)
    yield from (
        f"{group.key.workload}: {framework_name(entry.cell.framework)} looks faster, measured once"
        for group, of in compared
        for entry in of.faster_once[:1]
    )
    once = dict.fromkeys(framework_name(entry.cell.framework) for entry in rivals)
    if once and any(of.repeated for _, of in compared):
        yield f"perhaps as fast, measured once: {listing(once)}"
    if any(of.repeated for _, of in compared):
        cells = [entry.cell for _, of in compared for entry in (*of.level, *of.slower)]
        yield f"{in_runs(cells)}: {repeats_of(cells)}"


def _outside(compared: Sequence[tuple[Group, Standing]]) -> Iterator[str]:
    """The cells that no order is of: one at each workload that is not ranked and may be as fast, those that failed, and those to come."""
    for group, of in compared:
        yield from (f"{group.key.workload}: {rival}" for rival in of.rivals[:1])
        for cells, what in ((of.failed, "failed"), (of.unrun, "not yet run")):
            if cells:
                yield f"{group.key.workload}: {standing_words.some(cells)} {what}"


def _hungry(compared: Sequence[tuple[Group, Standing]]) -> Iterator[str]:
    """Which of the figures are worse for want of CPUs."""
    few = [entry.cell for group, _ in compared for entry in group.ranked if entry.cell.cpu_share is not None]
    if few:
        names = listing(dict.fromkeys(framework_name(cell.framework) for cell in few))
        yield f"{names} got less than half of the CPUs"


def _short(words: str, more: str) -> str:
    return words + more if len((words + more).split()) <= standing_words.MOST_WORDS else words


# -- Which CUDA version -----------------------------------------------------------------------------------------------------------


def _no_gpu(question: str, link: str, began: Sequence[MeasuredCell]) -> Answer:
    """The answer about GPUs if the results that the page shows first have none."""
    if not began:
        return Answer(question, "Not measured yet", "not measured", "", link)
    ran = any(cell.key.device_kind == "cuda" for cell in began)
    return Answer(question, "No GPU ran a ranked workload" if ran else ON_A_CPU, "not compared", "", link)


def _cuda(cells: Sequence[MeasuredCell], began: Sequence[MeasuredCell], ladders: Sequence[Across]) -> Answer:
    question, link = "Which CUDA version?", "ladder"
    measured = [cell for cell in cells if cell.key.device_kind == "cuda"]
    if not measured:
        return _no_gpu(question, link, began)
    versions = {_major_minor(cell) for cell in measured} - {""}
    if len(versions) < 2:
        words = f"Only CUDA {listing(versions)} was measured" if versions else "No CUDA version was recorded"
        return Answer(question, words, "not compared", "", link)
    tables = [
        [effect for effect in table.effects if effect.apart and effect.of.startswith("CUDA ")] for table in ladders
    ]
    alone = [effect.contrast for table in tables for effect in table]
    if not alone:
        detail = "No two images differ in CUDA alone: each changes the framework too."
        return Answer(question, "CUDA never changed alone", "not compared", detail, link)
    detail = (
        f"CUDA alone, {plural(len(alone), 'pair')}: newer {_range([row.ratio.value for row in alone if row.ratio])}"
    )
    if all(len(row.before.repeats) < 2 or len(row.after.repeats) < 2 for row in alone):
        return Answer(question, "No verdict: measured once", "one run", detail, link)
    # A single row of many may be called real by chance. That most of them are, and in one direction, is not.
    real = [row for row in alone if row.real]
    faster, slower = ([row for row in real if row.longer == longer] for longer in (False, True))
    counted, version = (slower, "Newer") if len(slower) > len(faster) else (faster, "Older")
    if 2 * len(counted) > len(alone):
        middle = _middle([row.ratio.value for row in counted if row.ratio])
        words = f"{version} CUDA: {times(middle)}× as long, {len(counted)} of {len(alone)}"
        return Answer(
            question,
            words,
            "confirmed",
            f"{detail}; {version.lower()} takes {times(middle)} times as long in the median of those that count",
            link,
        )
    if all(row.verdict == "same" for row in alone):
        return Answer(question, "No difference beyond 5 %", "same", detail, link)
    told = f"{len(faster)} faster, {len(slower)} slower" if real else "none differs beyond doubt"
    return Answer(question, "No version leads", "open", f"{detail}; {told}", link)


def _middle(ratios: Sequence[float]) -> float:
    return math.exp(float(np.median(np.log(ratios))))


def _major_minor(cell: MeasuredCell) -> str:
    return ".".join(str(cell.row.get("cuda_version") or "").split(".")[:2])


def _range(ratios: Sequence[float]) -> str:
    """The most that one side takes longer, and the other."""
    ends = dict.fromkeys((min(ratios, default=1.0), max(ratios, default=1.0)))
    return " to ".join(f"{times(ratio)}\u00d7 as {'fast' if ratio < 1 else 'long'}" for ratio in ends)


# -- Which GPU --------------------------------------------------------------------------------------------------------------------


def _gpu(cells: Sequence[MeasuredCell], began: Sequence[MeasuredCell], tables: Sequence[Across]) -> Answer:
    question, link = "Which GPU?", "results"
    if not any(cell.key.device_kind == "cuda" for cell in cells):
        return _no_gpu(question, link, began)
    # Two models -> the rows of both, each with how many times as fast the second is. Which of them a row begins with is its own affair.
    pairs: dict[tuple[str, str], list[tuple[Contrast, float]]] = {}
    for row in (effect.contrast for table in tables for effect in table.effects):
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
    ahead = _middle([speed for _, speed in most]) > 1
    fast, slow = (second, first) if ahead else (first, second)
    agree = [row.real and (speed > 1) == ahead for row, speed in most]
    speeds = sorted(speed if ahead else 1 / speed for _, speed in most)
    # The size is of the pairs that are counted as confirmed, where most of them are.
    told = [speed for (_, speed), counts in zip(most, agree, strict=True) if counts or 2 * sum(agree) <= len(rows)]
    middle = _middle(told)
    detail = f"median of {plural(len(rows), 'pair')}, {number(speeds[0])} to {number(speeds[-1])}"
    detail += f"; {plural(len(pairs) - 1, 'more pair')} of models in the details" if len(pairs) > 1 else ""
    words = f"{device_name(fast)}: {times(middle)}\u00a0× an {device_name(slow)}"
    if any(len(side.repeats) < 2 for row in rows for side in (row.before, row.after)):
        return Answer(question, _brief(words), "one run", detail, link)
    detail += f"; {sum(agree)} of {len(rows)} confirmed"
    if 2 * sum(agree) > len(rows):
        return Answer(question, _brief(words), "confirmed", detail, link)
    names = f"{device_name(fast)} and {device_name(slow)}"
    if all(row.verdict == "same" for row in rows):
        return Answer(question, _brief(f"{names} are equally fast"), "same", detail, link)
    return Answer(question, _brief(f"Open between {names}"), "open", detail, link)


def _brief(words: str) -> str:
    """At most eight words: a model's name may have many."""
    return " ".join(words.split(" ")[: standing_words.MOST_WORDS])
