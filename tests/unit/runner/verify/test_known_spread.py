"""An index of references says how far machines of a model differ: a cell's place among them, and slow GPUs of small fleets."""

from __future__ import annotations

import http.server
import json
import math
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.kit import shared_run
from runner.results.statistics import Array
from runner.results.store import RunStore
from runner.verify.outliers import SMALLEST_KNOWN_GAP, _gaps_of, _spread, known_spread, score_limit
from runner.verify.output import details
from runner.verify.peer_comparison import with_fleets
from runner.verify.references.comparability import FEWEST_KNOWN
from runner.verify.references.contributed.site import IndexSite, SiteError, index_of, reference_of, references_for
from runner.verify.references.measured import read_runs
from runner.verify.references.saved import Reference
from runner.verify.verification import assess
from tests.fixtures import indexes
from tests.fixtures.fleets import each_gpu_run

ALL = os.environ.get("DLBENCH_SIMULATIONS") == "all"
# As many as a figure of the module's docstring rests on; a tenth is enough to see that it holds.
FLEETS = 20_000 if ALL else 4000
DIFFER_BY = 0.01


def draws(shape: tuple[int, int], tails: int, seed: int) -> Array:
    random = np.random.default_rng(seed)
    if not tails:
        return DIFFER_BY * random.standard_normal(shape)
    return DIFFER_BY * random.standard_t(tails, shape) / math.sqrt(tails / (tails - 2))


def is_slow(logs: Array, prior: Array, machines: int) -> Array:
    """The rule of the module, of fleets whose priors differ."""
    limit = score_limit(logs.shape[-1], machines=machines)
    least = np.maximum(limit * _spread(logs, prior, machines), math.log1p(SMALLEST_KNOWN_GAP))
    return np.asarray(_gaps_of(logs, prior, machines) > least[..., None])


def named_and_alarms(machines: int, devices: int, tails: int = 0) -> tuple[float, float]:
    """Of 100 fleets: in how many a device that is 5 % slow is named, and in how many healthy ones any is."""
    prior, logs = known_spread(draws((FLEETS, machines), tails, 1)), draws((FLEETS, devices), tails, 2)
    alarms = is_slow(logs, prior, machines).any(axis=-1).mean()
    logs[:, 0] += math.log1p(0.05)
    return 100 * float(is_slow(logs, prior, machines)[:, 0].mean()), 100 * float(alarms)


@pytest.mark.parametrize(
    ("machines", "devices", "named"), [(10, 4, 63), (10, 8, 64), (31, 4, 86), (31, 8, 87), (100, 4, 90), (100, 8, 91)]
)
def test_a_gpu_that_is_5_percent_slow_is_named_as_often_as_the_module_says(
    machines: int, devices: int, named: int
) -> None:
    share, alarms = named_and_alarms(machines, devices)
    # The standard error of a share of 4000 fleets is 0.5 of 100, and of 1 of 100 is 0.16.
    assert share >= named - (0 if ALL else 1)
    assert alarms <= (1.2 if ALL else 1.5)


@pytest.mark.parametrize(("tails", "most"), [(5, 7), (3, 12)])
def test_heavier_tails_make_more_false_alarms_than_a_fleet_of_normal_ones_has(tails: int, most: int) -> None:
    _, alarms = named_and_alarms(31, 8, tails)
    assert 2 < alarms <= most


def index_for(run: Path, machines: int, ratio: float = 1.0) -> list[Reference]:
    """An index with so many machines for each cell of a run, whose median is that of its first GPU times a ratio."""
    rows = []
    for measured in read_runs([run]):
        seconds = float(np.median(np.concatenate(measured.repeats)))
        rows += list(indexes.rows_of(measured.facts, seconds * ratio, machines, 0.01)) if measured.repeats else []
    return [reference_of(cell, "") for cell in index_of(rows)]


@pytest.mark.parametrize(("machines", "named"), [(31, True), (FEWEST_KNOWN - 1, False)])
def test_a_weak_gpu_of_four_is_named_by_the_spread_of_an_index_and_not_without(
    machines: int, named: bool, tmp_path: Path
) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0, 1.002, 0.998, 1.045])
    fleets = with_fleets(assess([run], []), [run], index_for(run, machines)).fleets
    assert len(fleets) == 2
    slow = {len(found.fleet.slow) for found in fleets}
    assert slow == ({1} if named else {0})
    text = "\n".join(details(with_fleets(assess([run], []), [run], index_for(run, machines))))
    assert (f"so do {machines} machines of the index of references" in text) == named
    assert ("how much they do differ was not measured" in text) is False


def site_for(run: Path, folder: Path, machines: int, ratio: float) -> Path:
    rows = []
    for measured in read_runs([run]):
        seconds = float(np.median(np.concatenate(measured.repeats)))
        rows += list(indexes.rows_of(measured.facts, seconds * ratio, machines, 0.01))
    return indexes.site_of(folder, rows)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server of the folder `site`."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("place", ["{site}", "{site}/index.html", "{address}", "{address}index.html#0123456789ab"])
