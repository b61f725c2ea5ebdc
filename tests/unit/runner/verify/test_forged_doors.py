"""The outcome of forged repeats at each door: the run that was measured here, the import of an archive, the judge of a collection.

docs/results-format.md has the table of it, and this test measures each of its words.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reports.data import tables
from reports.data.model import NO_TELEMETRY
from runner.admission.renew import renew
from runner.cli.main import app
from runner.errors import ExitCode, UserError
from runner.kit.archive import read
from runner.kit.imported import import_archive
from runner.kit.results_folder import packed
from runner.kit.shared_run import Bundle, bundle_of
from runner.paths import PROJECT
from runner.results import store
from runner.results.parcel import Parcel, decode, encode
from runner.results.store import RunStore
from runner.verify.references.contributed import derived_rows
from runner.verify.references.contributed import judge as contributed
from tests.fixtures.contributions import MODELS, RECORDED, Events, cell_of, contribution, events_of, gpu_of, retold
from tests.fixtures.events import in_windows, rearrange
from tests.fixtures.forgeries import each, faster, untimed
from tests.fixtures.more_steps import everywhere, more

SALT = b"s" * 32
DOORS = ("run", "import", "collection")
DAY = 86_400.0
JAX = next(path for path in sorted(RECORDED.parent.glob("jax-*.gru-imdb.jsonl")))
# JAX's tape then ends as its preset has it.
LEVEL = 0.5565

Parcels = list[Parcel]


@dataclass(frozen=True)
class Forgery:
    """The changes that somebody makes in the parcels of a cell, and in run.json or the archive's facts.json."""

    parcels: Callable[[Parcels], Parcels] = lambda parcels: parcels
    document: Callable[[dict[str, Any]], object] = lambda document: None


def of_events(change: Callable[[Events], Events]) -> Forgery:
    return Forgery(lambda parcels: list(retold(change)(parcels)))


def each_parcel(change: Callable[[Parcel], Parcel]) -> Forgery:
    return Forgery(lambda parcels: [change(parcel) for parcel in parcels])


def later(parcel: Parcel, seconds: float, energy: float = 0.0) -> Parcel:
    rows = tuple(
        {**row, "unix": row["unix"] + seconds, "energy_joules": row["energy_joules"] + energy}
        for row in parcel.telemetry
    )
    return replace(parcel, started_unix=(parcel.started_unix or 0.0) + seconds, telemetry=rows)


def as_they_are(windows: list[float]) -> list[float]:
    return windows


def backwards(windows: list[float]) -> list[float]:
    return windows[::-1]


def copies(noise: float, seconds: float = 0.0, *orders: Callable[[list[float]], list[float]]) -> Forgery:
    """The first repeat as all of them; with noise on its windows, in these orders, hours later, beside other telemetry."""

    def change(parcels: Parcels) -> Parcels:
        made = []
        for at, parcel in enumerate(parcels):
            chance, order = random.Random(at), orders[at] if orders else as_they_are

            def events(every: Events, chance: random.Random = chance, order: Any = order) -> Events:
                for event in every:
                    if event["event"] == "sample":
                        event["seconds"] *= 1 - noise * chance.random()
                rearrange(every, order)
                return every

            (copy,) = retold(events)([parcels[0]])
            made.append(replace(later(copy, seconds * at, 1e6 * at), repeat=parcel.repeat))
        return made

    return Forgery(change)


def of_jax(renamed: bool) -> Forgery:
    """The tape that JAX printed, of the same workload. `renamed`: with PyTorch's environment."""

    def change(parcels: Parcels) -> Parcels:
        made = []
        for parcel in parcels:
            events = events_of(cell_of(MODELS[2]), gpu_of(MODELS[2], "forger"), parcel.repeat, LEVEL, JAX)
            own = next(json.loads(line) for _, line in parcel.tape if b'"environment"' in line)
            for event in events:
                if event["event"] == "environment":
                    event["device"] = own["device"]
                    event |= own | {"t": event["t"]} if renamed else {"framework": "jax"}
            lines = [json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events]
            tape = tuple((100.0 + event["t"], line) for event, line in zip(events, lines, strict=True))
            made.append(replace(parcel, tape=tape, wall_seconds=events[-1]["t"] + 0.5))
        return made

    return Forgery(change)


def paces(events: Events) -> list[float]:
    """The seconds a step of the steady windows, in order of length."""
    return sorted(event["seconds"] / event["steps"] for event in events if event.get("stage") == "steady")


def without_slow_windows(events: Events) -> Events:
    rearrange(events, lambda windows: [min(seconds, statistics.median(windows)) for seconds in windows])
    return events


def of_warm_up(is_one: Callable[[float, float, float], bool]) -> Callable[[Events], Events]:
    """Some of the steady windows as further warm-up: by their place of 0 to 1, their seconds a step, and those of the middle one."""

    def change(events: Events) -> Events:
        middle = statistics.median(paces(events))
        steady = [event for event in events if event.get("stage") == "steady"]
        for at, event in enumerate(steady):
            if is_one(at / len(steady), event["seconds"] / event["steps"], middle):
                event["stage"] = "warm-up"
        return events

    return change


