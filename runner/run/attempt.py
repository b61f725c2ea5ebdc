"""One repeat of a cell on its devices: from the engine's start, under the watchdog, to its parcel."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import rules
from runner import trees
from runner.admission.record import Recorder, other_code, wrong_device
from runner.engines import cell_cache, host_fault
from runner.engines.base import Launch
from runner.engines.probe import HELD_BY_OTHERS, OPENS_NONE, Pulse
from runner.errors import HOST_FAULTS, EngineError, EngineGoneError, system_fault
from runner.known_messages import due_again
from runner.machine import telemetry
from runner.machine.telemetry_cpu import Row
from runner.messages.of_gpus import DEVICE_TAKEN
from runner.results.parcel import (
    MOST_FAULT,
    MOST_LOG,
    MOST_REASON,
    MOST_ROWS,
    MOST_STILL,
    MOST_TELEMETRY_BYTES,
    MOST_XIDS,
    Parcel,
    telemetry_bytes,
)
from runner.run.dispatch import Job
from runner.text import last_line

if TYPE_CHECKING:
    from runner.catalog.images import Image
    from runner.engines.base import Engine, Exit, ReadyImage, Running, Slot
    from runner.plan.combination import Cell
    from runner.results import store

# The kinds of the watchdog's verdicts on a cell that takes too long.
_HANGS = ("time-limit", "hang")

# The words of bench.cuda where CUDA opens no GPU for any program, and where this image opens none. A libcuda for forward compatibility
# (804) may be an image's own.
_UNOPENED = re.compile(rf"(?!{HELD_BY_OTHERS})finds no GPU: (?!cuInit says 804)(.*)")
# Those of one GPU: of several, the error does not say which.
_OF_ONE_GPU = "cuDevicePrimaryCtxRetain"
_UNABLE = re.compile(rf"finds no GPU: cuInit says 804|{OPENS_NONE}")

# The errors of CUDA that another process may be the reason of, or that were seen to pass: memory is full, device unavailable, unknown.
_PASSING = re.compile(rf"finds no GPU: cu\w+ says (?:2|46|999)\b|{DEVICE_TAKEN}")

# From a line that is no event to the end of the cell: a launcher that has lost a process ends by itself.
_LAST_WORDS_SECONDS = 3.0

# The words of a program that lacks a file of its own.
_LACKS_FILE = re.compile(
    r"No module named|ImportError|cannot open shared object|No such file or directory|FileNotFoundError"
)

# A call in a stack, as Python's faulthandler prints it: the innermost comes first.
_IN_FILE = re.compile(r'File "[^"]*?([^"/]+\.py)", line (\d+)')

# From the signal that makes a hanging cell print its stack to the signal that ends it.
_DUMP_SECONDS = 3.0

# A write to a full disk raises one of these.
_FULL = (errno.ENOSPC, errno.EDQUOT)

# A row waits so long for room that other cells are about to give back.
_ROOM_SECONDS = 10.0

# The watchdog's limits for one count of a cell's files.
_COUNT_NAMES, _COUNT_SECONDS = 100_000, 2.0

# The watchdog is called twice a second. After a longer gap the runner itself stood still: Ctrl-Z, a debugger, a machine that slept.
_GAP_SECONDS = 5.0

# When the disk has so much less room than before, what the cell keeps is counted again.
_COUNT_AFTER_BYTES = 1 << 30

# If the start time of a process differs from the host's by more than this, use the host's. Two clocks of one
# machine agree within milliseconds, unless one is set meanwhile.
_CLOCK_SECONDS = 2.0

# The longest that the kernel takes, nearly: 63 years.
_MOST_ALARM_SECONDS = 2 * 10**9

# The exit codes of a cell whose engine is shut down: SIGTERM, SIGKILL.
_ENGINE_ENDED = (128 + 15, 128 + 9)
_SHUTDOWN_SECONDS = 2.0

# The attempts whose cells run now.
_LIVE: set[Attempt] = set()


@dataclass(frozen=True)
class Limits:
    """After how many seconds a cell counts as hanging: since its start, and since its last output."""

    whole: float
    silence: float
    # Both are so much longer where the driver must compile the image's kernels from PTX.
    compiling: float = 0.0


@dataclass(frozen=True)
class AttemptContext:
    """The common facts of every attempt of a run."""

    engine: Engine
    run: store.RunStore
    limits: Limits
    data: Path | None
    monitor: telemetry.Monitor
    # The frameworks whose steps are profiled.
    profiled: frozenset[str] = frozenset()
    # (framework, workload) -> the digest of the code that its cells run. What is not in it is not compared.
    code: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # The function that keeps the parcel of a job that has ended. None: it is admitted and stored here.
    keep: Callable[[Job, Parcel], None] | None = None

    def store(self, job: Job, parcel: Parcel, image: Image | None = None) -> tuple[str, str | None, str]:
        """Hand over the parcel of a job, which ran in this image: (status, reason, what disturbed it)."""
        if self.keep:
            self.keep(job, parcel)
            return "ok", None, ""
        # The kit, which keeps parcels, has no admission.
        from runner.admission.admit import store_parcel
        from runner.admission.judges import HostFacts

        self.run.refuse_gone()
        cell = job.cell
        host = HostFacts(
            image=image,
            code_sha256=self.code.get((cell.framework, cell.workload)),
            data_given=self.data is not None,
        )
        admitted = store_parcel(self.run, parcel, cell, host)
        return admitted.status, admitted.reason, admitted.disturbed


def proved_at(cell: Cell, repeat: int) -> float | None:
    """After which share of its measurement a repeat's steps are held against the adapter's own gradients; None: the last steps.

    Every second repeat has a moment of its own, so that a mistake which is over at the end is met, too. The draw hangs on the cell and the
    repeat alone: whoever measures the repeat again holds the same moment.
    """
    if rules.workload_declaration(cell.workload)["task"] not in ("train", rules.OWN):
        return None
    drawn = hashlib.sha256(f"{cell.id} {(repeat + 1) // 2}".encode()).digest()
    if (drawn[0] + repeat) % 2:
        return None
    return int.from_bytes(drawn[1:5], "big") / 2.0**32


def arguments(cell: Cell, profiled: bool = False, threads: int | None = None, repeat: int = 1) -> list[str]:
    """The arguments of `python -m bench` for a cell. `threads`: None gives it one for each CPU that it may use."""
    values = {
        "--framework": cell.framework,
        "--precision": cell.precision,
        "--preset": cell.preset,
        "--mode": cell.mode,
        "--device": cell.device_kind,
        "--devices": str(cell.devices),
        "--seed": str(cell.seed_of(repeat)),
    }
    if cell.scaling:
        values["--scaling"] = cell.scaling
    if threads is not None:
        values["--threads"] = str(threads)
    more = ["--profile"] if profiled else []
    moment = proved_at(cell, repeat)
    if moment is not None:
        more += ["--proved-at", f"{moment:.6f}"]
    return ["run", cell.workload, *(word for pair in values.items() for word in pair), *more]


class Attempt:
    """One run of one cell. A thread of its own calls run(); the main thread calls watch() and stop()."""

    def __init__(
        self,
        site: AttemptContext,
        job: Job,
        slot: Slot,
        boards: Sequence[str],
        observe: Callable[[Any], None],
        compiles: bool = False,
    ) -> None:
        """`compiles`: the driver must compile the image's kernels for these GPUs, unless it did before."""
        self.job = job
        self.slot = slot
        self.boards = tuple(boards)
        self.stopped = False
        # The board that fell off the bus during the cell.
        self.lost: str | None = None
        # Why CUDA opened none of its GPUs, where that is so for every cell, and where it is so for this image. A GPU that
        # others hold is neither: the next cell may find it free.
        self.unopened: str | None = None
        self.unable: str | None = None
        # True if its framework opened no GPU, for whatever reason.
        self.no_device = False
        # False for the second try of a cell that CUDA opened no GPU for.
        self.may_pass = True
        # The error, if CUDA opened no GPU and may do so in a moment. Nothing is stored then.
        self.passing = ""
        # The work of others beside it, where that was much, in few words.
        self.disturbed = ""
        # Why its machine cut it, and not the cell. Nothing is stored then.
        self.cut = ""
        self._site = site
        self._observe = observe
        self._compiles = compiles
        self._running: Running | None = None
        self._recording: telemetry.Recording | None = None
        # (kind, reason) where the runner ended the cell.
        self._ended_by: tuple[str, str] | None = None
        # A line that it printed and that is no event.
        self._broken: str | None = None
        self._kill_at: float | None = None
        # The bytes that its image's cells may write, once it began.
        self._cache: Path | None = None
        # Its output and the times: each piece ends a line at least. One line is not whole yet.
        self._tape: list[tuple[float, bytes]] = []
        self._torn = bytearray()
        # The free room of its disk when it began, and the room at which its files are counted again.
        self._room: cell_cache.Room | None = None
        self._count_at = 0
        self._began = time.monotonic()
        self._heard = self._began
        # When the watchdog looked last, and how long the runner stood still by then, in all and since the last output.
        self._watched = self._began
        self._stood_still = 0.0
        self._silent_still = 0.0
        self._lock = threading.Lock()

    def _arguments(self) -> list[str]:
        cell, threads = self.job.cell, self.slot.quota_threads and self.slot.threads
        return arguments(cell, cell.framework in self._site.profiled, threads, self.job.repeat)

    def run(self, prepared: ReadyImage) -> tuple[str, str | None, float] | None:
        """Run to the end and store the row: (status, reason, wall seconds). None when it was stopped, its machine cut
        it, its GPU was lost, or CUDA's error may pass.

        Raises EngineError when the engine could not do its part, and what the store raises.
        """
        site = self._site
        recorder = Recorder(self._observe)
        self._began = self._heard = time.monotonic()
        with _starting():
            self._cache = cache = self._folder(prepared)
            self._room = cell_cache.Room.of(cache)
            self._count_at = self._room.bytes - _COUNT_AFTER_BYTES
            # A CPU cell compiles nothing there.
            cached = cell_cache.jit_cache_size(cache) if self.slot.device_kind == "cuda" else None
            slot = replace(self.slot, seconds=self._most_seconds())
            running = site.engine.start(Launch(prepared, self._arguments(), slot, site.run.run_id, cache, self._data()))
        # The limits are the cell's: an engine that froze meanwhile takes none of its time.
        self._heard = time.monotonic()
        self._stood_still = self._heard - self._began
        recording = site.monitor.begin(self.boards, running, self.slot.cpus, self.slot.device_uuids)
        pulse = Pulse(site.engine.answer)
        _LIVE.add(self)
        try:
            with self._lock:
                self._running, self._recording = running, recording
                if self.stopped:
                    running.stop()
            ended = self._follow(prepared, running, recorder)
        except BaseException as error:
            # On a full disk, for example, nobody reads the cell's output any more: it must not go on.
            if not isinstance(error, EngineError):
                running.stop()
                with contextlib.suppress(EngineError):
                    running.wait()
            raise
        finally:
            _LIVE.discard(self)
            site.monitor.end(recording)
            still = pulse.end()
            with self._lock:
                self._running = None
            recorder.close()
        self._settle(ended, recorder, cache)
        self.lost = self.lost or recording.lost or (telemetry.lost_board(self.boards) if ended.code else None)
        if self.stopped or self.lost or self.passing or self.cut:
            return None
        killed = ended.code in _ENGINE_ENDED and not (ended.out_of_memory or self._ended_by or recorder.problem)
        if killed and (gone := _goes_down(site.engine)):
            raise EngineGoneError(f"the engine went down under the cell ({gone})")
        wall = time.monotonic() - self._began
        parcel = replace(
            self._parcel(recording, ended),
            image_digest=prepared.digest,
            started_unix=_started(recorder, self._began, recording.now() - time.monotonic()),
            wall_seconds=wall,
            still=tuple(still[-MOST_STILL:]),
            jit_cache_grew_bytes=cell_cache.jit_cache_grew(cache, cached),
        )
        return *self._stored(parcel, prepared.source), wall

    def _data(self) -> Path | None:
        """The folder that the cell may read: of the data sets, or that of a person's own network."""
        cell, site = self.job.cell, self._site
        return site.run.network_folder(cell.workload).resolve() if rules.is_own(cell.workload) else site.data

    def _own_line(self, log: str) -> str:
        """The innermost line of a person's own file in the stack that a hanging cell printed, as the end of a sentence; or empty."""
        folder = self._data()
        names = {path.name for path in folder.iterdir()} if folder else set()
        return next((f" in {name}, line {line}" for name, line in _IN_FILE.findall(log) if name in names), "")

    def _folder(self, prepared: ReadyImage) -> Path:
        """The folder that the cells of its image write."""
        image = self.job.cell.image
        return cell_cache.folder_of(self._site.engine.name_of(image), image, prepared.digest)

    def _look_at_files(self, prepared: ReadyImage, ended: Exit, recorder: Recorder) -> None:
        """A cell that failed for a file, or before it said anything, may have lost its files to whoever removes old ones."""
        if not ended.code or self._ended_by or self.stopped:
            return
        error = str(recorder.error["message"]) if recorder.error else ""
        if recorder.environment is None or any(_LACKS_FILE.search(text) for text in (error, ended.log_tail)):
            lost = self._site.engine.lost_files(prepared)
            self._ended_by = ("engine", lost) if lost else None

    def _settle(self, ended: Exit, recorder: Recorder, cache: Path) -> None:
        """It has ended: what is to be said of that, and what becomes of the folder that its image's cells write."""
        error = str(recorder.error["message"]) if self.boards and recorder.error else ""
        self.no_device = bool(self.boards and recorder.error and recorder.error["kind"] == "no-device")
        if unopened := _UNOPENED.search(error):
            of_an_unnamed = len(self.boards) > 1 and unopened[1].startswith(_OF_ONE_GPU)
            self.unopened = None if of_an_unnamed else unopened[1]
        elif _UNABLE.search(error):
            self.unable = error
        self.passing = error if self.may_pass and _PASSING.search(error) else ""
        if self._ended_by and self._ended_by[0] in _HANGS and recorder.ended_well and ended.code == 0:
            # It had ended by itself before it was ended: its engine stood still, and handed its output over too late.
            self._ended_by = None
        if self._ended_by and self._ended_by[0] in _HANGS and ended.out_of_memory:
            # The kernel had killed processes of it for memory, and it waited for them: that is the reason.
            self._ended_by = None
        if self._ended_by and self._ended_by[0] in _HANGS and rules.is_own(self.job.cell.workload):
            self._ended_by = self._ended_by[0], self._ended_by[1] + self._own_line(ended.log_tail)
        if ended.left:
            kind, why = self._ended_by or (
                ("protocol", recorder.problem) if recorder.problem else ("engine", "it was ended")
            )
            self._ended_by = kind, f"{why}; {ended.left}"
        full = self._full()
        if full and (ended.code != 0 or not _LIVE):
            # As if the watchdog had looked a moment before.
            self._ended_by = self._ended_by or ("disk", full)
        self.cut = self._cut_by_machine(ended, recorder)
        trees.detach(cache)
        if full or self._is_full():
            # The next cells need the room. Whatever was there can be made again.
            trees.remove(cache)
        else:
            cell_cache.disarm(cache)

    def _cut_by_machine(self, ended: Exit, recorder: Recorder) -> str:
        """Why a repeat that did not end well says nothing of its cell: its disk is full, and what the cell left there does not fill it.

        Empty of any other. A file that has no name is gone with the cell: then the disk has room.
        """
        cache, before = self._cache, self._room
        if ended.left or cache is None or before is None or (ended.code == 0 and not self._ended_by):
            return ""
        with contextlib.suppress(OSError, EngineError):
            now, kept = cell_cache.Room.of(cache), trees.size(cache, _COUNT_NAMES, _COUNT_SECONDS)
            taken = 2 * kept.on_disk >= before.bytes - now.bytes > 0
            taken |= None not in (before.files, now.files) and 2 * kept.names >= before.files - now.files > 0  # type: ignore[operator]
            if taken or not kept.whole:
                return ""
            if self._is_full():
                return f"others filled it: {full}" if (full := self._full()) else ""
            error = str(recorder.error["message"]) if recorder.error else ""
            texts = (recorder.problem, error, ended.log_tail)
            if not self._ended_by and due_again(None, ended.code, *texts) and host_fault.is_short_of_room((cache,)):
                return next(last_line(text) for text in texts if text and due_again(None, ended.code, text))
        return ""

    def _stored(self, parcel: Parcel, image: Image | None) -> tuple[str, str | None]:
        """Hand the parcel over. What the cell filled is free by now; other cells may be about to end for the same."""
        end = time.monotonic() + _ROOM_SECONDS
        while True:
            try:
                status, reason, self.disturbed = self._site.store(self.job, parcel, image)
                return status, reason
            except OSError as error:
                if error.errno not in HOST_FAULTS or time.monotonic() > end:
                    raise
                if error.errno in _FULL and self._cache:
                    # Only for the room: where that fails too, the run ends with one sentence on its disk.
                    trees.remove(self._cache, quietly=True)
            time.sleep(0.2)

    def _parcel(self, recording: telemetry.Recording, ended: Exit) -> Parcel:
        """The facts of the cell that a parcel holds."""
        seen = recording.users.state()
        rows, row_seconds = _rows_that_fit(recording)
        return Parcel(
            cell_id=self.job.cell.id,
            repeat=self.job.repeat,
            engine=self._site.engine.name_of(self.job.cell.image),
            data_given=self._site.data is not None,
            uuids=self.slot.device_uuids,
            boards=self.boards,
            cpus=self.slot.threads,
            code=ended.code,
            out_of_memory=ended.out_of_memory,
            ended_by=self._ended_by and (self._ended_by[0], self._ended_by[1][:MOST_REASON]),
            began=self._began,
            xids=tuple((board, number) for board, number in recording.xids[:MOST_XIDS] if 0 <= number < 2**31),
            fault=recording.fault and recording.fault[:MOST_FAULT],
            row_seconds=row_seconds,
            proved=tuple(seen["proved"]),
            unproved=seen["reasons"],
            foreign=tuple(recording.users.foreign),
            isolation=ended.isolation,
            tape=(*self._tape, *([(self._heard, bytes(self._torn))] if self._torn else [])),
            log=ended.log_tail[-MOST_LOG:],
            telemetry=tuple(rows),
        )

    def watch(self, now: float) -> None:
        """The watchdog: end a cell that hangs or has lost its GPU. Never blocks for long."""
        with self._lock:
            running, recording = self._running, self._recording
        gap, self._watched = now - max(self._watched, self._began), now
        if gap > _GAP_SECONDS:
            # The output of the cell meanwhile waits to be read.
            self._stood_still += gap
            self._silent_still += gap
        if running is None or recording is None:
            return
        if recording.lost and self.lost is None:
            self.lost, self._kill_at = recording.lost, now
        if self._kill_at is not None:
            if now >= self._kill_at:
                if self._broken:
                    self._ended_by = self._ended_by or ("protocol", f"its output broke the protocol: {self._broken}")
                running.stop()
        elif hang := self._hang(now):
            self._ended_by, self._kill_at = hang, now + _DUMP_SECONDS
            running.dump()
        elif full := self._fills_disk(running):
            self._ended_by, self._kill_at = full, now

    def stop(self) -> None:
        """End the cell at once. Its repeat is not stored."""
        with self._lock:
            self.stopped = True
            if self._running is not None:
                self._running.stop()

    def _most_seconds(self) -> int:
        """After so long the cell ends by itself: the watchdog comes first, also if the engine stood still for a while."""
        limits = self._site.limits
        return min(_MOST_ALARM_SECONDS, math.ceil(2 * (limits.whole + limits.compiling)) + 600)

    def _hang(self, now: float) -> tuple[str, str] | None:
        limits = self._site.limits
        more = limits.compiling if self._compiles else 0.0
        if now - self._began - self._stood_still > limits.whole + more:
            return _HANGS[0], f"it had not ended after {limits.whole + more:.0f} s and was stopped"
        if now - self._heard - self._silent_still > limits.silence + more:
            return _HANGS[1], f"it had printed nothing for {limits.silence + more:.0f} s and was stopped"
        return None

    def _full(self) -> str | None:
        """Why the disk counts as full since the cell began; None where it does not."""
        cache, before = self._cache, self._room
        if cache is None or before is None:
            return None
        try:
            lost = cell_cache.Room.of(cell_cache.caches_folder()).lost_since(before)
        except (OSError, EngineError):
            # A cell without walls can remove the folder.
            return None
        return f"the disk of {cache} is nearly full: {lost}" if lost else None

    def _fills_disk(self, running: Running) -> tuple[str, str] | None:
        """The reason if the disk ran full since the cell began, or this image's cells keep more than they may."""
        full, cache, before = self._full(), self._cache, self._room
        if full and len(_LIVE) == 1:
            return "disk", full
        try:
            if cache is None or before is None or (free := cell_cache.Room.of(cache).bytes) > self._count_at:
                return None
        except OSError:
            return None
        self._count_at = free - _COUNT_AFTER_BYTES
        folders = [cache, scratch] if (scratch := running.scratch()) else [cache]
        held = sum(trees.size(folder, _COUNT_NAMES, _COUNT_SECONDS).on_disk for folder in folders)
        # Of several cells at least one has its share of what went since. A cell that wrote nothing is not ended for the others.
        if full and held >= (before.bytes - free) / len(_LIVE):
            return "disk", full
        if held <= cell_cache.MOST_BYTES:
            return None
        put = f"the cells of {self.job.cell.image} had put {held / 1e9:.1f} GB there"
        return "disk", f"{put}, into {cache}, where {cell_cache.MOST_BYTES / 1e9:.0f} GB is the most"

    def _follow(self, prepared: ReadyImage, running: Running, recorder: Recorder) -> Exit:
        """Read the cell's output to its end. After a broken protocol, a wrong device or other code nothing would count: it is ended."""
        useless = False
        for chunk in running.events():
            self._heard, self._silent_still = time.monotonic(), 0.0
            if useless:
                continue
            checked = recorder.environment is not None
            recorder.feed(chunk, self._heard)
            self._torn += chunk
            if b"\n" in chunk:
                self._tape.append((self._heard, bytes(self._torn)))
                self._torn.clear()
            wrong = not checked and recorder.environment is not None and self._is_wrong(recorder)
            useless = recorder.problem is not None or wrong or self._is_full()
            if recorder.foreign and not wrong and not self._is_full():
                # A launcher says what it has lost, and ends by itself.
                self._broken, self._kill_at = recorder.problem, self._heard + _LAST_WORDS_SECONDS
            elif useless:
                running.stop()
        ended = running.wait()
        self._look_at_files(prepared, ended, recorder)
        return ended

    def _is_full(self) -> bool:
        return self._ended_by is not None and self._ended_by[0] == "disk"

    def _is_wrong(self, recorder: Recorder) -> bool:
        """True if the cell computes on another device than it was given, or runs other code. Its row will say so."""
        cell = self.job.cell
        planned = self._site.code.get((cell.framework, cell.workload))
        wrong = wrong_device(recorder, cell, self.slot.device_uuids) or other_code(recorder, planned)
        if wrong:
            with self._lock:
                self._ended_by = self._ended_by or wrong
        return wrong is not None


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """Within the block, an error of the system fails this cell alone: others that run now can fill the disk, or move a folder."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not isinstance(error, OSError) and not host_fault.is_host_fault(error):
            raise
        why = system_fault(error) if isinstance(error, OSError) else error
        raise EngineError(f"the cell could not be started ({why})") from error


def _started(recorder: Recorder, began: float, unix_at_zero: float) -> float:
    """When the cell's process began, in unix time: as the cell says, unless this host saw otherwise.

    The cell's telemetry is cut by it. `began`: when the engine was called, by time.monotonic, whose zero was at `unix_at_zero`.
    """
    zero = recorder.arrivals.zero
    latest = unix_at_zero + (began if zero is None else max(began, zero))
    said: float | None = recorder.row.get("started_unix")
    possible = said is not None and unix_at_zero + began - _CLOCK_SECONDS <= said <= latest + _CLOCK_SECONDS
    return said if said is not None and possible else latest


def _rows_that_fit(recording: telemetry.Recording) -> tuple[Sequence[Row], float]:
    """The telemetry, and the seconds between two rows of a device: more where all rows are too many for a parcel."""
    rows, seconds = recording.rows, recording.step
    while len(rows) > MOST_ROWS or telemetry_bytes(rows) > MOST_TELEMETRY_BYTES:
        seconds *= 2
        rows = telemetry.thinned(rows, seconds)
    return rows, seconds


def _goes_down(engine: Engine) -> str | None:
    """Why the engine is gone, or goes within a few seconds: a shutdown ends the containers first. None when it stays."""
    end = time.monotonic() + _SHUTDOWN_SECONDS
    while (gone := engine.unavailable()) is None and time.monotonic() < end:
        time.sleep(0.2)
    return gone
