"""A cell, and a combination that is left out. In the standard library only: the kit measures cells where nothing is installed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Combination:
    """The common fields of a cell and of a combination that is left out."""

    image: str
    framework: str
    workload: str
    precision: str
    mode: str
    # cpu | cuda
    device_kind: str
    device_model: str
    devices: int = 1
    # The one GPU that it is for. Empty: any GPU of its model.
    device_uuid: str = ""

    def names(self) -> dict[str, Any]:
        """These fields, which a cell and a skip have in common."""
        return {name: getattr(self, name) for name in Combination.__dataclass_fields__}

    def left_out(self, reason: str) -> Skip:
        """The combination with the sentence that says why it is skipped."""
        return Skip(**self.names(), reason=reason)


@dataclass(frozen=True, kw_only=True)
class Cell(Combination):
    """One thing to measure. Two cells with the same content are the same cell, also in different runs."""

    preset: str
    batch: int
    seed: int
    lock_sha256: str
    # Of several devices, the batch that stays: weak (of each device) | strong (of all together). Empty: one device.
    scaling: str = ""
    # "each": every repeat has a seed of its own, the first one `seed`. Empty: all repeats have `seed`.
    seeds: str = ""

    @cached_property
    def id(self) -> str:
        """The first 16 hex digits of the sha256 of its content as canonical JSON.

        An empty `scaling` and empty `seeds` are left out: such cells have the ids that they had before there were others.
        """
        content = {name: value for name, value in self._content().items() if value or name not in ("scaling", "seeds")}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _content(self) -> dict[str, Any]:
        """Its fields, as dataclasses.asdict has them: none of them holds another record, and asdict copies each deeply."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # A plan of many repeats asks for it millions of times. The same in every process: a cell may be sent to another one.
        return hash(int(self.id, 16))

    def seed_of(self, repeat: int) -> int:
        """The seed of a repeat. Repeats count from 1."""
        return self.seed + repeat - 1 if self.seeds else self.seed

    def row(self, repeat: int = 1) -> dict[str, Any]:
        """The columns of a repeat's row in the table `cells` that follow from the plan."""
        content = self._content() | {"seed": self.seed_of(repeat)}
        del content["seeds"]
        return content

    @property
    def takes(self) -> int:
        """How many devices of the machine the cell holds. The devices of a CPU cell are processes that share the one CPU."""
        return 1 if self.device_kind == "cpu" else self.devices

    @property
    def label(self) -> str:
        mode = "" if self.mode == "default" else f" {self.mode}"
        several = f" x{self.devices} {self.scaling}" if self.devices > 1 else ""
        only = f" {self.device_uuid}" if self.device_uuid else ""
        return f"{self.image} {self.framework}{mode} {self.workload} {self.precision}{several}{only}"

    def as_dict(self) -> dict[str, Any]:
        return self._content() | {"id": self.id}


@dataclass(frozen=True, kw_only=True)
class Skip(Combination):
    """A combination that is skipped, with the sentence that says why."""

    reason: str
