"""`runner images try`: what counts as ok, what the record keeps, and that the page says no more than the records."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from bench import identity
from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import CatalogError, Image, load_catalog
from runner.catalog.workloads import load_workloads
from runner.cli.images import try_
from runner.cli.main import app
from runner.engines import cell_cache, trial
from runner.engines.base import Engine, EngineError, Launch, ReadyImage, Running
from runner.engines.process.interpreters import Interpreter
from runner.engines.process.process import start_process
from runner.images import generated_files, tried
from runner.images.tried import AdapterCheck, Tried

DAY = date(2026, 11, 22)
CHECK = ("torch", "cnn-cifar10", "fp32")
GOOD = {"failed": [], "worst": 0.5, "compared": 68}


@pytest.fixture(scope="module")
def catalog() -> dict[str, Image]:
    return load_catalog()


class Scripted(Engine):
    """An engine whose images print what a test says: the processes are real."""

    name = "scripted"

    def __init__(self, script: str) -> None:
        self._script = script

    def start(self, launch: Launch) -> Running:
        listing = 'print(\'[{"framework": "torch", "version": "2.15.0+cu132"}]\')'
        script = listing if launch.arguments[0] == "frameworks" else self._script
        own = replace(launch.prepared, command=(sys.executable, "-c", script))
        return start_process(replace(launch, prepared=own, arguments=()))


@pytest.fixture
def outcome(catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AdapterCheck]:
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path)

    def of(script: str, limit: float = 30) -> AdapterCheck:
        prepared = ReadyImage(catalog["torch-2.15.0-cu132"], "", ())
        kept: list[Tried] = []
        done = trial.attempt(Scripted(script), "venv", prepared, [], [CHECK], limit, lambda _: None, kept.append)
        assert done.imported == {"torch": "2.15.0+cu132"}
        # What is interrupted later keeps this check.
        assert kept == [done]
        return done.checks[0]

    return of


def printing(verdict: Any) -> str:
    return f"print({json.dumps(verdict)!r})"


def test_a_check_is_ok_where_its_verdict_holds(outcome: Callable[..., AdapterCheck]) -> None:
    check = outcome(printing(GOOD))
    assert (check.outcome, check.worst, check.compared) == ("ok", 0.5, 68)
    assert check.adapter_sha256 == tried.adapter_sha256(*CHECK[:2])


@pytest.mark.parametrize(
    ("script", "expected", "reason"),
    [
        (printing(GOOD | {"failed": ["loss: 2 > 1"], "worst": 2.0}), "wrong", "loss: 2 > 1"),
        (printing(GOOD | {"worst": 1.5}), "wrong", "above its bound"),
        (printing(GOOD | {"worst": float("nan")}), "error", "printed nothing"),
        (printing(GOOD | {"worst": -1.0}), "error", "printed nothing"),
        (printing(GOOD | {"compared": 0}), "error", "printed nothing"),
        (printing([1]), "error", "printed nothing"),
        ("print('[' * 100000)", "error", "printed nothing"),
        ("print('x' * 2000000)", "error", ""),
        (f"{printing(GOOD)}; import os; os._exit(139)", "error", "exit code 139"),
        (printing(GOOD | {"failed": ["\x1b[31mloss\x1b[0m:\n2\x07"]}), "wrong", "loss: 2\u2407"),
        (
            "import os; os.write(2, b'ValueError: \\x1b[31mred\\x1b[0m \\x07\\n'); os._exit(1)",
            "error",
            "ValueError: red \u2407",
        ),
        ("raise SystemError('no such function')", "error", "no such function"),
        ("import sys; print('bench.errors.Unsupported: it has none', file=sys.stderr)", "unsupported", "it has none"),
        (
            "from bench.errors import BrokenImportError; raise BrokenImportError('bench/frameworks/x/y.py, line 3: no')",
            "error",
            "BrokenImportError: bench/frameworks/x/y.py, line 3: no",
        ),
    ],
)
def test_a_check_is_not_ok_without_a_verdict_that_holds(
    outcome: Callable[..., AdapterCheck], script: str, expected: str, reason: str
) -> None:
    check = outcome(script)
    assert check.outcome == expected
    assert reason in check.reason
    assert "\x1b" not in check.reason
    assert len(check.reason) <= 300


def test_a_check_that_takes_too_long_is_stopped(outcome: Callable[..., AdapterCheck]) -> None:
    check = outcome("import time; time.sleep(60)", limit=0.5)
    assert check.outcome == "unfinished"
    assert "0.5 seconds" in check.reason


@pytest.mark.parametrize("fields", [{}, {"worst": 0.5}, {"worst": 1.01, "compared": 3}, {"worst": None, "compared": 3}])
def test_a_record_cannot_say_ok_without_the_proof(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="ok"):
        AdapterCheck(framework="torch", workload="ops", precision="fp32", outcome="ok", date=DAY, **fields)


def test_a_lock_is_divided_without_losing_a_pin(catalog: dict[str, Image]) -> None:
    for image in catalog.values():
        text = image.lock_path.read_text(encoding="utf-8")
        without, only, left_out = trial.split_lock(text)
        assert sorted((without + only).splitlines()) == sorted(text.splitlines())
        assert only.count("==") == len(left_out)
        assert "nvidia-" not in without.replace("# ", "")
        assert f"{'jax' if 'jax' in image.frameworks else ''}==" in without or "jax" not in image.frameworks


def test_what_is_offered_is_what_the_plan_offers_on_a_cpu(catalog: dict[str, Image]) -> None:
    offered = tried.offered(catalog["torch-2.9.1-cu128"], load_frameworks(), load_workloads().values())
    assert CHECK in offered
    assert ("keras_torch", "gru-imdb", "fp32") in offered
    assert ("torch", "ops", "fp32") in offered
    assert not [check for check in offered if check[2] == "tf32"]
    # It computes another workload, with the same adapter.
    assert not [check for check in offered if check[1] == "densenet121-synthetic"]


def record(image: Image, **changes: Any) -> Tried:
    check = AdapterCheck(
        framework="torch", workload="ops", precision="fp32", outcome="ok", date=DAY, worst=0.25, compared=3
    )
    fields: dict[str, Any] = {
        "image": image.name,
        "lock_sha256": image.lock_sha256,
        "date": DAY,
        "python": "3.13",
        "engine": "venv",
        "imported": {"torch": "2.15.0"},
        "checks": (check,),
    }
    return Tried(**(fields | changes))


@pytest.fixture
def image(catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    monkeypatch.setattr(tried, "RECORDS", tmp_path / "tried")
    return catalog["torch-2.15.0-cu132"]


OFFERED = [("torch-2.15.0-cu132", "torch", "ops", "fp32"), ("torch-2.15.0-cu132", "torch", "gru-imdb", "fp32")]


def row(image: Image) -> str:
    return next(
        line
        for line in tried.page_text([image], OFFERED, lambda image, framework: "-").splitlines()
        if image.name in line
    )


def test_an_image_that_was_not_tried_has_a_row_that_says_so(image: Image) -> None:
    assert "| never |" in row(image)
    assert "nothing was tried" in row(image)


def test_a_row_names_what_is_ok_and_what_was_not_run(image: Image) -> None:
    tried.write_record(image, record(image))
    assert "ops fp32 0.25" in row(image)
    assert "not run: gru-imdb (fp32)" in row(image)
    assert "older lock" not in row(image)


def test_a_row_of_another_lock_is_shown_as_old(image: Image) -> None:
    tried.write_record(image, record(image, lock_sha256="0" * 64))
    assert "**with an older lock**" in row(image)


@pytest.mark.parametrize(
    ("digest", "mark"), [(None, ""), (tried.adapter_sha256("torch", "ops"), ""), ("0" * 64, " **of older code**")]
)
def test_a_check_of_adapters_that_were_edited_since_is_marked(image: Image, digest: str | None, mark: str) -> None:
    good = record(image).checks[0].model_copy(update={"adapter_sha256": digest})
    bad = good.model_copy(
        update={"workload": "gru-imdb", "outcome": "wrong", "reason": "loss", "adapter_sha256": "0" * 64}
    )
    tried.write_record(image, record(image, checks=(good, bad)))
    assert f"| ops fp32 0.25{mark} |" in row(image)
    assert "gru-imdb fp32: wrong **of older code**: loss" in row(image)


def test_what_an_image_does_not_compute_on_a_cpu_is_not_checked_there_and_a_check_of_it_has_the_cause(
    catalog: dict[str, Image], image: Image
) -> None:
    lacking = image.model_copy(update={"not_on_cpu": {"amp-fp16": "it adds up products in float16"}})
    frameworks, workloads = load_frameworks(), load_workloads().values()
    both, one = (tried.offered(each, frameworks, workloads) for each in (image, lacking))
    assert {check for check in both if check[2] == "amp-fp16"} == set(both) - set(one) != set()
    assert "skipped on a CPU" not in row(lacking)
    wrong = AdapterCheck(
        framework="torch", workload="gru-imdb", precision="amp-fp16", outcome="wrong", date=DAY, reason="loss: 2 > 1"
    )
    of_older_code = wrong.model_copy(update={"adapter_sha256": "0" * 64})
    tried.write_record(lacking, record(lacking, checks=(of_older_code,)))
    said = "gru-imdb amp-fp16 is skipped by the plan; the last check, of older code: wrong: loss: 2 \\> 1; amp-fp16 is skipped on"
    assert said in row(lacking)
    tried.write_record(lacking, record(lacking, checks=(wrong,)))
    said = "gru-imdb amp-fp16: wrong: loss: 2 \\> 1 (skipped by the plan); amp-fp16 is skipped on a CPU: it adds up products in float16"
    assert said in row(lacking)


def test_what_a_check_is_of_changes_with_its_framework_and_its_workload_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tmp_path / "bench"
    shutil.copytree(identity.FOLDER, bench, ignore=shutil.ignore_patterns("__pycache__"))
    own_files, own_digest = identity.adapter_files, identity.digest
    monkeypatch.setattr(identity, "adapter_files", lambda *names: own_files(*names, str(bench)))
    monkeypatch.setattr(identity, "digest", lambda paths: own_digest(paths, str(bench)))
    before = tried.adapter_sha256("torch", "ops")
    for path, differs in (
        ("timing.py", False),
        ("frameworks/jax/ops.py", False),
        ("workloads/gru-imdb.json", False),
        ("workloads/ops.json", True),
        ("frameworks/torch/ops.py", True),
        # It imports this one. That one is another workload's adapter, and the last is run by no check.
        ("frameworks/torch/_attention.py", True),
        ("frameworks/torch/gru_imdb.py", False),
        ("frameworks/torch/ceilings.py", False),
    ):
        text = (bench / path).read_bytes()
        (bench / path).write_bytes(text + b"\n")
        assert (tried.adapter_sha256("torch", "ops") != before) is differs, path
        (bench / path).write_bytes(text)
    (bench / "workloads" / "ops.64.learning.txt").write_text("1\n")
    assert tried.adapter_sha256("torch", "ops") == before


def test_checks_of_the_same_lock_and_engine_add_up_and_those_of_another_do_not(image: Image) -> None:
    tried.write_record(image, record(image))
    more = AdapterCheck(
        framework="torch", workload="gru-imdb", precision="fp32", outcome="wrong", date=DAY, reason="loss: 2 > 1"
    )
    tried.write_record(image, record(image, checks=(more,)))
    assert "ops fp32 0.25" in row(image)
    assert "gru-imdb fp32: wrong: loss: 2 \\> 1" in row(image)
    # The built image is another thing than an environment.
    tried.write_record(image, record(image, engine="docker", checks=(more,)))
    assert "ops fp32 0.25" not in row(image)
    tried.write_record(image, record(image))
    tried.write_record(image, record(image, lock_sha256="0" * 64, checks=(more,)))
    assert "ops fp32 0.25" not in row(image)


def test_only_a_check_of_this_lock_and_engine_and_of_these_adapters_is_not_missing(image: Image) -> None:
    now = record(image).checks[0]
    key = ("torch", "ops", "fp32")
    assert tried.recorded(image, "venv", None) == set()
    assert tried.recorded(image, "venv", record(image)) == {key}
    assert tried.recorded(image, "docker", record(image)) == set()
    assert tried.recorded(image, "venv", record(image, lock_sha256="0" * 64)) == set()
    for changes, expected in (
        ({"adapter_sha256": tried.adapter_sha256("torch", "ops")}, {key}),
        ({"adapter_sha256": "0" * 64}, set()),
        ({"outcome": "wrong", "reason": "loss: 2 > 1"}, {key}),
        ({"outcome": "unfinished", "reason": "it did not end within 9 seconds"}, set()),
    ):
        check = now.model_copy(update=changes)
        assert tried.recorded(image, "venv", record(image, checks=(check,))) == expected, changes


def test_what_an_environment_prints_is_a_text_in_the_page_and_nothing_more(image: Image) -> None:
    hostile = "a|b\n# head <script>`x` \u202e [l](http://x)"
    tried.write_record(image, record(image, imported={}, failed={"torch": hostile}, checks=()))
    assert "not imported: a\\|b # head \\<script\\>\\`x\\` \\[l\\](http://x)" in row(image)


def test_a_record_that_is_not_one_is_refused_with_its_path(image: Image) -> None:
    tried.record_path(image).parent.mkdir()
    tried.record_path(image).write_text('{"image": 3}')
    with pytest.raises(CatalogError, match=r"torch-2\.15\.0-cu132\.json: .*images try"):
        tried.read_record(image)


def test_the_page_has_a_row_of_each_framework_of_each_gpu_image_and_is_what_the_records_say(
    catalog: dict[str, Image],
) -> None:
    assert tried.PAGE not in [path for path, _ in generated_files.out_of_step(catalog.values())]
    rows = [line for line in tried.PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == sum(len(image.frameworks) for image in catalog.values() if image.accelerator == "cuda")
    for line in rows:
        assert all(cell.strip() for cell in line.split(" | ")[:5]), line


def test_the_driver_s_stand_ins_are_found_by_what_is_tried_and_stand_in_the_record(
    catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path)
    (tmp_path / "libcuda.so.1").touch()
    shown = "import os; raise SystemError(os.environ['LD_LIBRARY_PATH'])"
    prepared = ReadyImage(catalog["mxnet-1.9.1-cu117"], "", (sys.executable, "-c", shown))
    done = trial.attempt(trial.TrialEngine(tmp_path), "venv", prepared, [], [], 30, lambda _: None, lambda _: None)
    assert done.driver == ("libcuda.so.1",)
    assert done.failed["mxnet_gluon"] == f"SystemError: {tmp_path}"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["OSError: libcuda.so.1: cannot open shared object file: No such file or directory"], True),
        # CNTK's loader
        (
            ["ImportError: libnvidia-ml.so.1: cannot open shared object file: x", "ModuleNotFoundError: no _cntk_py"],
            True,
        ),
        (["W: dlerror: libcuda.so.1: cannot open shared object file: x", "ImportError: no protobuf"], False),
        (["OSError: libcudnn.so.8: cannot open shared object file: x"], False),
    ],
)
def test_an_import_that_needs_the_driver_is_told_from_a_broken_one(
    catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], expected: bool
) -> None:
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path)
    script = f"import sys; sys.exit({chr(10).join(lines)!r})"
    prepared = ReadyImage(catalog["mxnet-1.9.1-cu117"], "", (sys.executable, "-c", script))
    failed = trial.imports(trial.TrialEngine(), prepared, ["mxnet_gluon"])[1]["mxnet_gluon"]
    assert failed.startswith(tried.WITHOUT_DRIVER) is expected


def test_a_framework_whose_process_dies_after_its_version_is_not_imported(
    catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path)
    script = """print('[{"framework": "torch", "version": "2.15.0+cu132"}]', flush=True); import os; os.kill(os.getpid(), 11)"""
    prepared = ReadyImage(catalog["torch-2.15.0-cu132"], "", (sys.executable, "-c", script))
    versions, failed = trial.imports(trial.TrialEngine(), prepared, ["torch"])
    assert versions == {}
    assert "exit code 139" in failed["torch"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        (
            {"version": "2.14.1+cu132", "versions": {"framework": "2.14.1+cu132"}},
            "it reports torch 2.14.1+cu132, and torch-2.15.0-cu132 has 2.15.0",
        ),
        # TensorFlow 1.15 says no more than this.
        ({"versions": {"cuda": "13", "cudnn": "9"}}, None),
        ({"versions": {"cuda": "12", "cudnn": "9"}}, "it reports cuda 12, and torch-2.15.0-cu132 has 13.2.2"),
        (
            {"versions": {"cuda": "13.0", "cudnn": "9.26.0"}},
            "it reports cuda 13.0, and torch-2.15.0-cu132 has 13.2.2",
        ),
        (
            {"versions": {"cuda": "13.2", "cudnn": "none"}},
            "it reports cudnn none, and torch-2.15.0-cu132 has 9.26.0.51",
        ),
        ({"code_for": ["8.0", "12.0"]}, "it says min_compute_capability 8.0, and image.toml says 7.5"),
        ({"code_for": ["7.5", "9.0", "10.0"]}, "it says max_compute_capability 10.0, and image.toml says 12.0"),
        ({"framework": "jax"}, "it calls itself jax"),
    ],
)
def test_what_a_framework_says_of_itself_is_compared_with_image_toml(
    catalog: dict[str, Image],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, object],
    said: str | None,
) -> None:
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path)
    right = {
        "framework": "torch",
        "version": "2.15.0+cu132",
        "device_kinds": ["cpu", "cuda"],
        "versions": {"framework": "2.15.0+cu132", "cuda": "13.2", "cudnn": "9.26.0"},
        "code_for": ["7.5", "8.6", "12.0"],
    }
    script = f"print({json.dumps([right | changed])!r})"
    prepared = ReadyImage(catalog["torch-2.15.0-cu132"], "", (sys.executable, "-c", script))
    versions, failed = trial.imports(trial.TrialEngine(), prepared, ["torch"])
    if said is None:
        assert (versions, failed) == ({"torch": "2.15.0+cu132"}, {})
    else:
        assert versions == {}
        assert said in failed["torch"]


def run_try(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["images", "try", *arguments])


@pytest.fixture
def unprepared(image: Image, monkeypatch: pytest.MonkeyPatch) -> Image:
    def fails(*_: Any) -> Any:
        raise EngineError("no \x1b[31mnetwork\x07")

    monkeypatch.setattr(trial, "environment", fails)
    return image


def test_an_image_that_cannot_be_made_ready_keeps_its_record(unprepared: Image) -> None:
    path = tried.write_record(unprepared, record(unprepared))
    before = path.read_bytes()
    result = run_try(unprepared.name)
    assert result.exit_code == 4
    assert "no network\u2407" in result.output
    assert path.read_bytes() == before


def test_a_record_that_cannot_be_read_is_told_before_the_work_and_replaced_after_it(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tried.write_record(image, record(image))
    path.write_text(path.read_text().replace(image.lock_sha256, "zz"))
    said: list[str] = []
    monkeypatch.setattr(try_, "note", said.append)

    def attempted(*_: Any) -> Tried:
        assert "lock_sha256" in said[0]
        assert "checked before is lost" in said[0]
        return record(image)

    monkeypatch.setattr(try_, "_tried", attempted)
    assert run_try(image.name).exit_code == 0
    assert tried.read_record(image) == record(image)


@pytest.mark.parametrize(
    ("failed", "code"),
    [({"torch": f"{tried.WITHOUT_DRIVER}OSError: libcuda.so.1"}, 0), ({"torch": "OSError: libcudnn.so.8"}, 1)],
)
def test_only_a_framework_that_needs_the_driver_may_be_missing(
    image: Image, monkeypatch: pytest.MonkeyPatch, failed: dict[str, str], code: int
) -> None:
    """CI tries CUDA images on machines without NVIDIA's driver."""
    found = record(image, imported={}, failed=failed, checks=())
    monkeypatch.setattr(try_, "_tried", lambda *_: found)
    assert run_try(image.name).exit_code == code
    assert f"not imported: {failed['torch']}" in row(image)


