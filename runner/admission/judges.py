"""Judges what a cell printed, beside what the host saw of it. JUDGES lists every reason for which a repeat is refused."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bench import protocol, rules
from runner.admission.record import Recorder, checked_of, other_code, other_cpus, wrong_device
from runner.catalog import images
from runner.machine import processes
from runner.machine.telemetry_cpu import Row
from runner.plan.combination import Cell
from runner.results import parity
from runner.results.on_disk import other_work
from runner.results.parcel import Parcel
from runner.results.plausible import counts, windows
from runner.text import last_line, visible

# (error kind, reason) of a repeat that failed.
Failure = tuple[str, str]


# Of the last line of a log in a reason.
_MOST_WORDS = 200


@dataclass(frozen=True)
class HostFacts:
    """The host's own facts of a repeat: its parcel does not decide them."""

    # The image of the cell; None if it is no image of this checkout's catalog.
    image: images.Image | None = None
    # The digest of the code that was planned. None: it is not compared.
    code_sha256: str | None = None
    # The GPUs that it was given, and their boards. None: those that the parcel names.
    uuids: tuple[str, ...] | None = None
    boards: tuple[str, ...] | None = None
    # True if the user gave the folder of the real data.
    data_given: bool = False


@dataclass(frozen=True)
class Evidence:
    """One repeat as the judges see it."""

    parcel: Parcel
    cell: Cell
    host: HostFacts
    recorder: Recorder
    # Its telemetry on the cell's clock.
    telemetry: Sequence[Row]

    @cached_property
    def samples(self) -> list[Row]:
        return self.recorder.rows["samples"]

    @cached_property
    def operations(self) -> list[Row]:
        return self.recorder.rows["operations"]

    @cached_property
    def wall_seconds(self) -> float:
        return self.parcel.wall_seconds or 0.0

    @cached_property
    def uuids(self) -> tuple[str, ...]:
        return self.parcel.uuids if self.host.uuids is None else self.host.uuids

    @cached_property
    def task(self) -> str:
        return str(rules.workload_declaration(self.cell.workload)["task"])

    @cached_property
    def preset(self) -> Any:
        return rules.workload_declaration(self.cell.workload)["presets"][self.cell.preset]

    @cached_property
    def batch(self) -> int:
        """Of all devices together."""
        return int(rules.batch_of_all(self.cell.batch, self.cell.devices, self.cell.scaling))

    @cached_property
    def disturbed_warm_up(self) -> bool:
        """True if other work took much of a CPU cell's CPUs while it warmed up, as the host saw it."""
        return self._disturbed("warm-up")

    @cached_property
    def disturbed_windows(self) -> bool:
        """The same while its steady windows were measured."""
        return self._disturbed("steady")

    def _disturbed(self, stage: str) -> bool:
        windows = [sample for sample in self.samples if sample["stage"] == stage]
        own = other_work.own_cpus(self.recorder.environment or {})
        if not windows or own is None or self.cell.device_kind != "cpu":
            return False
        cpu = [row for row in self.telemetry if row["device"] == "cpu"]
        last = windows[-1]
        taken = other_cpus(cpu, windows[0]["begin_seconds"] - 1.0, last["begin_seconds"] + last["seconds"] + 1.0)
        return taken is not None and taken > other_work.MOST * own

    @cached_property
    def most_operations(self) -> float | None:
        """How many operations a second its devices can do at most."""
        cell = self.cell
        return counts.most_operations(
            cell.device_kind, cell.device_model, cell.devices, self.parcel.cpus, cell.precision
        )


# The faults of a person's own file that look like this.
_OWN_REMEDY = (
    "; say DROPOUT = True if they draw random numbers, and keep nothing from step to step that is not in its attributes"
)


@dataclass(frozen=True)
class Judge:
    """One reason for which a repeat is refused."""

    name: str
    # The refusal, for a person.
    sentence: str
    find: Callable[[Evidence], Failure | None]


def judge(evidence: Evidence) -> Failure | None:
    """The first failure that a judge finds; None where the repeat ended well."""
    return next((failure for each in JUDGES if (failure := each.find(evidence))), None)


def _ended_by(evidence: Evidence) -> Failure | None:
    if evidence.parcel.never_ran:
        return evidence.parcel.ended_by or ("engine", "it never ran")
    return evidence.parcel.ended_by


