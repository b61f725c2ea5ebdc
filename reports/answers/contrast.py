"""Two sides compared: the ratio of their step times, and whether it is real.

All contrasts of a table are judged together (Holm): the chance that the table calls any difference real where there is
none stays below 5 %.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bench import rules
from reports.data.groups import left_open, pair_of
from reports.data.model import Group, MeasuredCell, Repeat
from reports.wording import apart, between, bound, number, plural
from runner.results import statistics, steadiness
from runner.results.cells import resume_command, step_of
from runner.results.on_disk import image_names, isolation, observed, other_work, roles
from runner.results.rank.blocks import Blocks, moderated
from runner.results.rank.ranking import MARGIN, MOST_ADVISED, Field, Verdict, in_blocks, within

# The order of the facts in which two sides differ: first those that explain a difference of time most often.

# A fact of the installation that may be absent, such as a variable that only one side sets. Absent is a value of it.
MAY_BE_ABSENT = re.compile(r"setting ((variable|file) .+|allocator)")

# A cell has recorded the facts of its installation where it has one of these (bench/speed.py).
_OF_INSTALLATION = ("setting numpy_blas", "setting installed_by", "setting openmp", "setting blas")

# The first that fits counts. What fits none comes after them.
_ORDER = (
    re.compile(r"setting (variable|file) .+"),
    re.compile(
        r"setting (allocator|threads.*|cpu_capability|mkldnn|xla|eager|deterministic|anomaly_detection|default_dtype)"
    ),
    re.compile(r"framework|CUDA|cuDNN|driver|processor|CPUs|GPU.*|CPU .*"),
    re.compile(r"setting (blas|onednn|cudnn|cublas|nccl|lapack|numpy_blas|blas_built_with)"),
    re.compile(r"setting .+"),
)
_LAST = re.compile(r"image|lock|code|data")


def likely_place(name: str, before: str, after: str) -> int:
    """The place of a fact with these two values: a small one stands before a large one."""
    # Debian builds PyTorch for any BLAS, so the files that are loaded tell, and not what it was built with.
    if name == "setting blas" and has_reference_blas(before) != has_reference_blas(after):
        return 0
    if _LAST.fullmatch(name):
        return len(_ORDER) + 2
    return next((at for at, pattern in enumerate(_ORDER, start=1) if pattern.fullmatch(name)), len(_ORDER) + 1)


def has_reference_blas(files: str) -> bool:
    """True if one of the files in a value of "setting blas" is the reference implementation."""
    return any(roles.is_reference_blas(file) for file in files.split("; "))


def own_versions(cells: Iterable[MeasuredCell]) -> dict[str, set[str]]:
    """Name -> digests of the files of a person's own networks among these cells. Each version is a network of its own."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        if rules.is_own(cell.key.workload):
            name, _, digest = cell.key.workload.partition("@")
            found.setdefault(name, set()).add(digest)
    return found


def has_installation(names: Container[str]) -> bool:
    """True if these recorded facts are of a release that recorded the facts of the installation."""
    return any(name in names for name in _OF_INSTALLATION)


ALPHA = statistics.ALPHA
NO_BLOCKS = Blocks({})

METHOD = (
    "Ratio of step times: above 1 is slower. docs/compare-and-history.md says when a row is slower, the same or open."
)

_NO_REPEATS = f"more than {MOST_ADVISED} repeats would be needed: a quieter machine or a wider --margin tells sooner"

# The conditions that may change between two measurements of a cell, as its row and its run recorded them.
_OF_CELL = tuple(name for name in roles.with_role("choice", "state") if not name.endswith("_json"))
_OF_HOST = roles.with_role("choice", "state", of=roles.HOST_ROLES)
_OF_GPU = roles.with_role("choice", "state", of=roles.DEVICE_ROLES)


def _recorded(cell: MeasuredCell) -> Iterator[tuple[str, str | roles.MemorySize]]:
    """The recorded facts of a cell that explain a difference, each as (the word for it, a value).

    The GPUs are all of its model that its run could use: which of them a repeat got is chance. A column without a value was not
    recorded: it may be younger than the run. Everything else has a key only where it was recorded, so no value is a value there.
    """
    columns = {name: cell.row.get(name) for name in _OF_CELL}
    if image_names.is_address(cell.image):
        # Its digest stands in for the lock that it does not have.
        del columns["lock_sha256"]
    columns["container"] = isolation.described(isolation.of_row(cell.row))
    columns["GPU"] = ", ".join(str(gpu.get("uuid")) for gpu in cell.gpus)
    yield from _in_words({name: value for name, value in columns.items() if value not in (None, "")})
    yield from _in_words({name: cell.host[name] for name in _OF_HOST if name in cell.host})
    for gpu in cell.gpus:
        entry = {name: gpu[name] for name in _OF_GPU if name in gpu}
        # A cell's row may have the driver too.
        yield from _in_words({"driver_version": entry.pop("driver")} if "driver" in entry else {})
        yield from _in_words(entry, "GPU ")
    # Facts of a person's own network say that it is the same one: they explain no time.
    settings = {name: value for name, value in cell.settings.items() if not name.startswith("network_")}
    yield from _in_words(settings, "setting ")
    yield from _in_words(cell.versions)


