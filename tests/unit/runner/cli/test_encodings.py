"""A terminal that lacks characters: a command prints plainer ones in their place, and reads its own files all the same."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.terminal import replace_what_lacks
from tests.fixtures.commands import fresh_runner, runner
from tests.fixtures.synthetic import make_run

# What Python takes from a terminal of another encoding than UTF-8.
NARROW = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("results") / "run", repeats=1)


def _assert_narrow(ended: subprocess.CompletedProcess[str], more: str = "") -> None:
    assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0), ended.stderr
    assert set(re.findall(r"[^\x00-\x7f]", ended.stdout + ended.stderr)) <= set(more)


@pytest.mark.parametrize("narrow", NARROW, ids=["ascii", "latin-1", "C"])
def test_a_report_is_printed_in_the_characters_of_a_narrow_terminal(narrow: dict[str, str], run: Path) -> None:
    ended = fresh_runner("report", "--text", "--out", str(run.parent), env=os.environ | narrow, encoding="latin-1")
    # What latin-1 has stays.
    _assert_narrow(ended, "·±×µ°²³" if narrow.get("PYTHONIOENCODING") == "latin-1" else "")


def test_a_plan_reads_the_files_of_the_project_in_a_narrow_locale() -> None:
    plan = ["matrix", "--gpus", "none", "--dry-run", "--engine", "venv"]
    _assert_narrow(fresh_runner(*plan, env=os.environ | NARROW[-1], encoding="latin-1"))


def test_an_error_is_printed_in_ascii_too() -> None:
    ended = fresh_runner(
        "matrix", "--images", "ältere…", env=os.environ | {"PYTHONIOENCODING": "ascii"}, encoding="ascii"
    )
    assert ended.returncode == 2
    assert "'altere...'" in ended.stderr


def _printed(text: str, encoding: str, errors: str = "strict") -> bytes:
    stream = io.TextIOWrapper(io.BytesIO(), encoding, errors)
    replace_what_lacks(stream)
    stream.write(text)
    stream.flush()
    return stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_every_character_of_the_code_has_a_plainer_one() -> None:
    sources = [
        path.read_text(encoding="utf-8") for name in ("runner", "reports") for path in (PROJECT / name).rglob("*.py")
    ]
    characters = set(re.findall(r"[^\x00-\x7f]", "".join(sources)))
    assert len(characters) > 20
    assert {it for it in characters if b"?" in _printed(it, "ascii")} == set()


def test_a_character_that_the_encoding_has_stays_and_one_without_a_plainer_one_is_a_question_mark() -> None:
    assert _printed("2.0 ± 0.1 ms … 10⁻⁵ → 猫", "latin-1") == b"2.0 \xb1 0.1 ms ... 10-5 -> ?"
    assert _printed("2.0 ± 0.1 ms … 10⁻⁵ → 猫", "ascii") == b"2.0 +/- 0.1 ms ... 10-5 -> ?"


def test_the_bytes_of_a_file_s_name_that_are_no_text_stay() -> None:
    name = b"r\xe9sultats".decode("ascii", "surrogateescape")
    assert _printed(f"{name}…", "ascii", "surrogateescape") == b"r\xe9sultats..."


@pytest.mark.parametrize("columns", ["0", "-5", "wide"])
def test_a_width_that_is_none_is_no_width(columns: str, run: Path) -> None:
    words = ["report", "--text", "--out", str(run.parent)]
    without = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    assert runner(*words, env=without | {"COLUMNS": columns}).stdout == runner(*words, env=without).stdout


@pytest.mark.parametrize("words", [["history"], ["report", "--text"], ["matrix", "--dry-run", "--gpus", "none"]])
def test_a_closed_standard_output_is_no_error(words: list[str], run: Path) -> None:
    command = [sys.executable, "-m", "runner", *words, "--out", str(run.parent)]
    shell = ["sh", "-c", '"$@" >&-', "sh", *command]
    ended = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode in (0, 3), ended.stderr.count("Traceback")) == (True, 0), ended.stderr


def test_an_address_that_is_none_is_a_finding_and_no_error() -> None:
    for address in ("tcp://127.0.0.1:abc", "tcp://[::1"):
        ended = runner("doctor", env=os.environ | {"DOCKER_HOST": address, "PIP_INDEX_URL": "http://[::1"})
        assert (ended.returncode in (0, 1), "Traceback" in ended.stderr) == (True, False), ended.stderr
        assert f"no container engine answers at {address}" in ended.stdout
        assert "an address that is none does not answer" in ended.stdout
