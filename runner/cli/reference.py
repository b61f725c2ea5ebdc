"""The commands that carry measurements from machine to machine: reference, share, gpu-kit and import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bench import identity
from runner.catalog import own_networks
from runner.cli.report import write_report
from runner.cli.shared import PLAIN, Out, TextOrJson, chosen_runs, note, split_words
from runner.errors import NothingBegunError, UserError, naming, one_code
from runner.kit import archive as archives
from runner.kit import bundle, doing, shared_run
from runner.kit.imported import Imported, import_archive
from runner.paths import data_folder, runner_version
from runner.results.store import read_bytes, write_bytes
from runner.text import in_a_line, plural
from runner.verify.references import display, index_place, is_address, is_index
from runner.verify.references.contributed import derived_rows
from runner.verify.references.measured import reference_of
from runner.verify.references.published import fetched
from runner.verify.references.saved import SavedError, Shelf, read, to_bytes

# The command `runner gpu-kit`.


def gpu_kit(
    folder: Annotated[Path, typer.Argument(help="The folder to write: a new one, or that of an older kit.")],
    workloads: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH,…", help="Networks of your own, which the kit measures before the catalog's."),
    ] = None,
) -> None:
    """It holds the bench, the runner's part and three small libraries: below 50 MiB. Copy it to the machine, and run
    `python3 kit.py` there.

    `runner import` makes a run of what the kit measured.
    """
    words = split_words(workloads)
    if named := [word for word in words if not own_networks.is_path(word)]:
        raise UserError(
            f"--workloads {named[0]}: every kit has the catalog's networks; name a file, such as ./my_net.py"
        )
    with naming(folder):
        size = bundle.build(folder, own_networks.own_networks(words).values())
    typer.echo(f"{folder}: {size / 1e6:.1f} MB; copy it to a machine with a GPU, and run python3 kit.py there")


# The command `runner import`.


def import_(
    archive: Annotated[
        Path, typer.Argument(help="The archive that a kit has made, or `runner share`.", dir_okay=False)
    ],
    out: Out = Path("results"),
) -> None:
    """Every line of it is checked as if it came from a cell of this machine. Prints the folder of the run."""
    read = archives.read(archive)
    if read.facts.bench_sha256 != identity.source_digest():
        note("runner: it was measured with another bench than this checkout's; its cells cannot stand beside new ones")
    imported = import_archive(read, out)
    for line in [*lines(imported), *(in_a_line(f"skipped {dropped}") for dropped in imported.dropped)]:
        note(line)
    note(f"report   {write_report(imported.run.folder)}")
    typer.echo(str(imported.run.folder))


def lines(imported: Imported) -> list[str]:
    """The import's result in sentences; failures are named."""
    counts: dict[tuple[str, str], int] = {}
    for outcome in imported.outcomes:
        key = outcome.step.kind, outcome.status
        counts[key] = counts.get(key, 0) + 1
    said = [f"{count} × {kind} {status}" for (kind, status), count in sorted(counts.items())]
    rest = "; run kit.py again on the machine that measured it for the rest" if imported.not_done else ""
    text = [f"{', '.join(said) or 'nothing'}; {imported.not_done} steps were not done{rest}"]
    shown = [each for each in imported.outcomes if each.status != "ok" or each.step.kind == "events"]
    text += [in_a_line(f"{each.status:8} {each.step}: {each.reason}") for each in shown]
    text += [in_a_line(f"energy   {doing.sentence(gpu, *both)}") for gpu, both in imported.energies.items()]
    return text


# The command `runner share`.

# Reasons against a bundle that are named; `runner reference judge` has all.
_MOST_REASONS = 3


