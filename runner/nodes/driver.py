"""Runs the cells of a plan on its nodes: the main thread hears what the agents say, and tells each what to do."""

from __future__ import annotations

import contextlib
import math
import queue
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from runner.admission.admit import image_of, store_parcel
from runner.admission.judges import HostFacts
from runner.machine import lease
from runner.machine.devices import Machine
from runner.nodes import node_table as outcome
from runner.nodes import spool, wire
from runner.nodes.fleet import LOOK_SECONDS, Fleet, Heard, Member
from runner.nodes.fleet_plan import FleetProspect
from runner.nodes.frames import FrameError
from runner.nodes.tracker import MOST_TRIES, OFFERED_SECONDS, Tracker, Verdict
from runner.nodes.transports.transport import NodesError
from runner.plan.plan import Cell
from runner.results.parcel import ENDING, MOST_REASON, Parcel, ParcelError, decode
from runner.results.store import RunStore, write_bytes
from runner.run import execution, progress, summary
from runner.run.dispatch import Job, places
from runner.run.progress import say
from runner.run.schedule import Observer, Outcome
from runner.text import plural

# How long the driver waits for a message before it looks at the clock.
_TICK_SECONDS = 0.5

# A node that could not be reached is tried again, and the transport is asked for further ones, this often.
_AGAIN_SECONDS = 30.0

# An agent ends each cell at its limit, and begins it again where its engine went down. A cell that a node still claims to run this long
# after as many limits as a job has tries is none.
_HELD_SECONDS = 1800.0

# Seconds for the agents' end and the report before nodes are taken away, but not more than this part of the time.
_END_SECONDS = 60.0
_END_SHARE = 0.1

# A node's sentences on the terminal: so many at once, then one in so many seconds; lines of progress come faster.
_MOST_SENTENCES = 20
_SENTENCE_SECONDS = 10.0
_PROGRESS_SECONDS = 0.5

# The most nodes that fetch or build images at once: a registry serves them all.
_MOST_PREPARING = 32


def execute(
    prospect: FleetProspect,
    run: RunStore,
    write_report: Callable[[Path], Path],
    resumed: bool = False,
    show_answer: Callable[[Path], None] | None = None,
) -> summary.Conclusion:
    """Run the jobs that have not ended on the nodes, store them, and write the report. As run.execution.execute."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(execution.interruptible())
        stack.enter_context(lease.alone(run.folder))
        if resumed:
            execution.clear_up(run)
        jobs = prospect.jobs_left(run)
        if prospect.fleet.nodes.shares_machine:
            # The agents of one machine cannot each hold its CPUs.
            leased = prospect.leased(jobs)
            stack.enter_context(execution.held(leased, run, prospect.options.wait, resumed))
        ends_at = _measures_until(prospect.fleet.nodes.ends_at, time.monotonic())
        observer = stack.enter_context(progress.observer(prospect, jobs, ends_at))
        driver = Driver(prospect, run, jobs, observer, ends_at)
        ended = summary.INTERRUPTED if driver.run_all() else ""
        if not prospect.jobs_left(run):
            spool.remove(run.run_id)
    driver.write_facts()
    for line in driver.last_words():
        say(line)
    return summary.conclude(prospect, run, ended, write_report, None, len(driver.outcomes), show_answer)


def _measures_until(ends_at: float, now: float) -> float:
    """When the last cell must have ended, in seconds of time.monotonic(), where the nodes are taken away at `ends_at`."""
    return ends_at if math.isinf(ends_at) else ends_at - min(_END_SECONDS, _END_SHARE * max(0.0, ends_at - now))


@dataclass
class Sentences:
    """A limit on a node's sentences for the terminal: many at once, and then one in some seconds. A broken agent would fill it."""

    seconds: float = _SENTENCE_SECONDS
    _left: float = _MOST_SENTENCES
    _at: float = 0.0
    _dropped: int = 0

    def shown(self, sentence: str, now: float) -> str | None:
        """It, as it is to be shown; None where the node has said too much. How many were dropped is told with the next one."""
        self._left = min(_MOST_SENTENCES, self._left + (now - self._at) / self.seconds)
        self._at = now
        if self._left < 1:
            self._dropped += 1
            return None
        self._left -= 1
        more = f" (and {plural(self._dropped, 'sentence')} before it, too many to be shown)" if self._dropped else ""
        self._dropped = 0
        return sentence + more


