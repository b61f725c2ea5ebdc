"""A runner that is killed (SIGKILL) at any of its file operations, or at which one fails, loses nothing: --resume goes on, and all that was
planned is there once.

The long form (DLBENCH_STRANGERS=all) takes each operation of a run; the short one some.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from tests.fixtures.toys import toy_variables

# In thousandths of a run's operations. The first is the folder of the run; beside run.json there are several.
SHARES = ("0", "30", "60", "500", "990")


# The same of a run in which an operation fails: in the cache, too, and each error elsewhere.
ERRORS = {
    "ENOSPC": ("0", "250", "900"),
    # From the room that a full disk is given to keep a repeat, a second sentence came.
    "ENOSPC+": ("125",),
    "EIO": ("120", "500"),
    "EMFILE": ("400",),
    "ENOMEM": ("650",),
    "EROFS": ("800",),
    # What a file system of many machines ends with, and what a ticket that is over does.
    "EDQUOT": ("400",),
    # Python has one class of errors for the second one and for a reader that is gone.
    "ESHUTDOWN": ("54", "600"),
    "EACCES": ("250",),
    # From then on, until --resume.
    "EIO+": ("250", "700"),
    "EROFS+": ("120", "900"),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("how", "few"), [("kill", SHARES), *ERRORS.items()])
def test_a_runner_that_is_killed_or_fails_at_a_file_operation_loses_nothing(
    tmp_path: Path, how: str, few: tuple[str, ...]
) -> None:
    shares = () if os.environ.get("DLBENCH_STRANGERS") == "all" else few
    (tmp_path / "started").touch()
    environment = os.environ | toy_variables(tmp_path)
    command = [sys.executable, "-m", "tests.unit.kill_points", str(tmp_path), how, *shares]
    ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["wrong"] == {}
    assert told["operations"] > 50, "the operations of a run are counted"
    assert told["points"] == (len(shares) or told["operations"])
    print(told)
