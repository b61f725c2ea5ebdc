"""Lines and files as a stranger may give them, changed at random: `python -m tests.unit.strangers KIND COUNT SEED`.

Each is read by what reads it in the product. Some are refused in a sentence, and the others are read. Anything else ends this
process: another exception, a program that is started, a file that is written outside. It prints JSON: how many of each, and the
memory of the process in bytes.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import os
import random
import struct
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.data import chestxray, files, imagenet, mnist
from bench.environment import host_peak_bytes
from bench.errors import DataError
from bench.protocol import ProtocolError
from reports.answers.overview import overview
from reports.data.tables import load
from reports.page import markdown_report
from reports.page.render import render
from runner import trees
from runner.admission import sets as sets  # loaded now: what Python compiles later would be a write of the attack
from runner.admission.admit import store_parcel
from runner.admission.judges import HostFacts
from runner.admission.record import event_of
from runner.errors import UserError
from runner.kit import archive
from runner.kit.imported import import_archive
from runner.kit.results_folder import packed
from runner.nodes.frames import MAGIC, Decoder, encode
from runner.nodes.wire import Ended, from_agent
from runner.plan.durations import earlier_preparations, earlier_seconds
from runner.results import parcel as parcels
from runner.results.store import RunStore
from runner.verify.references.measured import reference_of
from runner.verify.references.saved import read, to_bytes
from tests.fixtures import archives, nodes, stored, synthetic

RECORDED = Path(__file__).parent / "recorded"
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63, 10**400, -(10**400), 1e308, 5e-324, float("nan"), float("-inf")),
    *("", "2.²", "9" * 5000, "x" * 100_000, "@everyone https://example.org", "\x1b]0;x\x07\x1b[2J", "<script>", "../../x", "\ud800"),
    *([], {}, [[]], [None], {"a": {"b": []}}, ["x"] * 1000, {"x": 10**400}),
)  # fmt: skip

Attack = Callable[[random.Random], None]


class Watch:
    """Ends the process where something is started, or written outside a folder. A hook cannot be removed: it is for the whole process."""

    STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "socket.connect")
    CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.on = True
        sys.addaudithook(self._look)

    def _look(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in self.STARTS:
            self._end(event, given)
        writes = event in self.CHANGES or (
            event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if writes and isinstance(given[0], str | bytes | os.PathLike):
            path = os.fsdecode(given[0])
            # A tree is removed by the descriptors of its folders.
            if event in ("os.remove", "os.rmdir") and given[-1] >= 0:
                path = f"{Path(f'/proc/self/fd/{given[-1]}').readlink()}/{path}"
            inside = os.path.abspath(path).startswith(self._folder)  # noqa: PTH100 - `..` is not looked up
            if not inside and path != os.devnull:
                self._end(event, given)

    def _end(self, event: str, given: tuple[Any, ...]) -> None:
        print(f"an attack reached {event} {str(given)[:500]}", file=sys.stderr)
        os._exit(3)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """With some of its bytes changed, removed, added or repeated."""
    for _ in range(chance.choice((1, 1, 2, 5))):
        at, length = chance.randrange(len(data) + 1), chance.choice((1, 1, 4, 8, 100))
        way = chance.randrange(5)
        if way == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        elif way == 1:
            data = data[:at] + data[at + length :]
        elif way == 2:
            data = data[:at] + chance.choice((b"\xff", b"\0", b"[", b'"', b"9")) * length + data[at + length :]
        elif way == 3:
            data = data[:at] + data[max(0, at - length) : at] + data[at:]
        else:
            data = (
                data[:at]
                if chance.random() < 0.3
                else data[:at] + bytes(chance.randrange(256) for _ in range(length)) + data[at:]
            )
    return data


def odd_somewhere(value: Any, chance: random.Random) -> Any:
    """A copy of a JSON value with an odd value in one place."""
    places: list[tuple[Any, Any]] = []
    whole = copy.deepcopy(value)

    def walk(part: Any) -> None:
        for key in part if isinstance(part, dict) else range(len(part)):
            places.append((part, key))
            if isinstance(part[key], dict | list):
                walk(part[key])

    walk(whole)
    part, key = chance.choice(places)
    part[key] = chance.choice(ODD)
    return whole


def of_lines() -> Attack:
    lines = [line for path in sorted(RECORDED.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    lines = [line for line in lines if len(line) < 5000]

    def attack(chance: random.Random) -> None:
        line = chance.choice(lines)
        as_bytes = chance.random() < 0.5
        line = mutated(line, chance) if as_bytes else json.dumps(odd_somewhere(json.loads(line), chance)).encode()
        event_of(line)

    return attack


def of_references(folder: Path) -> Attack:
    whole = to_bytes(reference_of([small_run(folder)], "lab", "0.1.0").reference)
    path = folder / "lab.reference.parquet"
    path.write_bytes(whole)
    table = pq.read_table(path)
    manifest = json.loads(table.schema.metadata[b"dlbench_reference"])

    def attack(chance: random.Random) -> None:
        if chance.random() < 0.5:
            path.write_bytes(mutated(whole, chance))
        else:
            changed = json.dumps(odd_somewhere(manifest, chance), sort_keys=True, separators=(",", ":")).encode()
            pq.write_table(table.replace_schema_metadata({b"dlbench_reference": changed}), path)
        read(path)

    return attack


def small_run(folder: Path) -> Path:
    """A run of two cells."""
    run = synthetic.make_run(folder / "results" / "run", windows=8)
    manifest = json.loads((run / "run.json").read_bytes())
    kept = {entry["id"] for entry in manifest["plan"][:2]}
    manifest["plan"] = [entry for entry in manifest["plan"] if entry["id"] in kept]
    (run / "run.json").write_text(json.dumps(manifest))
    stored.remove(run, lambda row: row["cell_id"] not in kept)
    return run


def of_runs(folder: Path) -> Attack:
    run = small_run(folder)
    manifest = json.loads((run / "run.json").read_bytes())
    written = {path: path.read_bytes() for path in (run / "tables").iterdir()}
    index = json.loads((run / "tables" / "index.json").read_bytes())
    counts: Counter[str] = Counter()

    def attack(chance: random.Random) -> None:
        way, path, kept = chance.randrange(3), run / "run.json", b""
        if way == 0:
            kept = path.read_bytes()
            path.write_text(json.dumps(odd_somewhere(manifest, chance)))
        else:
            path = chance.choice(list(written)) if way == 1 else run / "tables" / "index.json"
            kept = written[path]
            changed = mutated(kept, chance) if way == 1 else json.dumps(odd_somewhere(index, chance)).encode()
            path.write_bytes(changed)
        counts["all"] += 1
        try:
            earlier_seconds(folder / "results")
            earlier_preparations(folder / "results", "docker")
            markdown_report.markdown(overview(load([run])))
            # The page takes as long as fifty of the others.
            if counts["all"] % 50 == 0:
                render([run], folder / "report.html")
        finally:
            path.write_bytes(kept)

    return attack


def of_data(folder: Path) -> Attack:
    """The readers of the data sets' files, each with a small file. Pickles are read only where a digest vouches for them."""
    readers: list[tuple[str, bytes, Callable[[str], object]]] = []

    def add(name: str, content: bytes, reader: Callable[[str], object]) -> None:
        reader(str(write(name, content)))
        readers.append((name, content, reader))

    def write(name: str, content: bytes) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    for module in (mnist, chestxray, imagenet):
        (folder / module.__name__).mkdir()
        module.write_stand_in(str(folder / module.__name__), 12, 4, 7)
    of = {module: folder / module.__name__ for module in (mnist, chestxray, imagenet)}
    digits = sorted(of[mnist].glob("*images*"))[0]
    add("images-idx3-ubyte", digits.read_bytes(), lambda path: mnist.read_idx(path, 3))
    table, picture = sorted(of[chestxray].rglob("*.csv"))[0], sorted(of[chestxray].rglob("*.png"))[0]
    add("table.csv", table.read_bytes(), chestxray.read_table)
    add("picture.png", picture.read_bytes(), chestxray.read_picture)
    photo = sorted(of[imagenet].rglob("*.png"))[0]
    add("photo.png", photo.read_bytes(), lambda path: imagenet.read_picture((path, None, None)))
    np.save(folder / "photo.npy", np.zeros((imagenet.STORED, imagenet.STORED, 3), np.uint8))
    add("photo.npy", (folder / "photo.npy").read_bytes(), lambda path: imagenet.read_picture((path, None, None)))
    (folder / "0.cls").write_text("7")
    (folder / "0.png").write_bytes(b"not read")
    with tarfile.open(folder / "train-0.tar", "w") as tar:
        for name in ("0.cls", "0.png"):
            tar.add(folder / name, name)
    add("train-0.tar", (folder / "train-0.tar").read_bytes(), imagenet.read_shard)
    add(files.MARKER, json.dumps({"files": {"a": "0" * 64}}).encode(), files._marker_sums)

    def attack(chance: random.Random) -> None:
        name, content, reader = chance.choice(readers)
        reader(str(write(name, mutated(content, chance))))

    return attack


