"""Model FLOP utilisation, the arithmetic of a cell's network as a share of what its device can do; and the floor of its memory.

The operations are those of the network as its authors write it, attention counted whole and nothing recomputed: training takes three
times the operations of the way forward (Chowdhery et al. 2022, appendix B). A kernel that multiplies less often (Winograd, a causal mask)
shows a higher share than its units were busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.collectives import BETWEEN
from reports.data.costs import FLOOR, FLOOR_MEASURED, OF_DATASHEET, OF_OWN_PRODUCT
from reports.data.model import MeasuredCell, Rate, Rates
from reports.data.peaks import beyond_cache
from reports.data.roofline import PRODUCTS, STREAMS
from runner.results.datasheets import datasheet
from runner.results.plausible.work import least_bytes, model_operations

_Place = tuple[str, str, str, str]


def utilised(cells: Sequence[MeasuredCell], rates: Mapping[tuple[str, str], Rates]) -> list[MeasuredCell]:
    """The cells with their shares among the costs; `rates` are those of cells of single operations by run and cell."""
    products: dict[_Place, float] = {}
    streams: dict[_Place, float] = {}
    for cell in cells:
        if cell.parity_passed and cell.key.devices == 1:
            of_operations, place = rates.get((cell.run_id, cell.cell_id), {}), _place(cell)
            steady = [
                (operation, direction, rate)
                for (operation, direction), points in of_operations.items()
                for rate in points
                if not rate.shift
            ]
            found = [rate.gflops * 1e9 for name, _, rate in steady if name in PRODUCTS and rate.mop]
            products[place] = max([*found, products.get(place, 0.0)])
            read = [rate.gigabytes * 1e9 for name, direction, rate in steady if _streams(cell, name, direction, rate)]
            streams[place] = max([*read, streams.get(place, 0.0)])
    return [replace(cell, costs={**cell.costs, **_shares(cell, products), **_floors(cell, streams)}) for cell in cells]


def _streams(cell: MeasuredCell, operation: str, direction: str, rate: Rate) -> bool:
    """True if the memory bounds the rate."""
    return operation in STREAMS and direction not in BETWEEN and beyond_cache(rate, cell.key.device_kind)


def _floors(cell: MeasuredCell, streams: Mapping[_Place, float]) -> dict[str, float]:
    """The seconds in which the bytes of a step are read."""
    due = least_bytes(cell.key.workload, cell.items_per_step or 0.0, cell.key.precision)
    if due is None or cell.step is None or not cell.items_per_step:
        return {}
    known = datasheet(cell.key.device_model, cell.key.precision) if cell.key.device_kind == "cuda" else None
    limits = {FLOOR: known and known.bytes, FLOOR_MEASURED: streams.get(_place(cell))}
    return {name: due / limit for name, limit in limits.items() if limit}


def _place(cell: MeasuredCell) -> _Place:
    """The run, the device, and the precision in which products are computed: mixed precision multiplies in its half type."""
    return cell.run_id, cell.key.device_kind, cell.key.device_model, cell.key.precision.removeprefix("amp-")


def _shares(cell: MeasuredCell, products: Mapping[_Place, float]) -> dict[str, float]:
    each = model_operations(cell.key.workload)
    if each is None or cell.step is None or not cell.items_per_step:
        return {}
    reached = each * cell.items_per_step / cell.step.value / cell.key.devices
    known = datasheet(cell.key.device_model, cell.key.precision) if cell.key.device_kind == "cuda" else None
    limits = {OF_DATASHEET: known and known.flops, OF_OWN_PRODUCT: products.get(_place(cell))}
    return {name: reached / limit for name, limit in limits.items() if limit}
