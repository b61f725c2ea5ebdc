"""The real `runner` over toy cells: real command line, plan, schedule, store and processes; only the engine's images are toys.

Run as `python -m tests.unit.toy_runner matrix ...`. A toy cell prints a stream that was recorded from a real image, slowly, and
what DLBENCH_TOY says may go wrong with it: hang | crash | fork | flood | chatter, or `unready` for its image.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from runner import engines
from runner.catalog.images import PROJECT, Image
from runner.engines.base import Engine, EngineError, Prepared, Settings, Slot
from runner.engines.process.host import HostImage
from runner.engines.process.process import LocalRunning, start_process, sweep_scratch

RECORDED = Path(__file__).parent / "recorded" / "torch-2.13.0-cpu.gru-imdb.jsonl"

CELL = """
import os, subprocess, sys, time
ways = os.environ.get("DLBENCH_TOY", "").split(",")
pace = float(os.environ.get("DLBENCH_TOY_SECONDS", "0.2"))
with open(os.environ["DLBENCH_TOY_STARTED"], "a") as file:
    file.write(" ".join(sys.argv[1:]) + chr(10))
lines = open(sys.argv[1], "rb").read().splitlines(keepends=True)
hit = "gru-imdb" in sys.argv
for at, line in enumerate(lines):
    time.sleep(pace / len(lines))
    if at == len(lines) // 2 and hit:
        if "fork" in ways:
            subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if "hang" in ways or "fork" in ways:
            time.sleep(300)
        if "crash" in ways:
            os.kill(os.getpid(), 11)
        if "chatter" in ways:
            print("epoch 1 done", flush=True)
        while "flood" in ways:
            os.write(1, b"x" * 65536)
    os.write(1, line)
"""


class ToyEngine(Engine):
    """An engine whose cells replay a recording, in real processes below the real keeper."""

    name = "toy"

    def __init__(self, settings: Settings) -> None:
        pass

    def images(self, gpus: bool) -> dict[str, Image]:
        return toys()

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        say(f"{image.name} is a toy")
        if "unready" in os.environ.get("DLBENCH_TOY", "").split(",") and image.name == "toy-b":
            raise EngineError("toy-b could not be built: the disk of toys is full")
        return Prepared(image, f"sha256:{image.name}", (sys.executable, "-c", CELL, str(RECORDED)))

    def start(
        self, prepared: Prepared, arguments: Sequence[str], slot: Slot, label: str, data: Path | None, cache: Path
    ) -> LocalRunning:
        keep = ("DLBENCH_TOY", "DLBENCH_TOY_SECONDS", "DLBENCH_TOY_STARTED")
        extra = {"DLBENCH_TOY_IMAGE": prepared.image.name}
        named = [*arguments, prepared.image.name]
        return start_process(prepared, named, slot, label, data, cache, keep=keep, extra=extra)

    def sweep(self) -> int:
        return sweep_scratch()


def toys() -> dict[str, Image]:
    fixed: dict[str, Any] = {
        "folder": PROJECT,
        "frameworks": ("torch",),
        "framework_version": "2.13.0",
        "python": "3.11",
        "accelerator": "cpu",
        "base": "host",
        "precisions": ("fp32",),
        "locked": date(2026, 1, 1),
        "download_gb": 0.0,
        "installed_sha256": "0" * 64,
    }
    return {name: HostImage.model_construct(name=name, **fixed) for name in ("toy-a", "toy-b", "toy-c")}


def main() -> None:
    engines.ENGINES = dict.fromkeys(["toy", *engines.ENGINES], "tests.unit.toy_runner:ToyEngine")
    engines.AUTOMATIC = ["toy"]
    from runner.cli.main import main

    main()


if __name__ == "__main__":
    main()
