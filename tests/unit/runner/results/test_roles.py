"""Every recorded fact has one role, and the lists of all readers follow from it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from runner.machine import detect
from runner.machine.devices import Gpu
from runner.results.on_disk import roles
from runner.results.on_disk.schema import TABLES
from runner.run import begin
from runner.verify.references import comparability
from runner.verify.references.facts import Facts
from runner.verify.references.measured import read_runs
from tests.fixtures import synthetic


def test_every_column_of_a_cell_has_a_role_and_no_other_fact_has() -> None:
    assert set(roles.ROLES) == {column.name for column in TABLES["cells"]}
    assert set(roles.WORDS) <= {*roles.ROLES, *roles.HOST_ROLES, *roles.DEVICE_ROLES, *roles.TELEMETRY_ROLES}


def test_every_column_of_telemetry_has_a_role_and_each_cause_a_word() -> None:
    assert {*roles.TELEMETRY_ROLES, "run_id", "cell_id", "repeat"} == {column.name for column in TABLES["telemetry"]}
    of_telemetry = roles.with_role("cause", of=roles.TELEMETRY_ROLES)
    assert {*roles.with_role("cause"), *of_telemetry} <= set(roles.WORDS)


def test_what_references_keep_of_choices_are_all_choices() -> None:
    assert set(comparability.CHOICES) <= set(Facts.model_fields)


def test_every_state_of_the_host_is_a_fact_of_a_cell_and_verify_and_save_read_it(tmp_path: Path) -> None:
    states = set(roles.with_role("state", of=roles.HOST_ROLES))
    run = synthetic.make_run(tmp_path / "run", manifest={"host": {**dict.fromkeys(states, 7), **synthetic.HOST}})
    facts = read_runs([run])[0].facts
    assert set(facts.host) | {name for name in comparability.STATES if name in states} == states


def test_every_fact_of_a_gpu_that_a_run_records_has_a_role() -> None:
    assert set(roles.DEVICE_ROLES) == {field.name for field in fields(Gpu)}


def test_every_fact_of_the_host_that_a_run_records_has_a_role() -> None:
    text = inspect.getsource(begin._write_first).split('manifest["host"] |= {')[1].split("}")[0]
    assert {*re.findall(r'"(\w+)":', text), *detect.detect_cpu().facts} == set(roles.HOST_ROLES)


@pytest.mark.parametrize("name", ["data_sha256", "cpu_count", "python_version"])
def test_sessions_of_a_reference_differ_in_no_choice_or_state(name: str) -> None:
    assert name in (*comparability.CHOICES, *comparability.STATES)