def test_verify_finds_the_rows_of_this_device_and_says_where_it_stands(
    place: str, address: str, tmp_path: Path
) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0], repeats=5)
    site = site_for(run, tmp_path / "site", 31, 1 / 1.04)
    words = ["verify", "--run", str(run), "--references", place.format(site=site, address=address)]
    result = CliRunner().invoke(app, words)
    text = " ".join(result.output.split())
    assert "a step on your NVIDIA H200 takes 1.04" in text, result.output
    assert "times as long as the median of 31 machines, of which 0 are slower" in text or "of which" in text
    assert "machines of this model differ by" in text
    assert "155 repeats" not in text
    assert "93 repeats in 31 machines" in text
    document = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).stdout)
    assert {finding["among"]["machines"] for finding in document["findings"]} == {31}
    assert all(finding["among"]["ratio"] == pytest.approx(1.04, abs=0.01) for finding in document["findings"])


def test_a_machine_is_not_held_against_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run = each_gpu_run(tmp_path / "run", [1.0], repeats=5)
    (facts, *_) = [measured.facts for measured in read_runs([run])]
    rows = list(indexes.rows_of(facts, 0.01, 3))
    shared_run.own_salt()
    own = shared_run.own_pseudonym(RunStore(run).manifest())
    assert own is not None
    site = IndexSite(str(indexes.site_of(tmp_path / "site", [rows[0].model_copy(update={"machine": own}), *rows[1:]])))
    (reference,) = references_for([run], site)
    assert sorted(reference.run_ids) == sorted(row.machine for row in rows[1:])
    alone = indexes.site_of(tmp_path / "alone", [rows[0].model_copy(update={"machine": own})])
    assert references_for([run], IndexSite(str(alone))) == []


def test_a_collection_in_the_place_of_its_index_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bundles" / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "bundles" / "a" / "b" / "c" / "0.tar.gz").touch()
    run = each_gpu_run(tmp_path / "run", [1.0])
    result = CliRunner().invoke(app, ["verify", "--run", str(run), "--references", str(tmp_path / "bundles")])
    assert result.exit_code == 2
    assert "make one with `runner reference index " in " ".join(result.stderr.split())


def test_an_index_without_this_device_says_which_machines_it_has(tmp_path: Path) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0])
    site = indexes.site_of(tmp_path / "site", list(indexes.rows_of(indexes.facts_of("NVIDIA L4"), 0.01, 2)))
    result = CliRunner().invoke(app, ["verify", "--run", str(run), "--references", str(site)])
    assert result.exit_code == 3
    assert "the index has no machine with NVIDIA H200; it has: NVIDIA L4" in result.stderr
    assert "runner share" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("index.json", b"{", "index.json is not JSON"),
        ("index.json", b'{"schema": 2, "devices": []}', "schema"),
        ("cells/h200/gru-imdb.js", b"alert(1)", "it is no file of cells"),
        ("cells/h200/gru-imdb.js", b'cells("{}");\n', "it is missing"),
        ("cells/h200/gru-imdb.js", None, "cannot be read"),
    ],
)
def test_an_index_that_is_none_is_a_sentence(file: str, content: bytes | None, words: str, tmp_path: Path) -> None:
    site = indexes.site_of(tmp_path, list(indexes.rows_of(indexes.facts_of("NVIDIA H200"), 0.01, 2)))
    (site / file).unlink() if content is None else (site / file).write_bytes(content)
    with pytest.raises(SiteError, match=words):
        IndexSite(str(site)).cells("NVIDIA H200", "gru-imdb")


def test_a_cell_that_is_not_what_its_id_says_is_refused(tmp_path: Path) -> None:
    site = indexes.site_of(tmp_path, list(indexes.rows_of(indexes.facts_of("NVIDIA H200"), 0.01, 2)))
    path = site / "cells" / "h200" / "gru-imdb.js"
    path.write_bytes(path.read_bytes().replace(b"amp", b"xxx").replace(b'\\"fp32\\"', b'\\"tf32\\"'))
    with pytest.raises(SiteError, match="is not what its id says"):
        IndexSite(str(site)).cells("NVIDIA H200", "gru-imdb")


def test_an_address_that_nobody_answers_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cannot be read .*Connection refused.*; name the folder or the address"):
        IndexSite("http://127.0.0.1:9/index").cells("NVIDIA H200", "gru-imdb")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("list", "--references", "http://127.0.0.1:9/refs"),
            "index.json cannot be read ([Errno 111] Connection refused)",
        ),
        (("show", "lab", "--references", "http://127.0.0.1:9/refs"), "that is an index, which `runner verify`"),
        (("diff", "lab", "lab", "--references", "http://127.0.0.1:9/refs"), "that is an index, which `runner verify`"),
        (("import", "http://127.0.0.1:9/refs/x.parquet"), "cannot be read ([Errno 111] Connection refused)"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_an_address_is_no_folder_to_any_command_on_references(words: tuple[str, ...], said: str) -> None:
    """It was shortened to `http:/…`, which "is not there"."""
    result = CliRunner().invoke(app, ["reference", *words])
    assert result.exit_code != 0
    assert "http://127.0.0.1:9/refs" in result.stderr
    assert said in result.stderr


def test_an_address_that_nobody_answers_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["verify", "--python", sys.executable, "--references", "http://127.0.0.1:9/index"])
    assert "Connection refused" in result.stderr
    assert [*tmp_path.iterdir()] == [], "no run was begun"
