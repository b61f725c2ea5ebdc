"""The wire between a driver and an agent: the messages and finished repeats, and the versions of both."""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from bench import identity, rules
from runner import errors, trees
from runner.machine.devices import Cpu, Gpu, Refused
from runner.nodes.frames import MOST_HEADER_BYTES, MOST_VALUES, Frame, FrameError
from runner.paths import PROJECT, runner_version
from runner.plan.plan import Cell, Skip
from runner.results.untrusted import MOST_LINE as MOST_LINE
from runner.results.untrusted import Hash, Name, Text, UntrustedError, document, shown_as_it_is
from runner.results.validate import Frozen
from runner.text import in_a_line

# The messages between the driver of a run and the agents on its nodes: every message as a model with bounds.
#
# An agent's words are untrusted as a file from a stranger is. Numbers fit the store's columns, and texts hold no character that acts on a
# terminal.

# The version of these messages. Both sides must have the same.
PROTOCOL = 2

_MOST_CELLS = 20_000
# Of the results that an agent could not hand over, in one run.
_MOST_SPOOLED = 10_000


def _in_a_line(text: str) -> str:
    return in_a_line(text, MOST_LINE)


Line = Annotated[str, Field(max_length=16 * MOST_LINE), AfterValidator(_in_a_line)]
NodeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,100}$")]
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
# A person's own network: its name, the names of its files, and their content, a character a byte.
NetworkName = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*@[0-9a-f]{12}$", max_length=200)]
FileName = Annotated[str, Field(pattern=r"^[^/\x00]{1,250}\.py$")]
FileContent = Annotated[str, Field(max_length=1 << 20, pattern=r"^[\x00-\xff]*$")]
ImageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]
# As an engine names what an image holds. Tables and pages show it.
Digest = Annotated[str, Field(pattern=r"^[A-Za-z0-9:@/+._-]{0,300}$")]
AttemptId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}\.r[1-9][0-9]{0,4}\.[0-9a-f]{8}-[0-9]{1,9}$")]
_IMAGE_NAME: TypeAdapter[str] = TypeAdapter(ImageName)
_Bytes = Annotated[int, Field(ge=0, lt=2**63)]


def is_image_name(text: str) -> bool:
    """True if a message can name an image so."""
    try:
        _IMAGE_NAME.validate_python(text)
    except ValidationError:
        return False
    return True


class _Message(Frozen):
    def frame(self, body: bytes = b"") -> Frame:
        """The message as it goes over the pipe."""
        return Frame(self.model_dump(mode="json"), body)


# --- from the driver


class Look(_Message):
    """The first message: look at this node for these options of a run; change nothing."""

    kind: Literal["look"] = "look"
    node: NodeName
    options: dict[str, Any]
    networks: dict[NetworkName, Annotated[dict[FileName, FileContent], Field(max_length=20)]] = Field(default={})
    # The CPUs that this agent and its cells may use. None: those that it finds.
    cpus: tuple[int, ...] | None = None
    # The number of nodes that share the memory of its machine.
    sharing: Annotated[int, Field(ge=1, le=1000)] = 1


class Begin(_Message):
    """A run begins. `leased`: the driver holds the devices of this machine itself."""

    kind: Literal["begin"] = "begin"
    run: RunId
    leased: bool


class Prepare(_Message):
    """Make an image ready."""

    kind: Literal["prepare"] = "prepare"
    image: ImageName


class Run(_Message):
    """Run one repeat of a cell on these GPUs; on none of them: on the CPUs."""

    kind: Literal["run"] = "run"
    attempt: AttemptId
    cell: Cell
    repeat: Annotated[int, Field(ge=1, le=10_000)]
    uuids: tuple[Text, ...]


class Stop(_Message):
    """End an attempt. Its repeat does not count."""

    kind: Literal["stop"] = "stop"
    attempt: AttemptId


class Ack(_Message):
    """A result is stored or set aside: the agent need not keep it."""

    kind: Literal["ack"] = "ack"
    attempt: AttemptId


class Bye(_Message):
    """End all cells, leave nothing behind, and end."""

    kind: Literal["bye"] = "bye"


# --- from an agent


