"""Which nodes --nodes names, and how an agent is started there."""

from __future__ import annotations

import math
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.errors import UserError
from runner.machine.devices import Cpu, Gpu, Machine
from runner.nodes.fleet import Fleet, Heard, Link, opened
from runner.nodes.transports import nodes_of, ray, slurm, ssh
from runner.nodes.transports.slurm import Slurm
from runner.nodes.transports.ssh import Local, Ssh
from runner.nodes.transports.transport import Node, NodesError, Pipe, Started
from runner.nodes.wire import PROTOCOL, Versions
from runner.run.options import Options
from tests.fixtures.nodes import Hand

PAIRS = Cpu("Test CPU", tuple(range(8)), 8 << 30, cores=((0, 4), (1, 5), (2, 6), (3, 7)))


def gpu(number: int) -> Gpu:
    return Gpu(number, f"GPU-{number}", "NVIDIA L4", "8.9", 1 << 34, "550.1", (0,))


def test_local_nodes_share_the_cores_and_the_gpus_without_an_overlap() -> None:
    machine = Machine(PAIRS, tuple(map(gpu, range(5))), None)
    nodes = Local(2, machine)
    assert [node.cpus for node in nodes.there()] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert [node.gpus for node in nodes.there()] == ["GPU-0,GPU-2,GPU-4", "GPU-1,GPU-3"]
    assert {node.sharing for node in nodes.there()} == {2}
    assert nodes.notes == ()
    with pytest.raises(NodesError, match="this machine has 5 GPUs to use, and each node needs one; say local:5"):
        Local(6, machine)


def test_more_local_nodes_than_cores_say_that_their_times_mean_little() -> None:
    nodes = Local(6, Machine(PAIRS, (), "none"))
    assert nodes.notes == ("6 nodes share 4 cores: their times mean little",)
    assert {(node.cpus, node.gpus) for node in nodes.there()} == {(None, "")}


NAMES = (
    "",
    "local",
    "local:0",
    "local:65",
    "local:²",
    "local:٣",
    "local:x",
    "local:" + "1" * 5000,
    "ssh:",
    "slurm:",
    "ray:",
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "is neither local:N") for text in NAMES),
        ("ray://head:10001", "Ray's client is not used.* say --nodes ray"),
        *((f"ray:{address}", "it is no HOST:PORT") for address in ("head", "http://head:8265", "a b:1")),
    ],
)
def test_what_is_no_transport_is_refused(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        nodes_of(text, "none")


def test_without_ray_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NodesError, match="has no Ray .*pip install 'ray>=2.49,<3'"):
        nodes_of("ray", "none")


def test_a_head_that_does_not_answer_is_told_within_seconds_and_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        # Nobody listens at it.
        with pytest.raises(NodesError, match=r"nothing answers there \(.*refused.*HOST:6379"):
            nodes_of(f"ray:127.0.0.1:{taken.getsockname()[1]}", "none")


class StandInRay:
    """What a transport asks of Ray before it starts an actor."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.listed = list(nodes)

    def init(self, **_: object) -> None:
        if not self.listed:
            raise ConnectionError("Could not find any running Ray instance.\nPlease specify one.")

    def nodes(self) -> list[dict[str, Any]]:
        return self.listed


def ray_node(name: str, number: int, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": f"{number:056x}"[::-1], "NodeManagerHostname": name, "Alive": alive, "Resources": resources}


def test_the_nodes_of_a_ray_cluster_are_those_that_are_alive_and_offer_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandInRay(
        ray_node("b", 2, CPU=4.0), ray_node("a", 1, GPU=1.0), ray_node("c", 3, False, CPU=1.0), ray_node("head", 4)
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    nodes = nodes_of("ray", "none")
    assert [node.name for node in nodes.there()] == ["a", "b"]
    # A raylet that was started again is another node, and one that comes late is one more.
    stand_in.listed += [ray_node("b", 5, CPU=4.0), ray_node("d\x1b[2J", 6, CPU=4.0)]
    assert [node.name for node in nodes.there()] == ["a", "b", "b-50000000", "d--2J"]
    stand_in.listed[0]["Alive"] = False
    assert [node.name for node in nodes.there()] == ["a", "b-50000000", "d--2J"]
    gone = nodes.there()[0]
    stand_in.listed.clear()
    assert gone.start is not None
    with pytest.raises(NodesError, match="a: Ray says that this node is gone"):
        gone.start()


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([], "no connection to a Ray cluster .Could not find any running Ray instance.*ray job submit"),
        ([ray_node("head", 1)], "no node of this Ray cluster offers CPUs or GPUs"),
    ],
)
def test_a_ray_cluster_without_a_node_is_said(
    nodes: list[dict[str, Any]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", StandInRay(*nodes))
    with pytest.raises(NodesError, match=why):
        nodes_of("ray", "none").there()


class InLine:
    """A pipe to an agent that waits for a busy node, until a test lets the node die."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def chunks(self) -> Iterator[bytes]:
        self.over.wait(60)
        yield b""
        raise OSError("Ray: its node has died")

    def waits_for(self) -> str:
        return "" if self.over.is_set() else "2 GPUs (1 free)"


