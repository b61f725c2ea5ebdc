"""The mistakes that are text fail loudly where their adapter was changed: each old text is in its file exactly once."""

from __future__ import annotations

import inspect
import types
from pathlib import Path

import pytest

from bench import rules
from tests.contract.mutants import edited, edits, edits_of_each_kind, table
from tests.contract.mutants.registry import FAMILIES

EDITS = (*edits.EDITS, *edits_of_each_kind.EDITS)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.framework}-{edit.name}")
def test_each_old_text_is_in_its_file_once_and_the_changed_source_compiles(edit: edited.Edit) -> None:
    source = edited.changed(edit)
    compile(source, edit.file, "exec")
    assert source != (Path(rules.FRAMEWORKS) / edit.file).read_text()
    assert edit.family in FAMILIES
    assert edit.sentence.endswith(".")
    assert set(edit.workloads) <= set(rules.workload_names())
    for workload in edit.workloads:
        assert rules.adapter_module(edit.framework, workload.replace("-", "_")), workload


def test_no_workload_of_a_framework_has_two_edits_of_one_name() -> None:
    names = [(edit.framework, workload, edit.name) for edit in EDITS for workload in edit.workloads]
    assert len(names) == len(set(names))


def test_an_old_text_that_is_missing_or_there_twice_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a.py").write_text("x = 1\ny = 1\n")
    edit = edited.Edit("toy", ("gpt-bytes",), "loss", "Wrong", "It is wrong.", "toy/a.py", "x = 1", "x = 2")
    assert edited.changed(edit, tmp_path) == "x = 2\ny = 1\n"
    for old, new in (("z = 1", "z = 2"), (" = 1", " = 2"), ("x = 1", "x = 1")):
        with pytest.raises(edited.StaleEditError, match="must be there once"):
            edited.changed(edit._replace(old=old, new=new), tmp_path)
    with pytest.raises(edited.StaleEditError, match="0 times"):
        edited.changed(edit._replace(old=("x = 1", "z"), new=("x = 2", "w")), tmp_path)


def test_a_reader_of_source_finds_the_changed_text() -> None:
    """TensorFlow's AutoGraph reads the source of a function: of the file as it is, it would compile the adapter without the mistake."""
    source, module = "def f():\n    return 2\n", types.ModuleType("changed")
    edited._Source("changed", source, "adapter.py").exec_module(module)
    assert (module.f(), module.__file__) == (2, "adapter.py")
    assert inspect.getsource(module.f) == source


def test_each_workload_has_a_mistake_of_each_kind_or_the_reason_why_not() -> None:
    cells = table.cells_of(table.stored_rows())
    workloads = [name for name in rules.workload_names() if name not in table.SAME]
    empty = {
        (name, kind)
        for name in workloads
        for kind in table.BY_WORKLOAD
        if not sum(cells.get((name, kind), (0, 0, 0))[1:])
    }
    assert empty == set(table.REASONS)
    assert all(rules.network_of(name) == other or other == "gpt-bytes" for name, other in table.SAME.items())


def test_the_headline_is_the_worst_workload_and_counts_what_was_not_run() -> None:
    rows: table.Rows = {section: [] for section in table.SECTIONS}
    for number in range(4):
        refused = "| nothing | |" if number == 0 else "| parity loss | 1.0e2 |"
        rows["Network"].append(("torch", f"| `M{number}`: It is wrong. | torch | gpt-bytes {refused}"))
        rows["Network"].append(("torch", f"| `N{number}`: It is wrong. | torch | mlp-mnist | parity loss | 1.0e2 |"))
    rows["Shape"].append(("jax", "| `S`: It is wrong. | jax | mlp-mnist | not run |  |"))
    rows[table.NOT_CAUGHT].append(("jax", "| `T`: It is wrong. | jax | mlp-mnist | shape | Nobody knows. |"))
    for name in rules.workload_names():
        if name not in table.SAME and name not in ("gpt-bytes", "mlp-mnist"):
            rows["Network"].append(("torch", f"| `O`: It is wrong. | torch | {name} | parity loss | 1.0e2 |"))
    page = "\n".join(table._by_workload(rows))
    assert "**The worst workload is `gpt-bytes`: 75 % of its mistakes that were run are refused." in page
    assert "1 planted mistakes were not run yet" in page
    assert "| 0 / 1 + 1 |" in page
    assert "**none**" in page
