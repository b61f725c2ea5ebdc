"""The command `runner blame`: which package makes one image faster or slower than another, and its answer as an object."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from reports.data.groups import left_open
from reports.data.model import Group, MeasuredCell
from reports.data.tables import ANSWER, load
from reports.wording import between, framework_name, number, percent
from runner.blame.ladder import Answer, Ladder, LadderJudgement, judge, make, named_image
from runner.catalog.names import unknown_name
from runner.catalog.own_networks import is_path
from runner.catalog.workloads import load_workloads
from runner.cli.matrix import code_of, measure, refuse_others
from runner.cli.shared import Margin, TextOrJson, chosen_runs, note, renewed, takes_options
from runner.errors import ExitCode, NothingBegunError, UserError
from runner.results.rank.ranking import Pair
from runner.results.store import RunStore
from runner.run import begin, outlook
from runner.run.options import Options
from runner.run.prospect import Prospect
from runner.terminal import folded, print_table
from runner.text import print_document

# The answer of `runner blame` to each framework at each workload of a run over a ladder, and the same as an object for scripts.

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


# The command `runner blame`.

# Of a ladder of up to eight images, where one step is 5 % slower, at a noise of 1 % (docs/compare-and-history.md).
REPEATS = 7

_HEADS = ("step", "changes", "times as long as before", "95 % interval", "verdict")


@takes_options(
    Options,
    *("workloads", "frameworks", "precisions", "modes", "preset", "gpus", "share", "engine", "repeats", "seed"),
    *("timeout", "out", "data", "base_image", "wait"),
    repeats=REPEATS,
)
def blame(
    options: Options,
    first: Annotated[str, typer.Argument(metavar="IMAGE", help="An image of the catalog, or an image's folder.")],
    second: Annotated[str, typer.Argument(metavar="OTHER", help="Another of the same framework, Python and base.")],
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a run of the same two images, or judge it again."),
    ] = None,
    again: Annotated[
        str | None, typer.Option(metavar="RUN", help="A second run of the two images of the step that stands out.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Measure no step a second time: one that stands out stays open.")
    ] = False,
    margin: Margin = 5.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Make the images between the two and show the plan; measure nothing.")
    ] = False,
    output_format: TextOrJson = "text",
) -> None:
    """Each image between the two changes one package of the one before, or packages that only resolve together.

    All of them are measured in one run, interleaved. The two images of a step that stands out are then measured in a second run: the
    step is named if that shows it too.

    Exit code 0: a step is named, or both take the same time; 1: something failed or was not run; 3: no step can be named;
    4: nothing could be measured.
    """
    ends = named_image(first), named_image(second)
    common = tuple(name for name in ends[0].frameworks if name in ends[1].frameworks)
    _refuse_mistakes(options, common)
    as_json = output_format == "json"
    ladder = make(*ends, note)
    for number_, step in enumerate(ladder.steps, start=1):
        note(folded(f"step {number_}  {step}", to_stderr=True))
    note(f"images {ladder.folder}")
    asked = _asked(options, ladder, common)
    try:
        if resume is None:
            if dry_run:
                return outlook.print_plan(begin.look_ahead(asked), as_json)
            prospect, run = begin.start(asked, sys.argv)
        else:
            prospect, run = begin.resume(resume, asked)
            if prospect.options.catalog != ladder.folder:
                raise UserError(f"--resume {resume}: it is no run of these two images; start a new one")
            refuse_others(asked, prospect.options, _asked(Options(repeats=REPEATS), ladder, common))
            if dry_run:
                return outlook.print_plan(prospect, as_json, left=prospect.jobs_left(run))
    except KeyboardInterrupt:
        raise NothingBegunError("interrupted before a cell was started") from None
    raise typer.Exit(
        _measured_and_judged(prospect, run, asked, ladder, margin / 100, as_json, resume is not None, again, once)
    )


def _measured_and_judged(
    prospect: Prospect,
    run: RunStore,
    asked: Options,
    ladder: Ladder,
    margin: float,
    as_json: bool,
    resumed: bool,
    again: str | None,
    once: bool,
) -> int:
    """Measure what is left of a run, and once more the steps that stand out; print the judgement. The exit code."""
    show = (lambda _: None) if as_json else None
    measures = bool(prospect.jobs_left(run))
    code = measure(prospect, run, resumed, show=show) if measures else code_of(run)
    seconds = [RunStore(chosen_runs([again], run.folder.parent)[0])] if again else []
    if prospect.jobs_left(run):
        note(f"the same command with --resume {run.folder.name} measures what is left and judges it")
    elif measures and not once and not again:
        seconds, code_again = _measured_again(asked, run, ladder, margin, show)
        code = code or code_again
    if code == ExitCode.INTERRUPTED:
        return code
    # An image that failed is passed over.
    answer = _answer(run, ladder, margin, as_json, seconds)
    return code or answer


def _refuse_mistakes(options: Options, common: Sequence[str]) -> None:
    """Raises UserError for workloads and frameworks that no ladder can have. common: the frameworks that both images serve."""
    if not options.workloads:
        raise UserError("--workloads: name what became slower or faster, e.g. --workloads mlp-mnist")
    named = [word for word in options.workloads if not is_path(word)]
    if why := unknown_name("--workloads", named, sorted(load_workloads())):
        raise UserError(why)
    if common and (other := [name for name in options.frameworks if name not in common]):
        raise UserError(f"--frameworks: both images serve {', '.join(common)}, and not {other[0]}")


def _measured_again(
    asked: Options, run: RunStore, ladder: Ladder, margin: float, show: Callable[[Path], None] | None
) -> tuple[list[RunStore], int]:
    """A run of the two images of each step that stands out, with its exit code: of what stands out there, and nothing else."""
    renewed([run.folder])
    steps: dict[tuple[int, int], list[MeasuredCell]] = {}
    for one in judged(run, ladder, margin):
        if one.alone is not None:
            steps.setdefault(one.alone, []).append(one.cell)
    seconds: list[RunStore] = []
    for (first, last), cells in steps.items():
        changes = "; ".join(ladder.steps[first:last])
        note(folded(f"{changes} stands out: a second run of its two images (--once leaves it out)", to_stderr=True))
        of = {
            "images": (ladder.images[first].name, ladder.images[last].name),
            "workloads": tuple(dict.fromkeys(run.word(cell.key.workload) for cell in cells)),
            "frameworks": tuple(dict.fromkeys(cell.framework for cell in cells)),
            "precisions": tuple(dict.fromkeys(cell.key.precision for cell in cells)),
            "modes": tuple(dict.fromkeys(cell.mode for cell in cells)),
            # Another order of the repeats.
            "seed": asked.seed + 1,
        }
        try:
            prospect, second = begin.start(asked.model_copy(update=of), sys.argv)
        except KeyboardInterrupt:
            return seconds, ExitCode.INTERRUPTED
        seconds.append(second)
        if code := measure(prospect, second, False, show=show):
            note(
                f"the same command with --resume {run.folder.name} --again {second.folder.name} judges what was measured"
            )
            return seconds, code
    return seconds, 0


def _answer(run: RunStore, ladder: Ladder, margin: float, as_json: bool, again: Sequence[RunStore]) -> int:
    """Print the judgements on a run; the exit code that they alone would have. again: the further runs of steps that stood out."""
    renewed([run.folder, *(second.folder for second in again)])
    answers = [(one, _sentence(one, ladder, margin)) for one in judged(run, ladder, margin, again)]
    named = answers and all(one.found and one.found.answer != "open" for one, _ in answers)
    if as_json:
        print_document(document(run, ladder, margin, answers, again))
    for one, sentence in () if as_json else answers:
        _print(one, ladder, sentence)
    return ExitCode.OK if named else ExitCode.OPEN


def _asked(options: Options, ladder: Ladder, common: tuple[str, ...]) -> Options:
    """The options of a run over a ladder: of its images, and of the frameworks that both ends serve."""
    return options.model_copy(
        update={
            "catalog": ladder.folder,
            "images": tuple(image.name for image in ladder.images),
            "frameworks": options.frameworks or common,
            "modes": options.modes if "modes" in options.model_fields_set else ("default",),
        }
    )


def _print(one: JudgedLadder, ladder: Ladder, sentence: str) -> None:
    """Print one judgement: the images that were not measured, the steps between the others, and the sentence."""
    key = one.cell.key
    print(f"\n{key.workload} {key.precision}, {framework_name(one.cell.framework)} {one.cell.mode}, {key.device}")
    for name, why in one.not_measured.items():
        print(folded(f"{name} was not measured: {why}"))
    if one.found is not None:
        steps = zip(one.spans, one.found.steps, strict=True)
        rows = [_row(_number(span), "; ".join(ladder.steps[slice(*span)]), pair) for span, pair in steps]
        ends = f"{ladder.images[0].name} → {ladder.images[-1].name}"
        print_table(_HEADS, [*rows, _row("all", ends, one.found.change)], right=_HEADS[2:3])
    print(folded(sentence))


def _row(number_: str, changes: str, pair: Pair) -> tuple[str, ...]:
    return number_, changes, number(pair.ratio.value), between(pair.ratio), pair.verdict


def _number(span: tuple[int, int]) -> str:
    """The steps from one measured image to the next."""
    return str(span[1]) if span[1] - span[0] == 1 else f"{span[0] + 1} to {span[1]}"


def _sentence(one: JudgedLadder, ladder: Ladder, margin: float) -> str:
    found = one.found
    if found is None:
        return NO_ENDS
    if one.why_open:
        return f"no step can be named: {one.why_open}"
    if found.culprit is not None:
        span = one.spans[found.culprit]
        changes = "; ".join(ladder.steps[slice(*span)])
        return f"step {_number(span)} holds {percent(found.share(found.culprit), 2)} of the change: {changes}"
    if found.answer == "same":
        return f"no step is to be named: the two images take the same time within {percent(margin)}"
    if found.change.verdict == "open":
        return "no step can be named: the data do not say whether the two images differ; more --repeats may"
    more = f"; --repeats {found.repeats} may settle it" if found.repeats else ""
    return f"no step can be named: none holds more than half of the change beyond doubt{more}"
