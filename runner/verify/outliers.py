"""Which of many devices of one model is slower than the others. No reference is needed. Pure and deterministic.

Each device is one number: its step time. Its score is its distance from the fleet's median in units of the fleet's spread.

The robust spread is the standard deviation of the devices within CLIP robust deviations of the median. A robust deviation is 1.4826 times
the median absolute deviation, which less than half of the devices cannot change. Among fewer than FEWEST_TO_CLIP devices the robust spread
is the robust deviation itself. A few devices say little about their spread, so it is moderated (Smyth, Stat. Appl. Genet. Mol. Biol. 3,
2004): PRIOR_SPREAD counts as PRIOR_FREEDOM further devices.

An index of references may have machines of the model. Their spread is then taken as known, counts as so many devices as it has
machines less one, and the gap that is called slow may be smaller (SMALLEST_KNOWN_GAP). A device is then compared with the mean of those
others that the known spread calls near, which is a better middle than the median. Of devices that differ by 1 %, one of 4 and of 8 that is
5 % slow is named in 10 and 48 of 100 fleets without an index, in 65 and 66 with 10 machines, in 87 and 88 with 31, and in 90 and 92 with
100. Where they differ with tails of t5 or t3, a healthy fleet of 8 has a false alarm in 5 or 10 of 100 instead of 1 (simulated by
tests/unit/runner/verify/test_known_spread.py).

A device is slow when it is more than SMALLEST_GAP behind the median, and its score is above the score that the slowest of as many
healthy devices exceeds in FALSE_ALARM of all verifications. That limit is simulated for the fleet's size. It holds where healthy devices
scatter normally, by PRIOR_SPREAD. With more scatter or heavier tails more of them are called slow.

A fleet in which no device is slow is judged only where a device that is MUST_BE_NAMED slower would have been called slow.

Nor is it judged where the devices are two groups: then no device stands out, and which group is as it should be is not known. A group has
a quarter of the devices at least. The split is the one that leaves the least scatter within the groups, moderated as above. Their medians
are SMALLEST_GAP apart, and GROUPS_APART of its deviations. Simulated in fleets of 4 to 64: where half of the devices are 10 % slow, two
groups are seen in all, and in healthy fleets that differ by 1, 2 and 3 % in 0, 2 and 9 % at most.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from reports.wording import apart, times
from runner.results.statistics import SEED, Array
from runner.results.student import student_quantile
from runner.text import plural
from runner.verify.verdict import MARGINS

# Of the verifications of healthy fleets, those in which any device is called slow. All comparisons of a verification share it.
FALSE_ALARM = 0.01
FEWEST = 4
CLIP = 4.0

# With fewer devices the robust deviation alone gives the lower limit (simulated).
FEWEST_TO_CLIP = 12

# The variance of a median absolute deviation of normal values, relative to that of a standard deviation (Rousseeuw and Croux, J. Am. Stat.
# Assoc. 88, 1993): it shows as much as so many times the devices would.
ROBUST_EFFICIENCY = 0.37

# How much healthy devices of one model are assumed to differ: the standard deviation of the log step time. It was not measured.
PRIOR_SPREAD = 0.01
PRIOR_FREEDOM = 4.0

# A device that is closer to the others than the margin is not worth taking out.
SMALLEST_GAP = MARGINS["cuda"]

# If the spread of a model is known from so many machines that it need not be assumed, the limit alone keeps healthy devices out, and a
# smaller gap can be told. A gap below that of a node is still not worth taking a device out (runner.verify.peer_comparison).
SMALLEST_KNOWN_GAP = 0.02

# Machines that show less than this are rounded times, or copies of one another: no two GPUs are so alike.
LEAST_KNOWN = 0.001

# A fleet is judged where a device that takes this much longer is named in NAMED of all fleets. At SMALLEST_GAP itself, noise names a device
# in half of the fleets.
MUST_BE_NAMED = 0.10
NAMED = 0.95

# Two groups are so many deviations within them apart, and each has this share of the devices at least.
GROUPS_APART = 5.0
SMALLEST_GROUP = 0.25

# A limit is the score that at least so many of the simulated fleets exceed. How a slow device fares is simulated in so many fleets.
FEWEST_EXCEEDING = 100
FEWEST_SIMULATED = 20_000
SIMULATED_WITH_A_SLOW_ONE = 2000

# Of more devices than this the spread is as good as known: the limit is computed, since simulating it would take minutes.
_MOST_SIMULATED = 256


@dataclass(frozen=True)
class ScatterModel:
    """The compared devices, and the scatter that is assumed of them."""

    word: str  # device or node
    prior: float  # standard deviation of the log step time of healthy ones
    smallest_gap: float  # a smaller one is never called slow
    must_be_named: float  # a fleet is judged where one that takes this much longer is named in NAMED of all fleets
    # The machines that showed the prior. 0: it is assumed.
    machines: int = 0


DEVICE = ScatterModel("device", PRIOR_SPREAD, SMALLEST_GAP, MUST_BE_NAMED)


@dataclass(frozen=True)
class Outlier:
    """A device that is slower than the others of its model."""

    device: str
    ratio: float  # its step time over the fleet's median
    score: float


@dataclass(frozen=True)
class Deviation:
    """How far a device is from the median of its fleet, as a share: 0.1 takes 10 % longer. The ends are None with one repeat."""

    device: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DeviceFleet:
    """The devices of one model, with those that are slow."""

    devices: int
    step_seconds: float  # the fleet's median
    fastest: float  # the fastest device's step time over the median
    slowest: float
    spread: float  # moderated standard deviation of the log step times
    limit: float | None  # the score beyond which a device is slow; None where nothing can be said
    slow: tuple[Outlier, ...] = ()
    # A device that takes this much longer would have been named in NAMED of such fleets; None where a device is slow, or too few are there.
    named_from: float | None = None
    why_not: str = ""  # why nothing can be said
    smallest_gap: float = SMALLEST_GAP
    assumed: float = PRIOR_SPREAD  # how much healthy devices are assumed to differ, or are known to
    machines: int = 0  # those of an index of references that show it; 0: it is assumed
    # The devices of the faster group and those of the slower one, where they are two groups.
    groups: tuple[tuple[str, ...], ...] = ()

    @property
    def named_beyond(self) -> float | None:
        """How much longer than the median a device must take to be called slow, as a share; None where nothing can be said."""
        return None if self.limit is None else max(self.smallest_gap, math.expm1(self.limit * self.spread))


@dataclass(frozen=True)
class Spot:
    """The place of a GPU."""

    node: str
    index: int | None  # among the GPUs of its node, where the run recorded it


@dataclass(frozen=True)
class FleetFinding:
    """The comparison of the devices of one model."""

    name: str
    device_model: str
    fleet: DeviceFleet
    # The fleet's median where it is no time of a step, as text.
    middle: str = ""
    # The lines beside the verdict.
    beside: tuple[str, ...] = ()
    # The cells that were compared: (run id, cell id).
    cells: tuple[tuple[str, str], ...] = ()
    deviations: tuple[Deviation, ...] = ()
    # The kind of the fleet's devices: GPUs, or the nodes that hold them.
    of: Literal["GPU", "node"] = "GPU"
    # The place of each GPU, by its UUID, if the GPUs are on several nodes.
    spots: Mapping[str, Spot] = field(default_factory=dict)

    def device_name(self, device: str) -> str:
        """The name of a device for people: a GPU by its node as well, if there are several."""
        spot = self.spots.get(device)
        return f"node {device}" if self.of == "node" else f"{device} of node {spot.node}" if spot else device


def fleet_of(
    step_seconds: Mapping[str, float], comparisons: int = 1, kind: ScatterModel = DEVICE, group: int = 0
) -> DeviceFleet:
    """The slow devices among those of one model; `step_seconds` is each device's time. `comparisons` share the FALSE_ALARM.

    `group`: each time is beside the median of so many devices, itself among them; 0: it is not.
    """
    names, logs = list(step_seconds), np.log(np.array(list(step_seconds.values()), dtype=np.float64))
    if not names:
        return DeviceFleet(0, 1.0, 1.0, 1.0, 0.0, None, why_not=_too_few(0, "", kind))
    middle, gaps = float(np.median(logs)), _gaps(logs)
    fastest, slowest = math.exp(gaps.min()), math.exp(gaps.max())
    if len(names) < FEWEST:
        ends = f"; the slowest {apart(slowest / fastest)} as the fastest" if len(names) > 1 else ""
        why = _too_few(len(names), ends, kind)
        return DeviceFleet(len(names), math.exp(middle), fastest, slowest, 0.0, None, why_not=why)
    limit = score_limit(len(names), comparisons, group, kind.machines)
    spread = float(_spread(logs, kind.prior, kind.machines))
    outliers = [
        Outlier(names[at], math.exp(gaps[at]), float(_gaps_of(logs, kind.prior, kind.machines)[at]) / spread)
        for at in np.flatnonzero(_is_slow(logs, limit, kind))
    ]
    slow = tuple(sorted(outliers, key=lambda outlier: -outlier.ratio))
    found = DeviceFleet(
        len(names),
        math.exp(middle),
        fastest,
        slowest,
        spread,
        limit,
        slow,
        smallest_gap=kind.smallest_gap,
        assumed=kind.prior,
        machines=kind.machines,
    )
    if slow:
        return found
    if groups := _two_groups(logs, kind):
        longer = math.exp(float(np.median(logs[groups[1]]) - np.median(logs[groups[0]])))
        why = (
            f"the {kind.word}s are two groups: {len(groups[1])} take {times(longer)} times as long as the other {len(groups[0])}; which "
            f"group is as it should be is not known, so no {kind.word} is called slow"
        )
        return replace(found, groups=tuple(tuple(names[at] for at in group) for group in groups), why_not=why)
    least = named_from(len(names), spread, comparisons, kind)
    return replace(found, named_from=least, why_not=_why_unseen(least, kind))


def _two_groups(logs: Array, kind: ScatterModel) -> tuple[list[int], list[int]] | None:
    """The places of the faster devices and of the slower ones, where they are two groups; otherwise None."""
    order, many = np.argsort(logs, kind="stable"), len(logs)
    ordered = logs[order] - np.mean(logs)
    fewest = max(2, math.ceil(SMALLEST_GROUP * many))
    splits = np.arange(fewest, many - fewest + 1)
    sums = np.cumsum(ordered)[splits - 1]
    # The two sums of squares about the means, since all together have the mean 0.
    squares = np.sum(ordered**2) - sums**2 / splits - sums**2 / (many - splits)
    best = int(np.argmin(squares))
    first, second = ordered[: splits[best]], ordered[splits[best] :]
    counts = _freedom(kind.machines)
    deviation = math.sqrt((counts * kind.prior**2 + max(0.0, squares[best])) / (counts + many - 2))
    if np.median(second) - np.median(first) <= max(math.log1p(kind.smallest_gap), GROUPS_APART * deviation):
        return None
    return sorted(order[: len(first)].tolist()), sorted(order[len(first) :].tolist())


def _too_few(devices: int, ends: str, kind: ScatterModel) -> str:
    return f"{plural(devices, kind.word)}: at least {FEWEST} are needed to tell which one is slow{ends}"


def _why_unseen(least: float | None, kind: ScatterModel) -> str:
    """Why a fleet in which no device is slow is not judged; empty where it is, or where a device is slow."""
    if least is None or least <= kind.must_be_named:
        return ""
    return (
        f"the {kind.word}s differ too much to tell: none is called slow, but only one that {apart(1 + least)} would be named "
        f"in {100 * NAMED:g} of 100 such fleets, and one that {apart(1 + kind.must_be_named)} must be; "
        f"more {kind.word}s of the model would tell"
    )


def _gaps(logs: Array) -> Array:
    """The distance of each device from its fleet's median, along the last axis."""
    return np.asarray(logs - np.median(logs, axis=-1, keepdims=True), dtype=np.float64)


