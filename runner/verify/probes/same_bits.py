"""The bits of a device's products (bench/same_bits.py): alike in each run, and on each GPU of a model. What is not, computes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from runner.engines.base import Engine, ReadyImage, Slot
from runner.errors import first_problem
from runner.text import plural
from runner.verify.probes.ceilings import CeilingsError, printed_by

PROBE = "bench.same_bits"
# Of all products together.
SECONDS = 9.0
# With the start of a framework.
_LIMIT_SECONDS = 60.0
# Along each side of a result, as bench/same_bits.py has it.
BLOCKS = 32
# Of two GPUs nobody knows which one is wrong.
FEWEST = 3

_Whole = Annotated[int, Field(ge=0, lt=2**31)]
_Block = Annotated[int, Field(ge=0, lt=BLOCKS)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Product(_Frozen):
    """The runs of one product on one device."""

    name: Annotated[str, Field(min_length=1, max_length=60)]
    # Each GPU of a model takes the same kernel.
    fixed: bool
    runs: Annotated[int, Field(ge=1, lt=2**31)]
    # Of these runs, as many as gave the usual bits.
    alike: Annotated[int, Field(ge=1, lt=2**31)]
    # Run, block row, block column: at least one where not all are alike.
    odd: Annotated[tuple[tuple[_Whole, _Block, _Block], ...], Field(max_length=100)]
    sums: Annotated[str, Field(pattern=rf"^[0-9a-f]{{{8 * BLOCKS**2}}}$")]

    @model_validator(mode="after")
    def _names_what_is_odd(self) -> Product:
        if self.alike > self.runs or (self.alike < self.runs) != bool(self.odd):
            raise ValueError("its count of alike runs and its list of odd blocks contradict each other")
        return self


class Bits(_Frozen):
    """All products of one device; none where its framework has none to look at."""

    products: Annotated[tuple[Product, ...], Field(max_length=10)]

    @property
    def wrong(self) -> str:
        """The products that gave other bits in some run, and where; empty where none did."""
        return "; ".join(
            f"{one.name}: {one.runs - one.alike} of {plural(one.runs, 'run')} gave other bits of the same factors, first run {run + 1} in "
            f"block ({row}, {column}) of {BLOCKS} x {BLOCKS}"
            for one in self.products
            for run, row, column in one.odd[:1]
        )

    def __str__(self) -> str:
        return ", ".join(f"{one.name} {plural(one.runs, 'run')}" for one in self.products)


def measure_bits(engine: Engine, prepared: ReadyImage, framework: str, slot: Slot, label: str) -> Bits:
    """Run the probe on a device. Raises CeilingsError."""
    arguments = [framework, slot.device_kind, str(SECONDS)]
    try:
        return Bits.model_validate_json(printed_by(engine, prepared, PROBE, arguments, slot, label, _LIMIT_SECONDS))
    except ValidationError as error:
        raise CeilingsError(f"the bits: {first_problem(error)}") from None


def odd_ones(devices: Mapping[str, Bits]) -> Iterator[tuple[str, str]]:
    """(device, why) of each device of one model whose bits differ from those of most of the others."""
    for product in next(iter(devices.values())).products:
        sums = {
            name: one.sums
            for name, bits in devices.items()
            for one in bits.products
            if one.name == product.name and one.fixed
        }
        if len(sums) < FEWEST:
            continue
        usual, count = Counter(sums.values()).most_common(1)[0]
        if 2 * count <= len(sums):
            continue
        for name, own in sums.items():
            if own != usual:
                row, column = np.argwhere(_blocks(own) != _blocks(usual))[0]
                yield (
                    name,
                    f"{product.name}: other bits than on {count} of its model, in block ({row}, {column}) of {BLOCKS} x {BLOCKS}",
                )


def _blocks(sums: str) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    return np.frombuffer(bytes.fromhex(sums), "<u4").reshape(BLOCKS, BLOCKS)