def _given(evidence: Evidence) -> Failure | None:
    parcel, boards = evidence.parcel, evidence.host.boards
    boards = parcel.boards if boards is None else boards
    if parcel.uuids != evidence.uuids or parcel.boards != boards:
        return (
            "wrong-device",
            f"it was given {', '.join(evidence.uuids) or 'the CPU'}, and its parcel names other devices",
        )
    if strangers := {row["device"] for row in parcel.telemetry} - {"cpu", *boards}:
        return "wrong-device", f"its telemetry is of {sorted(strangers)[0]!r}, which it was not given"
    return None


def _memory(evidence: Evidence) -> Failure | None:
    if evidence.parcel.out_of_memory:
        return "out-of-memory", "the machine's memory limit ended it; give the cell more, or run fewer at a time"
    return None


def _broken(evidence: Evidence) -> Failure | None:
    problem = evidence.recorder.problem
    # Whoever prints the last words of a process that was killed, or of one that failed, is not what ended it.
    if problem is None or (evidence.recorder.foreign and evidence.parcel.code):
        return None
    return "protocol", f"its output broke the protocol: {problem}"


def _reported(evidence: Evidence) -> Failure | None:
    error = evidence.recorder.error
    return (error["kind"], error["message"]) if error else None


def _ended(evidence: Evidence) -> Failure | None:
    recorder, code = evidence.recorder, evidence.parcel.code or 0
    if recorder.torn and code == 0:
        return "protocol", f"its output broke the protocol: {recorder.torn}"
    if recorder.end is None or code != 0:
        last = _last_words(evidence.parcel.log) if 0 < code < 128 else ""
        last += f"; it printed what is no event: {recorder.problem}" if recorder.problem else ""
        return "crash", f"its process ended with {_code(code)} {'after' if recorder.end else 'before'} its `end`{last}"
    if recorder.end["status"] != "ok":
        return "bug", "it ended with status failed and printed no error"
    return None


def _last_words(log: str) -> str:
    """The last line of a log as the end of a sentence; nothing of an empty log."""
    line = last_line(log)
    return f": {visible(line, _MOST_WORDS)}" if line else ""


def _code(code: int) -> str:
    if code > 128:
        try:
            return f"exit code {code} ({signal.Signals(code - 128).name})"
        except ValueError:
            pass
    return f"exit code {code}"


def _no_environment(evidence: Evidence) -> Failure | None:
    if evidence.recorder.environment is None:
        return "protocol", "it never printed its environment"
    return None


def _kernels_of_cpu(evidence: Evidence) -> Failure | None:
    if evidence.cell.device_kind == "cpu" and "kernel_share" in evidence.recorder.row:
        return "protocol", "it ran on the CPU and printed `kernels`, which is of a GPU"
    return None


def _other_data(evidence: Evidence) -> Failure | None:
    data = evidence.recorder.data
    if evidence.host.data_given or data is None or data["source"] == "generated":
        return None
    return "protocol", "it reports training on files, and no folder with data was given to it"


def _parity(evidence: Evidence) -> Failure | None:
    recorder, cell = evidence.recorder, evidence.cell
    rows = recorder.checks(cell)
    if not rows:
        return "parity", "it ended without the parity check, so nothing shows that it computes the same network"
    failed = [row for row in rows if not row["passed"]]
    operations = {(row["operation"], row["direction"], row["size"]) for row in recorder.rows["operations"]}
    wrong_list = parity.incomplete(rows, checked_of(cell), recorder.steps(), operations)
    if not failed or wrong_list:
        return ("parity", wrong_list) if wrong_list else None
    worst = max(failed, key=lambda r: (r["error"] is None, (r["error"] or 0.0) / (r["bound"] or 1e-300)))
    error = "is not finite" if worst["error"] is None else f"is off by {worst['error']:.2g}"
    measured = all(row["phase"] == parity.PROOF for row in failed)
    what = "the adapter that was measured computes something else" if measured else "it computes something else"
    more = ""
    if evidence.task == rules.OWN:
        what, more = "its steps are not what its file computes in float64", _OWN_REMEDY
    return "parity", (
        f"{what}: {worst['quantity']} {worst['tensor']} {error} where {worst['bound']:.2g} is "
        f"allowed ({len(failed)} of {len(rows)} quantities fail){more}"
    )


def _nothing_measured(evidence: Evidence) -> Failure | None:
    if not evidence.operations and all(sample["stage"] != "steady" for sample in evidence.samples):
        return "protocol", "it ended without one steady window"
    return None


