"""The commands about machines: doctor and gpus of this one, nodes of several, and the agent that runs cells for a driver elsewhere."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Required

import typer
from typing_extensions import TypedDict

from runner.cli.shared import BaseImage, Out, TextOrJson, takes_options
from runner.errors import NothingBegunError, UserError, one_code
from runner.machine.detect import detect_cpu, detect_gpus, limits
from runner.machine.devices import Cpu, Gpu, Refused, unknown_users
from runner.machine.nvml import NVLINK
from runner.nodes import node_table
from runner.nodes.fleet import Fleet, Member, opened_fleet
from runner.nodes.transports import nodes_of
from runner.results import gpu_facts
from runner.run.options import Options
from runner.terminal import folded, print_table
from runner.text import print_document

# The command `runner doctor`.


def doctor(
    base_image: BaseImage = None,
    image: Annotated[
        str | None,
        typer.Option(help="The image to start a container of; default: one of this project's on this machine."),
    ] = None,
    out: Out = Path("results"),
    output_format: TextOrJson = "text",
) -> None:
    """Starts a container with every GPU. An engine is optional: without one, cells run in environments.

    Exit code 0: nothing failed; 1: something failed; 2: the checks could not be made.
    """
    # It loads what speaks to the engine, which the other commands do without.
    from runner.doctor import diagnosis

    raise typer.Exit(diagnosis.run(output_format == "json", base_image, image, out))


# The command `runner gpus`.


class GpusDocument(TypedDict):
    """The GPUs of this machine."""

    gpus: tuple[Gpu, ...]
    refused_gpus: tuple[Refused, ...]
    why_no_gpu: str | None
    remarks: tuple[str, ...]


def gpus(output_format: TextOrJson = "text") -> None:
    """Names each GPU that cannot be used, with the reason."""
    usable, refused, why_none = detect_gpus(detect_cpu().cpus)
    notes = (*limits(usable, refused, os.environ), *unknown_users(usable))
    if output_format == "json":
        document: GpusDocument = {"gpus": usable, "refused_gpus": refused, "why_no_gpu": why_none, "remarks": notes}
        return print_document(document)
    if why_none:
        return print(f"no GPU: {why_none}")
    _print_table(usable)
    return _print_notes(usable, refused, notes)


def _print_table(gpus: tuple[Gpu, ...]) -> None:
    heads = ("GPU", "model", "UUID", "capability", "memory", "PCIe", "NUMA", "near CPUs", "ECC", "limit", "in use by")
    rows = [
        (
            gpu.name,
            gpu.model,
            gpu.uuid,
            gpu.compute_capability,
            gpu.memory,
            f"{gpu.pcie_generation or '?'} x{gpu.pcie_width or '?'}",
            "-" if gpu.numa_node is None else str(gpu.numa_node),
            ranges(gpu.cpus),
            {None: "-", True: "on", False: "off"}[gpu.ecc],
            "-" if gpu.power_limit_watts is None else f"{gpu.power_limit_watts:.0f} W",
            "unknown" if gpu.processes is None else ", ".join(map(str, gpu.processes)) or "nobody",
        )
        for gpu in gpus
    ]
    print_table(heads, rows)


def _print_notes(gpus: tuple[Gpu, ...], refused: tuple[Refused, ...], notes: tuple[str, ...]) -> None:
    """The facts without a column: `notes`, the driver, the links between GPUs, and broken GPUs."""
    for gpu_refused in refused:
        print(f"not usable: {gpu_refused.reason}")
    for note in notes:
        print(note)
    for gpu in gpus:
        if gpu.compute_mode not in (None, "default"):
            print(f"{gpu}: compute mode {gpu.compute_mode}")
    states: dict[str, list[str]] = {}
    for gpu in gpus:
        states.setdefault(gpu_facts.clock_state(asdict(gpu)), []).append(gpu.name)
    for state, members in states.items():
        print(f"clocks of GPU {', '.join(members)}: {state}")
    for gpu in gpus[:1]:
        print(f"driver {gpu.driver}, which runs CUDA up to {gpu.cuda_driver or '?'}")
    names = {gpu.board: str(gpu.index) for gpu in gpus}
    for board, name in names.items():
        near = next(gpu.near for gpu in gpus if gpu.board == board)
        joined = [names[other] for other, nearness in near if nearness == NVLINK and other in names]
        if joined:
            print(f"GPU {name} is joined by NVLink to {', '.join(joined)}")
    for gpu in gpus:
        if gpu.pcie_width and gpu.pcie_width_now and gpu.pcie_width_now < gpu.pcie_width:
            print(f"{gpu} uses {gpu.pcie_width_now} of its {gpu.pcie_width} PCIe lanes: look at its slot and riser")


def ranges(numbers: tuple[int, ...]) -> str:
    """Sorted numbers as Linux writes sets of CPUs: `0-3,8`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


# The command `runner agent`.


def agent() -> None:
    """A driver starts it, here or over ssh, and speaks to it in frames (docs/nodes.md). It is not for people."""
    if sys.stdin.isatty() or sys.stdout.isatty():
        raise UserError("runner agent speaks to `runner matrix --nodes` over a pipe; start that instead")
    from runner.nodes.node_agent import serve

    # A library's output must not come between two frames.
    with os.fdopen(os.dup(0), "rb", buffering=0) as source, os.fdopen(os.dup(1), "wb") as sink:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        serve(source, sink)
    # Threads that wait for an engine without an answer must not keep this process.
    sys.stderr.flush()
    os._exit(typer.Exit().exit_code)


# The command `runner nodes`.


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
