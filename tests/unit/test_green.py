"""The result of a test is kept while its inputs are the same, and only if it passed: a real pytest in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import identity
from tests.fixtures import green

PROJECT = green.PROJECT
IMAGE = "torch-2.13.0-cpu"
CONFTEST = (
    "from tests.fixtures.green import pytest_collection_modifyitems, pytest_runtest_makereport, pytest_runtest_setup\n"
)
TESTS = f"""
import os, pytest
pytestmark = [pytest.mark.keyed, pytest.mark.parametrize("image_name", ["{IMAGE}"])]
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
    markers = "markers =\n  keyed: keyed\n  slow: slow\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = --import-mode=importlib\n{markers}")
    (tmp_path / "contract" / "test_it.py").write_text(TESTS)
    return tmp_path


def run(tree: Path, **variables: str) -> tuple[dict[str, str], str]:
    """(test -> how it ended, what pytest printed)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLBENCH_")}
    environment |= {"PYTHONPATH": str(PROJECT), "XDG_CACHE_HOME": str(tree / "cache")} | variables
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "contract"]
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
def test_a_source_that_is_saved_after_the_tests_began_to_be_read_leaves_no_key(tree: Path) -> None:
    saves = "from pathlib import Path\nPath(__file__).with_name('test_it.py').touch()\ndef test_a(): pass\n"
    (tree / "contract" / "test_a.py").write_text(saves)
    run(tree)
    assert set(run(tree)[0].values()) == {"PASSED"}


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
def test_no_key_is_kept_if_a_source_was_edited_while_the_tests_ran(tree: Path) -> None:
    copy = tree / "project"
    for name in ("bench", "images", "runner", "reports", "tests/fixtures"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", PROJECT / name, copy / name], check=True)
    for name in ("pyproject.toml", "requirements-dev.lock", "tests/__init__.py"):
        (copy / name).write_bytes((PROJECT / name).read_bytes())
    edit = f"def test_edits(image_name): open({str(copy / 'bench' / 'rules.py')!r}, 'a').write('# more')\n"
    (tree / "contract" / "test_it.py").write_text(TESTS + edit)
    run(tree, PYTHONPATH=str(copy))
    assert len(list((tree / "cache" / "dlbench" / "green").iterdir())) == 4
    assert set(run(tree, PYTHONPATH=str(copy))[0].values()) == {"PASSED"}


def test_a_key_is_believed_for_thirty_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(green.VARIABLE, str(tmp_path / "green"))
    green.keep("older", "test")
    os.utime(tmp_path / "green" / "older", times=(0, 0))
    assert not green.is_known("older")
    green.keep("newer", "test")
    assert green.is_known("newer")
    assert [path.name for path in (tmp_path / "green").iterdir()] == ["newer"]


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
    files = inputs("tests/contract/test_every_framework.py")
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


def inputs(test: str, *fixtures: str) -> set[str]:
    files = green._files_of_test(PROJECT / test, frozenset(fixtures))
    return {path.relative_to(PROJECT).as_posix() for path in files}


def test_a_key_of_an_engine_test_is_of_the_programs_and_commands_that_it_starts_and_of_no_page() -> None:
    cells = inputs("tests/engine/test_docker.py", "start", "engine", "client")
    assert cells >= {"runner/engines/docker/engine.py", "tests/engine/conftest.py", ".ci/site-base", "Dockerfile.base"}
    assert not [name for name in cells if name.startswith(("runner/cli/", "runner/run/", "reports/"))]
    runs = inputs("tests/engine/test_gpus.py", "run", "own")
    assert runs >= {
        "tests/engine/tiny_runner.py",
        "tests/stand_ins/cell.c",
        "runner/__main__.py",
        "runner/cli/matrix.py",
        "runner/run/attempt.py",
        "runner/engines/process/keeper.py",
    }
    assert "runner/cli/nodes/agent.py" in inputs("tests/engine/test_nodes.py", "run")
    assert not [name for name in runs if name.startswith("reports/")]


def test_no_test_that_measures_time_or_draws_at_random_is_keyed_and_the_full_runs_ignore_keys() -> None:
    keyed = [path for path in (PROJECT / "tests").rglob("test_*.py") if "mark.keyed" in path.read_text()]
    keyed.remove(Path(__file__))
    folders = {
        name: [it for it in keyed if it.parts[-2] == name or name in it.parts]
        for name in ("contract", "engine", "unit")
    }
    assert min(map(len, folders.values())) > 5
    chance = re.compile("hypothesis|default_rng\\(\\)|monotonic|perf_counter|process_time|subprocess")
    assert [path for path in folders["unit"] if chance.search(path.read_text())] == []
    assert not [path for path in folders["contract"] if "mark.alone" in path.read_text()]
    # What runs alone there counts what is in the Docker Engine.
    assert not {"test_chaos.py", "test_harness_cost.py"} & {path.name for path in folders["engine"]}
    for name, test in (("test_docker", "starting_and_removing_a_cell_costs"), ("test_build", "a_second_build_takes")):
        assert f"@pytest.mark.keyed(False)\ndef test_{test}" in (PROJECT / f"tests/engine/{name}.py").read_text()
    recipe = (PROJECT / "Makefile").read_text().partition("\ntest-long:")[2].split("\n")[1]
    assert "DLBENCH_KEYS=ignore " in recipe
    assert ".ci/run test-long" in (PROJECT / ".github" / "workflows" / "thorough.yml").read_text()
