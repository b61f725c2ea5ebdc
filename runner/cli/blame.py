"""The command `runner blame`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from reports.data.groups import left_open
from reports.data.model import Group, MeasuredCell
from reports.data.tables import ANSWER, load
from reports.wording import between, framework_name, number, percent
from runner.blame.judgement import LadderJudgement, judge
from runner.blame.ladder import Ladder, make, named_image
from runner.catalog.names import unknown_name
from runner.catalog.workloads import load_workloads
from runner.cli.matrix import code_of, measure, refuse_others
from runner.cli.shared import Margin, note, renewed, takes_options
from runner.errors import NothingBegunError, UserError
from runner.results.store import RunStore
from runner.run import begin
from runner.run.options import Options
from runner.run.outlook import print_plan
from runner.terminal import folded, print_table

# Of a ladder of up to eight images, where one step is 5 % slower, at a noise of 1 % (docs/compare-and-history.md).
REPEATS = 7
OPEN = 2

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
    margin: Margin = 5.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Make the images between the two and show the plan; measure nothing.")
    ] = False,
) -> None:
    """Each image between the two changes one package of the one before, or packages that only resolve together.

    All of them are measured in one run, interleaved. `runner blame` on the two images of a step with several packages goes on from there.

    Exit code 0: a step is named, or both take the same time; 1: something failed or was not run; 2: no step can be named.
    """
    if not options.workloads:
        raise UserError("--workloads: name what became slower or faster, e.g. --workloads mlp-mnist")
    if why := unknown_name("--workloads", options.workloads, sorted(load_workloads())):
        raise UserError(why)
    ends = named_image(first), named_image(second)
    common = tuple(name for name in ends[0].frameworks if name in ends[1].frameworks)
    if common and (other := [name for name in options.frameworks if name not in common]):
        raise UserError(f"--frameworks: both images serve {', '.join(common)}, and not {other[0]}")
    ladder = make(*ends, note)
    for number_, step in enumerate(ladder.steps, start=1):
        note(folded(f"step {number_}  {step}", to_stderr=True))
    note(f"images {ladder.folder}")
    asked = _asked(options, ladder, common)
    try:
        if resume is None:
            if dry_run:
                return print_plan(begin.look_ahead(asked), as_json=False)
            prospect, run = begin.start(asked, sys.argv)
        else:
            prospect, run = begin.resume(resume, asked)
            if prospect.options.catalog != ladder.folder:
                raise UserError(f"--resume {resume}: it is no run of these two images; start a new one")
            refuse_others(asked, prospect.options, _asked(Options(repeats=REPEATS), ladder, common))
            if dry_run:
                return print_plan(prospect, as_json=False, left=prospect.jobs_left(run))
    except KeyboardInterrupt:
        raise NothingBegunError("interrupted before a cell was started") from None
    code = measure(prospect, run, resume is not None) if prospect.jobs_left(run) else code_of(run)
    if prospect.jobs_left(run):
        note(f"the same command with --resume {run.folder.name} measures what is left and judges it")
    answers = _print(run, ladder, margin / 100)
    raise typer.Exit(code or (OPEN if not answers or any(each.answer == "open" for each in answers) else 0))


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


def _print(run: RunStore, ladder: Ladder, margin: float) -> list[LadderJudgement]:
    """Print the judgement on each framework and workload of a run, and return them."""
    tables = load(renewed([run.folder]), ANSWER)
    answers: list[LadderJudgement] = []
    for workload in tables.workloads:
        for group in workload.groups:
            for framework, mode in dict.fromkeys((cell.framework, cell.mode) for cell in group.cells):
                cells = {cell.image: cell for cell in group.cells if (cell.framework, cell.mode) == (framework, mode)}
                print(
                    f"\n{workload.name} {group.key.precision}, {framework_name(framework)} {mode}, {group.key.device}"
                )
                answers += _print_one(group, cells, ladder, margin)
    return answers


def _print_one(
    group: Group, cells: dict[str, MeasuredCell], ladder: Ladder, margin: float
) -> Iterator[LadderJudgement]:
    """Print the steps between the images that could be measured. An image that was not is passed over: two steps are one then."""
    names = [image.name for image in ladder.images]
    measured = [at for at, name in enumerate(names) if name in cells and not cells[name].unranked]
    for at, name in enumerate(names):
        if at not in measured:
            unranked = cells[name].unranked if name in cells else "it is not in the run"
            print(folded(f"{name} was not measured: {unranked}"))
    if measured[:1] + measured[-1:] != [0, len(names) - 1]:
        print("no step can be named without both ends")
        return
    ladder_cells = [cells[names[at]] for at in measured]
    found = judge(group.field, [cell.anchor for cell in ladder_cells], margin)
    why = ""
    if found.culprit is not None:
        before, after = ladder_cells[found.culprit : found.culprit + 2]
        why = left_open([before], [after], found.steps[found.culprit].ratio.value)
    if why:
        found = replace(found, answer="open", culprit=None)
    spans = list(itertools.pairwise(measured))
    rows = [
        (
            _number(span),
            "; ".join(ladder.steps[slice(*span)]),
            number(pair.ratio.value),
            between(pair.ratio),
            pair.verdict,
        )
        for span, pair in zip(spans, found.steps, strict=True)
    ]
    whole = found.change
    rows.append(("all", f"{names[0]} → {names[-1]}", number(whole.ratio.value), between(whole.ratio), whole.verdict))
    print_table(_HEADS, rows, right=_HEADS[2:3])
    print(folded(f"no step can be named: {why}" if why else _sentence(found, rows, margin)))
    yield found


def _number(span: tuple[int, int]) -> str:
    """The steps from one measured image to the next."""
    return str(span[1]) if span[1] - span[0] == 1 else f"{span[0] + 1} to {span[1]}"


def _sentence(found: LadderJudgement, rows: Sequence[Sequence[str]], margin: float) -> str:
    if found.culprit is not None:
        step = rows[found.culprit]
        return f"step {step[0]} holds {percent(found.share(found.culprit), 2)} of the change: {step[1]}"
    if found.answer == "same":
        return f"no step is to be named: the two images take the same time within {percent(margin)}"
    if found.change.verdict == "open":
        return "no step can be named: the data do not say whether the two images differ; more --repeats may"
    more = f"; --repeats {found.repeats} may settle it" if found.repeats else ""
    return f"no step can be named: none holds more than half of the change beyond doubt{more}"
