"""`slurm:PARTITION`: an agent on each node of a Slurm allocation. Outside of an allocation one is submitted, and released at the end.

What srun exits with is not looked at: it was 0 for a node that had died. An agent's own word or the end of its pipe counts.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UserError
from runner.known_messages import explained
from runner.nodes.transports import transport
from runner.nodes.transports.transport import Node, Nodes, NodesError
from runner.paths import find_program
from runner.run.progress import say
from runner.text import in_a_line, length, plural

_PROGRAMS = ("srun", "salloc", "scontrol", "sinfo", "squeue")

# slurmctld answers a question in milliseconds, and one that restarts in seconds.
_ANSWER_SECONDS = 60.0
_RELEASE_SECONDS = 20.0
_MOST_NODES = 10_000

# The end of the output of salloc, in characters.
_MOST_WORDS = 10_000

# A partition, or nodes as Slurm writes them: gpu[001-016,020],big7.
_WHERE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,999}")
# The states of a node that runs jobs now, or when another job has ended.
_UP = ("idle", "allocated", "mixed", "completing", "planned")
# The first word of an allocation's command.
_GRANTED = "granted "
_HELD = Path(__file__).with_name("held.py")


@dataclass(frozen=True)
class Allocation:
    """An allocation: a job of Slurm's, with its nodes and the number of GPUs that it has on each."""

    id: str
    partition: str
    gpus: Mapping[str, int]
    alone: bool
    # Until Slurm ends it; inf where it has no limit.
    seconds_left: float


