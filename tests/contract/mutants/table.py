"""Runs all mutants and writes docs/mutants.md: `python -m tests.contract.mutants.table [--new | --list | VERDICTS.json ...]`.

With --new it runs those that have no row yet, or one that says "not run". With --list it runs nothing: those without a row get one.
With files it reads the verdicts from them, in place of running: what
`python -m tests.contract.mutants.run FRAMEWORK --all [NAME ...]`
printed. A mutant without a verdict keeps its row, and a framework without a file the day when its rows were made.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import rules
from runner.catalog.images import PROJECT, load_catalog
from runner.engines.process.venv import VenvEngine
from tests.contract.mutants import whole
from tests.contract.mutants.registry import FAMILIES, KINDS, REWRITE
from tests.fixtures.cpus import take_own_cpus

DOCUMENT = PROJECT / "docs" / "mutants.md"
IMAGES = {"torch": "torch-2.13.0-cpu", "jax": "jax-0.10.2-cpu", "tensorflow": "tensorflow-2.21.0-cpu"}

Verdict = dict[str, Any]
# What tests.contract.mutants.run prints: "mutants", all that there are, "verdicts", of those that were run, and "date", of this run.
Run = dict[str, Any]
# section -> [(framework, the line of a table)], in the document's order
Rows = dict[str, list[tuple[str, str]]]

HEAD = """# What the gates refuse

A mutant is a real adapter in which one thing is wrong. Each was run as a training cell of preset quick, in the environment of the
image, on a CPU at fp32. The table says what refused it. The mutants are in `tests/contract/mutants/`: classes, and in `edits.py` texts
that take another's place in an adapter.
`python -m tests.contract.mutants.table` makes this file, and `make test-all` compares it with a run.

- **Refused by** is the phase of the cell, and the quantity and the tensor with the largest error. `parity` comes before the measurement.
  `proof` comes after it, on the object that was measured. A mutant's cell ends with the first phase that refuses it.
- **Bounds** is that error in bounds, to two digits: what is above 1 is refused. The test holds it within a factor of ten. Where both
  figures are above @FAR@ it holds only that: a bound of rounding's size makes such a figure depend on the very step that was measured.
- The report calls `landing` the mean movement under dropout, and `dropout` the spread under dropout. "First step", "at rest" and
  "digits" are parts of `landing` that no mask can change (`bench/dropout.py`). `exact` is what else of a step is exact, in the
  proof's steps and in the last ones that training took (`bench/digits.py`, `bench/measured.py`).

- A phase `runner` is no phase of the cell: the mutant was run as a real cell, and the judge of that name (`runner/admission/judges.py`)
  refused its output. The row has no bounds.

Mistakes of a feed, or of a data module, are planted in the bench beside the adapter.
A mistake that begins after some steps, or is made only where dropout is on, shows after the measurement: the proof refuses it.

The class "timing" holds cheats, and no slips: work that ends after the clock is read, cheaper steps while nobody looks, remembered results,
patched clocks and checkers. An adapter is code of the bench's own process, so a determined one can pass. Those that do are listed
under "Not caught". They stand in code that is reviewed, and a cell's `code_sha256` says which code ran.

@WORKLOADS@
## What was run

| Framework | Image | Run on | Mistakes | Refused | Not caught | Rewrites | Pass |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

# The class of what nobody writes by mistake.
CHEATS = "timing"
# Above so many bounds the test holds no size. A mistake in a measured step hangs on which step that was, and so on the machine's speed.
FAR = 100
# In the place of what refused a mutant that nobody has run yet.
NOT_RUN = "not run"

# The kinds of the table by workload: all classes but the cheats.
_HELD = {CHEATS, *(family for families in KINDS.values() for family in families)}
BY_WORKLOAD = {**KINDS, "all others": tuple(family for family in FAMILIES if family not in _HELD)}
# workload -> the workload whose network and loop it has: its mistakes are those.
SAME = {
    "densenet121-synthetic": "densenet121-chestxray",
    "gpt-bytes-to-loss": "gpt-bytes",
    "gpt2-124m": "gpt-bytes",
    "gpt2-decode-16": "gpt2-decode",
}
# (workload, kind) -> why nothing is planted there. A test asks for each empty cell.
REASONS = {
    ("densenet121-chestxray", "what an index selects"): "Pictures have no index, and a label is fourteen numbers.",
    ("resnet50-features", "what an index selects"): "Pictures have no index, and there are no labels.",
}
NOT_CAUGHT, PASS = "Not caught", "Rewrites that pass"
HEADS = {
    NOT_CAUGHT: ("Mistake", "Framework", "Workload", "Class", "Why"),
    PASS: ("Rewrite", "Framework", "Workload", "Largest error, in bounds"),
}
HEAD_OF_MISTAKES = ("Mistake", "Framework", "Workload", "Refused by", "Bounds")
SECTIONS = (*(family.capitalize() for family in FAMILIES), NOT_CAUGHT, PASS)
_ROW = re.compile(r"\| `(\w+)`: .* \| (\w+) \| ([\w-]+) \| (.*) \|$")


