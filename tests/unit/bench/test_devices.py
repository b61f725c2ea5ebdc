"""Several devices in one cell: two are one, each has its own part, one that fails ends all. The toy framework, in real processes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import contract, parallel, ranks, rules
from bench.errors import Unsupported
from bench.feeds import mini_batches
from bench.protocol import parse
from runner.catalog.images import PROJECT
from runner.run import execution

TOY = PROJECT / "tests" / "fixtures" / "toy_framework" / "adapter"

Bench = Callable[..., subprocess.CompletedProcess[str]]


def asked(framework: str, workload: str, precision: str = "fp32", device: str = "cpu", devices: int = 1) -> Any:
    """What `contract.check` looks at of the command line."""
    options = {"precision": precision, "device": device, "devices": devices, "mode": "default"}
    return SimpleNamespace(framework=framework, workload=workload, **options)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Run the bench of a copy of the project that has the toy framework."""
    copy = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT / "bench", copy / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TOY, copy / "bench" / "frameworks" / "toy")

    def run(command: str, *arguments: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "PYTHONPATH": str(copy),
            "DLBENCH_CACHE": str(copy / "cache"),
            "DLBENCH_TOY_FAULT": fault,
        }
        words = [sys.executable, "-P", "-m", "bench", command, "gru-imdb", "--framework", "toy", *arguments]
        return subprocess.run(
            words, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=280
        )

    return run


def events(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [parse(line.encode()) for line in ended.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_devices_agree_with_one(bench: Bench) -> None:
    ended = bench("check", "--devices", "2")
    assert ended.returncode == 0, ended.stderr
    verdict = json.loads(ended.stdout)
    assert verdict["devices"] == 2
    assert verdict["failed"] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rank_that_forgets_to_average_its_gradients_fails_parity(bench: Bench) -> None:
    ended = bench("check", "--devices", "2", fault="forgets 1")
    assert ended.returncode == 1
    failed = json.loads(ended.stdout)["failed"]
    assert {entry.split()[0] for entry in failed} == {"gradient", "parameter"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "message", "kind"),
    [
        ("dies 1", "rank 1 of 2: it was ended by signal 9 (SIGKILL)", "framework"),
        ("dies 0", "rank 0 of 2: it was ended by signal 9 (SIGKILL)", "framework"),
        ("raises 1", "rank 1 of 2: the toy's gradients are broken", "bug"),
    ],
)
def test_a_rank_that_fails_ends_the_cell_with_its_error(bench: Bench, fault: str, message: str, kind: str) -> None:
    begin = time.monotonic()
    ended = bench("run", "--devices", "2", fault=fault)
    assert time.monotonic() - begin < 60, "it must not wait for what never comes"
    *_, error, end = events(ended)
    assert (error["event"], error["kind"], error["message"]) == ("error", kind, message)
    assert (end["event"], end["status"]) == ("end", "failed")
    assert ended.returncode == 1


def test_a_framework_or_a_task_of_one_device_is_refused(bench: Bench) -> None:
    ended = bench("run", "--devices", "3")
    assert ended.returncode == 1
    assert "3 devices cannot share gru-imdb's batch of 64 evenly" in events(ended)[-2]["message"]
    with pytest.raises(Unsupported, match="lasagne uses one device here"):
        contract.check(asked("lasagne", "cnn-cifar10", devices=2))
    with pytest.raises(Unsupported, match="only training"):
        contract.check(asked("torch", "resnet50-features", devices=2))
    contract.check(asked("lasagne", "cnn-cifar10"))


def test_every_rank_has_its_own_part_of_each_shuffle() -> None:
    x = np.arange(100)
    whole = mini_batches(x, x, 32, np.random.RandomState(1))
    parts = [mini_batches(x, x, 32, np.random.RandomState(1), rank, 4) for rank in range(4)]
    for _ in range(7):  # over the ends of two epochs
        batch = next(whole)[0]
        shared = [next(part)[0] for part in parts]
        assert [len(part) for part in shared] == [8] * 4
        assert np.concatenate(shared).tolist() == batch.tolist()


def test_weak_scaling_keeps_the_batch_of_each_and_strong_that_of_all() -> None:
    assert rules.batch_of_all(64, 4, "weak") == 256
    assert rules.batch_of_all(64, 4, "strong") == 64
    assert parallel.threads_of_each("torch", 8, 2) == 4


@pytest.mark.parametrize(("framework", "each", "together"), [("torch", 4, 8), ("chainer", 4, 8), ("jax", 8, 8)])
def test_processes_have_a_part_of_the_threads_and_virtual_devices_share_them(
    framework: str, each: int, together: int
) -> None:
    assert parallel.threads_of_each(framework, 8, 2) == each
    assert parallel.threads_of_all(framework, each, 2) == together


class Process:
    """A process that ends with a code after some polls; None: never."""

    def __init__(self, number: int, polls: int, code: int | None) -> None:
        self.number, self.polls, self.code = number, polls, code
        self.error: dict[str, Any] | None = None
        self.lost: str | None = None
        self.end, self.complained, self.stopped, self.all = b"", 0.0, False, False
        self.process = self

    @property
    def returncode(self) -> int | None:
        return -9 if self.stopped else self.code

    def poll(self) -> int | None:
        self.polls -= 1
        return -9 if self.stopped else None if self.polls > 0 or self.code is None else self.code

    def failed(self) -> bool:
        return self.poll() not in (None, 0)

    def stop(self) -> None:
        self.stopped = True

    def wait(self) -> None:
        pass


def test_a_rank_that_does_not_end_after_the_others_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "LAST_SECONDS", 0.1)
    cell = [Process(0, 1, 0), Process(1, 1, None)]
    assert ranks._wait(cell) is cell[1]
    assert cell[1].stopped
    assert "had not ended" in ranks._how_it_ended(cell[1])


