"""The command `runner verify`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from runner.catalog.names import ROSETTA, full_name
from runner.cli.reference import References, shelf
from runner.cli.report import write_report
from runner.cli.shared import TextOrJson, chosen_runs, note, print_json, split_words, takes_options
from runner.errors import UserError
from runner.results.store import write_bytes
from runner.run.options import Options
from runner.verify import output
from runner.verify import verify as verification
from runner.verify.verify import Verification


@takes_options(
    Options,
    *("gpus", "frameworks", "precisions", "preset", "repeats", "seed", "timeout", "out", "base_image", "python"),
    repeats=3,
)
def verify(
    options: Options,
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            "--runs",
            metavar="RUN",
            help="Judge stored runs, by id, folder, or a folder of runs; measure nothing.",
        ),
    ] = None,
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
    most_repeats: Annotated[
        int, typer.Option(help="Repeat a cell that is unsure, if at most so many repeats would decide it.", min=1)
    ] = 9,
    reference: Annotated[
        list[str] | None, typer.Option(help="Compare with these references only, by name or file; default: all.")
    ] = None,
    references: References = None,
    margin: Annotated[
        float | None,
        typer.Option(help="What counts as equal, in percent; default: 5 for a GPU, 8 for a CPU.", min=0.1, max=100),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown to this file.")] = None,
    output_format: TextOrJson = "text",
) -> None:
    """Exit codes: 0 it does; 1 it does not; 2 it is undecided (no reference, or too little was measured)."""
    options = _measured(options, image, engine, tuple(map(full_name, split_words(workloads))) or ROSETTA)
    all_references = shelf(references)
    chosen = [all_references.find(name) for name in reference] if reference else all_references.all()

    def judge(folders: Sequence[Path]) -> Verification:
        return verification.assess(folders, chosen, margin / 100 if margin else None)

    def more_repeats(folder: Path) -> dict[str, int]:
        return verification.repeats_wanted(judge([folder]), most_repeats)

    try:
        folders = (
            chosen_runs(run, options.out)
            if run
            else verification.measure_here(options, sys.argv, write_report, each_gpu, more_repeats)
        )
        verdicts = judge(folders)
    except KeyboardInterrupt:
        raise UserError("interrupted: nothing was judged") from None
    _refuse_nothing(verdicts, each_gpu)
    if each_gpu:
        verdicts = verification.with_fleets(verdicts, folders)
    _print(verdicts, output_format == "json", junit, markdown)
    raise typer.Exit(verdicts.exit_code)


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
