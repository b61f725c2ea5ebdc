"""A folder is tried as runs use it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from runner.engines import host_fault


@pytest.fixture
def held_open(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each program stays open for writing for so many seconds after it was made, as in a process that another thread forked."""
    seconds: list[float] = []
    chmod = Path.chmod

    def hold(path: Path, mode: int) -> None:
        chmod(path, mode)
        threading.Timer(seconds[0], os.close, [os.open(path, os.O_WRONLY)]).start()

    monkeypatch.setattr(Path, "chmod", hold)
    return seconds


def test_a_program_that_a_fork_holds_open_is_tried_again(tmp_path: Path, held_open: list[float]) -> None:
    held_open.append(0.05)
    assert host_fault.folder_fault(tmp_path, host_fault.ENVIRONMENT) is None


def test_a_program_that_stays_open_is_a_fault_of_the_folder(tmp_path: Path, held_open: list[float]) -> None:
    held_open.append(1.5)
    assert "runs no programs (Text file busy)" in (host_fault.folder_fault(tmp_path, host_fault.ENVIRONMENT) or "")