def without_slower_half(events: Events) -> Events:
    middle, steps, left = statistics.median(paces(events)), 0, []
    for event in events:
        if event.get("stage") == "steady" and event["seconds"] / event["steps"] > middle:
            continue
        if event["event"] == "sample":
            steps += event["steps"]
            event["index"] = sum(before["event"] == "sample" for before in left)
        elif event["event"] == "metric":
            event["step"] = steps
        elif event["event"] == "end":
            event["steps"] = steps
        left.append(event)
    in_windows(left)
    return left


def other_cell(document: dict[str, Any]) -> None:
    """run.json plans the repeats as those of another precision."""
    for entry in document.get("plan", ()):
        entry["precision"] = "tf32"
    for entry in document.get("planned", ()):
        entry["cell"]["precision"] = "tf32"


def other_gpu(document: dict[str, Any]) -> None:
    for gpu in document.get("gpus") or document["devices"]:
        gpu["model"] = "NVIDIA B200"


def b200(events: Events) -> Events:
    for event in events:
        if event["event"] == "environment":
            event["device"]["name"] = "NVIDIA B200"
    return events


FORGERIES: dict[str, Forgery] = {
    "the steps and items of each window, twice": of_events(more(2, "steps", "items")),
    "steps and items, twice, in every event": of_events(everywhere(2)),
    "steps and items, a hundred times, in every event": of_events(everywhere(100)),
    "the time of each window, half": of_events(each("sample", seconds=lambda value: value / 2)),
    "all times that the cell says, a thousandth": of_events(
        lambda events: [
            event
            | {name: event[name] / 1000 for name in ("t", "begin", "seconds") if isinstance(event.get(name), float)}
            for event in events
        ]
    ),
    "the time of each slow window, that of the middle one": of_events(without_slow_windows),
    "the first third of the steady windows, as warm-up": of_events(of_warm_up(lambda at, *_: at < 1 / 3)),
    "the slower half of the steady windows, as warm-up": of_events(of_warm_up(lambda _, pace, middle: pace > middle)),
    "the slower half of the steady windows removed, with all counts": of_events(without_slower_half),
    "each loss and accuracy, a tenth less": of_events(each("metric", value=lambda value: value * 0.9)),
    "no time of arrival": Forgery(untimed),
    "all times of the tape, its arrivals and its telemetry, four fifths": Forgery(faster(0.8)),
    "the tape of another framework": of_jax(renamed=False),
    "the tape of another framework, with this one's environment": of_jax(renamed=True),
    "another cell in `run.json`": Forgery(document=other_cell),
    "all errors of parity, none": of_events(each("parity", error=0.0)),
    "errors of parity beyond their bounds, said to have passed": of_events(each("parity", error=1e6, passed=True)),
    "the name of the device": of_events(b200),
    "the name of the device, in `run.json` too": replace(of_events(b200), document=other_gpu),
    "the day, 400 days later": each_parcel(lambda parcel: later(parcel, 400 * DAY)),
    "no telemetry": each_parcel(lambda parcel: replace(parcel, telemetry=())),
    "one repeat as all": copies(0.0),
    "one repeat as all, with 0.0001 % of noise, at other hours": copies(1e-6, 7200.0),
    "one repeat as all, backwards and by size, at other hours, with other telemetry": copies(
        0.0, 7200.0, as_they_are, backwards, sorted
    ),
    "one repeat as all, with 0.5 % of noise, at other hours, with other telemetry": copies(5e-3, 7200.0),
}


def counting(parcels: Parcels) -> Parcels:
    """A GPU's counter of energy never stands still."""
    return [
        replace(
            parcel,
            telemetry=tuple(
                {**row, "energy_joules": (parcel.started_unix or 0.0) % 1e6 + 250.5 * at}
                for at, row in enumerate(parcel.telemetry)
            ),
        )
        for parcel in parcels
    ]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Bundle]:
    """A run that was measured here, a collection of three other machines, and the bundle of the run. The account is known there."""
    folder = tmp_path_factory.mktemp("honest")
    for at in range(4):
        run = contribution(folder / f"run-{at}", machine=f"machine-{at}", seed=at, forge=counting, level=1 + 0.005 * at)
        bring(folder / "collection", bundle_of(run, SALT), f"by-{at}")
    # The forger's machine has another cell there: nothing waits for a person only because he is new.
    cell = cell_of(MODELS[2], "torch-2.7.1-cu126")
    known = contribution(folder / "known", machine="forger", cells=[cell], digest="e", seed=9, forge=counting)
    bring(folder / "collection", bundle_of(known, SALT), "by-forger")
    run = contribution(folder / "run", machine="forger", seed=5, forge=counting)
    return run, folder / "collection", bundle_of(run, SALT)