def share(
    run: Annotated[str, typer.Argument(help="A run, by id or folder.")],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help="The file to write; or the folder of a collection of references, for a file a cell: one "
            "that is there, or a name that ends in /.",
            metavar="PATH",
        ),
    ],
    by: Annotated[
        str,
        typer.Option(
            metavar="ACCOUNT",
            help="In a collection: your account there, which is the first folder. Norms count accounts.",
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    out: Out = Path("results"),
) -> None:
    """It shows what will be in it, and asks before it writes. Prints the files that it wrote.

    In the place of UUIDs and of the machine's name are pseudonyms. It has no logs, no names of folders or users, and no repeat that failed.
    """
    (folder,) = chosen_runs([run], out)
    if not yes and not _can_answer():
        raise UserError(
            "share asks before it writes, and nobody can answer here; look at a run at a terminal, or say --yes"
        )
    bundle = shared_run.bundle_of(folder, shared_run.own_salt())
    for line in shared_run.shown(bundle, shared_run.salt_path()):
        note(in_a_line(line, 2000))
    collection = output.endswith("/") or Path(output).is_dir()
    files = derived_rows.files_of(bundle, by) if collection else {Path(): bundle.content}
    if not yes and not typer.confirm(f"write this to {output}?", default=False, err=True):
        raise NothingBegunError("nothing was written")
    for name, content in files.items():
        path = Path(output) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
        typer.echo(str(path))
        for why in derived_rows.derived(path).refused[:_MOST_REASONS]:
            note(f"an index of references would refuse {path}: {why}")


def _can_answer() -> bool:
    return sys.stdin.isatty()


Collection = Annotated[Path, typer.Argument(help="Folder of a collection of references.", exists=True, file_okay=False)]

# Of a list of files that a request changes.
_MOST_CHANGES = 16 << 20

app = typer.Typer(no_args_is_help=True, **PLAIN)

References = Annotated[
    str | None,
    typer.Option(
        envvar="DLBENCH_REFERENCES", help="Folder of your references; default: dlbench/references in your data folder."
    ),
]
Name = Annotated[str, typer.Argument(help="A reference by name or file.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace another reference of this name.")]


def shelf(place: str | None, to_write: bool = False) -> Shelf:
    """The user's references. Raises SavedError for what is no folder of them."""
    if place is not None and is_index(index_place(place)):
        raise SavedError(
            f"--references {in_a_line(place, 200)}: that is an index, which `runner verify` and `runner reference list` read; name "
            "a folder of your own references"
        )
    folder = Path(place) if place else None
    if folder and folder.exists() and not folder.is_dir():
        raise SavedError(f"--references: {folder} is not a folder; name one that holds *.reference.parquet files")
    if folder and not folder.exists() and not to_write:
        note(f"--references: {folder} is not there, so there is no reference to compare with")
    return Shelf([folder or data_folder() / "references"])


@app.command("save")
def save_reference(
    run: Annotated[
        list[str], typer.Argument(help="A run, by id or folder; several of one machine, from several days.")
    ],
    name: Annotated[str, typer.Option(help="The name of the reference.")],
    noisy: Annotated[bool, typer.Option("--noisy", help="Keep cells too that are too noisy to be ranked.")] = False,
    replace: Replace = False,
    references: References = None,
    out: Out = Path("results"),
) -> None:
    """Keep the cells of runs, with their samples, as a reference.

    Cells that are too noisy to be ranked are not kept, and named.

    Each run is a session. Several runs show how far the machine differs from day to day, which repeats of one run do not.
    """
    kept = reference_of(chosen_runs(run, out), name, runner_version(), noisy=noisy)
    reference = kept.reference
    path = shelf(references, to_write=True).put(reference, replace)
    for line in kept.notes:
        note(line)
    typer.echo(f"{path} {plural(len(reference.cells), 'cell')} sha256:{reference.sha256}")


@app.command("list")
def list_references(references: References = None, output_format: TextOrJson = "text") -> None:
    """Show every reference, and the published numbers; or of an index, by folder or address, the devices that it has."""
    as_json, place = output_format == "json", index_place(references) if references else ""
    if not is_index(place):
        display.print_list(shelf(references), as_json)
        return
    # One's own references need none of this.
    from runner.verify.references.contributed.site import IndexSite

    display.print_index(place, IndexSite(place).devices, as_json)


@app.command("show")
def show_reference(
    name: Annotated[str, typer.Argument(help="A reference by name or file, or: published.")],
    workload: Annotated[str | None, typer.Option(help="This workload only.")] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(help="published: GPUs between commas; default: K80,P100,V100.")
    ] = None,
    run: Annotated[list[str] | None, typer.Option(help="published: put these runs beside them.")] = None,
    references: References = None,
    out: Out = Path("results"),
    output_format: TextOrJson = "text",
) -> None:
    """Show a reference's cells; or the published numbers, with your machine beside K80, P100 and V100."""
    as_json = output_format == "json"
    if name == "published":
        folders = chosen_runs(run, out) if run else []
        display.print_published(workload, split_words(gpu) or display.GPUS, folders, as_json)
    else:
        display.print_reference(shelf(references).find(name), workload, as_json)


