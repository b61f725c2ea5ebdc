"""A real agent, real processes below it, toy cells: what it says, what it keeps, and that it leaves nothing behind."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.catalog.own_networks import read
from runner.machine import lease
from runner.nodes.frames import Decoder
from runner.nodes.node_agent import Agent, _Pipe
from runner.nodes.transports.transport import Node
from runner.nodes.wire import (
    MOST_LINE,
    Ack,
    Beat,
    Begin,
    Begun,
    Bye,
    Ended,
    Hello,
    Look,
    Preparing,
    Refusal,
    Returned,
    Said,
    Stop,
    Versions,
    from_agent,
)
from runner.results.parcel import decode
from runner.run.options import Options
from tests.fixtures.nodes import RUN, Hand, toy_node
from tests.fixtures.waiting import wait_for
from tests.unit.processes import marked


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Callable[..., Hand]]:
    hands = []

    def start(node: Node | None = None, toy: str = "", seconds: float = 0.05) -> Hand:
        hands.append(Hand(node or toy_node(tmp_path, toy=toy, seconds=seconds)))
        return hands[-1]

    yield start
    for hand in hands:
        hand.process.kill()
        hand.close()


def processes() -> list[int]:
    """The processes of this run's cells, by the label in their environment."""
    return marked(f"DLBENCH_RUN={RUN}")


def left_on_disk(tmp_path: Path) -> list[str]:
    """What is below the node's cache but for the cells' own caches."""
    below = (tmp_path / "cache" / "dlbench").glob("s*/*")
    return [str(path) for path in below]


def test_a_finished_repeat_travels_and_stays_in_the_spool_until_it_is_acknowledged(
    agent: Callable[..., Hand], tmp_path: Path
) -> None:
    hand = agent()
    hello, begun = hand.begin()
    assert (hello.engine, begun.spooled) == ("toy", ())
    prepared = hand.prepare("toy-a")
    assert (prepared.digest, prepared.why) == ("sha256:toy-a", None)
    cell = hello.cells[0]
    attempt = hand.run(cell)
    message, body = hand.hear_all(Ended)
    parcel = decode(body, "x")
    assert (message.attempt, parcel.attempt, parcel.node) == (attempt, attempt, "n1")
    assert (parcel.cell_id, parcel.code, parcel.uuids) == (cell.id, 0, ())
    assert b"".join(piece for _, piece in parcel.tape).endswith(b"}\n")
    assert all(row["device"] == "cpu" for row in parcel.telemetry)
    spooled = tmp_path / "cache" / "dlbench" / "spool" / RUN / "n1" / f"{attempt}.parcel"
    assert spooled.read_bytes() == body
    hand.link.send(Ack(attempt=attempt))
    wait_for(lambda: not spooled.exists())
    hand.link.send(Bye())
    assert "exit code 0" in hand.hear_end().why
    assert left_on_disk(tmp_path) == []
    assert processes() == []


def test_the_next_agent_hands_over_what_a_killed_one_had_finished(agent: Callable[..., Hand]) -> None:
    first = agent()
    hello, _ = first.begin()
    first.prepare("toy-a")
    attempt = first.run(hello.cells[0])
    sent = first.hear_all(Ended)
    first.process.kill()
    assert "exit code -9" in first.hear_end().why
    second = agent()
    assert second.begin()[1].spooled == (attempt,)
    assert second.hear_all(Ended) == sent


@pytest.mark.parametrize("way", ["bye", "hang up", "kill", "terminate"])
def test_however_an_agent_ends_its_cells_end(agent: Callable[..., Hand], way: str, tmp_path: Path) -> None:
    hand = agent(toy="hang")
    hello, _ = hand.begin()
    hand.prepare("toy-a")
    hand.run(next(cell for cell in hello.cells if cell.workload == "gru-imdb"))
    wait_for((tmp_path / "started").is_file)
    assert processes()
    if way == "bye":
        hand.link.send(Bye())
    elif way == "hang up":
        hand.link.hang_up()
    else:
        hand.process.send_signal(signal.SIGKILL if way == "kill" else signal.SIGTERM)
    hand.hear_end()
    wait_for(lambda: not processes())
    if way != "kill":
        assert left_on_disk(tmp_path) == []


def test_an_attempt_is_stopped_alone_and_its_devices_are_free_again(agent: Callable[..., Hand], tmp_path: Path) -> None:
    hand = agent(toy="hang")
    hello, _ = hand.begin()
    hand.prepare("toy-a")
    hangs, ends = (
        next(cell for cell in hello.cells if cell.workload == name and cell.image == "toy-a")
        for name in ("gru-imdb", "cnn-cifar10")
    )
    first = hand.run(hangs, number=1)
    second = hand.run(ends, number=2)
    wait_for((tmp_path / "started").is_file)
    hand.link.send(Stop(attempt=first))
    assert hand.hear(Returned) == Returned(attempt=first, why="it was stopped")
    assert hand.hear(Ended).attempt == second, "it waited for the CPUs"
    third = hand.run(hangs, repeat=2, number=3)
    fourth = hand.run(ends, repeat=2, number=4)
    hand.link.send(Stop(attempt=fourth))
    assert hand.hear(Returned) == Returned(attempt=fourth, why="it was stopped before it began")
    hand.link.send(Stop(attempt=third))
    assert hand.hear(Returned).attempt == third


