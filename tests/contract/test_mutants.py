"""The gates of a cell against planted mistakes (mutants): each is refused, or listed as not caught, and docs/mutants.md says so."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from runner.admission.record import Recorder
from runner.catalog.images import PROJECT
from runner.engines.base import Exit
from tests.contract.mutants import table, whole
from tests.contract.mutants.registry import FAMILIES, KINDS, REWRITE
from tests.fixtures.cpus import take_own_cpus
from tests.fixtures.judged import judge
from tests.fixtures.plans import make_cell

EVERYTHING = os.environ.get("DLBENCH_FAULTS") == "all"
ROWS = table.stored()

# A group by itself (tests/conftest.py): one process computes the mutants for all tests of this file.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# What each planted mistake must at least be caught by, by more than a hundred bounds.
CAUGHT_BY = {
    ("cnn-cifar10", "DoubleSoftmax"): "loss",
    ("cnn-cifar10", "DropoutLeftOn"): "logits",
    ("cnn-cifar10", "PaddingOnOneSide"): "logits",
    ("cnn-cifar10", "TransposedPicture"): "logits",
    ("cnn-cifar10", "FlattenedChannelsLast"): "logits",
    ("cnn-cifar10", "SummedLoss"): "gradient",
    ("cnn-cifar10", "MomentumWithUnitGain"): "movement",
    ("cnn-cifar10", "Dampening"): "movement",
    ("cnn-cifar10", "Nesterov"): "movement",
    ("cnn-cifar10", "WeightDecay"): "movement",
    ("gru-imdb", "ResetBefore"): "logits",
    ("gru-imdb", "UpdateGateTurned"): "logits",
    ("gru-imdb", "GatesInAnotherOrder"): "logits",
    ("gru-imdb", "RecurrentBiasForgotten"): "logits",
    ("gru-imdb", "AdamWithoutBiasCorrection"): "parameter",
    ("gru-imdb", "HalfOfTheBatchWhileTimed"): "learning",
    ("gru-imdb", "OneBatchReplayed"): "learning",
}

# Mistakes that were once measured and ranked, in a real cell each: workload, class. The first few are tried in every run.
REAL = [
    ("gru-imdb", "ForwardOnly"),
    ("gru-imdb", "Last149Positions"),
    ("cnn-cifar10", "GluonsDropout"),
    ("gru-imdb", "Last45Positions"),
    ("gru-imdb", "LazyAdam"),
    ("gru-imdb", "PaddingIndex"),
    ("gru-imdb", "StaleBatch"),
    ("gru-imdb", "EverySecondStep"),
    ("cnn-cifar10", "DropoutInEvaluation"),
    ("cnn-cifar10", "ForwardOnly"),
    ("cnn-cifar10", "StaleBatch"),
    ("cnn-cifar10", "EverySecondStepAfterTheTenth"),
]
ALWAYS = 2


@functools.cache
def run(framework: str) -> table.Run:
    if framework != "torch" and not EVERYTHING:
        pytest.skip(f"the mutants of {framework} take minutes to compile; DLBENCH_FAULTS=all runs them")
    try:
        if EVERYTHING:
            return table.run(framework, "--all")
        return table.run(framework, "--some", [f"{workload}/{name}" for workload, name in CAUGHT_BY])
    except LookupError as error:
        pytest.skip(str(error))


def row_of(verdict: table.Verdict) -> tuple[str, str, str]:
    return verdict["framework"], verdict["workload"], verdict["name"]


@pytest.mark.parametrize("framework", table.IMAGES)
def test_every_mutant_is_refused_unless_it_is_listed_as_not_caught(framework: str) -> None:
    verdicts = [v for v in run(framework)["verdicts"] if v["family"] != REWRITE]
    assert len(verdicts) > len(CAUGHT_BY)
    assert [row_of(v) for v in verdicts if not v["refused"] and not v["not_caught"]] == []
    # One that errs by about a bound is refused by chance: its masks are drawn.
    refused = [(row_of(v), v["refused"][0]) for v in verdicts if v["refused"] and v["not_caught"]]
    # A loaded machine may make the runner refuse a real cell.
    refused = [entry for entry in refused if entry[1][0] != whole.RUNNER]
    assert [entry for entry in refused if entry[1][3] is None or entry[1][3] > 1.5] == []


@pytest.mark.parametrize("framework", table.IMAGES)
def test_the_same_computed_in_another_way_passes(framework: str) -> None:
    rewrites = [v for v in run(framework)["verdicts"] if v["family"] == REWRITE]
    assert rewrites
    assert [(row_of(v), v["refused"]) for v in rewrites if v["refused"]] == []
    assert [row_of(v) for v in rewrites if not v["worst"]] == [], "it did not run: no row holds any of it"


@pytest.mark.parametrize(("workload", "name"), CAUGHT_BY)
def test_a_planted_mistake_is_caught_by_far(workload: str, name: str) -> None:
    """A mistake lies far outside the bound, so the bound need not be exact."""
    (verdict,) = [v for v in run("torch")["verdicts"] if (v["workload"], v["name"]) == (workload, name)]
    assert CAUGHT_BY[workload, name] in {quantity for _, quantity, _, _ in verdict["refused"]}
    assert verdict["worst"] > 100


@pytest.mark.parametrize("framework", table.IMAGES)
def test_the_document_has_the_mutants_that_there_are(framework: str) -> None:
    assert {tuple(mutant) for mutant in run(framework)["mutants"]} == {row for row in ROWS if row[0] == framework}


@pytest.mark.parametrize("framework", table.IMAGES)
def test_the_document_says_what_refuses_each_and_by_how_much(framework: str) -> None:
    """What refuses is the same on each machine. The bounds may differ by a factor of ten, and where both are large by any."""
    for verdict in run(framework)["verdicts"]:
        row = ROWS[row_of(verdict)]
        if table.NOT_RUN in row:
            continue
        if verdict["not_caught"]:
            assert row == [verdict["family"], verdict["not_caught"]]
        elif verdict["family"] != REWRITE:
            phase, quantity, tensor = (*row[0].split(maxsplit=2), "")[:3]
            # Of several tensors that err alike, another one may be the worst here.
            rows = [
                bounds
                for p, q, t, bounds in verdict["refused"]
                if (p, q) == (phase, quantity) and (q != "exact" or what(t) == what(tensor))
            ]
            assert rows, (row_of(verdict), row, verdict["refused"][:3])
            if row[1] not in ("not finite", ""):
                assert as_far(rows[0] or 0.0, float(row[1])), (row_of(verdict), row, verdict["refused"][0])


def as_far(bounds: float, told: float) -> bool:
    """The two figures are of one size, as far as the document says that it is held."""
    return 0.1 < bounds / told < 10 or min(bounds, told) > table.FAR


@pytest.mark.parametrize(
    ("bounds", "told", "same"),
    [
        (2e1, 9e1, True),
        (5e0, 9e1, False),
        (548.0, 3.4e5, True),
        (90.0, 3.4e5, False),
        (3.4e5, 90.0, False),
        (0.0, 1e3, False),
    ],
)
def test_a_figure_is_held_within_a_factor_of_ten_unless_both_are_large(bounds: float, told: float, same: bool) -> None:
    assert as_far(bounds, told) is same


def what(tensor: str) -> str:
    """What is held of a tensor exactly: of "gru.w, last step, direction" what follows its name."""
    return tensor.partition(", ")[2]


def test_there_are_mutants_of_every_family_and_framework() -> None:
    text = table.DOCUMENT.read_text(encoding="utf-8")
    assert [family for family in FAMILIES if f"## {family.capitalize()}\n" not in text] == []
    mistakes = [row for row, cells in ROWS.items() if len(cells) == 2 and cells[0] not in FAMILIES]
    assert len(mistakes) >= 60
    assert {f: sum(row[0] == f for row in mistakes) >= 10 for f in table.IMAGES} == dict.fromkeys(table.IMAGES, True)


def test_at_least_twenty_mistakes_of_each_kind_are_refused_in_each_framework() -> None:
    rows = table.stored_rows()
    for kind, families in KINDS.items():
        # What the shape decides is younger, and has fewer.
        if kind == "what the shape decides":
            continue
        refused = Counter(
            f
            for family in families
            for f, line in rows[family.capitalize()]
            if "| nothing |" not in line and f"| {table.NOT_RUN} |" not in line
        )
        assert {f: refused[f] >= 20 for f in table.IMAGES} == dict.fromkeys(table.IMAGES, True), families


def test_only_mutants_without_a_row_are_run_where_new_ones_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    old = next(list(row) for row in ROWS if row[0] == "jax")
    planted = {"mutants": [old, ["jax", "gru-imdb", "Unheard"]], "verdicts": [], "date": "2000-01-02"}
    asked = []
    monkeypatch.setattr(table, "run", lambda framework, which, names: asked.append(names) or planted)
    table.run_new("jax")
    assert asked == [["none"], ["gru-imdb/Unheard"]]


def test_the_document_is_what_its_rows_make_with_their_counts() -> None:
    assert table.document(table.stored_rows(), table.stored_dates()) == table.DOCUMENT.read_text(encoding="utf-8")


def test_a_run_of_one_framework_replaces_its_rows_and_keeps_those_of_the_others() -> None:
    verdict = {"framework": "jax", "workload": "mlp-mnist", "name": "Gelu", "sentence": "GELU.", "family": "network"}
    passed = {**verdict, "family": REWRITE, "name": "Rewritten", "not_caught": "", "refused": [], "worst": 0.5}
    refused = {**verdict, "not_caught": "", "refused": [["parity", "loss", "loss", 25.0]]}
    missed = {**verdict, "not_caught": "", "refused": []}
    unrun = {key: value for key, value in passed.items() if key not in ("refused", "worst")}
    old = table.stored_rows()
    planted = {"jax": {("mlp-mnist", "Gelu"), ("mlp-mnist", "Rewritten")}}
    new = table.merged(old, table.rows_of([refused, missed, passed, unrun]), planted)
    for section, rows in new.items():
        others = [row for row in old[section] if row[0] != "jax"]
        assert [row for row in rows if row[0] != "jax"] == others
    text = table.document(new, table.stored_dates() | {"jax": "2000-01-02"})
    # Mutants that are not planted have no rows. One of the two mistakes was refused, and none is known to be not caught. One of the two
    # rewrites was run.
    assert f"| jax | {table.IMAGES['jax']} | 2000-01-02 | 2 | 1 | 0 | 2 | 1 |" in text
    assert "| `Gelu`: GELU. | jax | mlp-mnist | parity loss | 2.5e1 |" in text


def test_a_run_of_some_mutants_keeps_the_rows_of_the_others() -> None:
    old = table.stored_rows()
    planted = {framework: {row[1:] for row in ROWS if row[0] == framework} for framework in table.IMAGES}
    assert table.merged(old, table.rows_of([]), planted) == old
    (one,) = [row for row in old["Loss"] if row[0] == "jax" and "`LabelSmoothing`" in row[1]]
    verdict = {"framework": "jax", "workload": "mlp-mnist", "name": "LabelSmoothing", "sentence": "", "family": "loss"}
    new = table.merged(old, table.rows_of([{**verdict, "not_caught": "", "refused": []}]), planted)
    assert one not in new["Loss"]
    assert sum(map(len, new.values())) == sum(map(len, old.values()))


@pytest.mark.parametrize(("workload", "name"), REAL if EVERYTHING else REAL[:ALWAYS])
def test_a_real_cell_with_a_mistake_fails_and_is_not_ranked(workload: str, name: str, tmp_path: Path) -> None:
    try:
        python = table.python_of("torch")
    except LookupError as error:
        pytest.skip(str(error))
    shim = PROJECT / "tests" / "contract" / "mutants" / "shim"
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(shim), str(PROJECT))),
        "DLBENCH_MUTANT": f"torch {workload} {name}",
    }
    words = [python, "-m", "bench", "run", workload, "--framework", "torch", "--preset", "quick"]
    ended = subprocess.run(
        words, cwd=tmp_path, capture_output=True, env=variables, check=False, preexec_fn=take_own_cpus
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    recorder = Recorder()
    recorder.feed(ended.stdout)
    recorder.close()
    cell = make_cell(image=table.IMAGES["torch"], workload=workload)
    status, kind, reason = judge(recorder, cell, Exit(ended.returncode, False, ""), None, ())
    assert (status, kind) == ("failed", "parity")
    # It was measured to its end like any other cell: only the proof tells.
    assert json.loads(ended.stdout.splitlines()[-1])["status"] == "ok"
    assert "off by" in str(reason) or "not finite" in str(reason)
