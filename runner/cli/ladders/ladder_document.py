"""The answer of `runner blame` to each framework at each workload of a run over a ladder, and the same as an object for scripts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from typing_extensions import TypedDict

from reports.data.groups import left_open
from reports.data.model import Group, MeasuredCell
from reports.data.tables import ANSWER, load
from runner.blame.judgement import Answer, LadderJudgement, judge
from runner.blame.ladder import Ladder
from runner.results.rank.ranking import Pair
from runner.results.store import RunStore

NO_ENDS = "no step can be named without both ends"


@dataclass(frozen=True)
class JudgedLadder:
    """One framework and mode at one workload, over those images of a ladder that could be measured."""

    cell: MeasuredCell
    not_measured: Mapping[str, str]  # image -> why; two steps are one then
    spans: Sequence[tuple[int, int]]  # the places in the ladder that each step goes from and to
    found: LadderJudgement | None  # None without both ends
    why_open: str  # why no step is named although one stands out; empty where that is not so
    alone: tuple[int, int] | None = None  # the step that stands out and was measured in one run only


class LadderStepRecord(TypedDict):
    """An image beside one before it. The ratio is that of their step times, with the ends of its 95 % interval."""

    before: str
    after: str
    changes: list[str]
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: str


class JudgedLadderRecord(TypedDict):
    """`culprit` is the place in `steps` of the step that is named, and `share` its share of the change."""

    workload: str
    precision: str
    framework: str
    mode: str
    device: str
    answer: Answer
    reason: str
    culprit: int | None
    share: float | None
    steps: list[LadderStepRecord]
    change: LadderStepRecord | None
    not_measured: Mapping[str, str]


class BlameDocument(TypedDict):
    """A ladder of images, and the judgement on each framework and workload of its run. `again`: the runs that measured steps once more."""

    run_id: str
    again: list[str]
    margin: float
    ladder: list[str]
    judged: list[JudgedLadderRecord]


def judged(run: RunStore, ladder: Ladder, margin: float, again: Sequence[RunStore] = ()) -> Iterator[JudgedLadder]:
    """The judgement on each framework and workload of a run. margin: the share of a step time that is no change.

    again: further runs of the two images of a step that stands out. One session may move the level of one image by itself, which no
    repeat of that session shows, so no package is named after one run.
    """
    groups = [group for second in again for one in load([second.folder], ANSWER).workloads for group in one.groups]
    for one in _of_run(run, ladder, margin):
        yield _seen_twice(one, run.word(one.cell.key.workload), ladder, margin, groups)


def _seen_twice(
    one: JudgedLadder, workload: str, ladder: Ladder, margin: float, again: Sequence[Group]
) -> JudgedLadder:
    """The judgement, whose step is named only where another run shows it too. workload: as --workloads takes it."""
    if one.found is None or one.found.culprit is None:
        return one
    first, last = one.spans[one.found.culprit]
    names, changes = (ladder.images[first].name, ladder.images[last].name), "; ".join(ladder.steps[first:last])
    verdicts = list(filter(None, (_verdict_again(group, one.cell, names, margin) for group in again)))
    if one.found.change.verdict in verdicts:
        return one
    alone = None if verdicts else (first, last)
    if alone:
        why = (
            f"{changes} stands out in this run, and one session may move one image by itself. Measure its two images once more: `runner "
            f"matrix --catalog {ladder.folder} --images {','.join(names)} --frameworks {one.cell.framework} --workloads {workload} "
            f"--modes {one.cell.mode} --repeats 7`; then this command with --resume and --again names the step, or not"
        )
    else:
        why = f"{changes} stands out in the first run, and the second one does not show it"
    return replace(one, found=replace(one.found, answer="open", culprit=None), why_open=why, alone=alone)


def _verdict_again(group: Group, cell: MeasuredCell, images: tuple[str, str], margin: float) -> str:
    """The verdict on the second image beside the first one in a group of the second run; empty where it lacks one of them."""
    of = {
        other.image: other.anchor
        for other in group.cells
        if (other.framework, other.mode, other.key) == (cell.framework, cell.mode, cell.key) and not other.unranked
    }
    return group.field.between(of[images[1]], of[images[0]], margin).verdict if of.keys() >= set(images) else ""


def _of_run(run: RunStore, ladder: Ladder, margin: float) -> Iterator[JudgedLadder]:
    for workload in load([run.folder], ANSWER).workloads:
        for group in workload.groups:
            for computed in dict.fromkeys((cell.framework, cell.mode) for cell in group.cells):
                yield _of_cells(
                    group,
                    {cell.image: cell for cell in group.cells if (cell.framework, cell.mode) == computed},
                    ladder,
                    margin,
                )


def _of_cells(group: Group, cells: Mapping[str, MeasuredCell], ladder: Ladder, margin: float) -> JudgedLadder:
    names = [image.name for image in ladder.images]
    lacking = {
        name: cells[name].unranked if name in cells else "it is not in the run"
        for name in names
        if name not in cells or cells[name].unranked
    }
    measured = [at for at, name in enumerate(names) if name not in lacking]
    some_cell = next(iter(cells.values()))
    if measured[:1] + measured[-1:] != [0, len(names) - 1]:
        return JudgedLadder(some_cell, lacking, (), None, "")
    of_ladder = [cells[names[at]] for at in measured]
    found = judge(group.field, [cell.anchor for cell in of_ladder], margin)
    why = ""
    if found.culprit is not None:
        before, after = of_ladder[found.culprit : found.culprit + 2]
        why = left_open([before], [after], found.steps[found.culprit].ratio.value)
    if why:
        found = replace(found, answer="open", culprit=None)
    return JudgedLadder(some_cell, lacking, list(itertools.pairwise(measured)), found, why)


def document(
    run: RunStore,
    ladder: Ladder,
    margin: float,
    answers: Sequence[tuple[JudgedLadder, str]],
    again: Sequence[RunStore] = (),
) -> BlameDocument:
    """The object for scripts. answers: each judgement with its sentence. again: the further runs that they rest on."""
    return {
        "run_id": run.run_id,
        "again": [second.run_id for second in again],
        "margin": margin,
        "ladder": [image.name for image in ladder.images],
        "judged": [_record(one, ladder, sentence) for one, sentence in answers],
    }


def _record(one: JudgedLadder, ladder: Ladder, sentence: str) -> JudgedLadderRecord:
    cell, found = one.cell, one.found
    culprit = found.culprit if found else None
    return {
        "workload": cell.key.workload,
        "precision": cell.key.precision,
        "framework": cell.framework,
        "mode": cell.mode,
        "device": cell.key.device,
        "answer": found.answer if found else "open",
        "reason": sentence,
        "culprit": culprit,
        "share": found.share(culprit) if found and culprit is not None else None,
        "steps": [_step(ladder, *step) for step in zip(one.spans, found.steps, strict=True)] if found else [],
        "change": _step(ladder, (0, len(ladder.steps)), found.change) if found else None,
        "not_measured": one.not_measured,
    }


def _step(ladder: Ladder, span: tuple[int, int], pair: Pair) -> LadderStepRecord:
    first, last = span
    return {
        "before": ladder.images[first].name,
        "after": ladder.images[last].name,
        "changes": list(ladder.steps[first:last]),
        "ratio": pair.ratio.value,
        "ratio_low": pair.ratio.low,
        "ratio_high": pair.ratio.high,
        "verdict": pair.verdict,
    }