def test_what_cannot_run_is_returned_with_the_reason(agent: Callable[..., Hand]) -> None:
    hand = agent(toy="unready")
    hello, _ = hand.begin()
    assert hand.prepare("toy-b").why == "toy-b could not be built: the disk of toys is full"
    assert hand.prepare("toy-x").why == "this node has no image of that name"
    cell = next(cell for cell in hello.cells if cell.image == "toy-b")
    hand.run(cell)
    assert hand.hear(Returned).why == "toy-b was not prepared"
    hand.prepare("toy-a")
    hand.run(next(cell for cell in hello.cells if cell.image == "toy-a"), uuids=("GPU-7",))
    assert hand.hear(Returned).why == "a device that it was given is not one of this node"


def test_an_agent_waits_in_line_for_a_lease_and_says_so(
    agent: Callable[..., Hand], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLBENCH_LEASES", str(tmp_path / "leases"))
    hand = agent()
    hand.hear(Versions)
    options = {"gpus": "none", "workloads": ["gru-imdb"]}
    hand.link.send(Look(node="n1", options=options))
    hand.hear(Hello)
    with lease.hold([lease.CPUS], "other-run", lambda _: None):
        hand.link.send(Begin(run=RUN, leased=False))
        while not isinstance(said := hand.heard.get(timeout=60).message, Said):
            assert isinstance(said, Beat)
        assert f"process {os.getpid()}" in said.line
    assert hand.hear(Begun).spooled == ()


def test_a_node_that_lacks_the_data_refuses_with_a_sentence(agent: Callable[..., Hand]) -> None:
    for options, why in (
        ({"gpus": "none", "data": "/nowhere"}, "--data: there is no folder /nowhere on this node"),
        ({"gpus": "none", "frameworks": ["cobol"]}, "--frameworks: there is no 'cobol'"),
        ({"gpus": "none", "telepathy": True}, "telepathy: there is no such field"),
    ):
        hand = agent()
        hand.hear(Versions)
        hand.link.send(Look(node="n1", options=options))
        assert why in hand.hear(Refusal).why
        assert "exit code 0" in hand.hear_end().why


def test_a_persons_own_network_comes_with_the_first_message_and_its_cells_read_it(
    agent: Callable[..., Hand], tmp_path: Path
) -> None:
    file = tmp_path / "here" / "net.py"
    file.parent.mkdir()
    file.write_bytes(
        'FRAMEWORK, ITEMS = "torch", 8  # ü\ndef batch(random): ...\nclass Network:\n def step(self): ...\n'.encode()
    )
    network = read(file)
    hand = agent(seconds=5.0)
    hand.hear(Versions)
    options = Options(gpus="none", workloads=("/only/on/the/driver/net.py",)).model_dump(mode="json")
    hand.link.send(Look(node="n1", options=options, networks={network.name: network.texts}))
    cells = hand.hear(Hello).cells
    assert {(cell.workload, cell.framework, cell.batch) for cell in cells} == {(network.name, "torch", 8)}
    hand.link.send(Begin(run=RUN, leased=True))
    hand.hear(Begun)
    hand.prepare(cells[0].image)
    hand.run(cells[0])
    started = tmp_path / "started"
    wait_for(lambda: started.is_file() and started.read_text().endswith("\n"))
    words = started.read_text().split()
    folder = Path(words[words.index("--data") + 1])
    assert [path.name for path in folder.iterdir()] == ["net.py"]
    assert (folder / "net.py").read_bytes() == file.read_bytes()
    hand.link.send(Bye())
    hand.hear_end()
    wait_for(lambda: not processes())
    assert left_on_disk(tmp_path) == []
    assert not folder.exists()


def test_cpus_that_a_node_does_not_have_are_refused_with_a_sentence(agent: Callable[..., Hand]) -> None:
    hand = agent()
    hand.hear(Versions)
    hand.link.send(Look(node="n1", options={"gpus": "none"}, cpus=(1 << 20,)))
    assert "this node may not use the CPUs that it is given" in hand.hear(Refusal).why


def test_nodes_of_one_machine_share_its_memory_and_its_cpus(agent: Callable[..., Hand]) -> None:
    cpu = min(os.sched_getaffinity(0))
    hellos = []
    for sharing in (1, 4):
        hand = agent()
        hand.hear(Versions)
        options = {"gpus": "none", "workloads": ["gru-imdb"]}
        hand.link.send(Look(node="n1", options=options, cpus=(cpu,), sharing=sharing))
        hellos.append(hand.hear(Hello))
    assert {hello.cpu.cpus for hello in hellos} == {(cpu,)}
    assert hellos[0].cpu.memory_bytes // 4 == hellos[1].cpu.memory_bytes


def test_a_beat_comes_while_a_cell_runs(agent: Callable[..., Hand], tmp_path: Path) -> None:
    hand = agent(toy_node(tmp_path, toy="hang", beat=0.2))
    hello, _ = hand.begin()
    hand.prepare("toy-a")
    hand.run(next(cell for cell in hello.cells if cell.workload == "gru-imdb"))
    while not isinstance(hand.heard.get(timeout=60).message, Beat):
        pass
    while not isinstance(hand.heard.get(timeout=60).message, Beat):
        pass


def test_a_line_of_a_build_or_of_a_stranger_s_file_is_never_too_long_for_a_message() -> None:
    sink = io.BytesIO()
    Agent(_Pipe(sink)).preparing("toy-a", "\x1b[31m" + 100_000 * "x")
    (frame,) = Decoder().feed(sink.getvalue())
    message = from_agent(frame)
    assert isinstance(message, Preparing)
    assert message.line.startswith("xxx")
    assert len(message.line) < MOST_LINE + 100
