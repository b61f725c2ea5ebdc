"""Which nodes take part, and what a person sees of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.catalog.images import PROJECT
from runner.machine.devices import Refused
from runner.nodes import fleet as fleets
from runner.nodes import node_table
from runner.nodes.fleet import Fleet, Member
from runner.nodes.fleet_plan import prospect_of
from runner.nodes.frames import encode
from runner.nodes.transports.transport import Node, Nodes, Started
from runner.nodes.wire import PROTOCOL, Hello, release_difference, release_versions
from runner.plan.plan import Skip
from runner.results.on_disk import roles
from runner.run.options import Options
from tests.fixtures.json_documents import valid
from tests.fixtures.plans import CPU, H200, make_cell
from tests.fixtures.waiting import wait_for

pytestmark = pytest.mark.usefixtures("own_cache")


class Nowhere(Nodes):
    shares_machine = False
    notes = ()

    def there(self) -> list[Node]:
        return []


def hello(**fields: Any) -> Hello:
    usual: dict[str, Any] = {
        "host": "a", "boot_id": "boot-a", "kernel": "6.1", "architecture": "x86_64", "cpu": CPU, "gpus": (), "refused": (),
        "why_no_gpu": None, "notes": (), "engine": "venv", "why_engine": "as asked", "fetch_bytes": 0, "cells": (), "skips": (),
    }  # fmt: skip
    return Hello(**(usual | fields))


def a_fleet(**members: Hello) -> Fleet:
    fleet = Fleet(Nowhere(), Options())
    fleet.members = {name: Member(Node(name, ()), hello=each) for name, each in members.items()}
    return fleet


CELL = make_cell(batch=64, device_model=CPU.model)
TORCH = replace(CELL, image="torch-2.13.0-cpu")
GPU_CELL = make_cell(batch=64, device_kind="cuda", device_model=H200.model)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (hello(boot_id="boot-a"), "it is the same machine as n1"),
        (hello(boot_id="b", engine="docker"), "its engine is docker (as asked), and that of the others venv"),
        (hello(boot_id="b", gpus=(H200,)), "it says that GPU-1 is its own, and so says n1"),
        (hello(boot_id="b", cells=(replace(CELL, batch=65),)), "another preset, seed or batch"),
        (hello(boot_id="b", cells=(replace(CELL, seed=2),)), "another preset, seed or batch"),
        (hello(boot_id="b", cells=(replace(CELL, image="../../x"),)), "image '../../x'"),
        (hello(boot_id="b", cells=(replace(CELL, framework="cobol"),)), "cobol gru-imdb fp32"),
        (hello(boot_id="b", cells=(replace(CELL, device_model="Z80"),)), "another CPU than its own"),
        (hello(boot_id="b", cells=(GPU_CELL,)), "GPUs that it does not have"),
        (
            hello(boot_id="b", architecture="aarch64", cells=(TORCH,)),
            "torch-2.13.0-cpu: torch==2.13.0+cpu has no wheel for aarch64 in its lock",
        ),
    ],
)
def test_a_node_that_cannot_stand_beside_the_others_is_refused(other: Hello, why: str) -> None:
    fleet = a_fleet(n1=hello(gpus=(H200,), cells=(CELL, GPU_CELL)))
    assert why in str(fleet._why_not(other))
    assert fleet._why_not(hello(boot_id="b", cells=(CELL,), gpus=(replace(H200, uuid="GPU-2", board="GPU-2"),))) is None


def test_another_release_is_refused_with_what_differs() -> None:
    own = release_versions()
    assert release_difference(own, own) is None
    for change, why in (
        ({"protocol": PROTOCOL + 1}, f"it speaks version {PROTOCOL + 1} of the agent's protocol"),
        ({"bench_sha256": "0" * 64}, f"its bench is 000000000000, and here it is {own.bench_sha256[:12]}"),
        ({"catalog_sha256": "0" * 64}, "its catalog of images is 000000000000"),
        ({"runner_sha256": "0" * 64}, "its runner's code is 000000000000"),
        ({"runner": "9.9"}, "its runner is 9.9"),
    ):
        sentence = release_difference(own, own.model_copy(update=change))
        assert sentence is not None
        assert why in sentence
        assert sentence.endswith("install the same checkout there")


def test_a_node_with_another_bench_is_sent_home_before_it_is_looked_at() -> None:
    own = release_versions()
    other = encode(own.model_copy(update={"bench_sha256": "f" * 64}).frame())
    script = f"import sys; sys.stdout.buffer.write({other!r}); sys.stdout.flush(); sys.stdin.buffer.read()"

    class Old(Nowhere):
        def there(self) -> list[Node]:
            return [Node("n1", (sys.executable, "-c", script))]

    fleet = Fleet(Old(), Options())
    try:
        with pytest.raises(fleets.NodesError, match="n1: its bench is ffffffffffff, and here it is"):
            fleet.look()
    finally:
        fleet.close()
    link = fleet.members["n1"].link
    assert link is not None
    assert link._pipe.last_words()[0] == 0, "it was not cut off"


def test_a_node_that_does_not_name_its_release_is_refused() -> None:
    script = (
        f"import sys; sys.stdout.buffer.write({encode(hello().frame())!r}); sys.stdout.flush(); sys.stdin.buffer.read()"
    )

    class Nameless(Nowhere):
        def there(self) -> list[Node]:
            return [Node("n1", (sys.executable, "-c", script))]

    fleet = Fleet(Nameless(), Options())
    try:
        with pytest.raises(fleets.NodesError, match="n1: it said what it is before it named its release"):
            fleet.look()
    finally:
        fleet.close()


def test_a_changed_file_of_each_part_changes_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.nodes import wire as module

    for path in ("runner/a.py", "images/torch/image.toml"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("1")
    monkeypatch.setattr(module, "PROJECT", tmp_path)
    before = release_versions()
    (tmp_path / "runner/a.py").write_text("2 ")
    assert release_versions().runner_sha256 != before.runner_sha256
    assert release_versions().catalog_sha256 == before.catalog_sha256
    (tmp_path / "images/torch/image.toml").write_text("2 ")
    assert release_versions().catalog_sha256 != before.catalog_sha256


def test_what_differs_between_nodes_is_said_by_value_and_node() -> None:
    gpus = [replace(H200, uuid=f"GPU-{n}", board=f"GPU-{n}", power_limit_watts=700.0) for n in range(4)]
    slow = replace(gpus[2], power_limit_watts=500.0, driver="535.1")
    fleet = a_fleet(
        n1=hello(gpus=(gpus[0],)), n2=hello(gpus=(gpus[1],)), n3=hello(gpus=(slow, gpus[3]), kernel="5.4"), n4=hello()
    )
    assert node_table.differences(list(fleet.members.values())) == [
        "kernel differs: 6.1 (n1, n2, n4); 5.4 (n3)",
        "GPUs differs: 1 x NVIDIA H200 (n1, n2); 2 x NVIDIA H200 (n3); none (n4)",
        "driver of NVIDIA H200 differs: 570.86.15 (n1, n2); 535.1 and 570.86.15 (n3)",
        "power limit of NVIDIA H200 differs: 700 W (n1, n2); 500 W and 700 W (n3)",
    ]
    same = a_fleet(n1=hello(gpus=(gpus[0],)), n2=hello(gpus=(gpus[1],)))
    assert node_table.differences(list(same.members.values())) == []


def test_what_one_node_leaves_to_the_others_is_said_with_its_reason() -> None:
    names = {name: getattr(CELL, name) for name in ("image", "framework", "workload", "precision", "mode")}
    skip = Skip(**names, device_kind="cpu", device_model=CPU.model, reason="the disk is full")
    nowhere = replace(skip, workload="cnn-cifar10", reason="no adapter")
    fleet = a_fleet(n1=hello(cells=(CELL,), skips=(nowhere,)), n2=hello(skips=(skip, nowhere)))
    lines = node_table.not_everywhere(list(fleet.members.values()))
    assert lines == ["n2 leaves 1 cell to other nodes: the disk is full"]


def test_a_node_of_another_architecture_leaves_what_has_no_wheel_there_to_the_others() -> None:
    both = replace(TORCH, image="jax-0.10.2-cpu", framework="jax")
    skip = Skip(
        **{name: getattr(TORCH, name) for name in ("image", "framework", "workload", "precision", "mode")},
        device_kind="cpu",
        device_model=CPU.model,
        reason="torch==2.13.0+cpu has no wheel for aarch64",
    )
    arm = hello(boot_id="b", architecture="aarch64", cells=(both,), skips=(skip,))
    fleet = a_fleet(n1=hello(cells=(TORCH, both)))
    assert fleet._why_not(arm) is None
    fleet.members["n2"] = Member(Node("n2", ()), hello=arm)
    prospect = prospect_of(fleet, Options())
    assert (prospect.plan.cells, prospect.plan.skips) == ((TORCH, both), ())
    assert {
        "architecture differs: x86_64 (n1); aarch64 (n2)",
        "n2 leaves 1 cell to other nodes: torch==2.13.0+cpu has no wheel for aarch64",
    } <= set(prospect.machine.notes)
    assert [entry["architecture"] for entry in prospect.facts()["nodes"]] == ["x86_64", "aarch64"]


def test_a_run_records_of_each_node_every_fact_that_a_run_on_one_machine_records() -> None:
    slow = replace(CPU, machine_cpus=64, governor="powersave", energy_preference="power", turbo="off", quota=1.0)
    fleet = a_fleet(n1=hello(cells=(CELL,)), n2=hello(cells=(CELL,), boot_id="b", cpu=slow))
    said = prospect_of(fleet, Options())
    for entry in said.facts()["nodes"]:
        assert roles.HOST_ROLES.keys() - {"name"} <= entry.keys()
    assert said.facts()["nodes"][1].items() >= {
        "machine_cpus": 64, "cpu_quota": 1.0, "cpu_governor": "powersave", "cpu_energy_preference": "power", "cpu_turbo": "off"
    }.items()  # fmt: skip
    assert "CPU governor differs: not reported (n1); powersave (n2)" in said.machine.notes


def test_what_many_nodes_say_alike_is_said_once_with_the_first_of_them() -> None:
    open_cells = "cells are not walled in"
    fleet = a_fleet(
        **{f"n{at}": hello(notes=(open_cells,)) for at in range(6)},
        n6=hello(notes=("the disk is slow",), refused=(Refused("0", "NVIDIA H200", "it is in use"),)),
    )
    assert node_table.notes(list(fleet.members.values())) == [
        f"n0, n1, n2, n3 and 2 more: {open_cells}",
        "n6: not used: it is in use",
        "n6: the disk is slow",
    ]


@pytest.fixture
def toys(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"DLBENCH_TOY_STARTED": str(tmp_path / "started"), "XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, "-m", "tests.unit.toy_runner", *words]
        return subprocess.run(command, cwd=PROJECT, env=environment | more, capture_output=True, text=True, check=False)

    return run


def test_the_command_shows_each_node_and_starts_nothing(
    toys: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    shown = toys("nodes", "--nodes", "local:2", "--gpus", "none", "--workloads", "gru-imdb", "--format", "json")
    document = valid("nodes", shown.stdout)
    assert [(each["node"], each["takes_part"], each["cell_count"]) for each in document["nodes"]] == [
        ("local-1", True, 3),
        ("local-2", True, 3),
    ]
    assert shown.returncode == 0
    assert not (tmp_path / "started").exists()
    refused = toys("nodes", "--nodes", "local:1", "--gpus", "none", "--engine", "lxc")
    assert refused.returncode == 4
    assert "runner: --nodes: no node can take part:\n  local-1: there is no engine 'lxc'" in refused.stderr


def test_a_host_that_is_gone_is_a_row_and_the_exit_code_says_so(
    toys: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    program = tmp_path / "ssh"
    program.write_text(
        "#!/bin/sh\nfor last; do :; done\ncase \"$*\" in *gone*) echo 'No route to host' >&2; exit 255;; esac\n"
        'exec sh -c "$last"\n'
    )
    program.chmod(0o755)
    (tmp_path / "hosts").write_text("here\ngone\n")
    words = ("nodes", "--nodes", f"ssh:{tmp_path / 'hosts'}", "--gpus", "none")
    shown = toys(*words, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert shown.returncode == 1, shown.stderr
    assert "here" in shown.stdout
    assert "no: its agent ended with exit code 255: No route to host" in shown.stdout


def test_an_agent_that_says_more_than_is_heard_waits_and_is_cut_off_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would fill the driver's memory."""
    beat = "b'dlbench1' + (15).to_bytes(4, 'big') + bytes(4) + b'{\"kind\":\"beat\"}'"

    class Loud(Nowhere):
        def there(self) -> list[Node]:
            return [Node("n1", (sys.executable, "-c", f"import sys\nwhile 1: sys.stdout.buffer.write({beat})"))]

    monkeypatch.setattr(fleets, "_BYE_SECONDS", 0.5)
    fleet = Fleet(Loud(), Options())
    try:
        fleet.open(*Loud().there())
        wait_for(lambda: fleet.heard.qsize() == 200)
        time.sleep(0.5)
        assert fleet.heard.qsize() == 200
        assert fleet.hear(1.0).link.node.name == "n1"
        wait_for(lambda: fleet.heard.qsize() == 200)
    finally:
        fleet.close()
    link = fleet.members["n1"].link
    assert link is not None
    assert link._pipe.last_words()[0] == -9


