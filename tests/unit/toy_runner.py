"""The real `runner` over toy cells: real command line, plan, schedule, store and processes; only the engine's images are toys.

Run as `python -m tests.unit.toy_runner matrix ...`. A toy cell prints a stream that was recorded from a real image, slowly, and
what DLBENCH_TOY says may go wrong with it: hang | crash | fork | flood | chatter | murder (it kills the agent), `unready` or
`remade` for its image, or `large`, since no disk holds it. With `uneven` the repeats of an image differ by 4 %.
With `lies` an agent says of each repeat that it ran on another GPU, with `twice` it sends each result twice, with
`mute` that of local-3, or of a node that is not one of several on this machine, says nothing while a cell runs. With `fetch` each image is
to be fetched, which takes as long as a cell does. With `dribble`, `half`, `claim` or `ends` local-3 sends as DribblingSink says. With
`cuda` the images are for GPUs, and a cell says that it ran on the GPU that it was given.
"""

from __future__ import annotations

import io
import os
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

from bench import identity
from runner import engines
from runner.admission import admit
from runner.catalog.images import PROJECT, Image
from runner.engines.base import Engine, Launch, ReadyImage, Settings
from runner.engines.process.host import HostImage
from runner.engines.process.process import LocalRunning, start_process, sweep_scratch
from runner.errors import UserError
from runner.nodes import driver, fleet, node_agent, tracker
from runner.nodes.frames import MAGIC
from runner.nodes.transports import transport
from runner.nodes.wire import Beat, FromAgent, Look, Progress
from runner.results.plausible import counts, windows
from runner.run.prospect import Prospect

RECORDED = Path(__file__).parent / "recorded"

CELL = """
import json, os, random, subprocess, sys, time
from tests.fixtures.events import in_windows, line_by_line
ways = os.environ.get("DLBENCH_TOY", "").split(",")
pace = float(os.environ.get("DLBENCH_TOY_SECONDS", "0.2"))
with open(os.environ["DLBENCH_TOY_STARTED"], "a") as file:
    file.write(" ".join(sys.argv[1:]) + chr(10))
gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "") if "cuda" in ways else ""
workload = "cnn-cifar10" if "cnn-cifar10" in sys.argv else "gru-imdb"
stream = os.path.join(sys.argv[1], "torch-2.13.0-cpu." + workload + ".jsonl")
events = [json.loads(line) for line in open(stream)]
# Its windows are the same whatever its pace: it spends the time before and after them.
brief = 0.05 / len(events)
line_by_line(events, brief, as_recorded=True)
measured = [event["event"] in ("sample", "metric") for event in events]
with open(os.environ["DLBENCH_TOY_STARTED"]) as file:
    before = sum(" run " in line and line.endswith(sys.argv[-1] + chr(10)) for line in file)
share = 1 + (0, 0.05, -0.05, 0.04, -0.04, 0)[(before - 1) % 6] if "uneven" in ways else 1
for event in events:
    if event["event"] == "sample":
        # Two repeats are never the same to the last digit.
        event["seconds"] *= share - 0.002 * random.random()
in_windows(events)
for event in events:
    if event["event"] == "environment":
        event["code_sha256"] = os.environ["DLBENCH_TOY_CODE"]
lines = [json.dumps(event).encode() + bytes([10]) for event in events]
hit = "gru-imdb" in sys.argv
# Each line has its moment: what a busy machine adds to one sleep must not add up, or the clock of the stream is slow beside the host's.
due = time.monotonic()
for at, line in enumerate(lines):
    due += brief if measured[at] else pace / measured.count(False)
    time.sleep(max(0.0, due - time.monotonic()))
    if gpu and b'"environment"' in line:
        event = json.loads(line)
        event["device"].update(kind="cuda", name="NVIDIA L4", uuids=[gpu])
        line = json.dumps(event).encode() + bytes([10])
    if at == len(lines) // 2 and hit:
        if "fork" in ways:
            subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if "hang" in ways or "fork" in ways:
            time.sleep(300)
        if "murder" in ways and os.environ["DLBENCH_TOY_IMAGE"] == "toy-b":
            # Its keeper is its parent, and the keeper's is the agent.
            keeper = open("/proc/%d/stat" % os.getppid()).read().rsplit(")", 1)[1].split()
            os.kill(int(keeper[1]), 9)
            time.sleep(300)
        if "crash" in ways:
            os.kill(os.getpid(), 11)
        if "chatter" in ways:
            print("epoch 1 done", flush=True)
        while "flood" in ways:
            os.write(1, b"x" * 65536)
    os.write(1, line)
"""