def of_frames(folder: Path) -> Attack:
    """What an agent sends: read as the driver of a run over several nodes does, a finished repeat up to its rows."""
    repeat = nodes.parcel_of()
    cell, body = nodes.make_cell(image="torch-2.13.0-cpu"), parcels.encode(repeat)
    unpacked = gzip.decompress(body)
    frames = [Ended(attempt=str(repeat.attempt)).frame(body), *(message.frame() for message in nodes.SAID)]

    def attack(chance: random.Random) -> None:
        if chance.random() < 0.3:
            parcel = parcels.decode(gzip.compress(mutated(unpacked, chance), 1), "x")
            store_parcel(RunStore(folder / "run"), parcel, cell, HostFacts())
            return
        frame = chance.choice(frames)
        if chance.random() < 0.5:
            content = mutated(encode(frame), chance)
        else:
            header = json.dumps(odd_somewhere(frame.header, chance)).encode()
            content = MAGIC + struct.pack(">II", len(header), len(frame.body)) + header + frame.body
        for found in Decoder().feed(content):
            if isinstance(from_agent(found), Ended):
                parcels.decode(found.body, "x")

    return attack


def of_archives(folder: Path) -> Attack:
    """The archive of a kit, imported as a run: its bytes are changed, or those of one of its files before it is packed."""
    path, body = folder / "kit.tar.gz", archives.files()[archives.NAME]
    unpacked, whole = gzip.decompress(body), packed(archives.files())
    plain = gzip.decompress(whole)

    def attack(chance: random.Random) -> None:
        way = chance.randrange(4)
        if way == 0:
            path.write_bytes(mutated(whole, chance))
        elif way == 1:
            path.write_bytes(gzip.compress(mutated(plain, chance), 1))
        else:
            facts = odd_somewhere(archives.FACTS, chance) if way == 2 else archives.FACTS
            parcel = body if way == 2 else gzip.compress(mutated(unpacked, chance), 1)
            path.write_bytes(packed(archives.files(facts, parcel)))
        try:
            import_archive(archive.read(path), folder / "runs")
        finally:
            trees.remove(folder / "runs")

    return attack