class Slurm(Nodes):
    """The nodes of the allocation that this process runs in, or of one that is submitted for it."""

    shares_machine = False

    def __init__(self, where: str) -> None:
        """`where`: a partition or nodes; "" is the whole allocation that this process runs in. Raises NodesError."""
        self._where = where
        for program in _PROGRAMS:
            if find_program(program) is None:
                raise NodesError(
                    f"--nodes slurm: there is no program {program} on PATH; run it where Slurm's commands are, on a login node"
                )
        if where and not _WHERE.fullmatch(where):
            raise UserError(
                f"--nodes slurm: {in_a_line(where, 80)!r} is neither a partition nor nodes; `sinfo` shows both"
            )
        self._own = os.environ.get("SLURM_JOB_ID", "")
        if not where and not self._own:
            raise UserError(
                "--nodes slurm: this is no allocation of Slurm (SLURM_JOB_ID is not set); start it in one, or say slurm:PARTITION"
            )
        self._holder: subprocess.Popen[str] | None = None
        self._nodes: list[Node] = []
        self.notes: tuple[str, ...] = ()

    def there(self) -> Sequence[Node]:
        """The nodes; the first call waits until there is an allocation. Raises NodesError."""
        if not self._nodes:
            job = _job(self._own or self._submit())
            names = self._chosen(job)
            has = _has_gpus(names)
            without = [name for name in names if has[name] and not job.gpus[name]]
            self.notes = tuple(_notes(job, names, without))
            self.ends_at = time.monotonic() + job.seconds_left
            self._nodes = [
                Node(name, _srun(job, name), gpus="none" if name in without else "", environment=_variables())
                for name in names
            ]
        return self._nodes

    def close(self) -> None:
        """Release an allocation that was submitted here."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        for pipe in (holder.stdin, holder.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            # If it does not end in time, it goes on without this process.
            holder.wait(_RELEASE_SECONDS)

    def _chosen(self, job: Allocation) -> list[str]:
        """The nodes of an allocation that --nodes means."""
        if not self._where or self._where == job.partition:
            return list(job.gpus)
        if _partition_state(self._where):
            raise UserError(
                f"--nodes slurm:{self._where}: this is job {job.id} in partition {job.partition}; say slurm, which means all its nodes"
            )
        names = _hosts(self._where)
        if others := [name for name in names if name not in job.gpus]:
            raise UserError(
                f"--nodes slurm:{self._where}: {others[0]} is no node of job {job.id}, which has {', '.join(job.gpus)}; "
                "name nodes of this job, or say slurm"
            )
        return names

    def _submit(self) -> str:
        """Submit an allocation and wait for it: its id."""
        words, what = self._request()
        self._holder = holder = subprocess.Popen(
            [sys.executable, str(_HELD), *words, "sh", "-c", f'echo "{_GRANTED}$SLURM_JOB_ID"; exec cat'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_variables(),
            # Ctrl-C is this process's.
            start_new_session=True,
        )
        assert holder.stdout is not None
        printed = ""
        for line in holder.stdout:
            if line.startswith(_GRANTED):
                return line.removeprefix(_GRANTED).strip()
            if waiting := re.search(r"job ([0-9]+) queued", line):
                say(f"slurm: job {waiting[1]} waits in line for {what}{_reason(waiting[1])}; Ctrl-C takes it back")
            printed = (printed + line)[-_MOST_WORDS:]
        why = explained(printed) or "salloc ended without a word"
        raise NodesError(f"--nodes slurm:{self._where}: Slurm granted no allocation: {why}")

    def _request(self) -> tuple[list[str], str]:
        """The words that submit the allocation, and what it asks for."""
        words = [str(find_program("salloc")), "--job-name=dlbench", "--exclusive", "--mem=0"]
        # Slurm ends the whole job when one of its nodes fails, but for this option.
        words += ["--no-kill"]
        state = _partition_state(self._where)
        if state == "up":
            states = _states(("-p", self._where))
            names = [name for name, (now, _) in states.items() if now in _UP]
            if not names:
                raise NodesError(f"--nodes slurm:{self._where}: no node of this partition is up; `sinfo -R` says why")
            for name, (now, _) in states.items():
                if name not in names:
                    say(f"slurm: {name} is {now}; the run takes the other nodes of {self._where}")
            return [*words, f"--partition={self._where}", f"--nodelist={','.join(names)}"], (
                f"{plural(len(names), 'node')} of {self._where}"
            )
        if state:
            raise NodesError(
                f"--nodes slurm:{self._where}: this partition is {state}; choose another, `sinfo` shows them"
            )
        return self._request_nodes(words)

    def _request_nodes(self, words: list[str]) -> tuple[list[str], str]:
        """The same for nodes that are named."""
        names = _hosts(self._where)
        states = _states(("-n", ",".join(names)))
        for name in names:
            if name not in states:
                raise UserError(
                    f"--nodes slurm:{self._where}: Slurm knows no partition and no node of the name {name}; `sinfo` shows both"
                )
            if states[name][0] not in _UP:
                raise NodesError(
                    f"--nodes slurm:{self._where}: {name} is {states[name][0]}; name the others, `sinfo -R` says why"
                )
        common = set.intersection(*(states[name][1] for name in names))
        if not (
            partitions := [each for each in states[names[0]][1] if each in common and _partition_state(each) == "up"]
        ):
            raise NodesError(
                f"--nodes slurm:{self._where}: no partition that is up has all these nodes; name those of one"
            )
        return [*words, f"--partition={sorted(partitions)[0]}", f"--nodelist={','.join(names)}"], plural(
            len(names), "node"
        )


def _reason(number: str) -> str:
    """Slurm's word for the reason why a job waits, as a clause; empty where it has none yet."""
    with contextlib.suppress(NodesError):
        reason = _asked("squeue", "-h", "-j", number, "-o", "%r").strip()
        return f" ({in_a_line(reason, 200)})" if reason not in ("", "None") else ""
    return ""


def _srun(job: Allocation, name: str) -> tuple[str, ...]:
    """The command that starts an agent on a node with all that the allocation has there.

    A shell or another step of the same allocation may hold the node already: the agent overlaps it.
    """
    words = ["--quiet", f"--jobid={job.id}", "-N1", "-n1", "-w", name, "--overlap", "--cpu-bind=none", "--mem=0"]
    # A step of an exclusive job has no GPU unless it says how many.
    words += [f"--gpus-per-node={job.gpus[name]}"] if job.gpus[name] else []
    return (str(find_program("srun")), *words, sys.executable, *transport.AGENT)