def _no_plan(evidence: Evidence) -> Failure | None:
    # A short run would count as the specification's.
    if "short" not in evidence.recorder.row:
        return (
            "protocol",
            "it ended without its `plan`, so nothing shows whether its run is as long as the specification's",
        )
    return None


def _unproved(evidence: Evidence) -> Failure | None:
    recorder, cell = evidence.recorder, evidence.cell
    checked = {(row["phase"], row["quantity"]) for row in recorder.rows["parity"]}
    told = {rules.EXCUSES.get(row["what"]) for row in recorder.rows["left_out"]}
    checked |= {(parity.PROOF, quantity) for quantity in told & _excused(evidence)}
    if recorder.measured_before_proof not in (None, len(recorder.rows["samples"])):
        return "parity", "it measured more windows after its adapter was checked, so nothing shows what they computed"
    missing = [key for key in parity.due(checked_of(cell), checked) if key not in checked]
    if not missing:
        return None
    phase, quantity = missing[0]
    where = "on the adapter that was measured" if phase == parity.PROOF else "before it was measured"
    more = f" ({len(missing)} quantities are not checked)" if len(missing) > 1 else ""
    # Of this one people who add a framework do not know that it is due.
    fix = (
        '; let updates() return it, or write "uncounted" into framework.json (CONTRIBUTING.md)'
        if quantity == "updates"
        else ""
    )
    return "parity", f"it ended without a required check {where}: {parity.name_of(quantity)}{more}{fix}"


def _excused(evidence: Evidence) -> set[str]:
    """The quantities that the cell need not check, as this host knows: what a cell says of itself excuses nothing."""
    recorder, cell, excused = evidence.recorder, evidence.cell, set()
    if rules.is_own(cell.workload):
        # It is ranked only where another image's losses agree with its own (runner.results.rank.own_agreement).
        excused |= {*rules.OWN_LEFT_OUT.values()}
    if cell.workload in rules.framework_declaration(cell.framework).get("uncounted", ()):
        excused.add("updates")
    if data := recorder.data:
        seed = cell.seed_of(evidence.parcel.repeat)
        stored = rules.stored_losses(cell.workload, cell.batch, seed, data["train_items"], cell.precision)
        if rules.losses_reason(stored, data["source"], cell.devices):
            excused.add("learning")
    return excused


def _idle_gpu(evidence: Evidence) -> Failure | None:
    """A framework that opens the GPU and computes on the CPU has a process there."""
    parcel, measured = evidence.parcel, [*evidence.samples, *evidence.operations]
    for board, uuid in zip(parcel.boards, evidence.uuids, strict=False):
        if why := processes.idle(evidence.telemetry, board, measured):
            shown = "a process" if uuid in parcel.proved else "no process"
            return (
                "wrong-device",
                f"it reports a run on {uuid}, which was idle: {why}; NVML showed {shown} of the cell on it",
            )
    return None


def _other_versions(evidence: Evidence) -> Failure | None:
    image, environment = evidence.host.image, evidence.recorder.environment
    other = images.version_contradiction(image, environment) if image and environment else None
    return ("protocol", other) if other else None


def _implausible(find: Callable[[Evidence], str | None]) -> Callable[[Evidence], Failure | None]:
    """A judge of what the cell cannot have measured in the life that the host saw, on the devices that it had."""
    return lambda evidence: ("implausible", why) if (why := find(evidence)) else None


def _untimed(evidence: Evidence) -> str | None:
    timed = evidence.parcel.began is not None and all(at is not None for at, _ in evidence.parcel.tape)
    return None if timed else "nobody noted when its output came"


def _arrived_otherwise(evidence: Evidence) -> str | None:
    parcel = evidence.parcel
    why = evidence.recorder.arrivals.implausible(evidence.preset["epochs"] or 0, parcel.began, parcel.still)
    # A bound that holds on a busy machine, too, would hide a tenth of the time elsewhere.
    busy = why and evidence.disturbed_windows
    return f"{why}; other work took CPUs of this machine meanwhile: measure it again without it" if busy else why


def _wrong_count(evidence: Evidence) -> str | None:
    """Features are timed after the warm-up."""
    data = evidence.recorder.data or {"train_items": 0, "test_items": 0}
    infers = evidence.task in ("infer", "decode")
    steps = data["test_items" if infers else "train_items"] // evidence.batch
    stages = ("steady",) if infers else protocol.STAGES
    return windows.wrong_count(evidence.samples, evidence.preset["epochs"], steps, stages)