def test_what_ray_says_of_its_nodes_is_no_part_of_a_document_on_standard_output() -> None:
    shown: list[dict[str, object]] = []
    worker = SimpleNamespace(print_to_stdstream=lambda data, ignore_prefix: shown.append(data))
    for _ in range(2):
        ray._speak_on_stderr(SimpleNamespace(_private=SimpleNamespace(worker=worker)))
    worker.print_to_stdstream({"lines": ["a node died"], "is_err": False}, ignore_prefix=False)
    assert shown == [{"lines": ["a node died"], "is_err": True}]
    ray._speak_on_stderr(SimpleNamespace())


def test_where_all_nodes_wait_in_line_the_driver_waits_with_them() -> None:
    pipe = InLine()
    nodes = SimpleNamespace(
        shares_machine=False, notes=(), there=lambda: [Node("n1", (), start=lambda: cast(Pipe, pipe))]
    )
    threading.Timer(1.0, pipe.over.set).start()
    with pytest.raises(NodesError, match="n1: Ray: its node has died"):
        Fleet(cast(Any, nodes), Options()).look(patience=0.1)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for ssh: it drops its options and runs the words of the command in a shell, after a word of the login shell."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "at = sys.argv.index('--')\n"
        "host, command = sys.argv[at + 1:]\n"
        "if host == 'gone': sys.exit('ssh: connect to host gone port 22: No route to host')\n"
        "print('Welcome to', host, flush=True)\n"
        "os.execv('/bin/sh', ['sh', '-c', command])\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    path = tmp_path / "hosts.txt"
    path.write_text("# the rack\nn1\nuser@n2 /opt/a folder/python\n")
    return path


def test_a_file_of_hosts_is_a_node_a_line(hosts: Path) -> None:
    hosts.write_text("# the rack\nn1\n\nuser@n2   /opt/bin/python  # an older one\n")
    first, second = Ssh(hosts).there()
    assert (first.name, second.name) == ("n1", "user@n2")
    assert first.command[1:2] == ("-T",)
    assert "BatchMode=yes" in first.command
    assert first.command[-3:] == ("--", "n1", f"{sys.executable} -m runner agent")
    assert second.command[-1] == "/opt/bin/python -m runner agent"
    hosts.write_text("n1\nn3\n")
    ssh = Ssh(hosts)
    hosts.write_text("n1\nn3\nn4\n")
    assert [node.name for node in ssh.there()] == ["n1", "n3", "n4"], "a node may come"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names 0 hosts"),
        ("-oProxyCommand=x", ":1: '-oProxyCommand=x' is neither HOST"),
        ("user@-oProxyCommand", ":1: 'user@-oProxyCommand' is neither HOST"),
        ("n1\nn2 a b", ":2: 'n2 a b' is neither HOST nor HOST PYTHON"),
        ("n1\na\x1b[2J", r":2: 'a' is neither HOST"),
        ("n" * 102, "is neither HOST"),
        ("n1\nn1", ":2: n1 is there twice"),
        ("n1;reboot", ":1: 'n1;reboot' is neither HOST"),
    ],
)
def test_a_file_of_hosts_that_is_none_is_refused(hosts: Path, text: str, why: str) -> None:
    hosts.write_text(text)
    with pytest.raises(UserError, match=why):
        Ssh(hosts)


def test_a_file_of_hosts_may_come_from_windows_and_must_be_a_file(hosts: Path) -> None:
    hosts.write_bytes(b"\xef\xbb\xbfn1\r\nuser@n2\r\n")
    assert [node.name for node in Ssh(hosts).there()] == ["n1", "user@n2"]
    pipe = hosts.with_name("pipe")
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="pipe cannot be read .*it is no file"):
        Ssh(pipe)
    # Otherwise the last hosts would be missing without a word.
    hosts.write_text("# a comment\n" * 100_000)
    with pytest.raises(UserError, match="cannot be read .*more than 1048576 bytes"):
        Ssh(hosts)


