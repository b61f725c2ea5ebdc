"""Every recorded fact has one role, and the lists of all readers follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.answers import contrast
from runner.results.on_disk import roles
from runner.results.on_disk.schema import TABLES
from runner.verify.references import comparability
from runner.verify.references.facts import Facts


def test_every_column_of_a_cell_has_a_role_and_no_other_fact_has() -> None:
    assert set(roles.ROLES) == {name for name, _ in TABLES["cells"]}
    assert set(roles.WORDS) <= {*roles.ROLES, *roles.HOST_ROLES}


def test_what_references_keep_of_choices_are_all_choices() -> None:
    assert set(comparability.CHOICES) <= set(Facts.model_fields)
    assert set(comparability.STATES) <= set(roles.with_role("state")) | set(
        roles.with_role("state", of=roles.HOST_ROLES)
    )


def test_every_fact_of_the_host_that_a_run_records_has_a_role() -> None:
    source = Path(str(contrast.__file__)).parents[2] / "runner" / "run" / "begin.py"
    host = source.read_text().split('"host": {')[1].split("}")[0]
    named = {line.split('"')[1] for line in host.splitlines() if '"' in line}
    assert {"cpu_count", "machine_cpus"} <= named <= set(roles.HOST_ROLES)


@pytest.mark.parametrize("name", ["data_sha256", "cpu_count", "python_version"])
def test_sessions_of_a_reference_differ_in_no_choice_or_state(name: str) -> None:
    assert name in (*comparability.CHOICES, *comparability.STATES)