# In this order: the first that finds something is the row's reason.
JUDGES: tuple[Judge, ...] = (
    Judge("ended-by", "The runner ended the cell, or could not run it.", _ended_by),
    Judge("given", "The parcel or its telemetry is of other devices than the cell was given.", _given),
    Judge(
        "device",
        "The cell computed on another device, or with another framework, than was asked for.",
        lambda evidence: wrong_device(evidence.recorder, evidence.cell, evidence.uuids),
    ),
    Judge(
        "code",
        "The cell ran other code than was planned.",
        lambda evidence: other_code(evidence.recorder, evidence.host.code_sha256),
    ),
    Judge("memory", "The machine's memory limit ended the cell.", _memory),
    Judge("protocol", "The output broke the protocol.", _broken),
    Judge("error", "The cell reported an error.", _reported),
    Judge("end", "The process did not end well, or without its `end`.", _ended),
    Judge("environment", "The cell never printed its environment.", _no_environment),
    Judge("kernels", "A share of the GPU's time on a CPU would call the cell bound by its host.", _kernels_of_cpu),
    Judge(
        "data",
        "The cell claims files that nobody gave it: that would excuse it from the check of its losses.",
        _other_data,
    ),
    Judge("parity", "The network that it computes is another one.", _parity),
    Judge("windows", "There is no steady window.", _nothing_measured),
    Judge("plan", "The cell did not say whether its run is as long as the specification's.", _no_plan),
    Judge("proof", "A check that is due is missing.", _unproved),
    Judge("idle", "The GPU was idle while the cell says that it was measured on it.", _idle_gpu),
    Judge("versions", "The cell says other versions than its image has.", _other_versions),
    Judge("untimed", "Nobody noted when the output came, so nothing shows how long it took.", _implausible(_untimed)),
    Judge(
        "life",
        "The windows lasted longer than the process lived.",
        _implausible(lambda evidence: windows.implausible(evidence.samples, evidence.batch, evidence.wall_seconds)),
    ),
    Judge(
        "order",
        "The windows are out of order, or overlap.",
        _implausible(lambda evidence: windows.out_of_order(evidence.samples)),
    ),
    Judge(
        "stop",
        "Sampling did not end where the preset says.",
        _implausible(
            lambda evidence: windows.wrong_end(evidence.samples, evidence.recorder.row.get("stop"), evidence.preset)
        ),
    ),
    Judge("steps", "A whole run has another number of steps than its data.", _implausible(_wrong_count)),
    Judge(
        "operations",
        "The windows of single operations cannot have been.",
        _implausible(lambda evidence: windows.operations_implausible(evidence.operations, evidence.wall_seconds)),
    ),
    Judge(
        "arrivals",
        "The windows arrived at other times than the cell says that they lasted.",
        _implausible(_arrived_otherwise),
    ),
    Judge(
        "phases",
        "The phases cannot have taken what the cell says.",
        _implausible(lambda evidence: evidence.recorder.phases.implausible(evidence.parcel.began)),
    ),
    Judge(
        "counts",
        "The windows have other steps, items or seconds than the cell counts elsewhere.",
        _implausible(
            lambda evidence: evidence.recorder.counts.implausible(
                evidence.task, evidence.batch, evidence.disturbed_warm_up
            )
        ),
    ),
    Judge(
        "work",
        "A run of a single operation is counted as other work than its size has.",
        _implausible(
            lambda evidence: counts.miscounted(evidence.operations, evidence.cell.precision, evidence.cell.devices)
        ),
    ),
    Judge(
        "speed",
        "The steps are faster than the devices can compute them.",
        _implausible(
            lambda evidence: counts.too_fast(evidence.samples, evidence.cell.workload, evidence.most_operations)
        ),
    ),
    Judge(
        "speed-of-operations",
        "Single operations are faster than the devices can compute them.",
        _implausible(lambda evidence: counts.operations_too_fast(evidence.operations, evidence.most_operations)),
    ),
    Judge(
        "length",
        "The run is as short as the specification's is not, or the other way round.",
        _implausible(
            lambda evidence: windows.wrong_length(
                evidence.recorder.row.get("short"), evidence.task, evidence.cell.preset, evidence.preset["epochs"]
            )
        ),
    ),
)