def test_a_file_that_is_not_there_and_a_machine_without_ssh_are_said(
    hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="nowhere.txt cannot be read"):
        Ssh(hosts.with_name("nowhere.txt"))
    monkeypatch.setattr(ssh, "find_program", lambda _: None)
    with pytest.raises(NodesError, match="no program ssh on PATH"):
        Ssh(hosts)


def test_an_agent_speaks_through_ssh_after_a_shell_s_welcome(hosts: Path) -> None:
    hosts.write_text("n1\n")
    hand = Hand(Ssh(hosts).there()[0])
    assert hand.hear(Versions).protocol == PROTOCOL
    hand.close()
    assert hand.hear_end().why.startswith("its agent ended with exit code 0")


@pytest.mark.parametrize(
    ("host", "python", "why"),
    [
        ("gone", "", "ended with exit code 1: ssh: connect to host gone port 22: No route to host"),
        ("n1", "/nowhere/python", "not found"),
    ],
)
def test_a_host_that_cannot_be_reached_says_what_ssh_says(hosts: Path, host: str, python: str, why: str) -> None:
    hosts.write_text(f"{host} {python}\n")
    assert why in Hand(Ssh(hosts).there()[0]).hear_end().why


def test_the_last_words_of_an_agent_are_read_though_its_end_is_seen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Started._read_errors

    def read_late(started: Started) -> None:
        time.sleep(0.3)
        read(started)

    monkeypatch.setattr(Started, "_read_errors", read_late)
    hand = Hand(Node("n1", (sys.executable, "-c", "import sys; sys.exit('no such thing here')")))
    assert hand.hear_end().why == "its agent ended with exit code 1: no such thing here"


def test_an_agent_that_sends_what_no_agent_sends_is_cut_off() -> None:
    heard: queue.Queue[Heard] = queue.Queue()
    script = "import sys, time; sys.stdout.write('dlbench1' + 8 * chr(255)); sys.stdout.flush(); time.sleep(60)"
    link = Link(Node("n1", (sys.executable, "-c", script)), heard.put)
    end = heard.get(timeout=60)
    assert end.broken
    assert "is the most" in end.why
    link.end(5)
    assert isinstance(opened(Node("n2", ("/nowhere/agent",)), heard.put), NodesError)


def test_slurm_needs_its_programs_and_a_name_or_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(slurm, "find_program", lambda name: None if name == "sinfo" else name)
    with pytest.raises(NodesError, match="there is no program sinfo on PATH; run it where Slurm's commands are"):
        nodes_of("slurm:gpu", "none")
    monkeypatch.setattr(slurm, "find_program", lambda name: name)
    assert isinstance(nodes_of("slurm:gpu[001-016,020]", "none"), Slurm)
    with pytest.raises(UserError, match=r"this is no allocation of Slurm \(SLURM_JOB_ID is not set\)"):
        nodes_of("slurm", "none")
    with pytest.raises(UserError, match="is neither a partition nor nodes"):
        nodes_of("slurm:-x", "none")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert isinstance(nodes_of("slurm", "none"), Slurm)


@pytest.mark.parametrize(
    ("left", "seconds"),
    [("0:59", 59), ("12:03", 723), ("1:00:00", 3600), ("2-03:04:05", 183845), ("UNLIMITED", math.inf), ("", math.inf)],
)
def test_the_time_that_is_left_of_a_job_is_read_as_squeue_writes_it(left: str, seconds: float) -> None:
    assert slurm._seconds(left) == seconds


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu:h200:4(IDX:0-3)", 4),
        ("gpu:8(S:0-1)", 8),
        ("nic:2,gpu:a100:2(IDX:0,3),gpu:h100:1(IDX:1)", 3),
        ("nic:2", 0),
        ("(null)", 0),
        ("", 0),
    ],
)
def test_the_gpus_of_a_node_are_counted_in_slurm_s_list_of_resources(gres: str, count: int) -> None:
    assert slurm._gpus(gres) == count


def test_a_node_that_is_named_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_asked", lambda *_: "n0\nn1\nn0\n")
    assert slurm._hosts("n0,n1,n0") == ["n0", "n1"]