def unfinished(outcome: str = "unfinished") -> AdapterCheck:
    """A check that proves nothing."""
    fields: dict[str, Any] = {"framework": "torch", "workload": "ops", "precision": "fp32", "date": DAY}
    return AdapterCheck(**fields, outcome=outcome, reason="it did not end within 300 seconds")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checks": (unfinished(), unfinished())}, "nothing was proved: no check ended within its limit"),
        ({"checks": (unfinished(), unfinished("unsupported"))}, "nothing was proved: no check is ok"),
        ({"checks": ()}, "nothing was proved: no check was run"),
        ({"checks": (), "imported": {}}, "nothing was proved: no check was run"),
    ],
)
def test_a_try_that_proved_nothing_ends_with_exit_code_1_and_says_so(
    image: Image, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(try_, "_tried", lambda *_: record(image, **changes))
    result = run_try(image.name)
    assert result.exit_code == 1
    assert f"{image.name}: {said}" in result.output


def test_one_check_that_is_ok_is_enough_beside_an_unfinished_one(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    found = record(image, checks=(*record(image).checks, unfinished().model_copy(update={"workload": "gru-imdb"})))
    monkeypatch.setattr(try_, "_tried", lambda *_: found)
    assert run_try(image.name).exit_code == 0


def test_an_image_for_a_cpu_is_not_excused_by_the_driver_that_it_asks_for(
    image: Image, catalog: dict[str, Image], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu = catalog["torch-2.13.0-cpu"]
    failed = {"torch": f"{tried.WITHOUT_DRIVER}libcuda.so.1: cannot open shared object file"}
    monkeypatch.setattr(try_, "_tried", lambda *_: record(cpu, imported={}, failed=failed, checks=()))
    result = run_try(cpu.name)
    assert result.exit_code == 1
    assert "torch is not imported: " in result.output
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path)
    script = "import sys; sys.exit('OSError: libcuda.so.1: cannot open shared object file: x')"
    prepared = ReadyImage(cpu, "", (sys.executable, "-c", script))
    why = trial.imports(trial.TrialEngine(), prepared, ["torch"])[1]["torch"]
    assert why == "OSError: libcuda.so.1: cannot open shared object file: x"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--workloads", "gru-imbd", "there is no 'gru-imbd' (did you mean 'gru-imdb'?); there is"),
        ("--precision", "banana", "there is no 'banana'; there is"),
        ("--limit", "inf", "inf is not a number of seconds"),
        ("--limit", "nan", "nan is not a number of seconds"),
        ("--limit", "0", "0 is not a number of seconds"),
    ],
)
def test_an_option_that_means_nothing_is_refused_before_the_work(
    unprepared: Image, option: str, value: str, said: str
) -> None:
    result = run_try(unprepared.name, option, value)
    assert result.exit_code == 2
    assert f"{option}: {said}" in result.output