def _gaps_of(logs: Array, prior: float | Array, machines: int) -> Array:
    """The distance of each device from the others, along the last axis: from the median of all, where the spread is assumed.

    Where it is known, it says which devices are near enough to be healthy, and the mean of these is a better middle than a median.
    """
    gaps = _gaps(logs)
    if not machines:
        return gaps
    near = np.abs(gaps) <= CLIP * np.asarray(prior)[..., None]
    count = np.sum(near, axis=-1, keepdims=True) - near
    others = (np.sum(near * gaps, axis=-1, keepdims=True) - near * gaps) / np.maximum(count, 1)
    return np.asarray(gaps - others, dtype=np.float64)


def _robust_spread(logs: Array) -> Array:
    """The standard deviation about the median, along the last axis, of what lies within CLIP robust deviations of it."""
    gaps = np.abs(_gaps(logs))
    robust = 1.4826 * np.median(gaps, axis=-1, keepdims=True)
    if logs.shape[-1] < FEWEST_TO_CLIP:
        return np.asarray(robust[..., 0], dtype=np.float64)
    near = gaps <= CLIP * robust
    return np.asarray(np.sqrt(np.sum(near * gaps**2, axis=-1) / np.sum(near, axis=-1)), dtype=np.float64)


def _spread(logs: Array, prior: float | Array = PRIOR_SPREAD, machines: int = 0) -> Array:
    """The robust spread along the last axis, moderated: never 0. The prior counts as PRIOR_FREEDOM devices, or as `machines` show it."""
    counts, freedom = _freedom(machines), logs.shape[-1] - 1.0
    if machines and logs.shape[-1] < FEWEST_TO_CLIP:
        # Beside a prior that is known, a robust deviation must not count for more than it shows.
        freedom *= ROBUST_EFFICIENCY
    variance = counts * prior**2 + freedom * _robust_spread(logs) ** 2
    return np.asarray(np.sqrt(variance / (counts + freedom)), dtype=np.float64)


