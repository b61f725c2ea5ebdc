"""Which rates a GPU's datasheet refuses (runner.results.datasheets). A part of a GPU (MIG) and a CPU have no peak here."""

from __future__ import annotations

from dataclasses import dataclass

from bench.collectives import BETWEEN
from reports.data.model import Rate
from runner.results.cells import Key
from runner.results.datasheets import ABOVE_PEAK, FEWER_IN_CONVOLUTION, Datasheet, datasheet

# Operations that may multiply less often than their count says.
_FEWER = {"conv2d": FEWER_IN_CONVOLUTION}

# The memory does not bound what fits a cache. The largest cache of a GPU (RTX PRO 6000) is 128 MB; some servers' CPUs have larger ones.
_BEYOND_CACHE = {"cuda": 512e6, "cpu": 100e6}


def beyond_cache(rate: Rate, device_kind: str) -> bool:
    """True if the inputs that take turns are so large that each run reads them from memory."""
    return rate.bytes * rate.buffers >= _BEYOND_CACHE.get(device_kind, _BEYOND_CACHE["cuda"])


@dataclass(frozen=True)
class Peak(Datasheet):
    """One GPU's datasheet, held against rates that were measured."""

    def share_of_work(self, rate: Rate) -> float | None:
        """Of the arithmetic. None where nothing is computed or the datasheet has no figure."""
        return rate.gflops * 1e9 / self.flops if self.flops and rate.mop else None

    def share_of_traffic(self, rate: Rate, direction: str) -> float | None:
        """Of the memory. None where the inputs fit a cache, or the bytes go to another device or the host."""
        if direction in BETWEEN or not beyond_cache(rate, "cuda"):
            return None
        return rate.gigabytes * 1e9 / self.bytes

    def refuses(self, rate: Rate, operation: str, direction: str) -> bool:
        """True if the device cannot have done it: then the clock was stopped before the work was done, or work was left out."""
        work, traffic = self.share_of_work(rate), self.share_of_traffic(rate, direction)
        return (work or 0.0) > ABOVE_PEAK * _FEWER.get(operation, 1.0) or (traffic or 0.0) > ABOVE_PEAK


def peak_of(key: Key) -> Peak | None:
    """The peak of the device of `key` at its precision; None where it is not known."""
    if key.device_kind != "cuda" or key.devices != 1:
        return None
    known = datasheet(key.device_model, key.precision)
    return Peak(known.flops, known.bytes) if known else None
