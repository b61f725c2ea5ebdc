"""All cells of a run beside their references, as a test of its own: one factor that is common to them. Pure.

Each cell's log ratio counts by its precision: the inverse of the variance that its repeats leave. Cells may differ by more than that, since
a fault need not slow all cells alike. Then the variance between cells counts as well (DerSimonian and Laird, Control. Clin. Trials 7,
1986). A session moves all cells of a run alike, so its scatter is not divided by their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.wording import apart
from runner.verify.verdict import (
    FEWEST_TOGETHER,
    PASS,
    CellVerdict,
    Ratio,
    VariancePart,
    meaning,
    reach_of,
    verdict_from,
)


@dataclass(frozen=True)
class Together:
    """The cells that one run measured on one kind of device, judged as one."""

    run_id: str
    device_kind: str
    cells: int
    ratio: float
    low: float  # of the 90 % interval
    high: float
    margin: float
    verdict: CellVerdict

    @property
    def name(self) -> str:
        """The name of its row."""
        return f"all {self.cells} cells together"

    @property
    def reason(self) -> str:
        """The result as a sentence, with the shift, its interval and what they mean beside the margin."""
        ends = f"ratio, 90 % interval: {self.low:.3f} to {self.high:.3f}"
        said = f"a step of the {self.cells} cells of {self.run_id} together {apart(self.ratio)} as in their references ({ends})"
        means = meaning(self.verdict, self.ratio, (self.low, self.high), self.margin)
        if self.low > 1 and self.verdict != "slow":
            means += "; equal is ruled out: they did become slower"
        elif self.high < 1 and self.verdict != "fast":
            means += "; equal is ruled out: they did become faster"
        return f"{said}: {means}"

    @property
    def passes(self) -> bool:
        return self.verdict in PASS


def together(run_id: str, device_kind: str, ratios: Sequence[Ratio], margin: float, questions: int) -> Together | None:
    """The whole of some cells, of which every ratio is sound and is one of so many `questions`; None of fewer than FEWEST_TOGETHER."""
    if len(ratios) < FEWEST_TOGETHER:
        return None
    logs = np.log([ratio.value for ratio in ratios])
    own = np.array([ratio.of_repeats.variance for ratio in ratios])
    weights = 1 / own
    middle = float(np.average(logs, weights=weights))
    squares = float(np.sum(weights * (logs - middle) ** 2))
    scale = float(np.sum(weights) - np.sum(weights**2) / np.sum(weights))
    own += max(0.0, (squares - (len(ratios) - 1)) / scale)
    shares = (1 / own) / np.sum(1 / own)
    log = float(np.sum(shares * logs))
    of_cells = shares**2 * own
    freedom = float(np.sum(of_cells) ** 2 / np.sum(of_cells**2 / [ratio.of_repeats.freedom for ratio in ratios]))
    of_sessions = VariancePart(
        float(np.sum(shares * [ratio.of_sessions.variance for ratio in ratios])),
        float(np.sum(shares * [ratio.of_sessions.freedom for ratio in ratios])),
    )
    parts = (VariancePart(float(np.sum(of_cells)), freedom), of_sessions)
    ends = [math.exp(log + sign * reach_of(parts)) for sign in (-1, 1)]
    verdict = verdict_from(log, parts, margin, questions)
    return Together(run_id, device_kind, len(ratios), math.exp(log), ends[0], ends[1], margin, verdict)
