"""What the stored checks of a repeat show: a run in which one that ended well lacks a check, or did not pass one, is not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.data.tables import ANSWER, load
from runner.results import store
from runner.results.parquet import packs
from runner.results.store import RunStore, StoreError
from tests.fixtures import synthetic

ENTRY = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
NAME = f"{ENTRY['id']}.r1"
UPDATES = "the optimiser's count of its steps"

Row = dict[str, Any]
Change = Callable[[Row], "Row | None"]


def made(folder: Path, change: Change, left_out: str = "", **of_cell: Any) -> Path:
    """A run whose first cell has the checks that are left by `change`, which returns None of one that is gone."""
    synthetic.make_run(folder, windows=6)
    rows = synthetic.ended(ENTRY, 1, 6)
    rows["cells"][0].update(of_cell)
    rows["parity"] = [row for row in map(change, synthetic.due_rows("cnn-cifar10")) if row]
    rows["left_out"] = [{"what": left_out, "reason": "it keeps none"}] if left_out else []
    RunStore(folder).write_repeat(ENTRY["id"], 1, rows)
    return folder


def without(**gone: Any) -> Change:
    return lambda row: None if gone.items() <= row.items() else row


def having(**changed: Any) -> Change:
    return lambda row: row | changed if row["quantity"] == "loss" else row


FAULTS = [
    (without(passed=True), "no check is there"),
    (without(phase="proof"), "no check of moved in the phase proof is there"),
    (without(quantity="gradient"), "no check of gradient in the phase parity is there"),
    (without(quantity="updates"), "no check of updates in the phase proof is there"),
    (
        lambda row: row | {"phase": row["phase"] if row["quantity"] != "loss" else None},
        "no check of loss in the phase parity is there",
    ),
    (having(error=2.0), "loss all has passed true, error 2 and bound 1"),
    (having(error=None), "loss all has passed true, error not finite and bound 1"),
    (having(passed=False), "loss all has passed false, error 0.5 and bound 1"),
    (having(passed=None), "loss all has passed false, error 0.5 and bound 1"),
]


@pytest.mark.parametrize("packed", [False, True], ids=["alone", "packed"])
@pytest.mark.parametrize(("change", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_a_check_that_is_gone_or_did_not_pass_is_named_where_the_repeat_ended_well(
    tmp_path: Path, change: Change, said: str, packed: bool
) -> None:
    folder = made(tmp_path / "run", change)
    if packed:
        packs.Packer(RunStore(folder)).pack_rest()
    (path,) = (folder / "parity").glob("*.p1.parquet" if packed else f"{NAME}.parquet")
    for needed in (["parity"], ["cells", "parity"], ANSWER):
        with pytest.raises(StoreError) as refused:
            load([folder], needed)
        assert f"{path}: {NAME} ended well, and {said}; restore the file, or remove {path.name} from cells" in str(
            refused.value
        )


@pytest.mark.parametrize(("change", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_the_checks_of_a_repeat_that_failed_are_read_as_they_are(tmp_path: Path, change: Change, said: str) -> None:
    folder = made(tmp_path / "run", change, status="failed", error_kind="parity", reason=said)
    assert load([folder], ANSWER)


def _of_an_older_bench(row: Row) -> Row:
    return row | {"quantity": "parameter"} if row["quantity"] == "movement" else row


def test_a_repeat_is_read_that_is_excused_or_of_an_older_release_or_of_an_unknown_workload(tmp_path: Path) -> None:
    assert load([made(tmp_path / "excused", without(quantity="updates"), left_out=UPDATES)], ANSWER)
    with pytest.raises(StoreError, match="no check of updates"):
        load([made(tmp_path / "otherwise", without(quantity="updates"), left_out="the profile")], ANSWER)
    assert load([made(tmp_path / "older", _of_an_older_bench)], ANSWER)
    assert load([made(tmp_path / "oldest", lambda row: row | {"phase": None, "tensor": row["phase"]})], ANSWER)
    assert load([made(tmp_path / "unknown", without(phase="proof"), workload="vit-imagenet")], ANSWER)


def test_what_is_packed_while_a_run_is_read_keeps_its_excuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = made(tmp_path / "run", without(quantity="updates"), left_out=UPDATES), store._parts

    def is_packed_after_the_checks_are_read(folder: Path, table: str, kept: Any) -> Any:
        found = real(folder, table, kept)
        if table == "parity":
            packs.Packer(RunStore(folder)).pack_rest()
        return found

    monkeypatch.setattr(store, "_parts", is_packed_after_the_checks_are_read)
    assert store.read([folder], "parity").num_rows


def test_what_ends_while_a_run_is_read_is_held_against_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checks are not among those that were read."""
    folder, real = synthetic.make_run(tmp_path / "run", windows=6), store._parts

    def ends_before_the_checks_are_read(folder: Path, table: str, kept: Any) -> Any:
        found = real(folder, table, kept)
        if table == "parity":
            RunStore(folder).write_repeat(ENTRY["id"], 2, synthetic.ended(ENTRY, 2, 6))
        return found

    monkeypatch.setattr(store, "_parts", ends_before_the_checks_are_read)
    assert store.read([folder], "parity").num_rows > 0