def _freedom(machines: int) -> float:
    return machines - 1.0 if machines else PRIOR_FREEDOM


def known_kind(spread: float, machines: int) -> ScatterModel:
    """How devices are compared whose model's spread so many machines show."""
    return replace(DEVICE, prior=max(spread, LEAST_KNOWN), smallest_gap=SMALLEST_KNOWN_GAP, machines=machines)


def spread_of(logs: Sequence[float], prior: float = PRIOR_SPREAD) -> float:
    """The moderated spread of some devices: never 0."""
    return float(_spread(np.array(logs), prior))


def known_spread(logs: Array | Sequence[float]) -> Array:
    """The spread of many devices, along the last axis, as far as they show it: nothing is assumed. CLIP keeps odd ones out."""
    gaps = np.abs(_gaps(np.asarray(logs, dtype=np.float64)))
    near = gaps <= CLIP * 1.4826 * np.median(gaps, axis=-1, keepdims=True)
    # About the median, which is one of them or between two: one degree of freedom less, as about the mean.
    variance = np.sum(near * gaps**2, axis=-1) / np.maximum(np.sum(near, axis=-1) - 1, 1)
    return np.asarray(np.sqrt(variance), dtype=np.float64)


def _is_slow(logs: Array, limit: float, kind: ScatterModel) -> Array:
    """Which devices are slow, along the last axis."""
    least = np.maximum(limit * _spread(logs, kind.prior, kind.machines), math.log1p(kind.smallest_gap))
    return np.asarray(_gaps_of(logs, kind.prior, kind.machines) > least[..., None])