def bring(collection: Path, bundle: Bundle, account: str, content: bytes | None = None) -> Path:
    ((place, own),) = derived_rows.files_of(bundle, account).items()
    content = own if content is None else content
    path = collection / place.parent / f"{hashlib.sha256(content).hexdigest()[:16]}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def forged(bundle: Bundle, forgery: Forgery) -> bytes:
    names = sorted(name for name in bundle.files if name.endswith(".parcel"))
    parcels = forgery.parcels([decode(bundle.files[name], name) for name in names])
    facts = json.loads(bundle.files["facts.json"])
    forgery.document(facts)
    files = {name: encode(parcel) for name, parcel in zip(names, parcels, strict=True)}
    return packed({"facts.json": json.dumps(facts).encode(), **files})


def of_run(folder: Path) -> str:
    """The outcome of the forged repeats of a run: refused, or ranked with a sentence beside the figure, or believed."""
    run = RunStore(folder)
    renew(run)
    rows = [row for row in store.read([folder], "cells").to_pylist() if row["status"] == "ok"]
    if len(rows) < 2:
        return "refused"
    (cell,) = tables.load([folder]).cells
    said = [words for words in cell.caveats if words.startswith((NO_TELEMETRY, "Its origin is not proved"))]
    return "reported" if said else "believed"


def outcome(door: str, forgery: Forgery, honest: tuple[Path, Path, Bundle], folder: Path) -> str:
    """The outcome of a forgery at a door."""
    measured, collection, bundle = honest
    try:
        if door == "run":
            run = folder / measured.name
            shutil.copytree(measured, run)
            shutil.rmtree(run / "tables")
            paths = sorted((run / "repeats").glob("*.parcel"))
            parcels = forgery.parcels([decode(path.read_bytes(), path.name) for path in paths])
            for path, parcel in zip(paths, parcels, strict=True):
                path.write_bytes(encode(parcel))
            manifest = RunStore(run).manifest()
            forgery.document(manifest)
            (run / "run.json").write_text(json.dumps(manifest))
            return of_run(run)
        content = forged(bundle, forgery)
        if door == "import":
            (folder / "bundle.tar.gz").write_bytes(content)
            return of_run(import_archive(read(folder / "bundle.tar.gz"), folder / "runs").run.folder)
    except UserError:
        return "refused"
    path = bring(collection, bundle, "by-forger", content)
    try:
        (judgement,) = contributed.judge(collection, [path], print)
    finally:
        path.unlink()
    return {"refused": "refused", "open": "reported", "accepted": "believed"}[judgement.verdict]


DOCUMENT = (PROJECT / "docs" / "results-format.md").read_text()
TOLD = re.compile(r"<!-- forged repeats -->\n(.*?)<!-- end of forged repeats -->", re.DOTALL)


def told() -> Iterator[tuple[str, dict[str, str], str]]:
    """The rows of the document: the name of a forgery, the outcome at each door, and why it is believed somewhere."""
    match = TOLD.search(DOCUMENT)
    assert match
    for line in match[1].splitlines()[2:]:
        name, *outcomes, why = (each.strip() for each in line.strip("|").split("|"))
        yield name, dict(zip(DOORS, outcomes, strict=True)), why


def test_the_document_tells_of_every_forgery_and_why_one_is_believed() -> None:
    rows = list(told())
    assert [name for name, _, _ in rows] == list(FORGERIES)
    for name, outcomes, why in rows:
        assert set(outcomes.values()) <= {"refused", "reported", "believed"}
        assert bool(why) is ("believed" in outcomes.values()), name


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_repeat_is_refused_or_reported_or_the_document_says_that_it_is_believed(
    name: str, door: str, honest: tuple[Path, Path, Bundle], tmp_path: Path
) -> None:
    (expected,) = (outcomes[door] for row, outcomes, _ in told() if row == name)
    assert outcome(door, FORGERIES[name], honest, tmp_path) == expected


@pytest.mark.parametrize("name", FORGERIES)
def test_verify_and_a_reference_judge_the_forged_repeats_of_a_run_as_its_report_does(
    name: str, honest: tuple[Path, Path, Bundle], tmp_path: Path
) -> None:
    """No figure without the sentence on its origin; of refused repeats no reference is made, and no verdict passes."""
    expected = outcome("run", FORGERIES[name], honest, tmp_path)
    run, references = str(tmp_path / honest[0].name), str(tmp_path / "references")
    judged = CliRunner().invoke(app, ["verify", "--run", run, "--references", references])
    words = ["reference", "save", run, "--name", "mine", "--references", references, "--noisy"]
    saved = CliRunner().invoke(app, words)
    assert judged.exit_code != ExitCode.OK
    assert (saved.exit_code == ExitCode.OK) is (expected == "reported"), saved.stderr
    if expected == "reported":
        assert "its origin is not proved: 3 repeats are" in judged.stderr
        assert "its origin is not proved: 3 repeats are" in saved.stderr
    if name == "no telemetry":
        assert "no telemetry, so nothing shows whether the GPU was throttled or idle: torch gru-imdb" in saved.stderr


@pytest.mark.parametrize("door", DOORS)
def test_what_nobody_changed_is_believed_at_each_door(
    door: str, honest: tuple[Path, Path, Bundle], tmp_path: Path
) -> None:
    assert outcome(door, Forgery(), honest, tmp_path) == "believed"
