"""Bundles of people whom we never met: good ones are accepted, and no number that was not measured is."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.kit.contribution.shared_run import Bundle, bundle_of
from runner.results.store import RunStore
from runner.verify.outliers import spread_of
from runner.verify.references.contributed import collection as contributed
from runner.verify.references.contributed import derived_rows, index, layout
from runner.verify.references.contributed.judge import FEWEST_BESIDE, Judgement, comment
from tests.fixtures.contributions import MODELS, Forge, beside, cell_of, contribution
from tests.fixtures.forgeries import FORGERIES, faster, of_parcels
from tests.fixtures.synthetic import CPU
from tests.fixtures.weekly import only_with

SALT = b"s" * 32
CELL_OF_ANOTHER_IMAGE = "torch-2.7.1-cu126"


def bring(collection: Path, bundle: Bundle, content: bytes | None = None) -> Path:
    """The bundle in its place; with other content where this is given, named as that would be."""
    ((place, own),) = layout.files_of(bundle).items()
    content = own if content is None else content
    path = collection / place.parent / f"{hashlib.sha256(content).hexdigest()[:16]}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def bundles(folder: Path, count: int, models: tuple[str, ...] = MODELS) -> Iterator[Bundle]:
    """So many machines, a model after the other, which differ by 2 %."""
    chance = np.random.default_rng(1)
    for at in range(count):
        level = (1 - 0.04 * (at % len(models))) * math.exp(0.02 * chance.standard_normal())
        run = contribution(folder / str(at), models[at % len(models)], f"machine-{at}", level=level)
        yield bundle_of(run, SALT)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    """A collection of five machines of one model, one of which brought another image as well, and a further machine's bundle."""
    folder = tmp_path_factory.mktemp("few")
    made = list(bundles(folder / "runs", 6, MODELS[2:3]))
    for bundle in made[:5]:
        bring(folder / "collection", bundle)
    cell = cell_of(MODELS[2], CELL_OF_ANOTHER_IMAGE)
    other = contribution(folder / "other", machine="machine-0", cells=[cell], digest="e", seed=1)
    bring(folder / "collection", bundle_of(other, SALT))
    return folder / "collection", made[5]


def judged(collection: Path, path: Path) -> Judgement:
    (judgement,) = contributed.judge(collection, [path], lambda line: None)
    return judgement


def test_a_good_bundle_is_accepted_beside_the_machines_that_are_there(few: tuple[Path, Bundle]) -> None:
    collection, bundle = few
    path = bring(collection, bundle)
    try:
        judgement = judged(collection, path)
    finally:
        path.unlink()
    assert (judgement.verdict, judgement.reasons) == ("accepted", ())
    (cell,) = judgement.cells
    assert cell.machines == 5
    assert cell.ratio == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_bundle_is_never_accepted(few: tuple[Path, Bundle], name: str) -> None:
    collection, bundle = few
    path = bring(collection, bundle, FORGERIES[name](bundle))
    try:
        judgement = judged(collection, path)
    finally:
        path.unlink()
    assert judgement.verdict != "accepted"
    assert judgement.reasons
    # A tape that nothing contradicts is that of another machine, or a forger's: a person decides.
    assert (judgement.verdict == "open") == name.endswith("on the tape as well")


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (beside(0.1), ""),
        (beside(20.0), "other work kept 20 CPUs busy beside it"),
        (lambda parcels: parcels, "its telemetry does not say what other work took beside it"),
    ],
    ids=["quiet", "busy", "not said"],
)
def test_a_bundle_of_a_cpu_is_accepted_only_from_a_quiet_machine(forge: Forge, why: str, tmp_path: Path) -> None:
    cell = cell_of(CPU, "torch-2.13.0-cpu", device_kind="cpu")
    run = contribution(tmp_path / "run", cells=[cell], forge=forge)
    judgement = judged(tmp_path / "collection", bring(tmp_path / "collection", bundle_of(run, SALT)))
    assert judgement.verdict == ("refused" if why else "accepted"), judgement.reasons
    assert why in " ".join(judgement.reasons)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("AMD EPYC 9654 96-Core Processor", True),
        ("Intel(R) Xeon(R) Platinum 8480C", True),
        ("Intel(R) Core(TM) Ultra 7 155H", True),
        ("AMD Ryzen AI MAX+ 395 w/ Radeon 8060S", True),
        ("Intel(R) N100", True),
        ("Neoverse-V2", True),
        ("Apple M4", True),
        ("AMD EPYC", False),
        ("AMD EPYC-Rome Processor", False),
        ("Intel Xeon Processor (Skylake, IBRS)", False),
        ("Common KVM processor", False),
        ("QEMU Virtual CPU version 2.5+", False),
    ],
)
def test_a_name_that_hides_the_processor_is_no_device_model(model: str, names: bool) -> None:
    assert layout.names_a_processor(model) == names


