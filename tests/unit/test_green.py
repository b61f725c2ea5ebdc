"""The result of a test is kept while its inputs are the same, and only if it passed: a real pytest in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench import identity
from tests.fixtures import green, inputs, opened

PROJECT = green.PROJECT
IMAGE = "torch-2.13.0-cpu"
CONFTEST = "from tests.fixtures.green import pytest_configure\n"
TESTS = f"""
import os, pytest
pytestmark = pytest.mark.parametrize("image_name", ["{IMAGE}"])
def test_passes(image_name): pass
def test_fails_if_told(image_name): assert "FAIL" not in os.environ
def test_is_skipped_if_told(image_name):
    if "SKIP" in os.environ: pytest.skip("left out, because it was told so")
@pytest.fixture
def torn(): yield; assert "TEAR" not in os.environ
def test_ends_badly_if_told(image_name, torn): pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "contract").mkdir()
    (tmp_path / "conftest.py").write_text((PROJECT / "tests" / "conftest.py").read_text())
    (tmp_path / "contract" / "conftest.py").write_text(CONFTEST)
    markers = "markers =\n  keyed: keyed\n  slow: slow\n  alone: alone\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = --import-mode=importlib\n{markers}")
    (tmp_path / "contract" / "test_it.py").write_text(TESTS)
    return tmp_path