@pytest.mark.parametrize(
    "error", [EngineError("no network"), OSError(28, "No space left on device"), KeyboardInterrupt()]
)
def test_an_environment_that_cannot_be_made_leaves_nothing(
    catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(trial.venv, "missing_programs", lambda _: None)
    monkeypatch.setattr(trial, "find_interpreter", lambda _: Interpreter(Path(sys.executable), "3.13.0"))

    class New:
        def __init__(self, image: Image, interpreter: Interpreter, folder: Path, say: Callable[[str], None]) -> None:
            (folder / "bin").mkdir(parents=True)

        def install(self, lock: Path) -> None:
            raise error

    monkeypatch.setattr(trial.venv, "NewEnvironment", New)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else EngineError):
        trial.environment(catalog["torch-2.15.0-cu132"], trial.TrialEngine(), lambda _: None)
    assert not [path for path in tmp_path.rglob("torch-*") if path.is_dir()]


def test_a_row_says_whose_cuda_it_was(image: Image) -> None:
    of_base = image.model_copy(update={"cuda_from": "base"})
    for libraries, words in (
        ((), "whole lock, without the base image's CUDA |"),
        (("libcuda.so.1",), "whole lock, without the base image's CUDA, beside a stand-in for the driver |"),
        (("libcudnn.so.8",), "whole lock, CUDA of NVIDIA's wheels in place of the base image's |"),
    ):
        tried.write_record(image, record(image, driver=libraries))
        assert words in row(of_base)


def test_a_try_without_the_driver_keeps_what_was_checked_beside_its_stand_in(image: Image) -> None:
    tried.write_record(image, record(image, driver=("libcuda.so.1",)))
    without = {"imported": {}, "checks": (), "failed": {"torch": f"{tried.WITHOUT_DRIVER}OSError: libcuda.so.1"}}
    tried.write_record(image, record(image, **without))
    assert tried.read_record(image) == record(image, driver=("libcuda.so.1",))
    # The built image is another thing than the environment.
    tried.write_record(image, record(image, **without, engine="docker"))
    assert "not imported: without NVIDIA's driver" in row(image)
    # It broke.
    tried.write_record(image, record(image, driver=("libcuda.so.1",)))
    tried.write_record(image, record(image, **without | {"failed": {"torch": "OSError: libcudnn.so.8"}}))
    assert "not imported: OSError: libcudnn.so.8" in row(image)
