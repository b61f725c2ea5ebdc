"""The command line of kit.py: its options, and the lines that it prints."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from runner.catalog.names import full_name


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="kit.py", description="Measure this machine's GPU with the frameworks of a Python."
    )
    add = top.add_argument
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the same on the CPU, without a GPU")
    add("--gpu", default="all", metavar="NAME", help="index or UUID; default: the first that is free")
    add("--minutes", type=_minutes, default=9.0, help="time to take; default: 9. Run again, it goes on")
    add("--out", type=Path, default=Path("gpu-kit-results"), help="folder of the results")
    add("--python", type=_program, default=sys.executable, help="the one with the frameworks; default: this one")
    for name, field in (("--frameworks", "frameworks"), ("--workloads", "workloads"), ("--precision", "precisions")):
        add(name, dest=field, type=_names, default=[], help="these only, between commas; default: all that fit")
    add("--repeats", type=_repeats, help="of each cell; default: 3")
    return top


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes <= 7 * 24 * 60:
        raise argparse.ArgumentTypeError(f"{text[:80]} is not a number of minutes")
    return minutes


def _repeats(text: str) -> int:
    repeats = int(text)
    if not 1 <= repeats <= 100:
        raise argparse.ArgumentTypeError(f"{text[:80]} is not a number of repeats")
    return repeats


def _program(text: str) -> str:
    """Cells start in a folder of their own, where a relative path leads elsewhere."""
    return os.path.abspath(shutil.which(text) or text)  # noqa: PTH100 - a link to an interpreter is an environment


def _names(text: str) -> list[str]:
    return sorted({full_name(word.strip()) for word in text.split(",") if word.strip()})


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
