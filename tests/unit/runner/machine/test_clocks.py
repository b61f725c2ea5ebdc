"""--lock-clocks: the clocks of a run's GPUs are locked, and set back whatever happens. NVML's stand-in notes what was asked of it."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.catalog.images import PROJECT
from runner.machine import clocks, lease
from runner.results.gpu_facts import gpu_settings
from runner.results.store import RunStore
from runner.run import execution
from tests.fixtures import synthetic
from tests.fixtures.waiting import wait_for
from tests.stand_ins.fleet import FakeGpu, Fleet, environment, uuid_of

Show = Callable[[Fleet], Path]
TWO = Fleet((FakeGpu(), FakeGpu()))
BOARDS = (uuid_of(0), uuid_of(1))


@pytest.fixture(autouse=True)
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(lease.VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


def asked(fleet_file: Path) -> list[str]:
    """What was asked of the clocks so far."""
    notes = fleet_file.with_name(f"{fleet_file.name}.clocks")
    return notes.read_text().splitlines() if notes.exists() else []


@pytest.mark.parametrize("ends_by", [None, ValueError, KeyboardInterrupt])
def test_clocks_are_locked_in_the_block_and_set_back_however_it_ends(
    fleet: Show, leases: Path, ends_by: type[BaseException] | None
) -> None:
    file = fleet(TWO)
    said: list[str] = []
    try:
        with clocks.locked(BOARDS, 1500, said.append) as held:
            assert held == BOARDS
            assert asked(file) == ["0 1500 1500", "1 1500 1500"]
            assert len(list(leases.iterdir())) == 2
            if ends_by:
                raise ends_by
    except (ValueError, KeyboardInterrupt):
        pass
    assert sorted(asked(file)[2:]) == ["0 reset", "1 reset"]
    assert list(leases.iterdir()) == []
    assert said == []


@pytest.mark.parametrize(("lockable", "why"), [("!4", "Insufficient Permissions; root may"), (None, "Not Supported")])
def test_a_gpu_that_cannot_be_locked_is_told_in_one_sentence_and_the_others_are_locked(
    fleet: Show, leases: Path, lockable: str | None, why: str
) -> None:
    file = fleet(TWO.with_gpu(0, lockable=lockable))
    said: list[str] = []
    with clocks.locked(BOARDS, 1500, said.append) as held:
        assert held == BOARDS[1:]
    assert said == [f"--lock-clocks: the clocks of GPU {BOARDS[0]} cannot be locked ({why}): they float"]
    assert asked(file) == ["1 1500 1500", "1 reset"]
    assert list(leases.iterdir()) == []


def test_what_a_killed_runner_left_locked_is_set_back_by_the_next_one_and_by_the_doctor(
    fleet: Show, leases: Path, nvml_library: Path
) -> None:
    file = fleet(TWO)
    script = (
        "import sys, time\nfrom runner.machine import clocks\n"
        "with clocks.locked(sys.argv[1:], 1500, print): time.sleep(60)"
    )

    def kill_while_locked() -> None:
        before = len(asked(file))
        variables = environment(nvml_library, file)
        with subprocess.Popen([sys.executable, "-c", script, *BOARDS], cwd=PROJECT, env=variables) as process:
            wait_for(lambda: len(asked(file)) == before + 2)
            process.send_signal(signal.SIGKILL)

    kill_while_locked()
    assert clocks.undo(BOARDS[1:]) == [
        f"the clocks of GPU {BOARDS[1]}, which a killed runner left locked, are set back"
    ]
    assert asked(file)[2:] == ["1 reset"]
    # A runner that holds the GPU is at work: its lock is none of the doctor's.
    with lease.hold(BOARDS[:1], "other", print):
        assert clocks.undo() == []
    doctor = [sys.executable, "-m", "runner", "doctor"]
    ended = subprocess.run(doctor, cwd=PROJECT, env=environment(nvml_library, file), capture_output=True, text=True)
    assert f"warn     clocks: the clocks of GPU {BOARDS[0]}, which a killed runner left" in ended.stdout, ended.stderr
    assert asked(file)[3:] == ["0 reset"]
    assert clocks.undo() == []


def test_clocks_that_cannot_be_set_back_are_told_until_they_are(fleet: Show, leases: Path) -> None:
    fleet(TWO)
    said: list[str] = []
    with clocks.locked(BOARDS[:1], 1500, said.append):
        fleet(TWO.with_gpu(0, lockable="!4"))
    (sentence,) = said
    assert sentence.startswith(f"the clocks of GPU {BOARDS[0]} are still locked (Insufficient Permissions; root may)")
    assert clocks.undo() == [sentence]
    # The record stays: it alone says that they are locked.
    with clocks.locked(BOARDS[:1], 1500, said.append) as held:
        assert held == ()
    assert said[1:] == [
        f"--lock-clocks: the clocks of GPU {BOARDS[0]} are still locked by an earlier run, as {lease.path_of(BOARDS[0], '.clocks')} says; "
        f"`nvidia-smi -i {BOARDS[0]} -rgc` sets them back"
    ]
    fleet(TWO)
    assert clocks.undo() == [f"the clocks of GPU {BOARDS[0]}, which a killed runner left locked, are set back"]
    assert list(leases.iterdir()) == []


def test_a_record_that_another_user_wrote_is_not_acted_on(
    fleet: Show, leases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fleet(TWO)
    record = lease.path_of(BOARDS[0], ".clocks")
    user = pwd.getpwuid(os.getuid()).pw_name
    sentence = (
        f"the clocks of GPU {BOARDS[0]} may still be locked by a runner of {user}, which left {record}; "
        f"as root, `nvidia-smi -i {BOARDS[0]} -rgc` sets them back; then remove that file"
    )
    record.symlink_to("/etc/hostname")
    assert clocks.undo(BOARDS) == []
    assert clocks.undo() == [sentence]
    record.unlink()
    record.write_text("{}")
    # For somebody else this user's record is another's, unless this user is root.
    monkeypatch.setattr(clocks, "_TRUSTED", (12345,))
    assert clocks.undo() == [sentence]
    said: list[str] = []
    with clocks.locked(BOARDS[:1], 1500, said.append) as held:
        assert held == ()
    assert said == [f"--lock-clocks: {sentence}"]
    # While a runner holds the GPU its lock is meant. A name that is no GPU's is not shown.
    lease.path_of("anything", ".clocks").write_text("{}")
    with lease.hold(BOARDS[:1], "other", print):
        assert clocks.undo() == []
    assert asked(file) == []
    assert record.exists()


def test_clocks_are_set_back_though_a_cleaner_removed_their_record(fleet: Show, leases: Path) -> None:
    file = fleet(TWO)
    with clocks.locked(BOARDS[:1], 1500, print):
        lease.path_of(BOARDS[0], ".clocks").unlink()
    assert asked(file) == ["0 1500 1500", "0 reset"]


def test_a_run_records_which_of_its_gpus_were_locked(fleet: Show, leases: Path, tmp_path: Path) -> None:
    file = fleet(TWO.with_gpu(1, lockable="!4"))
    devices = [{"uuid": board, "board": board, "max_sm_megahertz": 2040} for board in BOARDS]
    run = RunStore(synthetic.make_run(tmp_path / "run", manifest={"devices": devices}))
    prospect: Any = SimpleNamespace(options=SimpleNamespace(lock_clocks=1500))
    with execution._clocks(prospect, run, BOARDS):
        assert asked(file) == ["0 1500 1500"]
    first, second = run.manifest()["devices"]
    assert gpu_settings(first) == "clocks locked at 1500 MHz"
    assert gpu_settings(second) == "clocks float, at most 2040 MHz"
    assert asked(file)[1:] == ["0 reset"]


def test_a_run_whose_cells_are_all_of_the_cpu_says_that_no_clock_is_locked(
    fleet: Show, leases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = fleet(TWO)
    prospect: Any = SimpleNamespace(options=SimpleNamespace(lock_clocks=1500))
    with execution._clocks(prospect, RunStore(tmp_path), ()):
        assert asked(file) == []
    assert "--lock-clocks: no cell that is left runs on a GPU" in capsys.readouterr().err


def test_settings_are_told_as_far_as_a_run_recorded_them() -> None:
    entry: dict[str, Any] = {"power_limit_watts": 350.0, "default_power_limit_watts": 700.0, "ecc": True, "vbios": "9"}
    entry |= {
        "persistence": False,
        "compute_mode": "default",
        "application_sm_megahertz": 900,
        "max_sm_megahertz": 1980,
    }
    assert gpu_settings(entry) == (
        "clocks application clock 900 MHz, at most 1980 MHz; power limit 350 W, by default 700 W; ECC on; "
        "persistence mode off; VBIOS 9; compute mode default"
    )
    odd: dict[str, Any] = {
        "max_sm_megahertz": "fast",
        "power_limit_watts": float("nan"),
        "ecc": "yes",
        "vbios": "x" * 500,
    }
    assert gpu_settings(odd) == f"clocks float; VBIOS {'x' * 100}"
