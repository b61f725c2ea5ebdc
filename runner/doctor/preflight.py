"""`runner verify --level 1` and `--level 2`: checks before work is given to a machine, that end within the time that they state.

Level 1 reads facts and imports the frameworks. Level 2 also holds each planned adapter against the float64 reference, measures the
ceilings, and looks whether products have the same bits each time, on each device. Neither judges a step time: that is level 3.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError, model_validator
from typing_extensions import TypedDict

from bench import rules
from runner.doctor.gpu_checks import clock, cuda, driver, gpus, mig, mps, processes
from runner.doctor.scene import FAIL, LACKING, OK, OPEN, Check, Scene, folders, gather
from runner.engines import trial
from runner.engines.base import Engine, ReadyImage, Slot
from runner.errors import CannotBeginError, ExitCode, UndecidedError, UserError, first_problem, one_code
from runner.machine import lease
from runner.machine.devices import is_left_to_others
from runner.results.gpu_facts import bare_model
from runner.results.validate import Frozen
from runner.run.begin import look_ahead, refuse_nothing
from runner.run.dispatch import Place, places
from runner.run.execution import interruptible
from runner.run.options import Options
from runner.run.progress import say
from runner.run.prospect import Prospect
from runner.run.schedule import slot_of
from runner.text import plural
from runner.verify.causes import Case, of_ceilings
from runner.verify.probes import ceilings
from runner.verify.references.saved import Reference, SavedCell

# The bits of a device's products (bench/same_bits.py): alike in each run, and on each GPU of a model. What is not, computes wrong.

_BITS_PROBE = "bench.same_bits"
# Of all products together.
_BITS_SECONDS = 9.0
# With the start of a framework.
_BITS_LIMIT_SECONDS = 60.0
# Along each side of a result, as bench/same_bits.py has it.
BLOCKS = 32
# Of two GPUs nobody knows which one is wrong.
_FEWEST_TO_COMPARE_BITS = 3

_Whole = Annotated[int, Field(ge=0, lt=2**31)]
_Block = Annotated[int, Field(ge=0, lt=BLOCKS)]


class Product(Frozen):
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


class Bits(Frozen):
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
    arguments = [framework, slot.device_kind, str(_BITS_SECONDS)]
    try:
        return Bits.model_validate_json(
            ceilings.printed_by(engine, prepared, _BITS_PROBE, arguments, slot, label, _BITS_LIMIT_SECONDS)
        )
    except ValidationError as error:
        raise ceilings.CeilingsError(f"the bits: {first_problem(error)}") from None


def odd_ones(devices: Mapping[str, Bits]) -> Iterator[tuple[str, str]]:
    """(device, why) of each device of one model whose bits differ from those of most of the others."""
    for product in next(iter(devices.values())).products:
        sums = {
            name: one.sums
            for name, bits in devices.items()
            for one in bits.products
            if one.name == product.name and one.fixed
        }
        if len(sums) < _FEWEST_TO_COMPARE_BITS:
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


# Seconds of level 1, and of level 2 for each device beside that. Slurm kills a HealthCheckProgram after 60 s.
LIMITS = {1: 45.0, 2: 120.0}
# No signal ends a call into a driver that hangs. The process ends itself so long after the limit.
_GRACE_SECONDS = 10.0
# The mark of the processes of these checks, in place of a run's id.
_LABEL = "verify-level-2"


class PreflightDocument(TypedDict):
    """All checks of a level, and the exit code: 0 all passed; 1 one failed; 3 one is open; 4 they could not begin."""

    level: int
    exit_code: int
    checks: list[Check]


class TimeIsOverError(BaseException):
    """The limit of a level is over. No handler of other errors may catch it."""


@dataclass(frozen=True)
class _Ready:
    """An image that can be checked, and its plan."""

    prospect: Prospect
    prepared: ReadyImage


def preflight(options: Options, level: int, references: Sequence[Reference]) -> list[Check]:
    """Make the checks of a level, each part within its limit, which is printed before it begins."""
    checks: list[Check] = []
    ready: list[_Ready] = []
    _collect(checks, "level 1: facts and probes", LIMITS[1], _facts(options, ready))
    if level == 1 or any(check.name == "time" for check in checks) or not ready:
        return checks
    devices = {place for one in ready for place, _ in _work(one)}
    many = plural(len(devices), "device")
    of_devices = (check for one in ready for check in _device_checks(one, references))
    _collect(checks, f"level 2: parity, ceilings and bits of {many}", LIMITS[2] * len(devices), of_devices)
    return checks


def exit_code(checks: Sequence[Check]) -> ExitCode:
    statuses = {check.status for check in checks}
    if LACKING in statuses and FAIL not in statuses:
        return ExitCode.CANNOT_BEGIN
    return one_code(FAIL in statuses, OPEN in statuses)


def ending(checks: Sequence[Check], level: int) -> str:
    """The result of all checks, in a sentence."""
    for word, status in (("FAIL", FAIL), ("could not begin", LACKING), ("open", OPEN)):
        if names := [check.name for check in checks if check.status == status]:
            return f"{word}: {plural(len(names), 'check')} of {len(checks)}: {', '.join(names)}"
    speed = "this level judges no step time: `runner verify --level 3` does"
    return f"pass: none of {plural(len(checks), 'check')} of level {level} failed; {speed}"


def document(checks: Sequence[Check], level: int) -> PreflightDocument:
    return {"level": level, "exit_code": exit_code(checks), "checks": list(checks)}


def _collect(checks: list[Check], name: str, seconds: float, making: Iterator[Check]) -> None:
    """Append the checks as they are made. What does not end in time is an open check, and so is an error."""
    say(f"{name}, at most {seconds:.0f} s")
    try:
        with _limited(seconds, name):
            for check in making:
                checks.append(check)  # noqa: PERF402 those that were made before the limit count
    except TimeIsOverError:
        saw = f"{name} did not end within {seconds:.0f} s"
        fix = "look at what else runs on the machine, then run the same command once more"
        checks.append(Check("time", OPEN, saw, "what was not checked by then is not known", fix))
    except UserError as error:
        status = LACKING if error.exit_code is ExitCode.CANNOT_BEGIN else OPEN
        checks.append(Check("environment", status, str(error), "what needs it was not checked"))
    except Exception as error:
        # Exit code 1 takes a node out of work, and a fault of this program says nothing of the node.
        traceback.print_exc()
        fix = "report it with the lines above"
        checks.append(Check("runner", OPEN, f"{type(error).__name__}: {error}", "what followed was not checked", fix))


@contextlib.contextmanager
def _limited(seconds: float, name: str) -> Iterator[None]:
    """Raise TimeIsOverError in the block after so many seconds; end the process as open if even that does not end it."""

    def over(*_: object) -> None:
        raise TimeIsOverError

    def give_up() -> None:
        sys.stderr.write(f"{name}: a call did not return within {seconds + _GRACE_SECONDS:.0f} s: ended as open\n")
        sys.stderr.flush()
        os._exit(ExitCode.OPEN)

    last = threading.Timer(seconds + _GRACE_SECONDS, give_up)
    last.daemon = True
    before = signal.signal(signal.SIGALRM, over)
    last.start()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last.cancel()


def _cache(scene: Scene) -> Iterator[Check]:
    """These levels store no results, so their folder need not be there: a daemon's working directory may be read-only."""
    return (check for check in folders(scene) if check.name != "results")