class Versions(_Message):
    """An agent's first message. Only this one is read by another release."""

    kind: Literal["versions"] = "versions"
    protocol: int
    runner: Text
    runner_sha256: Hash
    bench_sha256: Hash
    catalog_sha256: Hash


class Refusal(_Message):
    """Why this node cannot take part."""

    kind: Literal["refusal"] = "refusal"
    why: Line


class _NodePlan(Frozen):
    """The part of a Hello that equal nodes have in common."""

    cells: Annotated[tuple[Cell, ...], Field(max_length=_MOST_CELLS)]
    skips: Annotated[tuple[Skip, ...], Field(max_length=_MOST_CELLS)]

    @model_validator(mode="before")
    @classmethod
    def _can_be_shown(cls, value: Any) -> Any:
        return shown_as_it_is(value)


_OF_PLAN = frozenset(_NodePlan.model_fields)


class Hello(_Message):
    """The node's description, and its plan by the options. The plan is the body of its frame: a thousand equal nodes say the same bytes."""

    kind: Literal["hello"] = "hello"
    host: Text
    boot_id: Text
    kernel: Text
    # The kernel's word for its machine.
    architecture: Name
    cpu: Cpu
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=64)]
    refused: Annotated[tuple[Refused, ...], Field(max_length=64)]
    why_no_gpu: Line | None
    notes: Annotated[tuple[Line, ...], Field(max_length=100)]
    engine: Name
    why_engine: Line
    # Bytes to fetch or build before its first cell.
    fetch_bytes: _Bytes
    cells: tuple[Cell, ...]
    skips: tuple[Skip, ...]

    @model_validator(mode="before")
    @classmethod
    def _can_be_shown(cls, value: Any) -> Any:
        return shown_as_it_is(value)

    def frame(self, body: bytes = b"") -> Frame:
        plan = self.model_dump(mode="json", include=set(_OF_PLAN))
        content = json.dumps(plan, separators=(",", ":"), allow_nan=False).encode()
        return Frame(self.model_dump(mode="json", exclude=set(_OF_PLAN)), content)


class Said(_Message):
    """A sentence for the user: that the node waits for a GPU, for example."""

    kind: Literal["said"] = "said"
    line: Line


class Begun(_Message):
    """The node's devices are held. `spooled`: the results of this run that it still has, and hands over now."""

    kind: Literal["begun"] = "begun"
    spooled: Annotated[tuple[AttemptId, ...], Field(max_length=_MOST_SPOOLED)]


class Preparing(_Message):
    """A line of progress of an image."""

    kind: Literal["preparing"] = "preparing"
    image: ImageName
    line: Line


class Prepared(_Message):
    """An image is ready, as this digest; or why it is not."""

    kind: Literal["prepared"] = "prepared"
    image: ImageName
    digest: Digest | None
    why: Line | None


class Beat(_Message):
    """The agent lives."""

    kind: Literal["beat"] = "beat"


class Progress(_Message):
    """The phase that a cell is in, at most once a second."""

    kind: Literal["progress"] = "progress"
    attempt: AttemptId
    phase: Literal[rules.PHASES]  # type: ignore[valid-type]


class Ended(_Message):
    """A repeat has ended. Its parcel is the body."""

    kind: Literal["ended"] = "ended"
    attempt: AttemptId


class Failed(_Message):
    """The engine could not run a repeat."""

    kind: Literal["failed"] = "failed"
    attempt: AttemptId
    reason: Line


class Returned(_Message):
    """An attempt that is not to blame for its end: its GPU fell off the bus, or it was stopped."""

    kind: Literal["returned"] = "returned"
    attempt: AttemptId
    why: Line


class Lost(_Message):
    """A GPU fell off the bus."""

    kind: Literal["lost"] = "lost"
    board: Text


FromDriver = Look | Begin | Prepare | Run | Stop | Ack | Bye
FromAgent = (
    Versions
    | Refusal
    | Hello
    | Said
    | Begun
    | Preparing
    | Prepared
    | Beat
    | Progress
    | Ended
    | Failed
    | Returned
    | Lost
)