@app.command("diff")
def diff_references(
    first: Name,
    second: Annotated[str, typer.Argument(help="The reference to compare it with, by name or file.")],
    references: References = None,
    output_format: TextOrJson = "text",
) -> None:
    """Compare two references, cell by cell, with the verdict that the first would get."""
    both = shelf(references)
    display.print_diff(both.find(first), both.find(second), output_format == "json")


@app.command("export")
def export_reference(
    name: Name,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    references: References = None,
) -> None:
    """Write a reference as one Parquet file with its manifest and hashes inside."""
    reference = shelf(references).find(name)
    write_bytes(output, to_bytes(reference))
    typer.echo(f"{output} sha256:{reference.sha256}")


@app.command("import")
def import_reference(
    file: Annotated[
        str, typer.Argument(help="A file that `runner reference export` wrote, by its path or its address.")
    ],
    replace: Replace = False,
    references: References = None,
) -> None:
    """Add a reference of somebody else. Every hash is checked."""
    reference = fetched(file) if is_address(file) else read(Path(file))
    typer.echo(f"{shelf(references, to_write=True).put(reference, replace)} sha256:{reference.sha256}")


@app.command("judge")
def judge_bundles(
    collection: Collection,
    bundles: Annotated[
        list[Path] | None,
        typer.Argument(help="The bundles to judge beside the others; default: each beside those before it."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="ACCOUNT", help="The account that brings the bundles: they must lie in its folder."),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="All that the request changes, as `git diff -z --name-status` prints it; removals are said first.",
        ),
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the comment of a pull request to this file.")] = None,
) -> None:
    """Judge bundles that somebody brings to a collection: each tape is admitted anew.

    Exit codes: 0 all are accepted; 1 some are refused; 3 a person must look at some: the first bundle of a contributor or of a cell, a
    further machine, a step time that is far from the others, and what the request changes besides.
    """
    from runner.verify.references.contributed import judge as contributed
    from runner.verify.references.contributed.judge import besides, comment

    # The names of files are a stranger's.
    also = besides(read_bytes(changes, _MOST_CHANGES).decode("utf-8", "replace")) if changes else []
    judgements = contributed.judge(collection, bundles or (), note, by) if bundles or not changes else []
    for line in also:
        typer.echo(f"open     {in_a_line(line, 300)}")
    if not judgements and not also:
        note(f"no bundle is in {collection}; `runner share RUN -o {collection}` puts a run's bundles there")
    for one in judgements:
        typer.echo(f"{one.verdict:8} {in_a_line(one.name)}")
        for why in one.reasons:
            typer.echo(f"         {in_a_line(why, 1000)}")
    if markdown:
        write_bytes(markdown, comment(judgements, also).encode())
    verdicts = {one.verdict for one in judgements}
    raise typer.Exit(one_code("refused" in verdicts, bool(also) or "open" in verdicts))


@app.command("index")
def write_index(
    collection: Collection,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    licence: Annotated[str, typer.Option(help="The licence of the collection, for the page.")] = "CC0-1.0",
) -> None:
    """Write the static page of a collection, with the files that `runner verify --references` reads. Prints the path of the page.

    Bundles that are refused are skipped, and named.
    """
    from runner.verify.references.contributed import judge as contributed
    from runner.verify.references.contributed.site import index_of, write

    bundles = contributed.admitted(collection, note)
    cells = index_of(row for bundle in bundles.values() for row in bundle.rows)
    write(cells, output, licence)
    note(f"{plural(len(cells), 'cell')} from {plural(len(bundles), 'bundle')}")
    typer.echo(str(output / "index.html"))
