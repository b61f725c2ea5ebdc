"""The command `runner verify`."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from runner.catalog.addresses import addresses
from runner.catalog.names import ROSETTA, full_name
from runner.cli.reference import shelf
from runner.cli.report import write_report
from runner.cli.shared import TextOrJson, chosen_runs, note, split_words, takes_options
from runner.errors import CannotBeginError, NothingBegunError, UserError
from runner.results.on_disk.image_names import is_address
from runner.results.store import write_bytes
from runner.run.options import Options
from runner.run.prospect import Prospect
from runner.text import print_document
from runner.verify import causes, output, peer_comparison, verification, verification_run
from runner.verify.fleet_run import Level, chosen, seconds_of, site_here
from runner.verify.references import files, index_place, is_index
from runner.verify.references.contributed.derived_rows import bundles_in
from runner.verify.references.facts import of_other_code
from runner.verify.references.saved import Reference
from runner.verify.verification import Verification

# Cells of references that a note names.
_MOST_NAMED = 4

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
References = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|ADDRESS",
        envvar="DLBENCH_REFERENCES",
        help="Folder of your references; or the folder or the address of an index of them (runner reference index). Default: "
        "dlbench/references in your data folder.",
    ),
]
MeasuredImage = Annotated[
    str | None,
    typer.Option(
        "--image", help="Measure this image instead: one of the catalog, or docker:REPOSITORY:TAG beside a pinned one."
    ),
]
Levels = Annotated[
    int,
    typer.Option(
        help="1: facts and imports, at most 45 s. 2: also parity, ceilings and bits, two minutes a device more. 3: all, in at "
        "most twice the time that it says first. Levels 1 and 2 judge no step time.",
        min=1,
        max=3,
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(help="The margin of equality, in percent; default: 5 for a GPU, 8 for a CPU.", min=0.1, max=100),
]
Prometheus = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.prom",
        help="Write the result for node_exporter's textfile collector to this file, renamed into place; also with --level 1 and 2.",
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
        "least_gpus",
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
        "against",
    ),
    repeats=5,
    against="nearest",
)
def verify(
    options: Options,
    more: More = None,
    run: Runs = None,
    image: MeasuredImage = None,
    engine: Annotated[
        str | None,
        typer.Option(help="host, docker, podman, apptainer, venv or auto; default: host, and auto with --image."),
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
    margin: Margin = None,
    level: Levels = 3,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown to this file.")] = None,
    prometheus: Prometheus = None,
    output_format: TextOrJson = "text",
) -> None:
    """Exit codes: 0 it does; 1 it does not; 3 it is open (no reference, or too little was measured); 4 nothing could be measured, or the
    machine failed before it was decided; 130 interrupted."""
    if more and not run:
        raise UserError(f"{more[0]}: runs are judged with --run: say `runner verify --run {more[0]}`")
    run = [*(run or ()), *(more or ())]
    asked: dict[str, object] = {"--image": image, "--engine": engine, "--workloads": workloads}
    asked |= {"--python": options.python, "--least-gpus": options.least_gpus or None}
    _check({**asked, "--nodes": options.nodes, "--time": time}, bool(run), each_gpu)
    names = tuple(map(full_name, split_words(workloads))) or ROSETTA
    options = _measured(options, image, engine, names, beside=level == 3 and not each_gpu)
    if level < 3:
        _refuse_beside_level(level, {"--run": run, "--each-gpu": each_gpu, "--junit": junit, "--markdown": markdown})
        raise typer.Exit(_preflight(options, level, references, reference, output_format == "json", prometheus))
    beside = _references(references, reference, announce=not run)

    def judge(folders: Sequence[Path]) -> Verification:
        return verification.assess(folders, beside(folders), margin / 100 if margin else None)

    def more_repeats(folder: Path) -> dict[str, int]:
        return verification_run.repeats_wanted(judge([folder]), most_repeats)

    with _told(prometheus):
        stored = verification_run.Measurement(chosen_runs(run, options.out)) if run else None
        measured = stored or _measure(options, each_gpu, more_repeats, time)
        verdicts = replace(judge(measured.folders), cut_by=measured.cut_by)
        _refuse_nothing(verdicts, each_gpu, bool(run))
    if each_gpu:
        verdicts = peer_comparison.with_fleets(verdicts, measured.folders, beside(measured.folders))
    _print(verdicts, output_format == "json", junit, markdown, prometheus)
    raise typer.Exit(verdicts.exit_code)


def _refuse_beside_level(level: int, others: Mapping[str, object]) -> None:
    """Raises UserError for options that need measured cells."""
    if given := next((option for option, value in others.items() if value), None):
        raise UserError(f"--level {level} measures no cell, and {given} needs some: leave one of the two out")


def _preflight(
    options: Options,
    level: int,
    references: str | None,
    names: list[str] | None,
    as_json: bool,
    prometheus: Path | None,
) -> int:
    """Make and print the checks of level 1 or 2; the exit code."""
    # Level 3 needs none of this.
    from runner.doctor import diagnosis, preflight
    from runner.doctor.diagnosis import print_checks

    # An index is asked for the cells of a run, and no run is made.
    own = () if references is not None and is_index(index_place(references)) else _references(references, names)([])
    checks = preflight.preflight(options, level, own)
    if prometheus:
        write_bytes(prometheus, diagnosis.textfile_of_checks(checks, level))
    if as_json:
        print_document(preflight.document(checks, level))
    else:
        print_checks(checks)
        print(f"\n{preflight.ending(checks, level)}")
    return preflight.exit_code(checks)


def _references(
    place: str | None, names: list[str] | None, announce: bool = False
) -> Callable[[Sequence[Path]], Sequence[Reference]]:
    """The references for some runs. Raises UserError. `announce`: say which of them are of another release, before anything is measured."""
    place = place and index_place(place)
    if place is not None and is_index(place):
        # One's own references need none of this.
        from runner.verify.references.contributed.site import IndexSite, references_for, what_it_has

        if names:
            raise UserError("--reference names one of your own, and --references an index: leave one of the two out")
        site, hints = IndexSite(place), set[str]()
        # An address that does not answer is said before anything is measured.
        _ = site.devices

        @functools.cache
        def of_index(folders: tuple[Path, ...]) -> Sequence[Reference]:
            if (hint := what_it_has(folders, site)) and hint not in hints:
                hints.add(hint)
                note(f"--references {place}: {hint}")
            return references_for(folders, site)

        return lambda folders: of_index(tuple(folders))
    own = shelf(place)
    if place is not None and not names and not files(Path(place)) and next(bundles_in(Path(place)), None):
        raise UserError(
            f"--references {place}: it holds bundles and no index; make one with `runner reference index {shlex.quote(place)} -o FOLDER`, "
            "and name that folder"
        )
    chosen = [own.find(name) for name in names] if names else own.all(note)
    facts = [cell.facts for one in chosen for cell in one.cells]
    old = of_other_code([(each.framework, each.workload, each.code_sha256) for each in facts]) if announce else []
    if old:
        note(
            f"references: {', '.join(old[:_MOST_NAMED])}{' and others' * (len(old) > _MOST_NAMED)} ran other code than this release "
            "has, so a gap to them is not-comparable; `runner reference save RUN --name NAME` makes one of this release"
        )
    return lambda _: chosen


def _measure(
    options: Options, each_gpu: bool, further: verification_run.Further, time: str | None
) -> verification_run.Measurement:
    """Measure this machine, or the nodes that the options name."""
    # Beside a pinned image the installation has them.
    if (options.engine != "host" or options.against == "none") and (sentence := causes.dropped(os.environ)):
        note(sentence)
    if options.nodes is not None:
        # Only this needs them.
        from runner.verify.fleet_run import measure_nodes

        return measure_nodes(options, sys.argv, write_report, time)
    return verification_run.measure_here(options, sys.argv, write_report, each_gpu, further, _limited(time))


def _check(asked: Mapping[str, object], stored: bool, each_gpu: bool) -> None:
    """Raises UserError for options that do not go together. `asked`: those that say what to measure, None where not given."""
    given = [option for option, value in asked.items() if value is not None]
    if stored and given:
        raise UserError(f"{given[0]} says what to measure, and --run measures nothing: leave one of the two out")
    fleets = [option for option in given if option in ("--nodes", "--time")]
    if fleets and not each_gpu:
        raise UserError(f"{fleets[0]} is for comparing GPUs with one another: add --each-gpu")


def _limited(time: str | None) -> verification_run.Limit | None:
    """The function that chooses a level for --time, and reports it; None without --time."""
    if time is None:
        return None
    seconds = seconds_of(time)

    def limited(prospect: Prospect) -> Level:
        level, sentence = chosen(site_here(prospect), seconds, time)
        note(sentence)
        return level

    return limited


def _refuse_nothing(verdicts: Verification, each_gpu: bool, stored: bool) -> None:
    """Raises UserError where the runs hold no cell to judge. Says so where `each_gpu` finds none of a GPU."""
    if not verdicts.findings and verdicts.waiting:
        error = UserError if stored else verification_run.CUT.get(verdicts.cut_by, CannotBeginError)
        raise error(f"nothing was measured, so there is nothing to judge: {'; '.join(verdicts.waiting)}")
    if not verdicts.findings:
        raise UserError("the runs hold no cell, so there is nothing to judge")
    if each_gpu and not any(finding.device_uuid for finding in verdicts.findings):
        note("runner: --each-gpu: these runs hold no cell of a GPU, so no GPU is compared")


@contextlib.contextmanager
def _told(prometheus: Path | None) -> Iterator[None]:
    """Within the block, what cannot begin is written for Prometheus, too: the file of the last verification would say that all is well."""
    try:
        yield
    except KeyboardInterrupt:
        raise NothingBegunError("interrupted: nothing was judged") from None
    except CannotBeginError:
        if prometheus:
            # Only this needs it.
            from runner.doctor import diagnosis

            write_bytes(prometheus, diagnosis.textfile_of_no_begin(3))
        raise


def _measured(
    options: Options, image: str | None, engine: str | None, workloads: tuple[str, ...], beside: bool
) -> Options:
    """The options with what verify measures: one image, or without one this environment, `beside` a pinned one or not."""
    chosen = {
        "images": (image,) if image else (),
        "workloads": () if workloads == ("all",) else workloads,
        "engine": engine or ("auto" if image else "host"),
        "modes": ("default",),
        # GPUs that are compared have one another, and an image of the catalog is pinned itself.
        "against": options.against if beside and (not image or is_address(image)) else "none",
    }
    options = options.model_copy(update=chosen)
    if not image or not is_address(image):
        return options
    # Only this needs it.
    from runner.verify.pinned import beside as beside_pinned

    addresses([image])
    return beside_pinned(options, image)


def _print(
    verdicts: Verification, as_json: bool, junit: Path | None, markdown: Path | None, prometheus: Path | None
) -> None:
    """Write the files that the options name, and print the verdicts."""
    if prometheus:
        # Only this needs it.
        from runner.doctor import diagnosis

        write_bytes(prometheus, diagnosis.textfile_of_verification(verdicts))
    if junit:
        write_bytes(junit, output.junit(verdicts))
    if markdown:
        write_bytes(markdown, output.markdown(verdicts).encode())
    if as_json:
        print_document(verification_run.document(verdicts))
    else:
        output.terminal(verdicts)
