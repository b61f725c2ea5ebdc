"""The table of engines and guarantees: each guarantee of a cell held when it was tested, or did not, or nobody has tested it.

tests/engine/test_guarantees.py starts a cell on each engine that is here and compares what it sees with this table. docs/engines.md is
made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

# Guarantee -> its sentence.
GUARANTEES: Mapping[str, str] = {
    "network": "only the loopback interface",
    "root": "the root file system is read-only",
    "capabilities": "no capability, and none can be gained",
    "seccomp": "a filter of system calls",
    "memory": "the memory limit",
    "processes": "the limit of processes and threads",
    "CPUs": "only its own CPUs",
    "kill": "the end of a cell ends all of its processes",
    "devices": "no device node of the machine; GPUs are not in this table, since none was here",
}

NOT_TESTED = "not tested here"


@dataclass(frozen=True)
class Tested:
    """The outcome of one test of an engine."""

    date: str
    # The engine's version, and the machine's part in it.
    of: str
    held: frozenset[str]


# The limits that need a controller of cgroups.
_BY_CGROUPS = frozenset({"memory", "processes", "CPUs"})

# Without systemd Apptainer sets no limit of cgroups. The CPUs are those of the process that starts it.
_OF_APPTAINER = frozenset(GUARANTEES) - {"seccomp", "memory", "processes"}

# (engine, whether it is rootless, version of cgroups) -> its test; None: nobody has tested it. Neither of the last two: the
# engine does not depend on them.
TABLE: Mapping[tuple[str, bool | None, str | None], Tested | None] = {
    ("docker", False, "1"): Tested("2026-11-27", "Docker Engine 20.10.24", frozenset(GUARANTEES)),
    ("docker", False, "2"): None,
    ("docker", True, "2"): None,
    ("podman", False, "1"): Tested("2026-11-27", "Podman Engine 4.3.1", frozenset(GUARANTEES)),
    ("podman", True, "1"): Tested("2026-11-27", "Podman Engine 4.3.1", frozenset(GUARANTEES) - _BY_CGROUPS),
    ("podman", False, "2"): None,
    ("podman", True, "2"): None,
    ("apptainer", False, "1"): Tested("2026-11-28", "Apptainer 1.4.5", _OF_APPTAINER),
    ("apptainer", True, "1"): Tested("2026-11-28", "Apptainer 1.4.5", _OF_APPTAINER),
    ("apptainer", False, "2"): None,
    ("apptainer", True, "2"): None,
    ("venv", None, None): Tested("2026-11-27", "processes of Linux 6.18", frozenset({"CPUs", "kill"})),
}


def named(engine: str, rootless: bool | None, cgroups: str | None) -> str:
    """The words for an engine in the table."""
    if rootless is None:
        return engine
    return f"{engine}, {'rootless' if rootless else 'as root'}, cgroups v{cgroups}"


def sentence(engine: str, rootless: bool | None, cgroups: str | None) -> str:
    """The row of an engine as one sentence."""
    tested = TABLE.get((engine, rootless, cgroups))
    name = named(engine, rootless, cgroups)
    if tested is None:
        return f"{name}: its guarantees were not tested; each cell's row has what the engine applied"
    held, broken = ([each for each in GUARANTEES if (each in tested.held) is which] for which in (True, False))
    without = f"; not held: {', '.join(broken)}" if broken else ""
    return f"{name}: held on {tested.date} ({tested.of}): {', '.join(held)}{without}"


def rows() -> Iterator[Iterable[str]]:
    """The table of docs/engines.md."""
    yield "engine", "tested", *GUARANTEES
    yield ["---"] * (len(GUARANTEES) + 2)
    for key, tested in TABLE.items():
        cells = [("held" if name in tested.held else "**not held**") if tested else NOT_TESTED for name in GUARANTEES]
        yield named(*key), f"{tested.of}, {tested.date}" if tested else "", *cells
