"""The command `runner verify`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from runner.catalog.names import ROSETTA, full_name
from runner.cli.reference import References, shelf
from runner.cli.report import write_report
from runner.cli.shared import TextOrJson, chosen_runs, note, print_json, split_words, takes_options
from runner.errors import NothingBegunError, UserError
from runner.results.store import write_bytes
from runner.run.begin import Prospect
from runner.run.options import Options
from runner.verify import causes, output, verification
from runner.verify.fleet.level import Level, chosen, seconds_of, site_here
from runner.verify.fleet.peer_comparison import with_fleets
from runner.verify.verification import Verification

More = Annotated[list[str] | None, typer.Argument(metavar="RUN", help="Further runs, after --run.")]
Runs = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        "--runs",
        metavar="RUN",
        help="Judge stored runs, by id, folder, or a folder of runs; measure nothing. With --each-gpu the runs of single nodes are one "
        "fleet.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="30m",
        help="With --each-gpu: choose the workloads, the repeats, and whether GPUs are loaded fully, so that it ends in about this "
        "time. It prints its choice.",
    ),
]


@takes_options(
    Options,
    *(
        "gpus",
        "nodes",
        "frameworks",
        "precisions",
        "preset",
        "repeats",
        "seed",
        "timeout",
        "out",
        "base_image",
        "images_from",
        "build",
        "python",
    ),
    repeats=5,
)
def verify(
    options: Options,
    more: More = None,
    run: Runs = None,
    image: Annotated[
        str | None, typer.Option(help="Measure an image of the catalog instead of this environment.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="host, docker, venv or auto; default: host, and auto with --image.")
    ] = None,
    workloads: Annotated[
        list[str] | None, typer.Option(help="Names between commas, or all; default: cnn-cifar10,gru-imdb.")
    ] = None,
    each_gpu: Annotated[
        bool, typer.Option("--each-gpu", help="Compare the GPUs of one model with one another, without a reference.")
    ] = False,
    time: Time = None,
    most_repeats: Annotated[
        int, typer.Option(help="Repeat an open cell so often, and one that looks slow 3 times as often.", min=1)
    ] = 9,
    reference: Annotated[
        list[str] | None, typer.Option(help="Compare with these references only, by name or file; default: all.")
    ] = None,
    references: References = None,
    margin: Annotated[
        float | None,
        typer.Option(help="The margin of equality, in percent; default: 5 for a GPU, 8 for a CPU.", min=0.1, max=100),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown to this file.")] = None,
    output_format: TextOrJson = "text",
) -> None:
    """Exit codes: 0 it does; 1 it does not; 2 it is open (no reference, or too little was measured)."""
    if more and not run:
        raise UserError(f"{more[0]}: runs are judged with --run: say `runner verify --run {more[0]}`")
    run = [*(run or ()), *(more or ())]
    measuring = {"--image": image, "--engine": engine, "--workloads": workloads, "--python": options.python}
    _check({**measuring, "--nodes": options.nodes, "--time": time}, bool(run), each_gpu)
    options = _measured(options, image, engine, tuple(map(full_name, split_words(workloads))) or ROSETTA)
    all_references = shelf(references)
    chosen = [all_references.find(name) for name in reference] if reference else all_references.all(note)

    def judge(folders: Sequence[Path]) -> Verification:
        return verification.assess(folders, chosen, margin / 100 if margin else None)

    def more_repeats(folder: Path) -> dict[str, int]:
        return verification.repeats_wanted(judge([folder]), most_repeats)

    try:
        folders = chosen_runs(run, options.out) if run else _measure(options, each_gpu, more_repeats, time)
        verdicts = judge(folders)
    except KeyboardInterrupt:
        raise NothingBegunError("interrupted: nothing was judged") from None
    _refuse_nothing(verdicts, each_gpu)
    if each_gpu:
        verdicts = with_fleets(verdicts, folders)
    _print(verdicts, output_format == "json", junit, markdown)
    raise typer.Exit(verdicts.exit_code)


def _measure(options: Options, each_gpu: bool, further: verification.Further, time: str | None) -> list[Path]:
    """Measure this machine, or the nodes that the options name; the folders of the runs."""
    if sentence := causes.dropped(os.environ):
        note(sentence)
    if options.nodes is not None:
        # Only this needs them.
        from runner.verify.fleet.measurement import measure_nodes

        return measure_nodes(options, sys.argv, write_report, time)
    return verification.measure_here(options, sys.argv, write_report, each_gpu, further, _limited(time))


def _check(measuring: Mapping[str, object], stored: bool, each_gpu: bool) -> None:
    """Raises UserError for options that do not go together. `measuring`: those that say what to measure, None where not given."""
    given = [option for option, value in measuring.items() if value is not None]
    if stored and given:
        raise UserError(f"{given[0]} says what to measure, and --run measures nothing: leave one of the two out")
    fleets = [option for option in given if option in ("--nodes", "--time")]
    if fleets and not each_gpu:
        raise UserError(f"{fleets[0]} is for comparing GPUs with one another: add --each-gpu")


def _limited(time: str | None) -> verification.Limit | None:
    """The function that chooses a level for --time, and reports it; None without --time."""
    if time is None:
        return None
    seconds = seconds_of(time)

    def limited(prospect: Prospect) -> Level:
        level, sentence = chosen(site_here(prospect), seconds, time)
        note(sentence)
        return level

    return limited


def _refuse_nothing(verdicts: Verification, each_gpu: bool) -> None:
    """Raises UserError where the runs hold no cell to judge. Says so where `each_gpu` finds none of a GPU."""
    if not verdicts.findings and verdicts.waiting:
        raise UserError(f"nothing was measured, so there is nothing to judge: {'; '.join(verdicts.waiting)}")
    if not verdicts.findings:
        raise UserError("the runs hold no cell, so there is nothing to judge")
    if each_gpu and not any(finding.device_uuid for finding in verdicts.findings):
        note("runner: --each-gpu: these runs hold no cell of a GPU, so no GPU is compared")


def _measured(options: Options, image: str | None, engine: str | None, workloads: tuple[str, ...]) -> Options:
    """The options with what verify measures: one image, or without one this environment."""
    chosen = {
        "images": (image,) if image else (),
        "workloads": () if workloads == ("all",) else workloads,
        "engine": engine or ("auto" if image else "host"),
    }
    return options.model_copy(update=chosen)


def _print(verdicts: Verification, as_json: bool, junit: Path | None, markdown: Path | None) -> None:
    """Write the files that the options name, and print the verdicts."""
    if junit:
        write_bytes(junit, output.junit(verdicts))
    if markdown:
        write_bytes(markdown, output.markdown(verdicts).encode())
    if as_json:
        print_json(verification.as_json(verdicts))
    else:
        output.terminal(verdicts)
