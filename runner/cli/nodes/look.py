"""The command `runner nodes`."""

from __future__ import annotations

from typing import Annotated, Required

import typer
from typing_extensions import TypedDict

from runner.cli.shared import TextOrJson, takes_options
from runner.errors import NothingBegunError, one_code
from runner.json_document import print_document
from runner.machine.devices import Cpu, Gpu, Refused
from runner.nodes import node_table
from runner.nodes.fleet import Fleet, Member, opened_fleet
from runner.nodes.transports.choose import nodes_of
from runner.run.options import Options
from runner.terminal import folded, print_table


class NodeRecord(TypedDict, total=False):
    """A node. Only one that answered has more than the first three."""

    node: Required[str]
    takes_part: Required[bool]
    why_not: Required[str | None]
    host: str
    kernel: str
    architecture: str
    engine: str
    cpu: Cpu
    gpus: tuple[Gpu, ...]
    refused_gpus: tuple[Refused, ...]
    cell_count: int
    skipped_count: int
    fetch_bytes: int


class NodesDocument(TypedDict):
    """Every node that was asked for."""

    nodes: list[NodeRecord]
    remarks: list[str]


@takes_options(
    Options,
    *("images", "frameworks", "workloads", "precisions", "modes", "preset", "devices", "gpus", "share", "engine"),
    *("data", "base_image", "images_from", "build", "python"),
)
def nodes(
    options: Options,
    where: Annotated[
        str,
        typer.Option(
            "--nodes",
            metavar="NODES",
            help="local:N, N agents on this machine; ssh:FILE, a host a line; slurm:PARTITION; ray.",
        ),
    ],
    output_format: TextOrJson = "text",
) -> None:
    """Changes nothing. Exit code 0: all take part; 1: some do not; 4: none does."""
    try:
        with opened_fleet(nodes_of(where, options.gpus, options.share, measure=False), options) as fleet:
            _print(fleet, output_format == "json")
            everybody = len(fleet.taken()) == len(fleet.members)
    except KeyboardInterrupt:
        raise NothingBegunError("interrupted; nothing was changed") from None
    raise typer.Exit(one_code(not everybody, is_open=False))


def _print(fleet: Fleet, as_json: bool) -> None:
    members = list(fleet.members.values())
    taken = fleet.taken()
    notes = [*fleet.nodes.notes, *node_table.differences(taken), *node_table.not_everywhere(taken)]
    if as_json:
        document: NodesDocument = {"nodes": [_record(member) for member in members], "remarks": notes}
        return print_document(document)
    print_table(node_table.HEADS, node_table.rows(members))
    for line in (*notes, *node_table.notes(taken)):
        print(folded(line))
    return None


def _record(member: Member) -> NodeRecord:
    """A node for a script."""
    hello = member.hello
    record: NodeRecord = {"node": member.name, "takes_part": not member.why, "why_not": member.why or None}
    if hello:
        record |= {
            "host": hello.host,
            "kernel": hello.kernel,
            "architecture": hello.architecture,
            "engine": hello.engine,
            "cpu": hello.cpu,
            "gpus": hello.gpus,
            "refused_gpus": hello.refused,
            "cell_count": len(hello.cells),
            "skipped_count": len(hello.skips),
            "fetch_bytes": hello.fetch_bytes,
        }
    return record
