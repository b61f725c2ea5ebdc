"""Causes and fixes of well-known messages of drivers, engines and frameworks.

One table serves `runner doctor`, which meets them when it starts a container, and the rows of cells that failed. The sentences are ours;
where a message comes from NVIDIA's or Docker's own pages or sources, or was met, is noted beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runner.messages.known import Known
from runner.messages.of_engines import OF_ENGINES
from runner.messages.of_gpus import OF_GPUS
from runner.messages.of_machines import OF_MACHINES
from runner.messages.of_schedulers import OF_SCHEDULERS
from runner.text import in_a_line

# The first that fits counts; the general ones come last.
KNOWN = sorted((*OF_ENGINES, *OF_GPUS, *OF_SCHEDULERS, *OF_MACHINES), key=lambda message: message.general)

# A line of a program of Slurm's, without what it says of a request that goes its way.
_OF_SLURM = re.compile(
    r"(?:salloc|srun|sbatch|sinfo|squeue|scontrol|slurm[\w.-]*): +(?:(?:error|fatal): +)?"
    r"(?=\S)(?!Granted|Pending|job \d+ queued|job \d+ has been allocated|Nodes|Waiting|Relinquishing|Force Terminated)"
)
# The most characters of it in a sentence.
_LONGEST = 400
# Python prints the sentence of an error at its end.
_TRACEBACK = "Traceback (most recent call last)"

_OF_KIND = {
    "time-limit": "--timeout gives it longer; the stack at the end of its log tells where it was",
    "hang": "the stack at the end of its log tells where it stood still",
    "out-of-memory": "a machine or GPU with more memory, or fewer cells at a time",
    "wrong-device": "`runner doctor` tells whether the engine gives the GPUs that it is asked for",
    "gpu-lost": "restart the machine; when it comes again: power supply, riser, heat",
    "node-lost": "look at the kernel logs of these nodes, for memory that ran out above all, and run the cell alone on one of them",
    "implausible": "the image reports what its host did not see; its adapter or its clock is wrong",
    "disk": "what its cells kept was removed; a larger disk, or leave the image out",
    "engine": "the end of its message names what failed; `runner doctor` tries the engine step by step",
    "framework": "the same cell in another image, or on another GPU, tells if the framework's release or the machine is at fault",
    "crash": "the end of its log may say why; the same cell in another image, or on another GPU, tells if the framework or the machine is",
    "protocol": "the image prints what is not an event on standard output; see its log",
}


# The last lines of a log that are looked through for a reason: pip's refusal of a file has one for each digest of its pin, and pins of the
# locks have up to 172; below it stands the traceback of whoever called pip.
MOST_LINES = 300
_OTHER_FILE = re.compile(r"DO NOT MATCH THE HASHES.*?([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+) from ", re.DOTALL)


def other_file(log: str) -> str | None:
    """The short form of pip's message about a file whose digest is not the lock's; None if its log has no such message."""
    pin = _OTHER_FILE.search(log)
    return (
        pin
        and f"for {pin[1]} {pin[2]} the package index served another file than the lock pins (DO NOT MATCH THE HASHES)"
    )


def find(*texts: str | None) -> Known | None:
    """The first known message, of the first text that has one. A general one gives way to a message of the machine in any text."""
    first = next((message for text in texts if text and (message := _in(text, KNOWN))), None)
    if first is None or not first.general:
        return first
    specific = [message for message in (*OF_SCHEDULERS, *OF_MACHINES) if not message.general]
    return next((message for text in texts if text and (message := _in(text, specific))), first)


def _in(text: str, messages: Iterable[Known]) -> Known | None:
    return next((message for message in messages if re.search(message.pattern, text, re.IGNORECASE)), None)


def cause(lines: Sequence[str]) -> str | None:
    """The last line of a log that a known message explains: an installer's last words are mostly of what it did not get."""
    explained = [(message.general, line.strip()) for line in reversed(lines) if (message := find(line))]
    return min(explained, key=lambda each: each[0], default=(False, None))[1]


def hint(kind: str | None, *texts: str | None) -> str | None:
    """The advice for a failure, by its messages and else by its kind. What a program said before it met its error counts no more."""
    message = find(*(text and text[max(0, text.find(_TRACEBACK)) :] for text in texts))
    return message.advice if message else _OF_KIND.get(kind or "")


def explained(printed: str, whole: bool = False) -> str:
    """The lines that a program printed before it refused, for a sentence, with the advice of a known message: `no room; means: fix`.

    Of Slurm's programs it is all that they say; of others the line that is known, or the last. `whole`: it is a message of a few lines.
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()] or [""]
    of_slurm = [match for line in lines if (match := _OF_SLURM.match(line))]
    if of_slurm:
        said = "; ".join(dict.fromkeys(match.string[match.end() :] for match in of_slurm[-4:]))
    else:
        said = " ".join(lines) if whole and _TRACEBACK not in printed else cause(lines) or lines[-1]
    advice = hint(None, printed if of_slurm or whole else said)
    return in_a_line(said, _LONGEST) + (f"; {advice}" if advice else "")


# The words of an engine, or of the system under it, that say nothing of a cell. A cell itself may say some of them of its own fault.
_OF_THE_HOST = re.compile(
    "|".join(
        [
            *(message.pattern for message in KNOWN if message.again),
            r"[Cc]an(not|'t) allocate memory",
            r"[Rr]esource temporarily unavailable|can't start new thread",
            r"[Tt]ransport endpoint (is not connected|shutdown)|[Hh]ost is down|[Ll]ink has been severed|[Bb]ad message",
        ]
    )
)


def is_of_the_host(text: str) -> bool:
    """True if an engine that could not start a cell says that its machine is the reason."""
    return bool(_OF_THE_HOST.search(text))


# The kinds of failures for which the machine is the reason, whatever the cell says.
_KINDS_OF_THE_HOST = ("no-device", "gpu-lost")


def due_again(kind: str | None, code: int | None, *texts: str | None) -> bool:
    """True if a failed repeat says nothing of its framework, and --resume measures it again. `code`: None of one that never ran.

    It found no GPU or lost it, its engine could not run it, or its advice says so.
    """
    if kind in _KINDS_OF_THE_HOST or (kind == "engine" and code is None):
        return True
    found = find(*texts)
    return found is not None and found.again
