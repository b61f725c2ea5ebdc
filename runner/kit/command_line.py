"""The command line of kit.py: its options, and the lines that it prints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DEFAULT_REPEATS = 3


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="kit.py", description="Measure this machine's GPU with the frameworks of a Python."
    )
    top.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the same on the CPU, without a GPU"
    )
    top.add_argument("--gpu", default="all", metavar="NAME", help="index or UUID; default: the first that is free")
    top.add_argument("--minutes", type=_minutes, default=9.0, help="time to take; default: 9. Run again, it goes on")
    top.add_argument("--out", type=Path, default=Path("gpu-kit-results"), help="folder of the results")
    top.add_argument(
        "--python", default=sys.executable, help="the interpreter that has the frameworks; default: this one"
    )
    top.add_argument("--frameworks", type=_words, default=(), help="these only, between commas; default: all")
    top.add_argument("--workloads", type=_words, default=(), help="these only, between commas; default: all")
    top.add_argument("--precision", type=_words, default=(), help="these only, between commas; default: all that fit")
    top.add_argument("--repeats", type=_repeats, help=f"of each cell; default: {DEFAULT_REPEATS}")
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


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