def _in_words(facts: Mapping[str, object], of: str = "") -> Iterator[tuple[str, str | roles.MemorySize]]:
    return ((f"{of}{roles.WORDS.get(name, name)}", roles.shown(name, value)) for name, value in facts.items())


_DIGESTS = ("image", "lock", "code", "data")


@dataclass(frozen=True)
class Side:
    """One side of a contrast: a cell, or a cell that several runs measured, with all their repeats."""

    cells: tuple[MeasuredCell, ...]

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        return tuple(repeat for cell in self.cells for repeat in cell.measured if isinstance(repeat, Repeat))

    @property
    def anchors(self) -> tuple[str, ...]:
        return tuple(cell.anchor for cell in self.cells)

    @cached_property
    def step(self) -> statistics.Estimate | None:
        """As the report gives it."""
        return self.cells[0].step if len(self.cells) == 1 else step_of(self.repeats)

    @property
    def levels(self) -> list[float]:
        """Seconds a step at every level of the side: the median, and both sides of each shift."""
        shifts = [repeat.shift for repeat in self.repeats if repeat.shift is not None]
        return [self.step.value if self.step else 0.0, *(at for shift in shifts for at in (shift.before, shift.after))]

    @property
    def unsteady(self) -> bool:
        return any(cell.shifts for cell in self.cells)

    @cached_property
    def recorded(self) -> dict[str, tuple[str | roles.MemorySize, ...]]:
        """The values of each recorded fact, sorted. A fact that was not recorded is left out."""
        values: dict[str, set[str | roles.MemorySize]] = {}
        for cell in self.cells:
            for name, value in _recorded(cell):
                # An image of a registry has its repository before its digest.
                digest = str(value).rpartition("@")[2].removeprefix("sha256:")
                short = digest[:12] if name in _DIGESTS else value
                values.setdefault(name, set()).add(short)
        return {name: tuple(sorted(words, key=str)) for name, words in values.items()}