_MACHINE: tuple[Callable[..., Iterator[Check]], ...] = (driver, gpus, cuda, mig, mps, clock, processes, _cache)


def _facts(options: Options, ready: list[_Ready]) -> Iterator[Check]:
    """The machine's facts, and the import of each framework; what can be checked further is appended to `ready`."""
    with gather(None, None, options.out) as scene:
        for look in _MACHINE:
            yield from look(scene)
    prospect = look_ahead(options)
    try:
        refuse_nothing(prospect)
    except CannotBeginError as error:
        if any(map(is_left_to_others, prospect.machine.refused)):
            raise UndecidedError(str(error)) from None
        raise
    engine = prospect.engine
    if not options.images and prospect.machine.gpus and all(cell.device_kind == "cpu" for cell in prospect.plan.cells):
        fix = "install a build with CUDA: the index or package name says which (cu128, cuda12, -gpu)"
        saw = f"nothing of this environment uses the {plural(len(prospect.machine.gpus), 'GPU')}"
        yield Check("environment", FAIL, saw, "", fix)
    for name in dict.fromkeys(cell.image for cell in prospect.plan.cells):
        image = prospect.images[name]
        if any(engine.parts(image).values()):
            fix = f"make it ready first: `runner images build {name}`, or one `runner verify --image {name}`"
            yield Check(name, OPEN, "it is not on this machine yet", "to get it takes longer than this level", fix)
            continue
        prepared = engine.prepare(image, say)
        frameworks = list(dict.fromkeys(cell.framework for cell in prospect.plan.cells if cell.image == name))
        versions, failed = trial.imports(engine, prepared, frameworks)
        yield from (Check(f"{name} {one}", OK, f"imported, version {versions[one]}") for one in versions)
        yield from (Check(f"{name} {one}", FAIL, failed[one], "its cells would fail") for one in failed)
        if not failed:
            ready.append(_Ready(prospect, prepared))