def python_of(framework: str) -> str:
    """The interpreter of the framework's image, in its own environment. Raises LookupError where there is none."""
    image, engine = load_catalog()[IMAGES[framework]], VenvEngine()
    if reason := engine.unfit(image):
        raise LookupError(f"no environment for {image.name}: {reason}")
    return engine.prepare(image, print).command[0]


def run(framework: str, which: str, names: Sequence[str] = ()) -> Run:
    """The mutants of a framework, and the verdicts of those that were run: `which` and `names` as tests.contract.mutants.run takes them.

    Raises LookupError where the framework's environment cannot be made.
    """
    words = [python_of(framework), "-m", "tests.contract.mutants.run", framework, which, *names]
    variables = {**os.environ, "PYTHONPATH": str(PROJECT)}
    ended = subprocess.run(
        words, cwd=PROJECT, stdout=subprocess.PIPE, text=True, env=variables, check=True, preexec_fn=take_own_cpus
    )
    return with_whole_cells(json.loads(ended.stdout))


def with_whole_cells(of: Run) -> Run:
    """The run, with the mutants that need a real cell: they are run here, beside the runner's judges."""
    for verdict in of["verdicts"]:
        if verdict.pop("whole", False):
            where = verdict["framework"], verdict["workload"], verdict["name"]
            verdict["refused"] = whole.refused(python_of(verdict["framework"]), *where)
            print(*where, verdict["refused"][:1], file=sys.stderr, flush=True)
    return of


def document(rows: Rows, dates: Mapping[str, str]) -> str:
    """rows: those of `rows_of`, of all frameworks; dates: framework -> when its mutants were run."""
    head = HEAD.replace("@FAR@", str(FAR)).replace("@WORKLOADS@", "\n".join(_by_workload(rows)))
    parts = [head + "\n".join(_row(_counted(rows, framework, dates[framework])) for framework in dates) + "\n"]
    parts += [*_by_kind(rows, list(dates)), ""]
    for section in SECTIONS:
        if lines := [line for _, line in rows.get(section, ())]:
            head = HEADS.get(section, HEAD_OF_MISTAKES)
            parts += [f"## {section}\n", *_omissions(section), _row(head), _row(["---"] * len(head)), *lines, ""]
    return "\n".join(parts)


def _counted(rows: Rows, framework: str, date: str) -> list[str]:
    """The framework's row of what was run. A mutant that is expected to be refused and was not has the word "nothing" in its row."""
    lines = {section: [line for owner, line in rows.get(section, ()) if owner == framework] for section in SECTIONS}
    uncaught, rewrites = lines.pop(NOT_CAUGHT), lines.pop(PASS)
    mistakes = [line for section in lines.values() for line in section]
    refused = [line for line in mistakes if "| nothing |" not in line and f"| {NOT_RUN} |" not in line]
    passed = [line for line in rewrites if "| refused: " not in line and f"| {NOT_RUN} |" not in line]
    counts = (len(mistakes) + len(uncaught), len(refused), len(uncaught), len(rewrites), len(passed))
    return [framework, IMAGES[framework], date, *map(str, counts)]


def _by_kind(rows: Rows, frameworks: Sequence[str]) -> list[str]:
    """The sentence of all mistakes together, and the table of kinds and frameworks: refused / planted."""
    of_run = [
        (s.lower(), f, line) for s in SECTIONS[:-2] for f, line in rows.get(s, ()) if f"| {NOT_RUN} |" not in line
    ]
    refused = [(s, f) for s, f, line in of_run if "| nothing |" not in line]
    planted = [(s, f) for s, f, _ in of_run]
    planted += [(_match(line).group(4).split(" | ")[0], f) for f, line in rows.get(NOT_CAUGHT, ())]
    counts = [[sum((s == CHEATS) == cheat for s, _ in of) for of in (refused, planted)] for cheat in (False, True)]
    (seen, slips), cheats = counts
    share = 100 * seen / max(1, slips)
    lines = [
        f"Of {slips} mistakes {seen} are refused: {share:.1f} %. Of {cheats[1]} cheats {cheats[0]} are.",
        "",
    ]
    lines += ["Refused / planted, by five kinds that a check of a few steps from given parameters hardly sees:", ""]
    lines += [_row(["Kind", "Classes", *frameworks]), _row(["---"] * (2 + len(frameworks)))]
    for kind, families in {**BY_WORKLOAD, "timing cheats": (CHEATS,)}.items():
        counts = (
            "{} / {}".format(*(sum(f == framework and s in families for s, f in of) for of in (refused, planted)))
            for framework in frameworks
        )
        lines.append(_row([kind, ", ".join(families), *counts]))
    return lines


