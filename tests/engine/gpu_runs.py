"""What tests of runs on GPUs that are not there have in common: to wait, to look at what was stored, and at what is left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from runner.engines.docker.engine import OWNER_LABEL
from runner.results import store
from tests.stand_ins.engine import OwnEngine

Run = Callable[..., subprocess.Popen[str]]


def ended(process: subprocess.Popen[str], seconds: float = 300) -> str:
    """What it printed."""
    printed, _ = process.communicate(timeout=seconds)
    return printed


def folder(tmp_path: Path) -> Path:
    (manifest,) = (tmp_path / "results").glob("*/run.json")
    return manifest.parent


def rows(tmp_path: Path) -> pd.DataFrame:
    return store.read([folder(tmp_path)], "cells").to_pandas()


def nothing_is_left(own: OwnEngine, tmp_path: Path) -> None:
    """No container, no lock, no temporary file."""
    client = own.client()
    assert client.containers.list(all=True, filters={"label": OWNER_LABEL}) == []
    client.close()
    assert list((tmp_path / "leases").glob("*")) == []
    assert not (parts := list(tmp_path.rglob("*.part"))), parts
    assert list((tmp_path / "results").rglob(".*")) == []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 240) -> None:
    """Until it holds. What takes longer does not come at all: a busy machine takes several times as long as an idle one."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)