def _work(ready: _Ready) -> Iterator[tuple[Place, str]]:
    """Each device and framework of an image."""
    cells = [cell for cell in ready.prospect.plan.cells if cell.image == ready.prepared.image.name]
    for kind, framework in dict.fromkeys((cell.device_kind, cell.framework) for cell in cells):
        yield from ((place, framework) for place in places(ready.prospect.machine, kind))


def _device_checks(ready: _Ready, references: Sequence[Reference]) -> Iterator[Check]:
    """The ceilings and the parity of an image's adapters on each device."""
    prospect, prepared = ready.prospect, ready.prepared
    with (
        interruptible(),
        lease.hold(prospect.leased(prospect.jobs), _LABEL, say, prospect.options.wait),
    ):
        bits: dict[tuple[str, str], dict[str, Bits]] = {}
        for place, framework in _work(ready):
            slot = slot_of(prospect.machine, [place])
            where = f"{place.model} …{place.uuid[-4:]}" if place.uuid else place.model
            cells = [
                cell
                for cell in prospect.plan.cells
                if (cell.image, cell.framework, cell.device_kind) == (prepared.image.name, framework, place.kind)
            ]
            name = f"ceilings {framework} on {where}"
            try:
                rates = ceilings.measure(prospect.engine, prepared, framework, cells[0].precision, slot, _LABEL)
            except ceilings.CeilingsError as error:
                yield Check(name, OPEN, f"they are not known: {error}")
            else:
                yield _ceilings(name, rates, framework, _like(place, framework, cells[0].precision, rates, references))
                told = not ceilings.is_machine_busy(rates) or ceilings.reference_blas(rates.libraries)
                if place.kind == "cpu" and cells[0].precision == "fp32" and told:
                    yield _beside_yardstick(f"product {framework} on {where}", framework, rates, slot)
            if rules.adapter_path(framework, "_bits"):
                yield from _bits(ready, framework, slot, where, bits.setdefault((place.model, framework), {}))
            for workload, precision in dict.fromkeys((cell.workload, cell.precision) for cell in cells):
                checked = trial.check_adapter(
                    prospect.engine, prepared, framework, workload, precision, LIMITS[2], slot
                )
                name = f"parity {workload} {framework} {precision} on {where}"
                if checked.outcome == "ok":
                    saw = f"{checked.compared} values compared, the largest error is {checked.worst:.2g} of its bound"
                    yield Check(name, OK, saw)
                elif checked.outcome in ("wrong", "error"):
                    yield Check(name, FAIL, checked.reason, "it computes something else, or nothing")
                else:
                    yield Check(name, OPEN, checked.reason)
        for devices in bits.values():
            for where, why in odd_ones(devices) if devices else ():
                yield Check(f"same bits on {where}", FAIL, why, _WRONG, _REPLACE)