def test_the_bytes_that_a_node_has_said_and_nobody_heard_are_bounded_and_other_nodes_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleets, "_MOST_UNHEARD_BYTES", 100)
    fleet = Fleet(Nowhere(), Options())

    def heard(name: str, size: int) -> Any:
        return SimpleNamespace(link=SimpleNamespace(node=Node(name, ())), body=bytes(size))

    def say_three() -> None:
        # One alone may be larger.
        for size in (150, 60, 60):
            fleet._note(heard("loud", size))

    loud = threading.Thread(target=say_three, daemon=True)
    loud.start()
    wait_for(lambda: fleet.heard.qsize() == 1)
    fleet._note(heard("quiet", 90))
    assert [len(fleet.hear(1.0).body) for _ in range(2)] == [150, 90]
    assert len(fleet.hear(5.0).body) == 60
    assert len(fleet.hear(5.0).body) == 60
    loud.join(5)
    assert not loud.is_alive()


def test_a_node_that_does_not_answer_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dumb(Nowhere):
        def there(self) -> list[Node]:
            return [Node("n1", (sys.executable, "-c", "import time; time.sleep(60)"))]

    monkeypatch.setattr(fleets, "_BYE_SECONDS", 0.5)
    fleet = Fleet(Dumb(), Options())
    try:
        with pytest.raises(fleets.NodesError, match=r"n1: it did not answer in 0 s"):
            fleet.look(0.3)
    finally:
        fleet.close()