@functools.cache
def score_limit(devices: int, comparisons: int = 1, group: int = 0, machines: int = 0) -> float:
    """The score that the slowest of so many healthy devices exceeds in FALSE_ALARM of all fleets, divided by the comparisons.

    `group`: the devices are in groups of so many, and each is compared with the median of its own. `machines`: the prior is what so many
    machines show, which is itself a draw: few of them show it badly, and the limit is higher.
    """
    random = np.random.default_rng(SEED)
    share = FALSE_ALARM / comparisons
    if devices > _MOST_SIMULATED:
        return student_quantile((1 - share) ** (1 / devices), devices - 1 + _freedom(machines))
    left = max(FEWEST_SIMULATED, round(FEWEST_EXCEEDING / share))
    highest = []
    while left > 0:
        # Not all at once: the fleets of a thousand devices would fill the memory.
        fleets = min(left, 1 + 2_000_000 // devices)
        logs = PRIOR_SPREAD * random.standard_normal((fleets, devices))
        if group:
            whole = devices - devices % group
            of_group = logs[:, :whole].reshape(fleets, -1, group)
            of_group -= np.median(of_group, axis=-1, keepdims=True)
        prior: float | Array = PRIOR_SPREAD
        if machines:
            prior = known_spread(PRIOR_SPREAD * random.standard_normal((fleets, machines)))
        highest.append(_gaps_of(logs, prior, machines).max(axis=-1) / _spread(logs, prior, machines))
        left -= fleets
    return float(np.quantile(np.concatenate(highest), 1 - share))


def named_from(devices: int, spread: float, comparisons: int = 1, kind: ScatterModel = DEVICE) -> float:
    """How much longer a device must take to be named in NAMED of all fleets whose other devices scatter normally by `spread`."""
    if devices > _MOST_SIMULATED:
        least = max(score_limit(devices, comparisons, machines=kind.machines) * spread, math.log1p(kind.smallest_gap))
        return math.expm1(min(least + NormalDist().inv_cdf(NAMED) * spread, 10.0))
    # In steps of a tenth of the prior spread, upwards, so that few are simulated. Above 30 % the answer is of 30 %: no such fleet is
    # judged.
    return _named_from(devices, math.ceil(10 * min(spread, 0.3) / kind.prior), comparisons, kind)


@functools.cache
def _named_from(devices: int, tenths: int, comparisons: int, kind: ScatterModel) -> float:
    spread, limit = tenths * kind.prior / 10, score_limit(devices, comparisons, machines=kind.machines)
    logs = spread * np.random.default_rng(SEED).standard_normal((SIMULATED_WITH_A_SLOW_ONE, devices))
    healthy, low, high = logs[:, 0].copy(), math.log1p(kind.smallest_gap), 0.2 + 30 * spread
    while high - low > 0.002:
        middle = (low + high) / 2
        logs[:, 0] = healthy + middle
        if _is_slow(logs, limit, kind)[:, 0].mean() >= NAMED:
            high = middle
        else:
            low = middle
    return math.expm1(high)