def run(tree: Path, folder: str = "contract", **variables: str) -> tuple[dict[str, str], str]:
    """(test -> how it ended, what pytest printed)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLBENCH_")}
    environment |= {"PYTHONPATH": str(PROJECT), "XDG_CACHE_HOME": str(tree / "cache")} | variables
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", folder]
    ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert not ended.stderr
    outcomes = re.findall(r"::test_(\w+)\S* (PASSED|FAILED|SKIPPED|ERROR)", ended.stdout)
    assert outcomes, ended.stdout
    return dict(outcomes), ended.stdout


@pytest.mark.slow
def test_what_passed_is_kept_and_counted_until_an_input_changes_or_the_keys_are_ignored(tree: Path) -> None:
    first, printed = run(tree)
    assert set(first.values()) == {"PASSED"}
    assert "kept:" not in printed
    second, printed = run(tree)
    assert set(second.values()) == {"SKIPPED"}
    assert (
        "4 results are kept: the tests passed with the same inputs and were not run; DLBENCH_KEYS=ignore runs"
        in printed
    )
    assert "nothing: every other test ran" in printed
    for variables in ({"DLBENCH_KEYS": "ignore"}, {"DLBENCH_CURVES": "all"}, {"DLBENCH_KEYS": str(tree / "other")}):
        assert set(run(tree, **variables)[0].values()) == {"PASSED"}, variables
    assert set(run(tree, DLBENCH_KEYS=str(tree / "other"), DLBENCH_SHARD="1/1")[0].values()) == {"SKIPPED"}
    path = tree / "contract" / "test_it.py"
    path.write_text(f"{path.read_text()}@pytest.mark.keyed(False)\ndef test_takes_time(image_name): pass\n")
    assert set(run(tree)[0].values()) == {"PASSED"}
    assert [test for test, ended in run(tree)[0].items() if ended == "PASSED"] == ["takes_time"]


@pytest.mark.slow
def test_a_source_that_is_saved_after_the_tests_began_to_be_read_leaves_no_key(tree: Path, copy: Path) -> None:
    saves = "from pathlib import Path\nPath(__file__).with_name('test_it.py').touch()\ndef test_a(): pass\n"
    (copy / "tests" / "unit" / "test_a.py").write_text(saves)
    for _ in range(2):
        outcomes, _ = run(tree, "project/tests/unit", PYTHONPATH=str(copy))
        assert {ended for test, ended in outcomes.items() if test != "a"} == {"PASSED"}


@pytest.mark.slow
def test_a_test_that_fails_ends_badly_or_is_skipped_leaves_no_key_and_a_failure_removes_one(tree: Path) -> None:
    first, printed = run(tree, FAIL="1", SKIP="1", TEAR="1")
    assert "contract: 1 left out, because it was told so" in printed
    assert (first["passes"], first["fails_if_told"], first["is_skipped_if_told"]) == ("PASSED", "FAILED", "SKIPPED")
    second, printed = run(tree)
    assert "1 result is kept" in printed
    assert second == {
        "passes": "SKIPPED",
        "fails_if_told": "PASSED",
        "is_skipped_if_told": "PASSED",
        "ends_badly_if_told": "PASSED",
    }
    run(tree, FAIL="1", DLBENCH_KEYS="ignore")
    third, _ = run(tree)
    assert [name for name, ended in third.items() if ended == "PASSED"] == ["fails_if_told"]


@pytest.mark.slow
def test_no_key_is_kept_if_a_source_was_edited_while_the_tests_ran(tree: Path, copy: Path) -> None:
    edit = f"def test_edits(image_name): open({str(copy / 'bench' / 'rules.py')!r}, 'a').write('# more')\n"
    (tree / "contract" / "test_it.py").write_text(TESTS + edit)
    run(tree, PYTHONPATH=str(copy))
    assert not (tree / "cache" / "dlbench" / "green").exists()
    assert set(run(tree, PYTHONPATH=str(copy))[0].values()) == {"PASSED"}


def test_an_edit_is_held_against_a_folder_that_was_opened_as_a_module_is_imported(
    request: pytest.FixtureRequest,
) -> None:
    deeds = {(opened.IMPORTED, ""), (opened.IMPORTED, "bench/rules.py")}
    inputs = set(green._inputs(request.node, deeds))
    assert {PROJECT, PROJECT / "bench" / "rules.py"} <= inputs
    assert green._has_changed(inputs, frozenset({"docs/scale.md"}))


def test_a_folder_that_is_gone_when_it_is_looked_at_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def gone(place: Path) -> object:
        if place.name == "docs":
            raise FileNotFoundError(2, "No such file or directory", str(place))
        return listed(place)

    monkeypatch.setattr(os, "scandir", gone)
    state = green._state_of_project()
    assert "README.md" in state
    assert not any(name.startswith(f"docs{os.sep}") for name in state)


def test_a_key_is_believed_for_thirty_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(green.VARIABLE, str(tmp_path / "green"))
    green.keep("older", "test")
    os.utime(tmp_path / "green" / "older", times=(0, 0))
    assert not green.is_known("older")
    green.keep("newer", "test")
    assert green.is_known("newer")
    green._forget_old.cache_clear()
    green.keep("newer", "test")
    assert [path.name for path in (tmp_path / "green").iterdir() if path.suffix != ".deeds"] == ["newer"]


def test_a_folder_that_cannot_be_written_fails_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(green.VARIABLE, str(tmp_path / "file"))
    green.keep("key", "test_one")
    assert "the key of test_one could not be kept" in capsys.readouterr().err
    assert not green.is_known("key")


def test_a_key_is_of_the_code_of_its_framework_and_workload_and_of_the_lock() -> None:
    assert green._digest_of_code(IMAGE, "torch", "gru-imdb") == identity.code_sha256("torch", "gru-imdb")
    assert green._digest_of_code(IMAGE, "None", "None") == identity.digest(
        identity.image_files(["torch", "keras_torch"])
    )
    assert green._digest_of_code("", "torch", "gru-imdb") == identity.source_digest()
    digests = {green._digest_of_image(name) for name in (IMAGE, "jax-0.10.2-cpu", "")}
    assert len(digests) == 3


def test_a_key_is_of_the_files_that_a_test_imports_and_of_those_that_lie_beside_them() -> None:
    files = files_of("tests/contract/test_every_framework.py")
    assert files >= {
        "tests/contract/test_every_framework.py",
        "tests/contract/conftest.py",
        "tests/conftest.py",
        "tests/fixtures/cpus.py",
        "tests/contract/parted_batch.py",
        "runner/engines/process/venv.py",
        "runner/engines/process/keeper.py",
        "bench/curve.py",
        "requirements-dev.lock",
    }
    assert any(name.startswith("tests/contract/loaded/") for name in files)
    assert not {name for name in files if name.startswith(("reports/", "runner/verify/", "tests/unit/"))}
    assert "tests/contract/test_cells.py" not in files


def files_of(test: str, *fixtures: str) -> set[str]:
    files = inputs.files_of_test(PROJECT / test, frozenset(fixtures))
    return {path.relative_to(PROJECT).as_posix() for path in files}


def test_a_key_of_an_engine_test_is_of_the_programs_and_commands_that_it_starts_and_of_no_page() -> None:
    cells = files_of("tests/engine/test_docker.py", "start", "engine", "client")
    assert cells >= {"runner/engines/docker/engine.py", "tests/engine/conftest.py", ".ci/site-base", "Dockerfile.base"}
    assert not [name for name in cells if name.startswith(("runner/cli/", "runner/run/", "reports/"))]
    runs = files_of("tests/engine/test_gpus.py", "run", "own")
    assert runs >= {
        "tests/engine/tiny_runner.py",
        "tests/stand_ins/cell.c",
        "runner/__main__.py",
        "runner/cli/matrix.py",
        "runner/run/attempt.py",
        "runner/engines/process/keeper.py",
    }
    assert "runner/cli/machines.py" in files_of("tests/engine/test_nodes.py", "run")
    assert not [name for name in runs if name.startswith("reports/")]


def test_a_key_of_a_test_is_of_the_parts_of_the_project_that_its_sources_name() -> None:
    cells = inputs.imported_by_test(PROJECT / "tests/contract/test_every_framework.py", frozenset())
    assert green._named(cells) == ()
    documents = inputs.imported_by_test(PROJECT / "tests/unit/test_documents.py", frozenset())
    assert {"docs", "README.md"} <= set(green._named(documents))


UNIT = """
import functools, importlib, os, subprocess, sys, time, pytest
from pathlib import Path
from hypothesis import given, strategies
from bench import identity
from tests.fixtures.inputs import PROJECT
@functools.cache
def remembered(): return (PROJECT / "images" / "bases.toml").read_text()
@pytest.fixture(scope="module")
def shared(): return (PROJECT / "Makefile").read_text()
def clock(): return time.monotonic()
def test_computes(): assert os.environ.get("FAIL") is None
def test_opens(): (PROJECT / "docs" / "scale.md").read_text()
def test_lists(): list((PROJECT / "docs").iterdir())
def test_remembers(): remembered()
def test_remembers_too(): remembered()
def test_shares(shared): pass
def test_shares_too(shared): pass
def test_loads(): importlib.import_module("bench.data." + "mnist")
def test_loads_too(): importlib.import_module("bench.data." + "mnist")
def test_starts(): subprocess.run([sys.executable, "-c", "import bench.rules"], check=True)
def test_asks(): subprocess.run([sys.executable, "-c", "print(1)"], check=True)
def test_links(tmp_path): (tmp_path / "link").symlink_to(PROJECT / "bench")
def test_measures(): clock()
@given(strategies.integers())
def test_draws(number): pass
@pytest.mark.keyed(False)
def test_says_so(): pass
@pytest.mark.alone
def test_alone(): pass
"""
UNKEPT = {"measures", "draws", "says_so", "alone"}
AGAIN = {
    "computes",
    "opens",
    "lists",
    "remembers",
    "remembers_too",
    "shares",
    "shares_too",
    "loads",
    "loads_too",
    "starts",
    "asks",
    "links",
}


@pytest.fixture
def copy(tree: Path) -> Path:
    """A copy of this project with one file of unit tests, which has a test of each kind."""
    copy = tree / "project"
    for name in ("bench", "images", "runner", "reports", "docs", "tests/fixtures"):
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "requirements-dev.lock", "Makefile", "tests/__init__.py"):
        (copy / name).write_bytes((PROJECT / name).read_bytes())
    (copy / "tests" / "unit").mkdir()
    (copy / "tests" / "unit" / "conftest.py").write_text(CONFTEST)
    (copy / "tests" / "unit" / "test_it.py").write_text(UNIT)
    return copy


def ran(tree: Path, copy: Path, **variables: str) -> set[str]:
    """The tests that were run."""
    outcomes, _ = run(tree, "project/tests/unit", PYTHONPATH=str(copy), **variables)
    assert set(outcomes) == AGAIN | UNKEPT
    return {test for test, ended in outcomes.items() if ended != "SKIPPED"}


@pytest.mark.slow
def test_a_unit_test_is_run_again_only_if_something_changed_that_it_imports_opens_lists_or_starts(
    tree: Path, copy: Path
) -> None:
    assert ran(tree, copy) == AGAIN | UNKEPT
    assert ran(tree, copy) == UNKEPT
    for edited, again in (
        # The file names docs and the Makefile: a process that it starts may read them.
        ("docs/scale.md", {"opens", "starts"}),
        ("docs/new.md", {"lists", "starts"}),
        # What a file remembers may be of each of its tests that comes later.
        ("images/bases.toml", AGAIN - {"computes", "opens", "lists"}),
        ("Makefile", {"shares", "shares_too", "starts"}),
        ("bench/data/mnist.py", {"loads", "loads_too", "starts", "links"}),
        ("reports/wording.py", {"starts"}),
        ("bench/identity.py", AGAIN),
    ):
        with (copy / edited).open("a") as file:
            file.write("\n# more\n")
        assert ran(tree, copy) == again | UNKEPT, edited
        assert ran(tree, copy) == UNKEPT, edited
    assert ran(tree, copy, FAIL="1", DLBENCH_KEYS="ignore") == AGAIN | UNKEPT
    assert ran(tree, copy) == UNKEPT | {"computes"}


def test_every_way_to_start_a_process_or_to_ask_another_one_is_seen() -> None:
    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as one, pytest.raises(OSError):
            one.connect("\0nobody")

    def fork() -> None:
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)

    starts = (connect, fork, lambda: os.system("true"), lambda: subprocess.run(["true"]))
    for start in starts:
        with opened.taken_by(deeds := set()):
            start()
        assert opened.STARTED in deeds, start


def test_the_engine_and_the_full_runs_keep_to_their_rules() -> None:
    # What runs alone there counts what is in the Docker Engine.
    for name in ("test_chaos.py", "test_harness_cost.py"):
        assert "mark.keyed" not in (PROJECT / "tests/engine" / name).read_text()
    for name, test in (("test_docker", "starting_and_removing_a_cell_costs"), ("test_build", "a_second_build_takes")):
        assert f"@pytest.mark.keyed(False)\ndef test_{test}" in (PROJECT / f"tests/engine/{name}.py").read_text()
    assert (
        "pytestmark = [pytest.mark.slow, pytest.mark.keyed(False), "
        in (PROJECT / "tests/engine/test_kills.py").read_text()
    )
    recipe = (PROJECT / "Makefile").read_text().partition("\ntest-long:")[2].split("\n")[1]
    assert "DLBENCH_KEYS=ignore " in recipe
    assert ".ci/run test-long" in (PROJECT / ".github" / "workflows" / "thorough.yml").read_text()


def test_no_unit_test_draws_at_random_without_a_seed() -> None:
    files = [path for path in (PROJECT / "tests/unit").rglob("*.py") if path != Path(__file__)]
    assert [path.name for path in files if "default_rng()" in path.read_text()] == []