def _variables() -> dict[str, str]:
    """The environment without what Slurm says of the step that this process runs in: srun would take it for its own options."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}


def _notes(job: Allocation, names: Sequence[str], without: Sequence[str]) -> list[str]:
    ends = "" if math.isinf(job.seconds_left) else f"; it ends in {length(job.seconds_left)}"
    notes = [f"slurm: job {job.id}, {plural(len(names), 'node')} of partition {job.partition}{ends}"]
    if not job.alone:
        notes.append(f"slurm: other jobs may run on the nodes of job {job.id}; --exclusive keeps them off")
    if without:
        notes.append(
            f"slurm: job {job.id} has no GPU on {', '.join(without)}: the CPU is measured there; --exclusive gives it the GPUs"
        )
    return notes


def _asked(*words: str) -> str:
    """The output of a command of Slurm's. Raises NodesError."""
    try:
        ended = subprocess.run(
            [str(find_program(words[0])), *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NodesError(
            f"--nodes slurm: {words[0]} has no answer after {_ANSWER_SECONDS:.0f} s; is slurmctld up?"
        ) from None
    except OSError as error:
        raise NodesError(f"--nodes slurm: {words[0]} cannot be started ({error.strerror})") from None
    if ended.returncode:
        raise NodesError(f"--nodes slurm: {words[0]} failed: {explained(ended.stderr) or 'it printed nothing'}")
    return ended.stdout


def _hosts(written: str) -> list[str]:
    """The names of nodes as Slurm writes them."""
    # A node that is named twice is one.
    names = list(dict.fromkeys(_asked("scontrol", "show", "hostnames", written).split()))
    if not 0 < len(names) <= _MOST_NODES:
        raise UserError(f"--nodes slurm:{written} names {plural(len(names), 'node')}; it must name 1 to {_MOST_NODES}")
    return names


def _partition_state(name: str) -> str:
    """The state of a partition: up, down, drain or inact; "" if there is no such partition."""
    states = dict(line.split("|", 1) for line in _asked("sinfo", "-h", "-o", "%R|%a").splitlines() if "|" in line)
    return states.get(name, "")


def _states(which: tuple[str, str]) -> dict[str, tuple[str, set[str]]]:
    """Node -> its state, and the partitions that it is in."""
    found: dict[str, tuple[str, set[str]]] = {}
    for line in _asked("sinfo", "-h", "-N", *which, "-o", "%N|%T|%R").splitlines():
        name, state, partition = line.split("|", 2)
        # A node that does not answer has a star behind its state. Other marks, such as that of power saving, stop nobody.
        state = "not answering" if state.endswith("*") else state.rstrip("~#!%$@^-+")
        found.setdefault(name, (state, set()))[1].add(partition)
    return found


def _has_gpus(names: Sequence[str]) -> dict[str, bool]:
    """Node -> whether Slurm hands out GPUs there."""
    found = dict.fromkeys(names, False)
    for line in _asked("sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N|%G").splitlines():
        name, gres = line.split("|", 1)
        found[name] = found.get(name, False) or _gpus(gres) > 0
    return found


def _gpus(gres: str) -> int:
    """How many GPUs a list of generic resources has: gpu:h200:4(IDX:0-3),nic:2."""
    return sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[A-Za-z][^:,(]*)?:([0-9]{1,6})", gres))


def _job(number: str) -> Allocation:
    """Slurm's description of a job that has its nodes. Raises NodesError."""
    if not re.fullmatch("[0-9]{1,12}", number):
        raise UserError(
            f"--nodes slurm: SLURM_JOB_ID={in_a_line(number, 40)} is no number of a job; start it in an allocation"
        )
    said = _asked("scontrol", "show", "job", "-d", number)
    partition = re.search(r"\bPartition=(\S+)", said)
    gpus: dict[str, int] = {}
    for nodes, gres in re.findall(r"^ +Nodes=(\S+) .*?GRES=(\S*)", said, re.MULTILINE):
        gpus |= dict.fromkeys(_hosts(nodes), _gpus(gres))
    if not gpus or partition is None:
        raise NodesError(f"--nodes slurm: job {number} has no nodes now; start it in an allocation that runs")
    left = _asked("squeue", "-h", "-j", number, "-o", "%L").strip()
    return Allocation(number, partition[1], gpus, "OverSubscribe=NO" in said, _seconds(left))


def _seconds(left: str) -> float:
    """The time that squeue says is left of a job: 1-02:03:04, 03:04, UNLIMITED."""
    parts = re.fullmatch(r"(?:(?:([0-9]{1,6})-)?([0-9]+):)?([0-9]+):([0-9]+)", left)
    if parts is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return 86400.0 * days + 3600 * hours + 60 * minutes + seconds