def test_a_bundle_of_a_hidden_processor_is_refused(tmp_path: Path) -> None:
    cell = cell_of("AMD EPYC", "torch-2.13.0-cpu", device_kind="cpu")
    run = contribution(tmp_path / "run", cells=[cell], forge=beside(0.1))
    host = json.loads((run / "run.json").read_text())["host"]
    stored = RunStore(run)
    stored.write_manifest(stored.manifest() | {"host": host | {"cpu_model": "AMD EPYC"}})
    judgement = judged(tmp_path / "collection", bring(tmp_path / "collection", bundle_of(run, SALT)))
    assert judgement.verdict == "refused"
    assert "'AMD EPYC' is the name of many processors" in " ".join(judgement.reasons)


def test_what_is_there_already_is_no_further_machine(few: tuple[Path, Bundle], tmp_path: Path) -> None:
    """Under the pseudonyms of another salt, and with all times a twentieth longer."""
    collection, bundle = few
    brought = [bring(collection, bundle)]
    brought.append(bring(collection, bundle_of(contribution(tmp_path / "0", machine="machine-9"), b"t" * 32)))
    brought.append(bring(collection, bundle, of_parcels(faster(1.05))(bundle)))
    again = bring(collection, bundle_of(tmp_path / "0", b"u" * 32))
    try:
        judgements = contributed.judge(collection, [*brought, again], print)
    finally:
        for path in (*brought, again):
            path.unlink()
    assert [one.verdict for one in judgements] == ["accepted", "accepted", "refused", "refused"]
    assert all("at the very moment at which one of" in one.reasons[0] for one in judgements[2:])


def test_the_windows_of_another_repeat_are_known_where_their_clock_was_set(few: tuple[Path, Bundle]) -> None:
    """The same tapes as of another day, all times a twentieth longer."""
    collection, bundle = few
    later = of_parcels(
        lambda parcels: [replace(one, started_unix=(one.started_unix or 0) + 86_400) for one in faster(1.05)(parcels)]
    )
    brought = [bring(collection, bundle), bring(collection, bundle, later(bundle))]
    try:
        judgements = contributed.judge(collection, brought, print)
    finally:
        for path in brought:
            path.unlink()
    assert [one.verdict for one in judgements] == ["accepted", "refused"]
    assert any("are those of another one" in why for why in judgements[1].reasons)


