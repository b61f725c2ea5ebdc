"""A Docker Engine of the tests' own, with a stand-in for NVIDIA's hook on its PATH, and a tiny image for it.

The engine is a real dockerd beside the machine's own, which knows nothing of it: other folders, other socket, no network. It may be
restarted; the machine's may not.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.fixtures.events import line_by_line
from tests.stand_ins.fleet import FLEET_VARIABLE, HERE, Fleet, compiler

# TensorFlow's optimisers count their steps in both workloads. The tiny cell says that it is whatever framework was asked for, and most
# frameworks owe the check of that count.
RECORDED = {
    workload: HERE.parent / "unit" / "recorded" / f"tensorflow-2.21.0-cpu.{workload}.jsonl"
    for workload in ("cnn-cifar10", "gru-imdb")
}
TAG = "dlbench-tiny:test"
CDI_SINCE = 25
CDI_VARIABLE = "DLBENCH_CDI_ENGINE"  # a folder with a dockerd of at least that version


def why_not() -> str | None:
    """Why no engine of our own can be had here; None when one can."""
    if os.getuid() != 0:
        return "only root can start a Docker Engine"
    for program in ("dockerd", "containerd", "runc"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return None if compiler() else "there is no C compiler to make the tiny image with"


def why_no_cdi() -> str | None:
    """Why no engine of our own has CDI; None when one has."""
    told = subprocess.run(
        ["dockerd", "--version"], env=_cdi_environment(), capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"version (\d+)\.", told)
    if found and int(found.group(1)) >= CDI_SINCE:
        return None
    return f"CDI came with Docker Engine {CDI_SINCE}, and this is {told.strip()}; .ci/cdi-engine brings a newer one"


def _cdi_environment() -> dict[str, str]:
    """The environment in which `dockerd` is one that has CDI, where a folder with one is named."""
    newer = os.environ.get(CDI_VARIABLE)
    return os.environ | ({"PATH": f"{newer}:{os.environ['PATH']}"} if newer else {})


class OwnEngine:
    """A dockerd with its own folders, for as long as the block runs. `cdi` switches CDI on; describe() then names GPUs."""

    def __init__(self, fleet: Path, hook: bool = True, cdi: bool = False) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="dlb-", dir="/tmp")
        )  # short: a socket's path has 108 characters at most
        self.url = f"unix://{self.folder}/docker.sock"
        self._environment = _cdi_environment() if cdi else dict(os.environ)
        if hook:
            self._environment["PATH"] = f"{self._hook()}:{self._environment['PATH']}"
        self._environment[FLEET_VARIABLE] = str(fleet)
        self._process: subprocess.Popen[bytes] | None = None
        self.specifications = self.folder / "cdi"
        self._settings = {"features": {"cdi": True}, "cdi-spec-dirs": [str(self.specifications)]} if cdi else {}

    def _hook(self) -> Path:
        """A folder with the hook as a program of this interpreter: whatever the PATH calls python3 may take longer than the cell."""
        program = self.folder / "bin" / "nvidia-container-runtime-hook"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {HERE / "hook" / program.name} "$@"\n')
        program.chmod(0o755)
        return program.parent

    def describe(self, fleet: Fleet, form: str = "yaml") -> None:
        """Write a CDI specification of every GPU and MIG instance; without GPUs there is none."""
        self.specifications.mkdir(exist_ok=True)
        for old in self.specifications.iterdir():
            old.unlink()
        known = [
            {"name": uuid, "containerEdits": {"env": [f"DLBENCH_GPU_{place}={uuid} {model}"]}}
            for place, (uuid, model) in enumerate(fleet.devices())
        ]
        told = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": known}
        if known:
            text = json.dumps(told) if form == "json" else yaml.safe_dump(told)
            (self.specifications / f"nvidia.{form}").write_text(text)

    def __enter__(self) -> OwnEngine:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        here = self.folder
        # in a network of its own: an engine without a bridge would remove the bridge of the machine's own engine
        command = ["unshare", "--net", "dockerd", "--data-root", f"{here}/data"]
        command += ["--exec-root", f"{here}/exec", "--pidfile", f"{here}/pid"]
        (here / "daemon.json").write_text(json.dumps(self._settings))
        # One that was killed left the numbers of its processes.
        for name in ("pid", "exec/containerd/containerd.pid"):
            (here / name).unlink(missing_ok=True)
        command += ["--config-file", f"{here}/daemon.json", "-H", self.url]
        command += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        with open(here / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        end = time.monotonic() + 60
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"dockerd did not start:\n{(here / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def answers(self) -> bool:
        import docker

        try:
            client = docker.DockerClient(self.url, version="auto", timeout=5)
        except docker.errors.DockerException:
            return False
        client.close()
        return True

    def freeze(self) -> None:
        """From now on it accepts connections, as its socket does, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(how)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def client(self) -> Any:
        import docker

        return docker.DockerClient(self.url, version="auto")

    def make_tiny_image(self, pace_milliseconds: int = 2) -> str:
        """The image's id. A megabyte: one static program and its streams."""
        program = self.folder / "cell"
        flags = ["-static", "-O1", "-Wall", "-Wextra", "-Werror", f"-DPACE_MILLISECONDS={pace_milliseconds}"]
        subprocess.run([str(compiler()), *flags, "-o", str(program), str(HERE / "cell.c")], check=True)
        files = {
            "cell": program.read_bytes(),
            "usr/bin/nvidia-smi": program.read_bytes(),
            "usr/bin/python": program.read_bytes(),
            **{f"{workload}.jsonl": stream(workload, pace_milliseconds / 1000) for workload in RECORDED},
        }
        client = self.client()
        try:
            client.api.import_image_from_data(_tar(files), repository=TAG.split(":")[0], tag=TAG.split(":")[1])
            return str(client.images.get(TAG).id)
        finally:
            client.close()


def stream(workload: str, step: float) -> bytes:
    """A recorded stream of a cell that prints a line every `step` seconds; the cell fills in what it is asked for and what it sees."""
    events = [json.loads(line) for line in RECORDED[workload].read_text().splitlines()]
    line_by_line(events, step)
    for event in events:
        if event["event"] == "sample":
            # Several devices train on so many times as much, where each keeps its batch.
            event["items"] = f"@ITEMS@{event['items']}"
            event["seconds"] = f"@NOISE@{event['seconds']:.9f}"
        if event["event"] == "plan":
            event["items_per_step"] = f"@ITEMS@{event['items_per_step']}"
        if event["event"] == "metric":
            # The sum of the windows before it.
            event["seconds"] = "@WINDOWS@"
        if event["event"] == "environment":
            event |= {"framework": "@FRAMEWORK@", "device": "@DEVICE@", "code_sha256": "@CODE@"}
            # That of the tiny images (tests.engine.tiny_runner).
            event |= {"framework_version": "1.0", "versions": {"python": "3.11.0"}}
            event["clock"]["unix_at_zero"] = "@ZERO@"
    return "".join(json.dumps(event) + "\n" for event in events).encode()


def without_noise(stream: str) -> str:
    """A stream with its windows as they are, where the cell gives each a noise of its own."""
    lines, windows = [], 0.0
    for line in stream.splitlines(keepends=True):
        if window := re.search(r'"@NOISE@([0-9.]+)"', line):
            windows += float(window[1])
        lines.append(re.sub(r'"@NOISE@([0-9.]+)"', r"\1", line).replace('"@WINDOWS@"', f"{windows:.9f}"))
    return "".join(lines)


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in ("tmp", "cache", "data", "usr", "usr/bin", "dev", "proc", "sys"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