_FROM_DRIVER: TypeAdapter[FromDriver] = TypeAdapter(Annotated[FromDriver, Field(discriminator="kind")])
_FROM_AGENT: TypeAdapter[FromAgent] = TypeAdapter(Annotated[FromAgent, Field(discriminator="kind")])
_HELLO = TypeAdapter(Hello)
_PLAN = TypeAdapter(_NodePlan)


def from_driver(frame: Frame) -> FromDriver:
    """A driver's message. Raises FrameError."""
    message: FromDriver = _message(_FROM_DRIVER, frame)
    return message


def from_agent(frame: Frame) -> FromAgent:
    """An agent's message. Raises FrameError, also if a message has a body that none of its kind has."""
    if frame.header.get("kind") == "hello":
        return _hello(frame)
    message: FromAgent = _message(_FROM_AGENT, frame)
    if frame.body and not isinstance(message, Ended):
        raise FrameError(
            f"a frame {message.kind!r} has {len(frame.body)} bytes beside its header, and none belong to it"
        )
    return message


def _hello(frame: Frame) -> Hello:
    if misplaced := _OF_PLAN & frame.header.keys():
        raise FrameError(f"a frame 'hello' has {sorted(misplaced)[0]} in its header, and they belong into its body")
    message: Hello = _message(_HELLO, Frame({**frame.header, **dict.fromkeys(_OF_PLAN, ())}))
    with _PLANNING:
        plan = _plan(frame.body)
    return message.model_copy(update={"cells": plan.cells, "skips": plan.skips})


# The threads of a thousand links may bring the same plan at once: the first one reads it, and the others wait.
_PLANNING = threading.Lock()


@functools.lru_cache(maxsize=32)
def _plan(content: bytes) -> _NodePlan:
    """The plan of a Hello. Equal bytes are read once, and give the same cells."""
    if len(content) > MOST_HEADER_BYTES:
        raise FrameError(f"a node's plan has {len(content)} bytes, and {MOST_HEADER_BYTES} is the most")
    try:
        value = document(content, "a node's plan", MOST_VALUES)
    except UntrustedError as error:
        raise FrameError(str(error)) from None
    plan: _NodePlan = _valid(_PLAN, value, "hello")
    return plan


def _message(adapter: TypeAdapter[Any], frame: Frame) -> Any:
    return _valid(adapter, frame.header, str(frame.header.get("kind")))


def _valid(adapter: TypeAdapter[Any], value: Any, kind: str) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = in_a_line(errors.first_problem(error), 300)
        raise FrameError(f"a frame {in_a_line(kind, 40)!r} is no message of this release: {problem}") from None


# The check that two installations are one release: what a node measures must be what the driver planned.

# The files of a folder that decide what is measured, and how.
_RUNNER = ("*.py",)
_CATALOG = ("*.toml", "*.in", "*.lock", "*.seal", "Dockerfile*", "*.sh", "*.R", "*.jl")


def release_versions() -> Versions:
    """Those of this installation."""
    return Versions(
        protocol=PROTOCOL,
        runner=runner_version(),
        runner_sha256=_digest(PROJECT / "runner", _RUNNER),
        bench_sha256=identity.source_digest(),
        catalog_sha256=_digest(PROJECT / "images", _CATALOG),
    )


def _digest(folder: Path, patterns: tuple[str, ...]) -> str:
    here = [path for path in trees.files(folder) if any(path.match(pattern) for pattern in patterns)]
    paths = {path.relative_to(folder).as_posix() for path in here}
    return str(identity.digest(paths, str(folder)))


def release_difference(own: Versions, other: Versions) -> str | None:
    """Why a node's installation is not this one's, as a sentence; None where it is."""
    advice = "install the same checkout there"
    if own.protocol != other.protocol:
        return f"it speaks version {other.protocol} of the agent's protocol, and this runner version {own.protocol}; {advice}"
    for what, mine, its in (
        ("runner", own.runner, other.runner),
        ("bench", own.bench_sha256[:12], other.bench_sha256[:12]),
        ("catalog of images", own.catalog_sha256[:12], other.catalog_sha256[:12]),
        ("runner's code", own.runner_sha256[:12], other.runner_sha256[:12]),
    ):
        if mine != its:
            return f"its {what} is {its}, and here it is {mine}; {advice}"
    return None