@dataclass
class _Site:
    """A node in this run: which images it prepares, and which are ready."""

    member: Member
    cells: list[Cell]
    # Still to be prepared, the next one first.
    images: list[str]
    digests: dict[str, str] = field(default_factory=dict)
    # joining | ready: it measures, or has measured | silent: given up, but its agent may come back | gone
    state: Literal["joining", "ready", "silent", "gone"] = "joining"
    begun: bool = False
    # It was told to prepare the first of `images`.
    prepares: bool = False
    # When its agent was started a second time. Until that one answers, `member` is the first one. 0: never.
    reopened: float = 0.0
    # Why it was lost.
    why: str = ""
    # It gets no more work in this run.
    drained: bool = False
    # It refused, or sent what no agent sends: nothing that it still says is heard.
    cut: bool = False
    sentences: Sentences = field(default_factory=Sentences)
    # Its agent hands on a line of progress a second at most.
    progress: Sentences = field(default_factory=lambda: Sentences(_PROGRESS_SECONDS))
    # The boards that fell off the bus while this agent ran.
    lost: set[str] = field(default_factory=set)

    def machine(self) -> Machine:
        """Its devices, as its agent found them."""
        hello = self.member.hello
        assert hello is not None
        return Machine(hello.cpu, hello.gpus, hello.why_no_gpu)


