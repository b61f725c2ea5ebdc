"""The command `runner gpus`: what NVML says of every GPU, for a person or for a script."""

from __future__ import annotations

import json
from dataclasses import asdict

from runner.machine.detect import detect_cpu, detect_gpus
from runner.machine.devices import Gpu, Refused


def show(as_json: bool) -> None:
    """Print every GPU, those that cannot be used with the reason."""
    found, refused, why = detect_gpus(detect_cpu().cpus)
    if as_json:
        told = {"gpus": [asdict(gpu) for gpu in found], "refused": [asdict(each) for each in refused], "why_none": why}
        print(json.dumps(told, indent=2))
        return
    if why:
        print(f"no GPU: {why}")
        return
    _print_table(found)
    _print_notes(found, refused)


def _print_table(found: tuple[Gpu, ...]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("GPU", "model")
    table.add_column("UUID", overflow="fold")  # people copy it: two lines rather than a part of it
    for title in ("capability", "memory", "PCIe", "NUMA", "near CPUs", "ECC", "limit", "in use by"):
        table.add_column(title)
    for gpu in found:
        table.add_row(
            gpu.name,
            escape(gpu.model),
            gpu.uuid,
            gpu.compute_capability,
            f"{gpu.memory_bytes / 2**30:.0f} GiB",
            f"{gpu.pcie_generation or '?'} x{gpu.pcie_width or '?'}",
            "-" if gpu.numa_node is None else str(gpu.numa_node),
            ranges(gpu.cpus),
            {None: "-", True: "on", False: "off"}[gpu.ecc],
            "-" if gpu.power_limit_watts is None else f"{gpu.power_limit_watts:.0f} W",
            escape(", ".join(map(str, gpu.processes))) or "nobody",
        )
    Console().print(table)


def _print_notes(found: tuple[Gpu, ...], refused: tuple[Refused, ...]) -> None:
    """What stands in no column: the driver, what joins GPUs, and what is broken."""
    from runner.machine.nvml import NVLINK

    for each in refused:
        print(f"not usable: {each.reason}")
    for gpu in found[:1]:
        print(f"driver {gpu.driver}, which runs CUDA up to {gpu.cuda_driver or '?'}")
    names = {gpu.board: str(gpu.index) for gpu in found}
    for board, name in names.items():
        near = next(gpu.near for gpu in found if gpu.board == board)
        joined = [names[other] for other, nearness in near if nearness == NVLINK and other in names]
        if joined:
            print(f"GPU {name} is joined by NVLink to {', '.join(joined)}")
    for gpu in found:
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