def test_a_clock_that_is_set_meanwhile_ends_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(time.time(), 3600.0)
    monkeypatch.setattr(time, "time", lambda: next(hours))
    assert ranks._wait([Process(0, 1, 0), Process(1, 20, 0)]) is None


def test_those_that_wait_for_one_that_failed_are_ended_and_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "GRACE_SECONDS", 0.1)
    cell = [Process(0, 1, None), Process(1, 3, 1)]
    assert ranks._wait(cell) is None
    assert ranks._to_blame(cell) is cell[1]


def test_a_rank_that_was_killed_is_blamed_before_one_that_missed_it() -> None:
    cell = [Process(0, 0, 1), Process(1, 0, -11)]
    cell[0].error, cell[0].complained = {"message": "connection closed by peer"}, 10.0
    cell[1].complained = 10.2
    assert ranks._to_blame(cell) is cell[1]
    cell[1].complained = 15.0
    assert ranks._to_blame(cell) is cell[0]


def test_a_killed_rank_is_named_by_its_signal_and_its_half_line_is_dropped() -> None:
    """The next event would stand in the same line, and the cell would have broken the protocol."""
    code = 'import os, signal; os.write(1, b\'{"event": 1}\\n{"eve\'); os.kill(os.getpid(), signal.SIGKILL)'
    lines: list[bytes] = []
    rank = ranks.Rank(0, [sys.executable, "-S", "-c", code], {parallel.RANK: "0"}, lines.append)
    rank.wait()
    assert lines == [b'{"event": 1}\n']
    assert ranks._how_it_ended(rank) == "it was ended by signal 9 (SIGKILL)"


# What MPICH 5.0's mpiexec printed on standard output when a process of it was killed; it ended with exit code 9.
LOST = """

===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 1425 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""


@pytest.mark.parametrize(
    ("code", "handed_on", "ended"),
    [
        (9, [b'{"event": "phase"}\n'], "it was ended by signal 9 (SIGKILL)"),
        # The words alone prove nothing: an image may print them, and its cell breaks the protocol as any other.
        (0, [b'{"event": "phase"}\n', *(f"{line}\n".encode() for line in LOST.splitlines())], "it ended with exit code 0 and no error"),
    ],
)  # fmt: skip
def test_what_mpiexec_says_of_a_lost_process_goes_to_the_log_and_names_it(
    code: int, handed_on: list[bytes], ended: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f'import sys; print(\'{{"event": "phase"}}\'); sys.stdout.write({LOST!r}); sys.exit({code})'
    lines: list[bytes] = []
    first = ranks.Rank(0, [sys.executable, "-S", "-c", script], {}, lines.append)
    first.wait()
    assert lines == handed_on
    assert ranks._how_it_ended(first) == ended
    assert ("BAD TERMINATION" in capsys.readouterr().err) is (code == 9)
    (tmp_path / "process-1425").write_text("1")
    assert ranks._lost_rank(str(tmp_path), first, 2) == (1 if code else None)
    # mpiexec names the first that a signal ended. Of three, that may be one that it killed itself.
    assert ranks._lost_rank(str(tmp_path), first, 3) is None


def test_a_line_of_the_cell_s_own_that_is_no_event_is_handed_on_where_mpiexec_lost_nothing() -> None:
    lines: list[bytes] = []
    script = "import sys; print('hello'); print('{\"event\": \"phase\"}'); sys.exit(3)"
    ranks.Rank(0, [sys.executable, "-S", "-c", script], {}, lines.append).wait()
    assert sorted(lines) == sorted([b"hello\n", b'{"event": "phase"}\n'])


def test_only_the_process_that_was_started_starts_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = SimpleNamespace(framework="torch", devices=2)
    monkeypatch.delenv(parallel.RANK, raising=False)
    assert ranks.starts_processes(asked)
    assert not ranks.starts_processes(SimpleNamespace(framework="torch", devices=1))
    monkeypatch.setenv(parallel.RANK, "1")
    assert not ranks.starts_processes(asked)


def test_processes_that_cannot_be_started_are_an_error_of_the_cell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ranks, "_mpiexec", lambda count: [str(tmp_path / "mpiexec"), "-n", str(count)])
    told: list[dict[str, Any]] = []
    emitter = SimpleNamespace(emit=lambda event, **fields: told.append({"event": event, **fields}), write=None)
    asked = SimpleNamespace(command="run", framework="chainer", devices=2, threads=2)
    assert ranks.supervise(["run"], asked, emitter) == 1
    assert [(each["event"], each.get("kind")) for each in told] == [("error", "unsupported"), ("end", None)]
    assert "the processes of 2 devices could not be started" in told[0]["message"]


def test_the_earliest_error_of_mpis_processes_is_the_cells(tmp_path: Path) -> None:
    for rank, moment in ((1, 3.0), (2, 2.0), (3, 9.0)):
        event = {"event": "error", "kind": "bug", "message": f"of {rank}", "t": moment}
        (tmp_path / f"rank-{rank}").write_text('{"event": "phase"}\n' + json.dumps(event) + "\n")
    first = Process(0, 1, 1)
    told = ranks._failed_aside(str(tmp_path), first)
    assert told is not None
    assert (told.number, told.error["message"]) == (2, "of 2")
    first.error = {"t": 1.0}
    assert ranks._failed_aside(str(tmp_path), first) is None


def test_a_process_that_waits_for_another_in_vain_says_so_before_the_host_ends_the_cell() -> None:
    # Processes meet for the first time after the import, when the first adapter is built; four minutes are enough for that.
    assert execution._TIME_LIMITS["quick"] >= parallel.PATIENCE_SECONDS + 240
