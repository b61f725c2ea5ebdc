"""The command `runner gpus`."""

from __future__ import annotations

import os
from dataclasses import asdict

from typing_extensions import TypedDict

from runner.cli.shared import TextOrJson
from runner.json_document import print_document
from runner.machine.detect import detect_cpu, detect_gpus
from runner.machine.devices import Gpu, Refused, unknown_users
from runner.machine.nvml import NVLINK
from runner.machine.visible import limits
from runner.results import clock_settings
from runner.terminal import print_table


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
        states.setdefault(clock_settings.state(asdict(gpu)), []).append(gpu.name)
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
