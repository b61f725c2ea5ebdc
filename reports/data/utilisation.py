"""Model FLOP utilisation: the arithmetic of a cell's network as a share of what its device can do.

The operations are those of the network as its authors write it, attention counted whole and nothing recomputed: training takes three
times the operations of the way forward (Chowdhery et al. 2022, appendix B). A kernel that multiplies less often (Winograd, a causal mask)
shows a higher share than its units were busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reports.data.costs import OF_DATASHEET, OF_OWN_PRODUCT
from reports.data.model import MeasuredCell, Rates
from reports.data.roofline import PRODUCTS
from runner.results.datasheets import datasheet
from runner.results.plausible.work import model_operations

_Place = tuple[str, str, str, str]


def utilised(cells: Sequence[MeasuredCell], rates: Mapping[tuple[str, str], Rates]) -> list[MeasuredCell]:
    """The cells with their shares among the costs; `rates` are those of cells of single operations by run and cell."""
    products: dict[_Place, float] = {}
    for cell in cells:
        if cell.parity_passed and cell.key.devices == 1:
            of_operations = rates.get((cell.run_id, cell.cell_id), {})
            found = [
                rate.gflops * 1e9
                for (operation, _), points in of_operations.items()
                for rate in points
                if operation in PRODUCTS and rate.mop and not rate.shift
            ]
            products[_place(cell)] = max([*found, products.get(_place(cell), 0.0)])
    return [replace(cell, costs={**cell.costs, **_shares(cell, products)}) for cell in cells]


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
