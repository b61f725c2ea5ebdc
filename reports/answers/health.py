"""The health of the measured machine: each cell beside its reference, each GPU beside the others of its model.

The runner computes it (runner.cli.report) and hands it to the page; here is only what the page needs to know of it.
All deviations are shares: 0.095 is a step that takes 9.5 % longer, -0.01 one that takes 1 % less time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

_MOST_REASONS = 12

Confidence = Literal["confirmed", "one run", "not judged"]


@dataclass(frozen=True)
class CellHealth:
    """One cell beside its reference."""

    run_id: str
    cell_id: str
    device_uuid: str  # empty for a CPU
    # ok, fast, not-slower: it passes; slow, wrong, failed: it does not; all others: it is not judged.
    verdict: str
    sentence: str


@dataclass(frozen=True)
class GpuHealth:
    """One GPU beside the median of all GPUs of its model."""

    index: int | None  # among the GPUs of its machine, where the run recorded it
    uuid_end: str  # the last four characters of its UUID
    deviation: float  # of its step time from the median
    low: float | None  # the 95 % interval of the deviation; None with fewer than two repeats
    high: float | None
    named: bool  # it is called slow
    reason: str = ""  # of a named GPU: the cause that its telemetry shows, such as throttling; may be empty
    node: str = ""  # the machine that it is in, where there are several


@dataclass(frozen=True)
class NodeHealth:
    """One node beside the median of all nodes, by the median of its GPUs."""

    name: str
    deviation: float
    named: bool  # it is called slow as a whole
    reason: str = ""  # of a named node: in what it is set up otherwise than the others


@dataclass(frozen=True)
class FleetHealth:
    """All GPUs of one model that ran one cell."""

    model: str
    cell: str  # the cell's name for people
    workload: str
    image: str
    gpus: tuple[GpuHealth, ...]  # by index
    # Deviations within it are normal: a GPU above `high` is named. None where too few GPUs ran the cell.
    low: float | None
    high: float | None
    judged: bool
    sentence: str
    # The nodes that the GPUs are in, the slowest first; empty where all are in one machine.
    nodes: tuple[NodeHealth, ...] = ()


@dataclass(frozen=True)
class Health:
    """The answer to "is my machine healthy?" with all that supports it."""

    answer: str  # at most eight words
    confidence: Confidence
    detail: str  # what the answer rests on; may be empty
    cells: tuple[CellHealth, ...] = ()
    fleets: tuple[FleetHealth, ...] = ()
    # The step to an answer, or to a surer one, the most important sentence first. It may hold a command between backticks.
    next: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why cells do not pass or are not judged, the most frequent first, each once with its number of cells."""
        counts = Counter(cell.sentence for cell in self.cells if cell.verdict not in ("ok", "fast", "not-slower"))
        return tuple(f"{count} cells: {why}" if count > 1 else why for why, count in counts.most_common(_MOST_REASONS))


NOT_JUDGED = Health("Not judged: no reference", "not judged", "")
NOTHING_BEGUN = Health("Not judged: nothing is measured yet", "not judged", "")
NOTHING_MEASURED = Health(
    "Not judged: nothing was measured",
    "not judged",
    "",
    next="No cell ended well, and each says why. `runner doctor` looks for what this machine lacks.",
)


def advice(confidence: Confidence, runs: str, *, fleets: bool, gpus: int) -> str:
    """How to get an answer, or a surer one; empty where there is one."""
    if confidence == "confirmed":
        return ""
    if fleets and confidence != "not judged":
        return "Measure the GPUs again on another day: `runner verify --each-gpu`."
    save = (
        f"Save trusted runs as a reference: `runner reference save {runs} --name NAME`. Runs of several days are best."
    )
    # Fewer than two GPUs cannot be compared with one another.
    return f"{save} `runner verify --each-gpu` compares the GPUs of one model without one." if gpus > 1 else save