def cells_of(rows: Rows) -> dict[tuple[str, str], list[int]]:
    """(workload, kind) -> [refused, run, not run] mistakes, of all frameworks and without cheats."""
    kinds = {family: kind for kind, families in BY_WORKLOAD.items() for family in families}
    cells: dict[tuple[str, str], list[int]] = {}
    for section, lines in rows.items():
        for _, line in lines:
            _, _, workload, rest = _match(line).groups()
            family = rest.split(" | ")[0] if section == NOT_CAUGHT else section.lower()
            if section == PASS or family not in kinds:
                continue
            cell = cells.setdefault((workload, kinds[family]), [0, 0, 0])
            unrun = rest.startswith(f"{NOT_RUN} |")
            cell[2] += unrun
            cell[1] += not unrun
            cell[0] += not unrun and section != NOT_CAUGHT and not rest.startswith("nothing |")
    return cells


def _by_workload(rows: Rows) -> list[str]:
    """The worst workload, and the table of workloads and kinds. An empty cell says so."""
    cells, workloads = cells_of(rows), [name for name in sorted(rules.workload_names()) if name not in SAME]
    shares, lines, empty = {}, [], 0
    for workload in workloads:
        words, whole = [], [0, 0, 0]
        for kind in BY_WORKLOAD:
            cell = cells.get((workload, kind), [0, 0, 0])
            whole = [a + b for a, b in zip(whole, cell, strict=True)]
            empty += not cell[1]
            words.append(_cell(cell) or "**none**")
        shares[workload] = whole[0] / max(1, whole[1])
        lines.append(_row([f"`{workload}`", *words, f"{100 * shares[workload]:.0f} %" if whole[1] else "**none**"]))
    worst = min(shares, key=lambda name: shares[name])
    unrun = sum(cell[2] for cell in cells.values())
    ran = any(cell[1] for (workload, _), cell in cells.items() if workload == worst)
    told = (
        f"{100 * shares[worst]:.0f} % of its mistakes that were run are refused"
        if ran
        else "none of its mistakes was run"
    )
    return [
        "## By workload and kind",
        "",
        f"**The worst workload is `{worst}`: {told}. {empty} of "
        f"{len(workloads) * len(BY_WORKLOAD)} cells have no mistake that was run, and {unrun} planted mistakes were not run yet.**",
        "",
        "Refused / run, of all frameworks together and without cheats; with a plus, planted and not run.",
        "",
        _row(["Workload", *BY_WORKLOAD, "refused"]),
        _row(["---"] * (2 + len(BY_WORKLOAD))),
        *lines,
        "",
        "Why nothing is planted there: "
        + " ".join(f"`{workload}`, {kind}: {reason}" for (workload, kind), reason in REASONS.items()),
        "",
        "The same network and loop as another workload's: "
        + ", ".join(f"`{name}` (`{other}`)" for name, other in SAME.items())
        + ".",
        "",
    ]


def _cell(cell: Sequence[int]) -> str:
    refused, ran, unrun = cell
    return " ".join([f"{refused} / {ran}"] * bool(ran) + [f"+ {unrun}"] * bool(unrun))


def _omissions(section: str) -> list[str]:
    sentence = "The smallest thing of each kind that a workload can lose: this is how far the gates see.\n"
    return [sentence] if section == "Omission" else []


def rows_of(verdicts: Sequence[Verdict]) -> Rows:
    rows: Rows = {section: [] for section in SECTIONS}
    for v in verdicts:
        if v["not_caught"]:
            section, cells = NOT_CAUGHT, [v["family"], v["not_caught"]]
        elif v["family"] == REWRITE:
            section, cells = PASS, [_passed(v)]
        else:
            section, cells = v["family"].capitalize(), _refusal(v)
        named = f"`{v['name']}`: {v['sentence']}"
        rows[section].append((v["framework"], _row([named, v["framework"], v["workload"], *cells])))
    return rows