def test_at_the_end_no_agent_is_left_that_was_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to a node that said nothing in time is still there when the node is called a second time."""
    monkeypatch.setattr(fleets, "_BYE_SECONDS", 0.2)
    fleet = Fleet(Nowhere(), Options())
    # Two that do not hear that their input ends.
    processes = []
    for _ in range(2):
        member = fleet.open(Node("n1", ("sleep", "300")))
        assert member.link is not None
        assert isinstance(member.link._pipe, Started)
        processes.append(member.link._pipe.process)
        fleet.refuse(member, "it did not answer in time")
    fleet.close()
    assert [process.poll() for process in processes] == [-9, -9]


def test_a_refused_gpu_is_part_of_what_a_node_is() -> None:
    member = Member(Node("n1", ()), hello=hello(refused=(Refused("0", "NVIDIA H200", "it is in use"),)))
    assert node_table.rows([member, Member(Node("n2", ()), why="gone")]) == [
        ("n1", "none", "–", "venv", "2", "0", "0.0 GB", "yes"),
        ("n2", *["–"] * 6, "no: gone"),
    ]


def test_what_is_left_has_a_length_though_all_nodes_are_lost() -> None:
    fleet = a_fleet(n1=hello(cells=(CELL,)), n2=hello(cells=(CELL,)))
    prospect = prospect_of(fleet, Options())
    before = prospect.expected_seconds(prospect.jobs)
    for member in fleet.members.values():
        member.why = "Slurm took it away"
    assert prospect.expected_seconds(prospect.jobs) >= before > 0


def test_what_nodes_fetch_is_said_by_node_and_in_all() -> None:
    sizes = {"a": 4_100_000_000, "b": 4_100_000_000, "c": 0}
    prospect = prospect_of(a_fleet(**{name: hello(fetch_bytes=size) for name, size in sizes.items()}), Options())
    assert prospect.fetches() == "2 nodes x 4.10 GB + 1 node x 0.00 GB = 8.20 GB"
    assert prospect_of(a_fleet(a=hello(), b=hello()), Options()).fetches() == "0.00 GB"