_WRONG, _REPLACE = "it computes wrong now and then", "take it out of use, and have it tested by its vendor's diagnosis"


def _bits(ready: _Ready, framework: str, slot: Slot, where: str, devices: dict[str, Bits]) -> Iterator[Check]:
    """The check of one device, whose bits are added to those of the others."""
    name = f"same bits {framework} on {where}"
    try:
        found = measure_bits(ready.prospect.engine, ready.prepared, framework, slot, _LABEL)
    except ceilings.CeilingsError as error:
        yield Check(name, OPEN, f"they are not known: {error}")
        return
    if not found.products:
        return
    devices[where] = found
    yield Check(name, FAIL, found.wrong, _WRONG, _REPLACE) if found.wrong else Check(name, OK, str(found))


def _beside_yardstick(name: str, framework: str, rates: ceilings.Ceilings, slot: Slot) -> Check:
    """The matrix products of an environment beside that of the runner's own NumPy, measured at this moment on the same cores."""
    try:
        yardstick = ceilings.measure_yardstick(slot, _LABEL)
    except ceilings.CeilingsError as error:
        return Check(name, OPEN, f"what these cores can do is not known: {error}")
    short = ceilings.shortfall(framework, rates, yardstick)
    # Other work may lower one rate and not the other. Where the reference BLAS is loaded, it is not what explains so much.
    if ceilings.is_machine_busy(yardstick) and not (short and ceilings.reference_blas(rates.libraries)):
        return Check(name, OPEN, "other work began meanwhile", "the rates say nothing about it", "end the other work")
    if short:
        return Check(name, FAIL, short.saw, "its cells take several times as long", short.fix)
    return Check(
        name, OK, f"the runner's own NumPy does {ceilings.best(yardstick.numpy.matmul_flops) / 1e9:.0f} GFLOP/s here"
    )


def _like(
    place: Place, framework: str, precision: str, rates: ceilings.Ceilings, references: Sequence[Reference]
) -> SavedCell | None:
    """The newest reference's cell whose ceilings can be compared: of the same device model, framework and precision."""
    wanted = (bare_model(place.model), place.kind, framework, precision)
    for reference in sorted(references, key=lambda one: one.created, reverse=True):
        for cell in reference.cells:
            facts = cell.facts
            own = (bare_model(facts.device_model), facts.device_kind, facts.framework, facts.precision)
            if own == wanted and cell.ceilings and (place.uuid or cell.ceilings.cpus == rates.cpus):
                return cell
    return None


def _ceilings(name: str, rates: ceilings.Ceilings, framework: str, like: SavedCell | None) -> Check:
    """The rates beside those of a reference. They are no verdict: no error rate of one is known, so a low one is open."""
    saw = rates.sentence(framework)
    if ceilings.is_machine_busy(rates):
        busy = f"{rates.load:.1f} processes were running on {rates.cpus} CPUs"
        if blas := ceilings.reference_blas(rates.libraries):
            means = f"whatever the rates: its BLAS is the reference one, {blas}, which is not made for speed"
            return Check(name, OPEN, f"{saw}; {busy}", means, ceilings.OF_THE_DISTRIBUTION)
        return Check(name, OPEN, f"{saw}; {busy}", "the rates say nothing about the machine", "end the other work")
    if like is None:
        return Check(name, OK, f"{saw}; no reference has this device's")
    low = list(of_ceilings(Case(like.facts, rates, reference_ceilings=like.ceilings)))
    if low:
        evidence = "; ".join(cause.evidence for cause in low)
        return Check(name, OPEN, f"{saw}; {evidence}", "`runner verify --level 3` judges step times", low[0].fix)
    return Check(name, OK, f"{saw}, like the reference's")