class Driver:
    """One run over its nodes."""

    def __init__(
        self,
        prospect: FleetProspect,
        run: RunStore,
        jobs: list[Job],
        observer: Observer,
        ends_at: float = math.inf,
    ) -> None:
        """No cell starts that would not end before `ends_at`, in seconds of time.monotonic(); one that runs then is ended."""
        self._prospect = prospect
        self._fleet: Fleet = prospect.fleet
        self._run = run
        self._jobs = jobs
        self._planned = {job.cell for job in jobs}
        self._observer = observer
        self._code = execution.planned_code(run)
        self._data_given = prospect.options.data is not None
        lengths = {job.cell: prospect.durations.seconds(job.cell) for job in jobs}
        self._tracker = Tracker(jobs, lengths.__getitem__, secrets.token_hex(4))
        self._sites: dict[str, _Site] = {}
        # Image -> why it could not be prepared, by node.
        self._unready: dict[str, dict[str, str]] = {}
        self._again_at = time.monotonic() + _AGAIN_SECONDS
        self.outcomes: list[Outcome] = []
        self._ends_at = ends_at
        # Jobs that could not end in time.
        self._unfit = 0
        self._late = 0
        self._lost_gpus: list[str] = []

    def run_all(self) -> bool:
        """Run everything that a node can take; True when the user interrupted it. At the end no agent runs."""
        try:
            for member in self._fleet.taken():
                self._begin(member)
            self._loop()
        except KeyboardInterrupt:
            return True
        finally:
            self._fleet.close()
        return False

    def _loop(self) -> None:
        while self._is_open() and time.monotonic() < self._ends_at:
            now = time.monotonic()
            self._start_all(now)
            with contextlib.suppress(queue.Empty):
                self._hear(self._fleet.hear(_TICK_SECONDS))
                # Handle the messages queued now before the timeout check: one may be a heartbeat. Later ones wait, so that a chatty
                # agent cannot block the loop.
                for _ in range(self._fleet.heard.qsize()):
                    self._hear(self._fleet.hear(0.0))
            self._look_at_the_clock(time.monotonic())

    def _is_open(self) -> bool:
        """True if something runs or waits on a node, or a node that will take jobs is not ready yet."""
        if self._tracker.is_open():
            return True
        return self._is_awaited() and self._tracker.has_homeless()

    def _is_awaited(self) -> bool:
        """True if a node is not ready yet."""
        return any(site.state == "joining" for site in self._sites.values())

    # --- nodes

    def _begin(self, member: Member) -> None:
        """A node takes part from now on."""
        assert member.hello is not None
        assert member.link is not None
        cells = [cell for cell in member.hello.cells if cell in self._planned]
        before = self._sites.get(member.name)
        site = _Site(member, cells, list(dict.fromkeys(cell.image for cell in cells)))
        if before is not None:
            site.reopened, site.why = before.reopened, before.why
        self._sites[member.name] = site
        self._tracker.watch(member.name, time.monotonic())
        member.link.send(wire.Begin(run=self._run.run_id, leased=self._fleet.nodes.shares_machine))

    def _prepare_some(self) -> None:
        """Let the next nodes prepare their images: one at a time on one machine, else so many as a registry can serve."""
        most = 1 if self._fleet.nodes.shares_machine else _MOST_PREPARING
        joining = {
            name: site
            for name, site in self._sites.items()
            if site.state == "joining" and site.member is self._fleet.members[name]
        }
        busy = sum(site.prepares for site in joining.values())
        for site in joining.values():
            if busy < most and site.begun and site.images and not site.prepares:
                busy += 1
                self._prepare_next(site)
        if self._fleet.nodes.shares_machine and any(site.images or not site.begun for site in joining.values()):
            # Nothing is prepared beside a measurement.
            return
        for name, site in joining.items():
            if site.begun and not site.images:
                site.state = "ready"
                self._join(name, site)

    def _prepare_next(self, site: _Site) -> None:
        assert site.member.link is not None
        site.prepares = bool(site.images)
        if site.images:
            site.member.link.send(wire.Prepare(image=site.images[0]))

    def _join(self, name: str, site: _Site) -> None:
        cells = frozenset(cell for cell in site.cells if cell.image in site.digests)
        machine = site.machine()
        every = [place for kind in ("cuda", "cpu") for place in places(machine, kind) if place.board not in site.lost]
        self._tracker.join(name, every, cells, time.monotonic())

    def _look_at_the_clock(self, now: float) -> None:
        silent, lost = self._tracker.check(now)
        for name in silent:
            say(f"node {name} is silent: nothing was heard of it for half a minute; it gets no more cells meanwhile")
        for name in lost:
            self._lose(name, "nothing was heard of it for a minute and a half", ended=False)
            self._sites[name].state = "silent"
        for name, count in self._tracker.overdue(now).items():
            results = f"{plural(count, 'finished result')} that it offered did not come in {OFFERED_SECONDS:.0f} s"
            self._cut_off(name, f"{results}, so the measurement is repeated")
        for name, site in self._sites.items():
            member = self._fleet.members[name]
            if site.state == "joining" and site.member is not member and now - site.reopened > LOOK_SECONDS:
                site.state = "gone"
                self._fleet.refuse(member, f"it did not answer in {LOOK_SECONDS:.0f} s")
        self._prepare_some()
        if now >= self._again_at:
            self._again_at = now + _AGAIN_SECONDS
            self._call_again()
            self._cut_off_who_hold(now)
        self._fail_what_no_image_serves()

    def _cut_off_who_hold(self, now: float) -> None:
        """A node that lives and never ends a cell would hold the run for good."""
        limits = execution.limits_of(self._prospect.options)
        longest = MOST_TRIES * (limits.whole + limits.compiling) + _HELD_SECONDS
        for name, attempt in self._tracker.held(now - longest).items():
            assignment = self._tracker.assignment(attempt)
            assert assignment is not None
            label = assignment.job.cell.label
            self._cut_off(
                name, f"it says neither that {label} ended nor that it failed, {longest / 60:.0f} min after it began"
            )

    def _call_again(self) -> None:
        """Try the nodes that could not be reached, and those that have come since."""
        with contextlib.suppress(NodesError):
            for node in self._fleet.nodes.there():
                member = self._fleet.members.get(node.name)
                if member is None or (member.hello is None and member.unreached):
                    self._fleet.open(node)

    def _lose(self, name: str, why: str, ended: bool, believed: bool = True) -> None:
        """A node is lost, or its agent has ended: its jobs go to others. An agent that ended is started once more."""
        site = self._sites[name]
        incident = self._tracker.incident(name, ended)
        twice = ", and cells were lost with it twice" if incident.drained else ""
        site.state, site.why, site.drained = "gone", why + twice, incident.drained or not believed
        many = len(incident.again) + len(incident.failed)
        say(f"node {name} is lost: {why}" + (f"; {plural(many, 'cell')} ran there" if many else ""))
        for job in incident.failed:
            nodes = " and ".join(self._tracker.lost_with(job))
            self._fail(
                job,
                "node-lost",
                f"the nodes {nodes} were lost while it ran there, so it may be the cell that ends them",
            )
        if incident.drained:
            say(f"node {name} is drained: cells were lost with it twice, so it gets no more")
        elif ended and believed and not site.reopened:
            self._fleet.open(site.member.node)
            site.state, site.reopened = "joining", time.monotonic()

    # --- what is heard

    def _hear(self, heard: Heard) -> None:
        name = heard.link.node.name
        member = self._fleet.members[name]
        if member.link is not heard.link:
            # Of an agent that was replaced.
            return
        if name not in self._sites or self._sites[name].member is not member:
            if (ready := self._fleet.greet(heard)) is not None:
                say(f"node {name} has come")
                self._begin(ready)
            elif heard.message is None and name in self._sites:
                self._sites[name].state = "gone"
                say(f"node {name} could not be reached again: {member.why}")
            return
        site = self._sites[name]
        if site.cut:
            return
        if heard.message is None:
            if site.state != "gone":
                self._lose(name, heard.why, ended=True, believed=not heard.broken)
            return
        may_return = self._tracker.heard(name, time.monotonic())
        if site.state == "silent":
            self._come_back(name, site, may_return)
        try:
            self._take(name, site, heard.message, heard.body)
        except FrameError as error:
            self._cut_off(name, f"it sent what no agent sends ({error})")

    def _cut_off(self, name: str, why: str) -> None:
        """A node does what no agent does: nothing that it still says is heard."""
        site = self._sites[name]
        if site.member.link is not None:
            site.member.link.hang_up()
        site.cut = True
        self._lose(name, why, ended=False, believed=False)

    def _come_back(self, name: str, site: _Site, may_return: bool) -> None:
        """A node that had been given up says something again: what it still runs does not count."""
        site.state = "joining" if may_return else "gone"
        assert site.member.link is not None
        for attempt in self._tracker.given_up(name):
            site.member.link.send(wire.Stop(attempt=attempt))
        if not may_return:
            return
        say(f"node {name} is back; results from before the reconnect are ignored")
        site.why += "; it came back"
        self._tracker.watch(name, time.monotonic())

    def _take(self, name: str, site: _Site, message: wire.FromAgent, body: bytes) -> None:
        if isinstance(message, wire.Begun):
            if site.begun:
                raise FrameError("it began twice")
            site.begun = True
            self._tracker.offered(name, message.spooled, time.monotonic())
        elif isinstance(message, wire.Prepared):
            self._prepared(name, site, message)
        elif isinstance(message, wire.Preparing):
            if shown := site.progress.shown(f"{name}: {message.line}", time.monotonic()):
                self._observer.preparing(message.image, shown)
        elif isinstance(message, wire.Said):
            if shown := site.sentences.shown(f"node {name}: {message.line}", time.monotonic()):
                say(shown)
        elif isinstance(message, wire.Refusal):
            site.cut = True
            self._lose(name, message.why, ended=False)
        elif isinstance(message, wire.Progress):
            if self._is_live(message.attempt):
                event = {"event": "phase", "state": "begin", "name": message.phase}
                self._observer.printed(self._own(name, message.attempt), event)
        elif isinstance(message, wire.Ended):
            self._ended(name, site, message, body)
        elif isinstance(message, wire.Failed) and self._is_live(message.attempt):
            job = self._own(name, message.attempt)
            self._tracker.came(message.attempt)
            self._tracker.ended(message.attempt)
            self._fail(job, "engine", f"on {name}: {message.reason}")
        elif isinstance(message, wire.Returned) and self._is_live(message.attempt):
            job = self._own(name, message.attempt)
            if not self._tracker.returned(message.attempt):
                kind = "gpu-lost" if site.lost else "engine"
                self._fail(job, kind, f"on {name}: {message.why}; the retry limit was reached")
        elif isinstance(message, wire.Lost):
            self._gpu_lost(name, site, message.board)

    def _prepared(self, name: str, site: _Site, message: wire.Prepared) -> None:
        if site.state != "joining" or not site.prepares or site.images[0] != message.image:
            raise FrameError(f"it prepared image {message.image} out of order")
        del site.images[0]
        if message.digest is not None:
            site.digests[message.image] = message.digest
        else:
            self._unready.setdefault(message.image, {})[name] = message.why or "it did not say why"
        self._prepare_next(site)

    def _is_live(self, attempt: str) -> bool:
        return self._tracker.verdict(attempt) is Verdict.ROW

    def _own(self, name: str, attempt: str) -> Job:
        """The job of an attempt on this node. Raises FrameError where it is another node's."""
        assignment = self._tracker.assignment(attempt)
        if assignment is None or assignment.node != name:
            raise FrameError("it reported a cell of another node")
        return assignment.job

    def _gpu_lost(self, name: str, site: _Site, board: str) -> None:
        uuids = [gpu.uuid for gpu in site.machine().gpus if gpu.board == board]
        if uuids and board not in site.lost:
            say(f"node {name}: GPU {board} fell off the bus")
            site.lost.add(board)
            self._lost_gpus.append(board)
            self._tracker.gpu_lost(name, board)

    # --- jobs

    def _start_all(self, now: float) -> None:
        while assignment := self._tracker.next(now):
            link = self._sites[assignment.node].member.link
            assert link is not None
            uuids = tuple(place.uuid for place in assignment.places if place.uuid)
            job = assignment.job
            if now + self._prospect.durations.seconds(job.cell) > self._ends_at:
                self._tracker.leave(assignment.attempt)
                self._unfit += 1
                continue
            link.send(wire.Run(attempt=assignment.attempt, cell=job.cell, repeat=job.repeat, uuids=uuids))
            self._observer.started(job)

    def _ended(self, name: str, site: _Site, message: wire.Ended, body: bytes) -> None:
        """A result: a row, or one that is kept aside. The agent need not keep it."""
        attempt = message.attempt
        verdict = self._tracker.verdict(attempt)
        if verdict in (Verdict.ROW, Verdict.LATE):
            job = self._own(name, attempt)
            if verdict is Verdict.ROW:
                outcome = self._admit(name, site, job, attempt, body)
                self._tracker.came(attempt)
                self._tracker.ended(attempt)
                self._report(outcome)
            else:
                self._tracker.came(attempt)
                self._late += 1
                path = self._run.folder / "late" / f"{attempt}{ENDING}"
                write_bytes(path, body)
                say(
                    f"node {name}: a result of {job.cell.label} came too late; it is kept in {path.parent} and does not count"
                )
        if site.member.link is not None:
            site.member.link.send(wire.Ack(attempt=attempt))

    def _admit(self, name: str, site: _Site, job: Job, attempt: str, body: bytes) -> Outcome:
        """Admit a node's parcel. Where it ran is the driver's word. Raises FrameError for a parcel that no agent sends."""
        assignment, hello, cell = self._tracker.assignment(attempt), site.member.hello, job.cell
        assert assignment is not None
        assert hello is not None
        try:
            parcel = decode(body, f"the parcel of {attempt}")
        except ParcelError as error:
            raise FrameError(str(error)) from None
        if (parcel.cell_id, parcel.repeat) != job.key or parcel.never_ran:
            raise FrameError("a parcel is of another repeat, or of one that never ran")
        given = assignment.places
        if not given:
            # It was measured before this driver began: on devices of the node, as many as the cell takes.
            every = {place.uuid: place for place in places(site.machine(), cell.device_kind)}
            given = tuple(every[uuid] for uuid in parcel.uuids or ("",) if uuid in every)
            if len(given) != cell.takes:
                raise FrameError("a repeat ran on devices that the node does not have")
            self._observer.started(job)
        parcel = replace(
            parcel,
            engine=hello.engine,
            attempt=attempt,
            node=name,
            image_digest=site.digests.get(cell.image, parcel.image_digest),
            data_given=self._data_given,
        )
        host = HostFacts(
            image=image_of(cell),
            code_sha256=self._code.get((cell.framework, cell.workload)),
            uuids=tuple(place.uuid for place in given if place.uuid),
            boards=tuple(place.board for place in given if place.kind == "cuda"),
            data_given=self._data_given,
        )
        if (parcel.uuids, parcel.boards) != (host.uuids, host.boards):
            raise FrameError("the repeat ran on devices that were not assigned to it")
        self._run.refuse_gone()
        admitted = store_parcel(self._run, parcel, cell, host, partial(self._observer.printed, job))
        return Outcome(job, admitted.status, admitted.reason, parcel.wall_seconds or 0.0, admitted.disturbed)

    def _fail(self, job: Job, kind: str, reason: str) -> None:
        """Store a job that no node could run."""
        parcel = Parcel(job.cell.id, job.repeat, self._prospect.engine.name, ended_by=(kind, reason[:MOST_REASON]))
        store_parcel(self._run, parcel, job.cell, HostFacts())
        self._report(Outcome(job, "failed", reason, 0.0))

    def _report(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.status == "ok":
            self._prospect.durations.learn(outcome.job.cell, outcome.wall_seconds)
        self._observer.ended(outcome)

    def _fail_what_no_image_serves(self) -> None:
        """Jobs whose image no node could prepare have failed. Jobs without a free node stay for --resume."""
        if not self._unready or self._is_awaited():
            return
        for job in self._tracker.homeless():
            reasons = self._unready.get(job.cell.image, {})
            able = [name for name, site in self._sites.items() if job.cell in site.cells]
            if reasons and set(able) <= set(reasons):
                each = set(reasons.values())
                words = each.pop() if len(each) == 1 else "; ".join(f"{name}: {why}" for name, why in reasons.items())
                self._tracker.drop(job)
                self._fail(job, "engine", words)

    # --- the end

    def write_facts(self) -> None:
        """Note in run.json how each node fared."""
        manifest = self._run.manifest()
        manifest["nodes"] = outcome.outcome_entries(
            self._prospect.facts()["nodes"], self._fared(), manifest.get("nodes") or ()
        )
        if self._lost_gpus:
            manifest["devices_lost"] = sorted({*manifest.get("devices_lost", []), *self._lost_gpus})
        self._run.write_manifest(manifest)

    def _fared(self) -> list[outcome.NodeOutcome]:
        return [outcome.NodeOutcome(name, site.why, site.drained) for name, site in self._sites.items()]

    def last_words(self) -> list[str]:
        """The last sentences on the nodes, the worst first."""
        lines = list(outcome.last_words(self._fared()))
        if self._unfit or time.monotonic() >= self._ends_at:
            lines.append("the nodes are taken away soon: a cell that could not end before was not begun, or was ended")
        lines += [f"{plural(self._late, 'result')} came too late and did not count"] if self._late else []
        return lines