KINDS: dict[str, Callable[[Path], Attack]] = {
    "lines": lambda _: of_lines(),
    "references": of_references,
    "runs": of_runs,
    "data": of_data,
    "frames": of_frames,
    "archives": of_archives,
}


@contextlib.contextmanager
def quiet_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main(kind: str, count: int, seed: int) -> None:
    sys.setrecursionlimit(1000)
    os.fsync = lambda _: None  # as in the tests' own process: nothing here need outlive a power failure
    with quiet_folder() as folder:
        attack = KINDS[kind](folder)
        with contextlib.suppress(UserError, DataError, ProtocolError):
            # What is loaded when it is needed first is loaded before the watch begins.
            attack(random.Random(0))
        watch = Watch(folder)
        counts: Counter[str] = Counter(read=0, refused=0)
        for number in range(count):
            if number == count // 10:
                counts["bytes_of_a_tenth"] = host_peak_bytes() or 0
            chance = random.Random(f"{seed} {number}")
            try:
                attack(chance)
                counts["read"] += 1
            except (UserError, DataError, ProtocolError):
                counts["refused"] += 1
            except BaseException:
                # The folder is removed.
                watch.on = False
                print(f"{kind} {number} of seed {seed}", file=sys.stderr)
                raise
        watch.on = False
        print(json.dumps(counts | {"bytes": host_peak_bytes()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