def _refusal(verdict: Verdict) -> list[str]:
    if "refused" not in verdict:
        return [NOT_RUN, ""]
    if not verdict["refused"]:
        return ["nothing", ""]
    phase, quantity, tensor, bounds = verdict["refused"][0]
    where = " ".join(word for word in (phase, quantity, "" if quantity == tensor else tensor) if word)
    if phase == whole.RUNNER:
        return [where, ""]
    return [where, "not finite" if bounds is None else f"{bounds:.1e}".replace("e+0", "e").replace("e+", "e")]


def _passed(verdict: Verdict) -> str:
    if "refused" not in verdict:
        return NOT_RUN
    return f"refused: {_refusal(verdict)[0]}" if verdict["refused"] else f"{verdict['worst']:.2f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _match(line: str) -> re.Match[str]:
    match = _ROW.match(line)
    assert match, line
    return match


def stored_rows() -> Rows:
    """The rows of the document, by its sections."""
    rows: Rows = {section: [] for section in SECTIONS}
    section = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        if section in rows and (match := _ROW.match(line)):
            rows[section].append((match.group(2), line))
    return rows


def stored_dates() -> dict[str, str]:
    """framework -> when its mutants were run, by the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return dict(re.findall(r"^\| (\w+) \| [\w.-]+ \| ([^|]+) \| \d", text, re.MULTILINE))


def stored() -> dict[tuple[str, str, str], list[str]]:
    """(framework, workload, class) -> the cells after them, of each row of the document."""
    rows = {}
    for framework, line in (row for section in stored_rows().values() for row in section):
        name, _, workload, rest = _match(line).groups()
        rows[framework, workload, name] = rest.split(" | ")
    return rows


def _key(framework: str, line: str) -> tuple[str, str, str]:
    name, _, workload, _ = _match(line).groups()
    return framework, workload, name


def merged(old: Rows, new: Rows, planted: Mapping[str, Collection[tuple[str, str]]]) -> Rows:
    """The rows of `new`, and those of `old` of mutants that were not run; in the order of IMAGES.

    planted: framework that was run -> (workload, class) of all its mutants. A row of one that is there no more is left out.
    """
    ran = {_key(*row) for rows in new.values() for row in rows}

    def stays(row: tuple[str, str]) -> bool:
        key = _key(*row)
        return key not in ran and (key[0] not in planted or key[1:] in planted[key[0]])

    chosen = {section: [*filter(stays, old.get(section, ())), *new.get(section, ())] for section in SECTIONS}
    order = list(IMAGES)
    return {section: sorted(rows, key=lambda row: order.index(row[0])) for section, rows in chosen.items()}


def run_new(framework: str) -> Run:
    """The verdicts of the mutants of a framework that have no row."""
    planted = run(framework, "--all", names=["none"])
    ran = {key for key, cells in stored().items() if NOT_RUN not in cells}
    names = [f"{workload}/{name}" for f, workload, name in planted["mutants"] if (f, workload, name) not in ran]
    return run(framework, "--all", names=names) if names else planted


def main(paths: Sequence[str]) -> None:
    if list(paths) == ["--list"]:
        runs = [run(framework, "--all", names=["none"]) for framework in IMAGES]
    elif list(paths) == ["--new"]:
        runs = [each for each in map(run_new, IMAGES) if each["verdicts"]]
    elif paths:
        runs = [with_whole_cells(json.loads(Path(path).read_text(encoding="utf-8"))) for path in paths]
    else:
        runs = [run(framework, "--all") for framework in IMAGES]
    verdicts = {(v["framework"], v["workload"], v["name"]): v for each in runs for v in each["verdicts"]}
    planted = {f: {(w, name) for _, w, name in each["mutants"]} for each in runs for f, _, _ in each["mutants"][:1]}
    have = {*verdicts, *stored()}
    unrun = [v for each in runs for v in each["unrun"] if (v["framework"], v["workload"], v["name"]) not in have]
    rows = merged(stored_rows(), rows_of([*verdicts.values(), *unrun]), planted)
    dates = stored_dates()
    for each in runs:
        framework = each["mutants"][0][0]
        some = {key for key in verdicts if key[0] == framework}
        if not some:
            continue
        first = dates[framework].split(" to ")[0]
        dates[framework] = each["date"] if len(some) == len(planted[framework]) else f"{first} to {each['date']}"
    DOCUMENT.write_text(document(rows, {name: dates[name] for name in IMAGES}), encoding="utf-8")
    print(DOCUMENT)


if __name__ == "__main__":
    main(sys.argv[1:])
