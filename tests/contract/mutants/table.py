"""Runs all mutants and writes docs/mutants.md: `python -m tests.contract.mutants.table [VERDICTS.json ...]`.

With files it reads the verdicts from them, in place of running: what `python -m tests.contract.mutants.run` printed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from runner.catalog.images import PROJECT, load_catalog
from runner.engines.process.venv import VenvEngine
from tests.contract.mutants.registry import FAMILIES, REWRITE

DOCUMENT = PROJECT / "docs" / "mutants.md"
IMAGES = {"torch": "torch-2.13.0-cpu", "jax": "jax-0.10.2-cpu", "tensorflow": "tensorflow-2.21.0-cpu"}

Verdict = dict[str, Any]
# What tests.contract.mutants.run prints: "mutants", all that there are, and "verdicts", of those that were run.
Run = dict[str, Any]

HEAD = """# What the gates refuse

A mutant is a real adapter in which one thing is wrong. Each was run as a training cell of preset quick, in the environment of the
image, on a CPU at fp32. The table says what refused it. The mutants are the classes in `tests/contract/mutants/`.
`python -m tests.contract.mutants.table` makes this file, and `make test-all` compares it with a run.

- **Refused by** is the phase of the cell, and the quantity and the tensor with the largest error. `parity` comes before the measurement.
  `proof` comes after it, on the object that was measured. A mutant's cell ends with the first phase that refuses it.
- **Bounds** is that error in bounds, to two digits: what is above 1 is refused. It differs a little between machines.
- The report calls `landing` the mean movement under dropout, and `dropout` the spread under dropout. "First step", "at rest" and
  "digits" are parts of `landing` that no mask can change (`bench/dropout.py`).

A mistake that begins after some steps, or is made only where dropout is on, shows after the measurement: the proof refuses it.
"""

ROW = "| %s | %s | %s | %s | %s |"
TITLES = ("Mistake", "Framework", "Workload", "Refused by", "Bounds")


def python_of(framework: str) -> str:
    """The interpreter of the framework's image, in its own environment. Raises LookupError where there is none."""
    image, engine = load_catalog()[IMAGES[framework]], VenvEngine()
    if reason := engine.unfit(image):
        raise LookupError(f"no environment for {image.name}: {reason}")
    return engine.prepare(image, print).command[0]


def run(framework: str, everything: bool) -> Run:
    """The mutants of a framework, and the verdicts of those that were run. Raises LookupError where its environment cannot be made."""
    words = [python_of(framework), "-m", "tests.contract.mutants.run", framework, *(["--all"] if everything else [])]
    variables = {**os.environ, "PYTHONPATH": str(PROJECT)}
    ended = subprocess.run(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True, env=variables, check=True)
    found: Run = json.loads(ended.stdout)
    return found


def document(verdicts: Sequence[Verdict]) -> str:
    parts = [HEAD]
    for family in FAMILIES:
        mistakes = [v for v in verdicts if v["family"] == family and not v["not_caught"]]
        if mistakes:
            parts += [f"## {family.capitalize()}\n", *_omissions(family), *_table(mistakes)]
    parts += ["## Not caught\n", "| Mistake | Framework | Workload | Why |", "| --- | --- | --- | --- |"]
    parts += [
        f"| {_named(v)} | {v['framework']} | {v['workload']} | {v['not_caught']} |" for v in verdicts if v["not_caught"]
    ]
    parts += ["", "## Rewrites that pass\n", "| Rewrite | Framework | Workload | Largest error, in bounds |"]
    parts += ["| --- | --- | --- | --- |"]
    rewrites = [v for v in verdicts if v["family"] == REWRITE]
    parts += [f"| {_named(v)} | {v['framework']} | {v['workload']} | {v['worst']:.2f} |" for v in rewrites]
    return "\n".join(parts) + "\n"


def _omissions(family: str) -> list[str]:
    sentence = "The smallest thing of each kind that a workload can lose: this is how far the gates see.\n"
    return [sentence] if family == "omission" else []


def _table(verdicts: Iterable[Verdict]) -> list[str]:
    rows = [ROW % TITLES, ROW % (("---",) * len(TITLES))]
    for v in verdicts:
        phase, quantity, tensor, bounds = v["refused"][0] if v["refused"] else ("", "nothing", "", None)
        where = " ".join(word for word in (phase, quantity, "" if quantity == tensor else tensor) if word)
        many = "not finite" if bounds is None else f"{bounds:.1e}".replace("e+0", "e").replace("e+", "e")
        rows.append(ROW % (_named(v), v["framework"], v["workload"], where, many))
    return [*rows, ""]


def _named(verdict: Verdict) -> str:
    return f"`{verdict['name']}`: {verdict['sentence']}"


def stored() -> dict[tuple[str, str, str], list[str]]:
    """(framework, workload, class) -> the cells after them, of each row of the document."""
    rows = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if named := re.match(r"\| `(\w+)`: .* \| (\w+) \| ([\w-]+) \| (.*) \|$", line):
            name, framework, workload, rest = named.groups()
            rows[framework, workload, name] = rest.split(" | ")
    return rows


def main(paths: Sequence[str]) -> None:
    if paths:
        runs = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    else:
        runs = [run(framework, everything=True) for framework in IMAGES]
    verdicts = [verdict for found in runs for verdict in found["verdicts"]]
    DOCUMENT.write_text(document(verdicts), encoding="utf-8")
    print(DOCUMENT)


if __name__ == "__main__":
    main(sys.argv[1:])