def test_a_bundle_that_is_a_link_or_lies_too_high_is_refused_and_said(
    few: tuple[Path, Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    collection, _ = few
    there = next(layout.bundles_in(collection))
    link, outside = there.with_name("0000000000000001.tar.gz"), there.with_name("0000000000000002.tar.gz")
    high, other_name = collection / "here.tar.gz", there.with_name("other.tgz")
    link.symlink_to(there)
    outside.symlink_to("/etc/hostname")
    high.write_bytes(there.read_bytes())
    other_name.write_bytes(there.read_bytes())
    try:
        judgements = contributed.judge(collection, [link, outside, high, other_name], print)
        held = contributed.admitted(collection, print)
    finally:
        for path in (link, outside, high, other_name):
            path.unlink()
    assert [one.verdict for one in judgements] == ["refused"] * 4
    assert [one.reasons[0].split(" ", 1)[1] for one in judgements[:2]] == ["is a link; bring the bundle itself"] * 2
    assert all("belongs into a100-sxm4-40gb/" in one.reasons[0] for one in judgements[2:])
    assert len(held) == 6
    assert capsys.readouterr().out.count("skipped: ") == 4


def test_a_bundle_from_the_future_is_refused(tmp_path: Path) -> None:
    run = contribution(tmp_path / "run", created="2099-01-01T00:00:00+00:00")
    judgement = judged(tmp_path / "collection", bring(tmp_path / "collection", bundle_of(run, SALT)))
    assert judgement.verdict == "refused"
    assert "which is yet to come" in judgement.reasons[0]


@pytest.mark.parametrize(("level", "verdict"), [(0.7, "open"), (0.9, "accepted"), (1.3, "open")])
def test_beside_one_machine_a_step_time_that_differs_by_a_quarter_is_looked_at(
    tmp_path: Path, level: float, verdict: str
) -> None:
    collection = tmp_path / "collection"
    bring(collection, bundle_of(contribution(tmp_path / "there", machine="machine-1"), SALT))
    run = contribution(tmp_path / "run", machine="machine-2", level=level)
    judgement = judged(collection, bring(collection, bundle_of(run, SALT)))
    assert judgement.verdict == verdict, judgement.reasons
    assert judgement.cells[0].machines == 1


def test_images_without_a_digest_are_not_one_image(tmp_path: Path) -> None:
    collection = tmp_path / "collection"
    bring(collection, bundle_of(contribution(tmp_path / "there", digest=""), SALT))
    cell = cell_of(MODELS[2], CELL_OF_ANOTHER_IMAGE)
    run = contribution(tmp_path / "run", machine="machine-2", cells=[cell], digest="", seed=1)
    assert judged(collection, bring(collection, bundle_of(run, SALT))).verdict == "accepted"


def test_a_bundle_in_another_place_than_its_content_says_is_refused(few: tuple[Path, Bundle]) -> None:
    collection, bundle = few
    path = bring(collection, bundle)
    wrong = path.with_name("0123456789abcdef.tar.gz")
    path.rename(wrong)
    try:
        judgement = judged(collection, wrong)
    finally:
        wrong.unlink()
    assert judgement.verdict == "refused"
    assert "belongs into a100-sxm4-40gb/torch-2.9.1-cu128/gru-imdb" in judgement.reasons[0]


def test_the_command_says_each_verdict_and_writes_a_comment_for_the_pull_request(
    few: tuple[Path, Bundle], tmp_path: Path
) -> None:
    collection, bundle = few
    bad = bring(collection, bundle, FORGERIES["one repeat"](bundle))
    try:
        words = ["reference", "judge", str(collection), str(bad), "--markdown", str(tmp_path / "comment.md")]
        result = CliRunner().invoke(app, words)
    finally:
        bad.unlink()
    assert result.exit_code == 1, result.output
    assert "1 repeat with enough windows; a reference needs 3" in result.stdout
    text = (tmp_path / "comment.md").read_text()
    assert text.startswith("### References: 1 refused\n")
    assert "licence of this repository" in text
    assert CliRunner().invoke(app, ["reference", "judge", str(collection)]).exit_code == 0


def test_a_comment_fits_a_pull_request_and_holds_no_markup_of_a_stranger() -> None:
    many = [Judgement(f"a/b/<img src=x>|{at}", "refused", ("@everyone " + "x" * 900,)) for at in range(500)]
    text = comment(many)
    assert len(text.encode()) <= 65_536
    assert "more lines do not fit" in text
    assert "<img" not in text
    assert "@everyone" not in text


def test_rows_that_were_made_are_not_made_again_until_the_rules_change(
    few: tuple[Path, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, _ = few
    path = next(layout.bundles_in(collection))
    first = derived_rows.derived(path)
    monkeypatch.setattr(derived_rows, "_made", lambda bundle: pytest.fail("it was made again"))
    assert derived_rows.derived(path) == first
    monkeypatch.setattr(derived_rows, "judges_digest", lambda: "0" * 64)
    with pytest.raises(pytest.fail.Exception):
        derived_rows.derived(path)


def test_a_machine_counts_once_however_many_gpus_and_days_it_brings(few: tuple[Path, Bundle]) -> None:
    collection, _ = few
    rows = [row for bundle in contributed.admitted(collection, print).values() for row in bundle.rows]
    first = next(row for row in rows if row.facts.image != CELL_OF_ANOTHER_IMAGE)
    later = first.model_copy(update={"created": "2026-12-01T10:00:00+00:00"})
    beside = first.model_copy(update={"device": "z"})
    cells = index.index_of([*rows, later, beside])
    (cell,) = [cell for cell in cells if len(cell.machines) > 1]
    assert len(cell.machines) == 5
    assert [len(machine.sessions) for machine in cell.machines if machine.name == first.machine] == [2]
    assert (
        cell.id == index.cell_id(first.facts) == index.cell_id(later.facts.model_copy(update={"driver_version": "1"}))
    )
    assert cell.spread is None


@pytest.mark.parametrize("differ_by", [0.005, 0.02, 0.04])
def test_few_healthy_machines_wait_for_a_person(differ_by: float) -> None:
    """Machines that differ normally: the rule of BundleJudge, on numbers."""
    random, looked_at, count = np.random.default_rng(2), 0, 3000
    for _ in range(count):
        machines = differ_by * random.standard_normal(1 + random.integers(FEWEST_BESIDE, 30))
        most = max(2 * math.log1p(0.05), 5 * spread_of(machines[1:]))
        looked_at += abs(machines[0] - np.median(machines[1:])) > most
    assert looked_at / count <= 0.02


@pytest.mark.slow
@only_with("DLBENCH_SIMULATIONS", "a good bundle and each kind of forged one are judged")
def test_a_hundred_good_bundles_of_twelve_models_are_accepted_and_no_bad_one(tmp_path: Path) -> None:
    collection = tmp_path / "collection"
    for bundle in bundles(tmp_path / "runs", 100):
        bring(collection, bundle)
    first = contributed.judge(collection, [], print)
    assert Counter(one.verdict for one in first) == {"accepted": 100}, [
        one for one in first if one.verdict != "accepted"
    ]
    assert len({one.name.split("/")[0] for one in first}) == 12
    cell = cell_of(MODELS[0], CELL_OF_ANOTHER_IMAGE)
    bring(
        collection,
        bundle_of(contribution(tmp_path / "other", MODELS[0], "machine-0", cells=[cell], digest="e", seed=1), SALT),
    )
    assert len(FORGERIES) >= 30
    models = [MODELS[at % len(MODELS)] for at in range(len(FORGERIES))]
    bad = []
    for at, (model, forgery) in enumerate(zip(models, FORGERIES.values(), strict=True)):
        run = contribution(tmp_path / f"bad-{at}", model, f"stranger-{at}", level=1 - 0.04 * (at % len(MODELS)))
        bundle = bundle_of(run, SALT)
        bad.append(bring(collection, bundle, forgery(bundle)))
    verdicts = [one.verdict for one in contributed.judge(collection, bad, print)]
    assert "accepted" not in verdicts, dict(zip(FORGERIES, verdicts, strict=True))
    assert verdicts.count("open") == 2