@dataclass(frozen=True)
class ChangedFact:
    """A recorded or observed fact that differs between the sides."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


@dataclass(frozen=True)
class Contrast:
    """`after` compared with `before`: the ratio of their step times (above 1: after is slower), and the verdict on it.

    `p` is adjusted for all contrasts of the table. None where the data give none. `margin` is the smallest change that
    matters, as a share: by a factor of 1 + margin in either direction.
    """

    before: Side
    after: Side
    ratio: statistics.Estimate | None
    p: float | None
    verdict: Verdict
    reason: str
    differences: tuple[ChangedFact, ...]
    margin: float = MARGIN
    # The ratio beside what moved all rows of the table alike, where that is known: the verdict is about it.
    beside: statistics.Estimate | None = None
    # The repeats of each cell that would tell. None: its reason says what would.
    enough: int | None = None

    @property
    def cell(self) -> MeasuredCell:
        return self.after.cells[0]

    @cached_property
    def observed(self) -> tuple[ChangedFact, ...]:
        """Changes of the machine from one side to the other, as it was seen meanwhile: such as its clock, or other work."""
        return observed_changes(self.before, self.after)

    @property
    def changed(self) -> str:
        """The recorded facts that changed between the sides, and what was seen of the machine."""
        return "; ".join(map(str, (*self.differences, *self.observed))) or "nothing recorded changed"

    @property
    def judged(self) -> statistics.Estimate | None:
        """The ratio that the verdict is about."""
        return self.beside or self.ratio

    @property
    def matters(self) -> bool | None:
        """True if the ratio lies beyond the margin. None: its interval crosses the margin, or there is no interval."""
        ratio, factor = self.judged, 1 + self.margin
        if ratio is None or ratio.low is None or ratio.high is None:
            return None
        if ratio.low > factor or ratio.high < 1 / factor:
            return True
        return False if within(ratio, self.margin) else None

    @property
    def real(self) -> bool:
        """True if the sides differ beyond doubt, by however little."""
        return self.verdict in ("slower", "faster")

    @property
    def longer(self) -> bool:
        """True if `after` really takes longer, by however little."""
        return self.verdict == "slower"

    @property
    def slower(self) -> bool:
        """True if `after` really takes longer by more than the margin."""
        return self.longer and self.matters is True

    @property
    def told_slower(self) -> bool:
        """True if `after` takes longer beyond doubt, by more than the margin or perhaps by more: it is found, and worth a look."""
        return self.longer and self.matters is not False

    @property
    def change(self) -> str:
        """The ratio in words."""
        ratio = self.judged.value if self.judged else 1.0
        return apart(ratio) + (" beside what moved all cells" if self.beside else "")

    @property
    def words(self) -> str:
        """The verdict in words."""
        margin = shown(self.margin)
        if self.verdict == "same":
            return f"same within {margin}"
        if not self.real:
            return self.verdict
        size = {True: "", False: f" by less than {margin}", None: f", perhaps by less than {margin}"}[self.matters]
        return f"{self.verdict}{size}: {self.change}"


def differences(before: Side, after: Side) -> tuple[ChangedFact, ...]:
    """The recorded facts that differ between the sides, the likely causes first. A fact that one side did not record does not count, but
    for a variable that it does not have.
    """
    old, new = before.recorded, after.recorded
    if has_installation(old) and has_installation(new):
        absent = dict.fromkeys(filter(MAY_BE_ABSENT.fullmatch, (*old, *new)), ("none",))
        old, new = absent | old, absent | new
    changed = [
        ChangedFact(name, ", ".join(map(str, old[name])), ", ".join(map(str, new[name])))
        for name in old
        if name in new and old[name] != new[name]
    ]
    return tuple(sorted(changed, key=lambda fact: likely_place(fact.name, fact.before, fact.after)))


# These always differ between two images.
OF_EVERY_IMAGE = ("lock", "image")


def between_images(first: MeasuredCell, cell: MeasuredCell) -> str:
    """The facts in which two images of one framework differ, the likely causes of a ratio first; empty of another framework."""
    if first.framework != cell.framework or first.image == cell.image:
        return ""
    facts = differences(Side((first,)), Side((cell,)))
    return "; ".join(str(fact) for fact in facts if fact.name not in OF_EVERY_IMAGE)


def observed_changes(before: Side, after: Side) -> tuple[ChangedFact, ...]:
    """The changes of what was seen of the machine while the sides were measured. None where a side has no cell."""
    if not before.cells or not after.cells:
        return ()
    seen = [[repeat.observed for repeat in side.repeats] for side in (before, after)]
    found = observed.changes(seen[0], seen[1], other_work.own_cpus(before.cells[0].environment) or 1)
    return tuple(ChangedFact(*words) for words in found)


def contrasts(
    pairs: Sequence[tuple[Side, Side]], margin: float = MARGIN, beside: Iterable[MeasuredCell] = ()
) -> tuple[Contrast, ...]:
    """The pairs (before, after) of one table, judged together. `margin` is the smallest change that matters, as a share.

    Sides of one run are compared within its blocks, `beside` all other cells of the run: as the answers compare them.
    """
    blocks = _blocks(pairs, beside)
    ratios = moderated_ratios(pairs, [ratio_of(*pair, blocks) for pair in pairs], blocks)
    rows = [
        Contrast(*pair, ratio, None, "open", "", differences(*pair), margin=margin)
        for pair, ratio in zip(pairs, ratios, strict=True)
    ]
    return judged(rows)


def moderated_ratios(
    pairs: Sequence[tuple[Side, Side]], ratios: Sequence[statistics.Estimate | None], blocks: Blocks = NO_BLOCKS
) -> list[statistics.Estimate | None]:
    """The ratios of a table whose rows each compare two measurements of one cell, every variance drawn towards that of all rows.

    From three rows, with three repeats on each side: with two repeats the chance of a false row was 6 % in simulations.
    """
    fit = [
        at
        for at, (before, after) in enumerate(pairs)
        if _one_cell(before, after)
        and min(len(before.repeats), len(after.repeats)) >= 3
        and not blocks.difference(after.anchors, before.anchors)
    ]
    if len(fit) < 3:
        return list(ratios)
    counts = np.array([sum(1 / len(side.repeats) for side in pairs[at]) for at in fit])
    errors = np.array([ratio.error or 0.0 for at in fit if (ratio := ratios[at])])
    freedoms = np.array([ratio.freedom or 0.0 for at in fit if (ratio := ratios[at])])
    if len(errors) < len(fit):
        return list(ratios)
    noise = moderated(errors**2 / counts * freedoms, freedoms)
    drawn = {
        at: statistics.with_error(ratio, *noise.error({place: count}))
        for place, (at, count) in enumerate(zip(fit, counts, strict=True))
        if (ratio := ratios[at])
    }
    return [drawn.get(at, ratio) for at, ratio in enumerate(ratios)]


def judged(rows: Sequence[Contrast], chances: Sequence[float | None] = ()) -> tuple[Contrast, ...]:
    """The rows of one table with the verdicts on their ratios, which are judged together.

    `chances` holds for each row a p of its own; None, and no `chances`: that of its ratio.
    """
    values = [
        (own or statistics.p_value(row.judged)) if row.judged is not None and _alike(row.before, row.after) else None
        for row, own in zip(rows, chances or [None] * len(rows), strict=True)
    ]
    asked = [value for value in values if value is not None]
    adjusted = iter(statistics.holm(asked))
    return tuple(
        _with_verdict(row, None if value is None else next(adjusted), len(asked))
        for row, value in zip(rows, values, strict=True)
    )


def as_ranked(rows: Sequence[Contrast], groups: Iterable[Group]) -> tuple[Contrast, ...]:
    """The rows, of which those of two cells of one group have the verdict that the report has of them.

    The report asks about all pairs of the group at once. So does this: another answer to fewer questions would contradict it.
    """
    fields = {entry.cell.anchor: group.field for group in groups for entry in group.ranked}
    return tuple(_as_ranked(row, fields) for row in rows)


def _as_ranked(row: Contrast, fields: Mapping[str, Field]) -> Contrast:
    before, after = row.before.anchors, row.after.anchors
    field = fields.get(after[0])
    if len(before) > 1 or len(after) > 1 or field is None or before[0] not in field.cells or after == before:
        return row
    pair = pair_of(field, row.before.cells[0], row.after.cells[0], row.margin)
    row = replace(row, ratio=pair.ratio, beside=None, p=pair.p)
    if reason := left_open(row.before.cells, row.after.cells, pair.ratio.value):
        return replace(row, verdict="open", reason=reason)
    if pair.once:
        longer = f"takes more than {bound(pair.at_least)} times" if pair.at_least else ""
        longer = f"looks {number(pair.ratio.value)} times" if pair.at_least and pair.assumed else longer
        seen = f"measured once, it {longer} as long" if longer else "measured once"
        return replace(row, verdict="open", reason=f"{seen}; {_further(row)}")
    coarse = pair.verdict == "open" and pair.p is None
    count = field.repeats_to_tell(after[0], before[0], row.margin)
    room = f"a difference of {shown(row.margin)} or more is possible; {_told_by(count)}"
    reason = "every window took the same time: the clock is too coarse" if coarse else room
    is_open = pair.verdict == "open"
    return replace(row, verdict=pair.verdict, reason=reason if is_open else "", enough=count if is_open else None)


def _blocks(pairs: Sequence[tuple[Side, Side]], beside: Iterable[MeasuredCell]) -> Blocks:
    """The sides and the cells beside them within blocks. None are where sides share cells, as in a history: those are not independent."""
    sides = {side.anchors: side for pair in pairs for side in pair}
    anchors = Counter(anchor for names in sides for anchor in names)
    if anchors and max(anchors.values()) > 1:
        return NO_BLOCKS
    alone = {(cell.anchor,): Side((cell,)) for cell in beside if not cell.unranked and cell.anchor not in anchors}
    return Blocks({names: logs for names, side in (sides | alone).items() if (logs := in_blocks(side.cells))})


def ratio_of(before: Side, after: Side, blocks: Blocks = NO_BLOCKS) -> statistics.Estimate | None:
    """The ratio of the step times of both sides: within `blocks` where these join them."""
    above, below = ([repeat.steady for repeat in side.repeats] for side in (after, before))
    joined = blocks.difference(after.anchors, before.anchors)
    ratio = statistics.ratio_estimate(above, below, alike=_one_cell(before, after), within=joined)
    if ratio is not None and before.step and after.step:
        ratio = statistics.moved(ratio, after.step.value / before.step.value)
    if ratio is None or not (before.unsteady or after.unsteady):
        return ratio
    return steadiness.spanning(ratio, after.levels, before.levels)


def _one_cell(before: Side, after: Side) -> bool:
    """True if both sides are measurements of one cell."""
    return (
        len({(cell.image, cell.framework, cell.mode, cell.key) for side in (before, after) for cell in side.cells}) == 1
    )


def _alike(before: Side, after: Side) -> bool:
    """True if both sides used the same kind of data."""
    return len({cell.key.data_source for side in (before, after) for cell in side.cells}) == 1


def shown(margin: float) -> str:
    """A margin in percent, as it was given."""
    return f"{100 * margin:g}\u00a0%"


def _with_verdict(row: Contrast, p: float | None, questions: int) -> Contrast:
    """The row with its verdict. If its interval alone says more than the table can hold, the reason says so."""
    verdict, reason = _verdict(row, p)
    ratio = row.judged
    alone = ratio is not None and ratio.low and ratio.high and not ratio.low <= 1 <= ratio.high
    if verdict in ("same", "open") and p is not None and alone and not statistics.told_apart(p):
        asked = f"not real after {plural(questions, 'question')}: p = {number(p, 2)}"
        reason = f"{asked}; {reason}" if reason else asked
    return replace(row, p=p, verdict=verdict, reason=reason, enough=_enough(row) if verdict == "open" else None)


def _verdict(row: Contrast, p: float | None) -> tuple[Verdict, str]:
    ratio, before, after = row.judged, row.before, row.after
    if not _alike(before, after):
        return "open", "not measured on the same kind of data"
    if ratio is None:
        return "open", "no steady window on one side"
    if ratio.low is None or ratio.high is None:
        return "open", ratio.note
    if reason := left_open(before.cells, after.cells, ratio.value):
        return "open", reason
    if statistics.told_apart(p):
        return "slower" if ratio.value > 1 else "faster", ""
    if ratio.error is None:
        return "open", f"one repeat does not show how much another run would differ; {_further(row)}"
    if within(ratio, row.margin):
        return "same", ""
    if p is None:
        return "open", "every window took the same time: the clock is too coarse"
    if ratio.repeats == 1 and (before.unsteady or after.unsteady):
        return "open", f"unsteady: over its levels the ratio may be {between(ratio)}"
    return "open", f"a difference of {shown(row.margin)} or more is possible; {_advice(row)}"


def repeats_to_tell(ratio: statistics.Estimate, margin: float) -> int | None:
    """The fewest repeats with which the interval leaves out 1, or lies inside the margin, if all scatter as those that were measured.

    None: more than MOST_ADVISED. The correction for the other rows of a table is not counted.
    """
    for count in range(ratio.repeats + 1, MOST_ADVISED + 1):
        more = count / ratio.repeats
        inside = (ratio.inside or 0.0) / math.sqrt(more)
        error, freedom = (ratio.error or 0.0) / math.sqrt(more), (ratio.freedom or 1.0) * more
        narrower = statistics.with_error(replace(ratio, inside=inside), error, freedom)
        if within(narrower, margin) or not (narrower.low or 0.0) <= 1 <= (narrower.high or 0.0):
            return count
    return None


def _further(row: Contrast) -> str:
    """How a row of single repeats gets more: from its own runs, where these plan more."""
    cells = (cell for side in (row.before, row.after) for cell in side.cells if len(cell.repeats) < cell.planned)
    commands = dict.fromkeys(resume_command(cell.run_id, cell.out) for cell in cells)
    return "; ".join(f"go on with {command}" for command in commands) or "measure with --repeats 3"


def _told_by(repeats: int | None) -> str:
    return f"{repeats} repeats would tell" if repeats else _NO_REPEATS


def _enough(row: Contrast) -> int | None:
    """The repeats of each cell that would tell. None: no number would, a repeat alone shows nothing, or the sides are other runs."""
    before, after = ({cell.run_id for cell in side.cells} for side in (row.before, row.after))
    is_of_repeats = row.beside is not None or not before or before & after
    ratio = row.judged
    if ratio is None or ratio.error is None or not is_of_repeats:
        return None
    return repeats_to_tell(ratio, row.margin)


def _advice(row: Contrast) -> str:
    """The way to narrow the row's interval: repeats do not narrow the difference between runs."""
    before, after = ({cell.run_id for cell in side.cells} for side in (row.before, row.after))
    if len(before & after) > 1:
        return "more runs narrow it"
    if row.beside is not None or not before or before & after:
        return _told_by(_enough(row))
    if len(before | after) > 2:
        return "more runs narrow it"
    if _one_cell(row.before, row.after):
        return "two runs may differ by as much: `runner history` with several runs of each tells"
    return "two runs may differ by as much: measure both in one"
