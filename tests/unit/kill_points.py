"""Kills a matrix at one file operation after another: `python -m tests.unit.kill_points FOLDER HOW [NUMBER...]`.

Each run is a fork that counts what it does to files below its results, and kills itself (SIGKILL) before the operation of that number. Then
--resume goes on with it. Without numbers, all of the operations are tried: how many there are is counted in a run that nobody kills.
HOW is `kill`, or the name of an error: then the operation of that number fails with it, and the run goes on as it can. With a `+`
behind it all further operations fail, too, until --resume. Operations in the cache are counted then, too. It prints JSON: the operations,
the points that were tried, and a sentence for each that lost something.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# What every fork needs is loaded once.
import jinja2
import pandas

import reports.page.render
import runner.cli.matrix
import runner.cli.report
import runner.run.execution
from reports.data.tables import load
from runner import engines
from runner.cli.main import app
from runner.known_messages import due_again
from runner.results.parcel import decode
from runner.results.plausible import counts, windows
from runner.results.store import RunStore, read

LOADED = (jinja2, pandas, reports.page.render, runner.cli.matrix, runner.run.execution, runner.cli.report)

# What changes a file or a folder, as Python's audit events call it. `fsync` is ours: what was written is not renamed yet.
CHANGES = (
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "fsync",
)
KILL = "kill"
# Behind an error: from then on.
LASTING = "+"
WORDS = (
    "--gpus",
    "none",
    "--images",
    "toy-a,toy-b",
    "--workloads",
    "cnn-cifar10,gru-imdb",
    "--precision",
    "fp32,tf32",
    "--repeats",
    "1",
)


def count_changes(out: Path, at: int | None, how: str, note: Callable[[int], None]) -> None:
    """From now on, count what this process does to files below `out`, and end it before number `at`, or let that fail."""
    done, places = 0, (str(out),) if how == KILL else (str(out), os.environ["XDG_CACHE_HOME"])

    def look(event: str, given: tuple[Any, ...]) -> None:
        nonlocal done
        writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or writes:
            path = given[0] if isinstance(given[0], str | bytes | os.PathLike) else ""
            if event == "fsync" or os.fsdecode(path).startswith(places):
                done += 1
                note(done)
                if done == at and how == KILL:
                    os.kill(os.getpid(), signal.SIGKILL)
                if done == at or (how.endswith(LASTING) and at is not None and done > at):
                    number = number_of(how)
                    raise OSError(number, os.strerror(number), *([os.fsdecode(path)] if path else []))

    sys.addaudithook(look)
    # Nothing here need outlive a power failure.
    os.fsync = lambda descriptor: sys.audit("fsync", descriptor)


def number_of(how: str) -> int:
    """The error of that name."""
    return int(getattr(errno, how.removesuffix(LASTING)))


def matrix(out: Path, *words: str, at: int | None = None, how: str = "kill") -> tuple[int, int]:
    """Run `runner matrix` in a fork: its status as of os.waitpid, and how many operations it began."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with open(out.parent / "printed", "ab") as printed:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
        count_changes(out, at, how, lambda done: os.write(write_end, b".") and None)
        code = 1
        try:
            app(["matrix", "--out", str(out), *words], standalone_mode=True)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            os._exit(code)
    os.close(write_end)
    operations = 0
    while part := os.read(read_end, 65536):
        operations += len(part)
    os.close(read_end)
    return os.waitpid(pid, 0)[1], operations


def try_point(folder: Path, number: int, how: str) -> str:
    """Kill a run before one operation, or let that fail, and go on with it. What is wrong then, in words; empty where nothing is."""
    out = folder / str(number) / "results"
    out.parent.mkdir(parents=True)
    status, _ = matrix(out, *WORDS, at=number, how=how)
    said = (out.parent / "printed").read_text()
    if "Traceback" in said:
        return said
    if how == KILL and status != signal.SIGKILL:
        # Threads take turns: a run may have an operation less than the one that was counted.
        return "" if os.waitstatus_to_exitcode(status) == 0 else f"it ended with {status} and was not killed"
    runs = list(out.glob("*/run.json"))
    stored = {path: path.read_bytes() for path in out.glob("*/repeats/*.parcel") if has_ended(path)}
    if not runs:
        # A killed start cannot clear up, and neither can one on a disk that goes on failing.
        left = [*out.glob("*")] if how != KILL and not how.endswith(LASTING) else []
        return "cells were measured in no run" if stored else f"a start that failed left {left}" if left else ""
    (manifest,) = runs
    if status and os.waitstatus_to_exitcode(status) >= 0 and said.count(os.strerror(number_of(how))) != 1:
        return f"it does not say once what failed: {said}"
    status, _ = matrix(out, "--resume", manifest.parent.name)
    if status:
        return f"--resume ended with {status}: {said} {(out.parent / 'printed').read_text()[-1500:]}"
    return lost(manifest.parent, stored)


def has_ended(path: Path) -> bool:
    """False for a repeat that failed by a fault of its machine: --resume measures it again."""
    parcel = decode(path.read_bytes(), path.name)
    kind, reason = parcel.ended_by or (None, "")
    return not due_again(kind, parcel.code, reason, parcel.log)


def lost(folder: Path, stored: dict[Path, bytes]) -> str:
    """What a run that was gone on with lacks, in words."""
    manifest = RunStore(folder).manifest()
    cells = read([folder], "cells").to_pylist()
    ended = Counter((row["cell_id"], row["repeat"]) for row in cells if row["status"] == "ok")
    if ended != Counter((entry["id"], 1) for entry in manifest["plan"]):
        return f"of {len(manifest['plan'])} planned repeats these ended well: {ended}"
    if any(path.read_bytes() != data for path, data in stored.items()):
        return "what had ended was measured again"
    if (skipped := sum(row["status"] == "skipped" for row in cells)) != manifest["skipped"] or not skipped:
        return f"{skipped} of {manifest['skipped']} skipped combinations are stored"
    if not all(len(read([folder], table)) for table in ("samples", "metrics", "parity", "telemetry")):
        return "tables are missing"
    if parts := list(folder.rglob("*.part")):
        return f"{parts} were left"
    if not (folder / "report.html").is_file() or len(load([folder]).cells) != len(manifest["plan"]):
        return "it has no report"
    return ""


def main(folder: Path, how: str, numbers: Sequence[int]) -> None:
    engines.ENGINES = dict.fromkeys(["toy", *engines.ENGINES], "tests.unit.toy_runner:ToyEngine")
    engines.AUTOMATIC = ["toy"]
    # As in the toy runner: a toy prints what a CPU measured in half a minute.
    counts.most_operations = lambda *_: None
    windows._SPENT = 0.0
    status, operations = (
        matrix(folder / "whole" / "results", *WORDS, how=how) if (folder / "whole").mkdir() is None else (1, 0)
    )
    whole = next((folder / "whole" / "results").glob("*/run.json"), None)
    if status or whole is None:
        with contextlib.suppress(OSError):
            print((folder / "whole" / "printed").read_text(), file=sys.stderr)
        sys.exit("the run that nobody kills did not end well")
    # A share of all operations, in thousandths, or each of them.
    shares = dict.fromkeys(1 + number * (operations - 1) // 1000 for number in numbers)
    points = list(shares) or list(range(1, operations + 1))
    wrong = {point: why for point in points if (why := try_point(folder, point, how))}
    wrong |= {0: why} if (why := lost(whole.parent, {})) else {}
    print(json.dumps({"operations": operations, "points": len(points), "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [int(word) for word in sys.argv[3:]])
