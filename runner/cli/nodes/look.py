"""The command `runner nodes`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from runner.cli.shared import TextOrJson, print_json, takes_options
from runner.errors import NothingBegunError
from runner.nodes import node_table
from runner.nodes.fleet import Fleet, Member, opened_fleet
from runner.nodes.transports.choose import nodes_of
from runner.run.options import Options
from runner.terminal import folded, print_table


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
    """Changes nothing. Exit code 0: all take part; 1: some do not; 2: none does."""
    try:
        with opened_fleet(nodes_of(where, options.gpus, options.share, measure=False), options) as fleet:
            _print(fleet, output_format == "json")
            everybody = len(fleet.taken()) == len(fleet.members)
    except KeyboardInterrupt:
        raise NothingBegunError("interrupted; nothing was changed") from None
    raise typer.Exit(0 if everybody else 1)


def _print(fleet: Fleet, as_json: bool) -> None:
    members = list(fleet.members.values())
    taken = fleet.taken()
    notes = [*fleet.nodes.notes, *node_table.differences(taken), *node_table.not_everywhere(taken)]
    if as_json:
        return print_json({"nodes": [_document(member) for member in members], "notes": notes})
    print_table(node_table.HEADS, node_table.rows(members))
    for line in (*notes, *node_table.notes(taken)):
        print(folded(line))
    return None


def _document(member: Member) -> dict[str, Any]:
    """A node for a script."""
    hello = member.hello
    found = (
        {
            "host": hello.host,
            "kernel": hello.kernel,
            "engine": hello.engine,
            "cpu": asdict(hello.cpu),
            "gpus": [asdict(gpu) for gpu in hello.gpus],
            "refused_gpus": [asdict(refused) for refused in hello.refused],
            "cells": len(hello.cells),
            "skipped": len(hello.skips),
            "fetch_bytes": hello.fetch_bytes,
        }
        if hello
        else {}
    )
    return {"node": member.name, "takes_part": not member.why, "why_not": member.why or None, **found}