class ToyEngine(Engine):
    """An engine whose cells replay a recording, in real processes below the real keeper."""

    name = "toy"

    def __init__(self, settings: Settings) -> None:
        self._fetched: set[str] = set()

    def images(self, gpus: bool) -> dict[str, Image]:
        return toys()

    def parts(self, image: Image) -> dict[str, int]:
        fetched = "fetch" not in os.environ.get("DLBENCH_TOY", "").split(",") or image.name in self._fetched
        return {} if fetched else {image.name: 1000}

    def images_folder(self) -> Path | None:
        return PROJECT if "large" in os.environ.get("DLBENCH_TOY", "").split(",") else None

    def disk_parts(self, image: Image) -> dict[str, int]:
        return {image.name: 1 << 60 if image.name == "toy-b" else 0}

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        say(f"{image.name} is a toy")
        if self.parts(image):
            self._fetched.add(image.name)
            time.sleep(float(os.environ["DLBENCH_TOY_SECONDS"]))
        if "unready" in os.environ.get("DLBENCH_TOY", "").split(",") and image.name == "toy-b":
            # Of an engine it is an EngineError, and of a lock that is none a CatalogError.
            raise UserError("toy-b could not be built: the disk of toys is full")
        again = "-again" if "remade" in os.environ.get("DLBENCH_TOY", "").split(",") and image.name == "toy-b" else ""
        return ReadyImage(image, f"sha256:{image.name}{again}", (sys.executable, "-c", CELL, str(RECORDED)))

    def start(self, launch: Launch) -> LocalRunning:
        keep = ("DLBENCH_TOY", "DLBENCH_TOY_SECONDS", "DLBENCH_TOY_STARTED")
        arguments, image = launch.arguments, launch.prepared.image.name
        extra = {"DLBENCH_TOY_IMAGE": image}
        if arguments[0] == "run":
            # The bench's own words: run WORKLOAD --framework F.
            framework, workload = arguments[arguments.index("--framework") + 1], arguments[1]
            extra["DLBENCH_TOY_CODE"] = identity.code_sha256(framework, workload)
        return start_process(replace(launch, arguments=[*arguments, image]), keep=keep, extra=extra)

    def sweep(self) -> int:
        return sweep_scratch()


def toys() -> dict[str, Image]:
    fixed: dict[str, Any] = {
        "folder": PROJECT,
        "frameworks": ("torch",),
        "framework_version": "2.13.0",
        "python": "3.11",
        "accelerator": "cuda" if "cuda" in os.environ.get("DLBENCH_TOY", "").split(",") else "cpu",
        "base": "host",
        "precisions": ("fp32",),
        "locked": date(2026, 1, 1),
        "download_gb": 0.0,
        "no_modes": {"graph": "a toy runs in one mode"},
        "installed_sha256": "0" * 64,
    }
    return {name: HostImage.model_construct(name=name, **fixed) for name in ("toy-a", "toy-b", "toy-c")}


