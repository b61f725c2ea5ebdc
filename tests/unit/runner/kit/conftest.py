"""A kit, and an interpreter whose frameworks print what real ones printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench import identity
from runner.kit.bundle import build
from tests.fixtures.events import at_pace

RECORDED = Path(__file__).parents[2] / "recorded"

# It stands where a user's Python with PyTorch would.
INTERPRETER = """#!{python}
import fcntl, json, os, platform, random, re, sys, time
words = sys.argv[1:]
if gpu := os.environ.get("CUDA_VISIBLE_DEVICES"):
    # As on a GPU in the mode "exclusive process", a second process at a time fails.
    alone = open(sys.argv[0] + "." + gpu, "a")
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
assert os.environ["PYTHONDONTWRITEBYTECODE"] == "1", "the interpreter writes into its own folders"
if words[0] == "-c":
    there = {{"python": "3.11.7", "path": sys.argv[0], "installed": ["torch==2.13.0"], "machine": platform.machine()}}
    print(json.dumps(there))
elif words[1] == "bench.cuda" and "ASKS_CUDA" in os.environ:
    os.execv("{python}", ["{python}", *words])
elif words[1] == "bench.cuda":
    reason = os.environ.get("CUDA_SAYS")
    print(json.dumps({{"uuids": [] if reason else [os.environ["CUDA_VISIBLE_DEVICES"]], "reason": reason}}))
elif words[2] == "frameworks":
    print(json.dumps([{{"framework": "torch", "version": "2.13.0+cpu", "device_kinds": {kinds}}}]))
elif "amp-fp16" in words and "{refuses}":
    event = dict(event="error", t=1.0, v=1, kind="unsupported", message="torch does not compute amp-fp16 here", traceback="")
    print(json.dumps(event))
    print(json.dumps(dict(event="end", t=1.0, v=1, status="failed", stop="none", noise=None, steps=0)))
    sys.exit(1)
elif os.path.exists(sys.argv[0] + ".fails"):
    kind, message = open(sys.argv[0] + ".fails").read().split(": ", 1)
    print(json.dumps(dict(event="error", t=1.0, v=1, kind=kind, message=message, traceback="")))
    print(json.dumps(dict(event="end", t=1.0, v=1, status="failed", stop="none", noise=None, steps=0)))
    sys.exit(1)
elif words[1] == "bench.frameworks.torch._events":
    window = {{"steps": 10, "clock_seconds": 0.101, "event_seconds": 0.1}}
    print(json.dumps({{"windows": [window] * 20}}))
else:
    if "{hangs}" in words:
        time.sleep(60)
    kind = "cuda" if "cuda" in words else "cpu"
    stream = open("{recorded}/%s/torch-2.13.0-cpu.%s.jsonl" % (kind, words[3])).read()
    if "cuda" in words:
        uuids = '"uuids":["%s"]' % os.environ["CUDA_VISIBLE_DEVICES"]
        stream = stream.replace('"kind":"cpu"', '"kind":"cuda"').replace('"uuids":[]', uuids)
        time.sleep(1)
    if "{wrong}" in words:
        stream = re.sub('("quantity": ?"logits".*?"error": ?)[^,}}]+', r'\\g<1>2.0', stream)
    trained = 0.0
    for event in map(json.loads, stream.splitlines()):
        # No two processes take the same times. A window that is shorter leaves a gap, which is less than the judges allow.
        if event["event"] == "sample":
            event["seconds"] *= 1 - 0.02 * random.random()
            trained += event["seconds"]
        elif event["event"] == "metric":
            event["seconds"] = trained
        print(json.dumps(event))
"""


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit") / "gpu-kit"
    build(folder)
    return folder


@pytest.fixture
def interpreter(tmp_path: Path) -> Callable[..., Path]:
    def make(wrong: str = "-", hangs: str = "-", refuses: str = "", kinds: Sequence[str] = ("cpu",)) -> Path:
        path = tmp_path / "python-with-torch"
        # A replay lives for some hundredths of a second, on a GPU for a second. It must not be faster than the GPU can be.
        replayed = tmp_path / "replayed"
        for kind, seconds in (("cpu", 0.01), ("cuda", 0.2)):
            (replayed / kind).mkdir(parents=True, exist_ok=True)
            for stream in RECORDED.glob("torch-*.jsonl"):
                # What was recorded ran the bench of its day, and the kit has that of today.
                code = identity.code_sha256("torch", stream.stem.rsplit(".", 1)[1])
                text = re.sub('("code_sha256": ?)"[0-9a-f]{64}"', rf'\1"{code}"', at_pace(stream.read_text(), seconds))
                (replayed / kind / stream.name).write_text(text)
        words = {"wrong": wrong, "hangs": hangs, "refuses": refuses, "kinds": list(kinds)}
        path.write_text(INTERPRETER.format(python=sys.executable, recorded=replayed, **words))
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def run_kit(kit: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run kit.py without any installed package, in an empty environment and a folder of its own; its results lie in `results` there."""

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", str(kit / "kit.py"), "--out", str(tmp_path / "results"), *words]
        environment = {"PATH": os.defpath, "DLBENCH_LEASES": str(tmp_path / "leases"), **variables}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)

    return run