def set_the_patience_of_nodes() -> None:
    """DLBENCH_TOY_BEAT: seconds between two beats of an agent; by them a node is silent, lost, called again.

    DLBENCH_TOY_BOOT: the machine that an agent says it is on. DLBENCH_TOY_ENDS: so many seconds after the start the nodes are taken away.
    """
    beat = float(os.environ.get("DLBENCH_TOY_BEAT", node_agent.BEAT_SECONDS))
    node_agent.BEAT_SECONDS, driver._AGAIN_SECONDS = beat, 2 * beat
    tracker.SILENT_SECONDS, tracker.LOST_SECONDS, fleet._BYE_SECONDS = 5 * beat, 15 * beat, 10.0
    if boot := os.environ.get("DLBENCH_TOY_BOOT"):
        node_agent.boot_id = lambda: boot
    if ends := os.environ.get("DLBENCH_TOY_ENDS"):
        transport.Nodes.ends_at = time.monotonic() + float(ends)
    if way := set(DribblingSink.WAYS).intersection(os.environ.get("DLBENCH_TOY", "").split(",")):
        look = node_agent.Agent._look

        def look_and_dribble(self: node_agent.Agent, order: Look, networks: Path) -> Prospect:
            prospect = look(self, order, networks)
            if order.node == "local-3":
                self._pipe._sink = DribblingSink(self._pipe._sink, *way)
            return prospect

        node_agent.Agent._look = look_and_dribble  # type: ignore[method-assign]
    if "mute" in os.environ.get("DLBENCH_TOY", "").split(","):
        mute_one_node()
    if "twice" in os.environ.get("DLBENCH_TOY", "").split(","):
        send = node_agent._Pipe.send

        def send_twice(pipe: node_agent._Pipe, message: FromAgent, body: bytes = b"") -> None:
            for _ in range(1 + (message.kind == "ended")):
                send(pipe, message, body)

        node_agent._Pipe.send = send_twice  # type: ignore[method-assign]
    if "lies" in os.environ.get("DLBENCH_TOY", "").split(","):
        keep = node_agent.Agent._keep
        node_agent.Agent._keep = lambda self, job, parcel: keep(self, job, replace(parcel, uuids=("GPU-of-another",)))  # type: ignore[method-assign]


class DribblingSink(io.RawIOBase):
    """The way to a driver, of an agent that is slow or false once it has a result to send.

    dribble: each byte goes alone. half: half a frame goes, and nothing more. claim: a frame says that it has 100 MB, and a byte of it goes
    with each beat. ends: nothing but line ends goes, as many as the pipe takes.
    """

    WAYS = ("dribble", "half", "claim", "ends")

    def __init__(self, sink: BinaryIO, way: str) -> None:
        self._sink, self._way, self._begun = sink, way, False

    def write(self, content: Any) -> int:
        if self._way == "dribble":
            for at in range(len(content)):
                self._sink.write(content[at : at + 1])
                self._sink.flush()
        elif self._begun:
            self._sink.write(b"x" if self._way == "claim" else b"")
        elif len(content) < 2000:
            self._sink.write(content)
        else:
            self._begun = True
            first = {
                "half": content[: len(content) // 2],
                "claim": MAGIC + struct.pack(">II", 20, 100 << 20),
                "ends": b"\n",
            }
            self._sink.write(first[self._way])
            while self._way == "ends":
                self._sink.write(b"\n" * 65536)
        self._sink.flush()
        return len(content)


def mute_one_node() -> None:
    """The agent of local-3 says nothing while a cell runs. A node of a cluster has variables of its own, and is meant by them."""
    look, send, muted = node_agent.Agent._look, node_agent._Pipe.send, []

    def look_and_mute(self: node_agent.Agent, order: Look, networks: Path) -> Prospect:
        muted.append(order.node == "local-3" or not order.node.startswith("local-"))
        return look(self, order, networks)

    def send_unless_mute(pipe: node_agent._Pipe, message: FromAgent, body: bytes = b"") -> None:
        if not (any(muted) and isinstance(message, Beat | Progress)):
            send(pipe, message, body)

    node_agent.Agent._look = look_and_mute  # type: ignore[method-assign]
    node_agent._Pipe.send = send_unless_mute  # type: ignore[method-assign]


def main() -> None:
    if not os.environ.get("DLBENCH_TOY_SYNCS"):
        os.fsync = lambda _: None  # as in the tests' own process: nothing here need outlive a power failure
    # A toy prints what a CPU measured in half a minute, faster than any device computes it.
    counts.most_operations = lambda *_: None
    windows._SPENT = 0.0
    engines.ENGINES = dict.fromkeys(["toy", *engines.ENGINES], "tests.unit.toy_runner:ToyEngine")
    engines.AUTOMATIC = ["toy"]
    set_the_patience_of_nodes()
    # The driver of a run over several nodes finds the toys in its catalog, as it finds images.
    admit._catalog = toys
    transport.AGENT = ("-m", "tests.unit.toy_runner", "agent")
    from runner.cli.main import main

    main()


if __name__ == "__main__":
    main()
